import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { deleteUnusedSchema } from '../schemas/queries.js'
import { deleteMergesOf, deleteOutdatedMerges, isReader } from './merge-base.js'
import { insertSweep } from './queries.js'

/**
 * Removes a branch that was just hidden, if nothing reads it. It may have become the base of a merge,
 * which keeps what it was forked from readable; then the collector takes what it has written itself.
 */
export async function deleteHiddenBranch(transaction: Queryable, branchId: string): Promise<void> {
  await deleteUnusedBranches(transaction, branchId)
  await insertSweep(transaction, branchId)
}

/** Removes a hidden branch if nothing reads it any more, and then those that it was the last reader of. */
export async function deleteUnusedBranches(
  transaction: Queryable,
  branchId: string,
): Promise<void> {
  const waiting = [branchId]
  for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
    waiting.push(...(await deleteUnusedBranch(transaction, id)))
  }
}

interface HiddenBranch {
  readonly parentId: string | null
  readonly schemaId: string
  readonly forkSchemaId: string | null
}

/** Says which branches to look at next. */
async function deleteUnusedBranch(transaction: Queryable, branchId: string): Promise<string[]> {
  // Of two that remove the last readers of a branch, the second one sees what the first one did.
  const [branch] = await transaction.query<HiddenBranch>(sql`
    select parent_id as "parentId", schema_id as "schemaId", fork_schema_id as "forkSchemaId"
    from offshoot.branches
    where id = ${branchId} and deleted_at is not null
    for update`)
  if (branch === undefined || (await hasReaders(transaction, branchId))) return []
  const bases = await deleteMergesOf(transaction, branchId)
  if (bases.length > 0) return [...bases, branchId]
  const deleted = await transaction.query(sql`
    delete from offshoot.branches b
    where b.id = ${branchId}
      and not exists (select from offshoot.branches f where f.parent_id = b.id)
      and not exists (select from offshoot.merges m where m.base_branch_id = b.id)
    returning id`)
  const { parentId, schemaId, forkSchemaId } = branch
  const next = parentId === null ? [] : [parentId]
  // As the base of a merge it stays, but it reads nothing for anyone any more.
  if (deleted.length === 0) return next
  for (const id of new Set([schemaId, forkSchemaId])) {
    if (id !== null) await deleteUnusedSchema(transaction, id)
  }
  if (parentId === null) return next
  await insertSweep(transaction, parentId)
  await deleteOutdatedMerges(transaction, parentId)
  return next
}

async function hasReaders(transaction: Queryable, branchId: string): Promise<boolean> {
  const rows = await transaction.query(sql`
    select
    from offshoot.branches f
    where f.parent_id = ${branchId}
      and ${isReader(sql`f`)}
    limit 1`)
  return rows.length > 0
}
