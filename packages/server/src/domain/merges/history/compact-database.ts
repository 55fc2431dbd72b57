import { newBranchId } from '../../../common/ids.js'
import { HISTORY_KEY } from '../../../postgres/advisory-keys.js'
import type { Database, Queryable } from '../../../postgres/database.js'
import { REPEATABLE_WORK, runTransaction } from '../../../postgres/run-transaction.js'
import { sql } from '../../../postgres/sql.js'
import { deleteUnusedBranches } from '../unused-branches.js'
import { compactHistory } from './compact-history.js'
import type { Merge } from './history.js'
import { findDatabaseHistory, type StoredMerge } from './queries.js'

/**
 * Excludes compaction until the transaction ends. A reset moves the history of a branch to another
 * branch. A compaction that has read the history before would add merges to the wrong branch.
 */
export async function lockHistory(transaction: Queryable, databaseId: string): Promise<void> {
  await transaction.query(sql`
    select pg_advisory_xact_lock(${HISTORY_KEY}::integer, hashint8(${databaseId}::bigint))`)
}

/**
 * Compacts the history of a database. Forks, merges and deletions may run concurrently: a state that no pair of branches
 * needs now is not needed by any pair after them either.
 */
export async function compactDatabase(database: Database, databaseId: string): Promise<void> {
  await runTransaction(
    database,
    async (transaction) => {
      await lockHistory(transaction, databaseId)
      await compact(transaction, databaseId)
    },
    // After waiting for a lock, each statement must see what was committed meanwhile.
    REPEATABLE_WORK,
  )
}

async function compact(transaction: Queryable, databaseId: string): Promise<void> {
  const history = await findDatabaseHistory(transaction, databaseId)
  if (history.merges.length === 0) return
  const { removed, added } = await compactHistory(history, history.heads)
  for (const merge of added) await insertReplacement(transaction, merge)
  if (removed.length === 0) return
  const gone = (removed as readonly StoredMerge[]).map(({ id }) => id)
  const deleted = await transaction.query<{ baseId: string }>(sql`
    delete from offshoot.merges
    where id = any(${gone}::bigint[])
    returning base_branch_id as "baseId"`)
  await deleteUnusedBranches(
    transaction,
    deleted.map(({ baseId }) => baseId),
  )
}

/** Inserts a merge of a state. The state must have a fork, from which its schema is copied. */
async function insertReplacement(transaction: Queryable, merge: Merge): Promise<void> {
  const { into, from, leftOut } = merge
  const baseId = newBranchId()
  const inserted = await transaction.query(sql`
    insert into offshoot.branches
      (id, database_id, name, schema_id, last_migration_id, parent_id, fork_epoch,
        fork_schema_id, deleted_at)
    select ${baseId}, database_id, name, fork_schema_id, last_migration_id, parent_id, fork_epoch,
      fork_schema_id, now()
    from offshoot.branches
    where parent_id = ${from.branchId} and fork_epoch = ${from.epoch} and fork_schema_id is not null
    order by id
    limit 1
    for key share
    returning id`)
  if (inserted.length === 0) throw new Error('a fork was deleted during the compaction')
  await transaction.query(sql`
    insert into offshoot.merges
      (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
    values (${into.branchId}, ${into.epoch}, ${from.branchId}, ${from.epoch}, ${baseId},
      ${leftOut}::bigint[])`)
}
