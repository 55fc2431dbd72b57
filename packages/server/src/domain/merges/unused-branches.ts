import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { isPinOf } from '../checkpoints/queries.js'
import { deleteUnusedSchema } from '../schemas/queries.js'
import { insertUnusedMigration } from '../schemas/unused-migrations.js'

/*
 * Deleting a branch only hides it at first. Its row stays while another branch inherits from it, or
 * while a checkpoint or a recorded merge refers to it: each merge has a base, a hidden fork of the merged branch, that
 * keeps the merged state readable.
 */

/**
 * Deletes the rows of hidden branches that no other branch reads, and then of the hidden branches that
 * lost their last reader by it.
 */
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
  readonly databaseId: string
  readonly lastMigrationId: string
  readonly parentId: string | null
  readonly forkEpoch: number | null
  readonly schemaId: string
  readonly forkSchemaId: string | null
}

/** Deletes the row of one branch, if it is unused. Returns the branches that lost a reader. */
async function deleteUnusedBranch(transaction: Queryable, branchId: string): Promise<string[]> {
  // The row lock serializes transactions that delete the last readers of the same branch, so that the
  // second one sees the effect of the first.
  const [branch] = await transaction.query<HiddenBranch>(
    prepared(sql`
    select database_id as "databaseId", last_migration_id as "lastMigrationId", parent_id as "parentId", fork_epoch as "forkEpoch", schema_id as "schemaId", fork_schema_id as "forkSchemaId"
    from offshoot.branches
    where id = ${branchId} and deleted_at is not null
    for update`),
  )
  if (branch === undefined || (await isUsed(transaction, branchId))) return []
  // Merges into this branch are no longer part of the history of any branch.
  const merged = await transaction.query<{ baseId: string }>(sql`
    delete from offshoot.merges
    where into_branch_id = ${branchId}
    returning base_branch_id as "baseId"`)
  const { databaseId, parentId, forkEpoch, schemaId, forkSchemaId } = branch
  await new StoredBranch(transaction, branchId).delete(databaseId)
  await insertUnusedMigration(transaction, { databaseId, migrationId: branch.lastMigrationId })
  for (const id of new Set([schemaId, forkSchemaId])) {
    if (id !== null) await deleteUnusedSchema(transaction, id)
  }
  const bases = merged.map(({ baseId }) => baseId)
  if (parentId === null) return bases
  await transaction.query(StoredBranch.sweepSql({ databaseId, branchId: parentId, forkEpoch }))
  return [parentId, ...bases]
}

async function isUsed(transaction: Queryable, branchId: string): Promise<boolean> {
  // The latest fork is the end of an index. To look for any fork, PostgreSQL reads all branches if many have one parent.
  const [row] = await transaction.query<{ isUsed: boolean }>(
    prepared(sql`
    select
      (select max(f.fork_epoch) from offshoot.branches f where f.parent_id = ${branchId}) is not null
      or exists (select from offshoot.merges m where m.base_branch_id = ${branchId})
      or ${isPinOf(branchId)} as "isUsed"`),
  )
  return row?.isUsed ?? false
}
