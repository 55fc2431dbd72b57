import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { insertSweep } from '../../rows/branches.js'
import { deleteUnusedSchema } from '../schemas/queries.js'
import { insertCompaction } from './history/queries.js'

/*
 * A deleted branch is hidden at first. Its row stays as long as another branch inherits from it, or a
 * merge of it is part of the history of another branch: then a hidden fork, the base of that merge,
 * keeps the merged state.
 */

/**
 * Removes a branch that was just hidden, if nothing reads it. Otherwise compaction finds out whether
 * its history is still needed, and the collector takes what only the branch itself could read.
 */
export async function deleteHiddenBranch(
  transaction: Queryable,
  { branchId, databaseId }: { branchId: string; databaseId: string },
): Promise<void> {
  await deleteUnusedBranches(transaction, [branchId])
  await insertSweep(transaction, branchId)
  await insertCompaction(transaction, databaseId)
}

/** Removes hidden branches that nothing reads any more, and then those that they were the last readers of. */
export async function deleteUnusedBranches(
  transaction: Queryable,
  branchIds: readonly string[],
): Promise<void> {
  const waiting = [...branchIds]
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    waiting.push(...(await deleteUnusedBranch(transaction, id)))
  }
}

interface HiddenBranch {
  readonly parentId: string | null
  readonly schemaId: string
  readonly forkSchemaId: string | null
}

/** Returns the branches to look at next. */
async function deleteUnusedBranch(transaction: Queryable, branchId: string): Promise<string[]> {
  // Of two that remove the last readers of a branch, the second one sees what the first one did.
  const [branch] = await transaction.query<HiddenBranch>(sql`
    select parent_id as "parentId", schema_id as "schemaId", fork_schema_id as "forkSchemaId"
    from offshoot.branches
    where id = ${branchId} and deleted_at is not null
    for update`)
  if (branch === undefined || (await isUsed(transaction, branchId))) return []
  // Nothing reaches what was merged into it any more.
  const merged = await transaction.query<{ baseId: string }>(sql`
    delete from offshoot.merges
    where into_branch_id = ${branchId}
    returning base_branch_id as "baseId"`)
  await transaction.query(sql`delete from offshoot.branches where id = ${branchId}`)
  const { parentId, schemaId, forkSchemaId } = branch
  for (const id of new Set([schemaId, forkSchemaId])) {
    if (id !== null) await deleteUnusedSchema(transaction, id)
  }
  const bases = merged.map(({ baseId }) => baseId)
  if (parentId === null) return bases
  await insertSweep(transaction, parentId)
  return [parentId, ...bases]
}

async function isUsed(transaction: Queryable, branchId: string): Promise<boolean> {
  const [row] = await transaction.query<{ isUsed: boolean }>(sql`
    select
      exists (select from offshoot.branches f where f.parent_id = ${branchId})
      or exists (select from offshoot.merges m where m.base_branch_id = ${branchId}) as "isUsed"`)
  return row?.isUsed ?? false
}
