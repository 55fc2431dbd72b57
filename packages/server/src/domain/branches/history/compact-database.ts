import { setImmediate } from 'node:timers/promises'
import { newBranchId } from '../../../common/ids.js'
import type { Database, Queryable } from '../../../postgres/database.js'
import { runTransaction } from '../../../postgres/run-transaction.js'
import { sql } from '../../../postgres/sql.js'
import { deleteUnusedBranches } from '../unused-branches.js'
import { compactHistory } from './compact-history.js'
import type { Merge } from './history.js'
import { findDatabaseHistory, type StoredMerge } from './queries.js'

/** First key of the advisory locks on the history of a database; the second one is its id. */
const HISTORY_LOCK = 6_001_005

/**
 * Keeps compaction away until the transaction ends: a reset gives the history of a branch to another
 * one, and a compaction that has read it before would add merges to the wrong branch.
 */
export async function lockHistory(transaction: Queryable, databaseId: string): Promise<void> {
  await transaction.query(sql`
    select pg_advisory_xact_lock(${HISTORY_LOCK}::integer, hashint8(${databaseId}::bigint))`)
}

/**
 * Compacts the history of one database that has changed. Says whether there was one. Forks, merges and
 * deletions may go on meanwhile: none of them makes a pair of branches need what no pair needs now.
 */
export async function compactDatabase(database: Database): Promise<boolean> {
  try {
    return await runTransaction(database, compactNext, {
      // Each statement must see what others have committed while this one waited for them.
      isolation: 'read committed',
    })
  } catch (error) {
    // The request is still there, and the next compaction reads the history anew.
    if (error instanceof HistoryChangedError) return true
    throw error
  }
}

/** A fork was deleted while the history was compacted. */
class HistoryChangedError extends Error {}

async function compactNext(transaction: Queryable): Promise<boolean> {
  const [request] = await transaction.query<{ databaseId: string }>(sql`
        select database_id as "databaseId"
        from offshoot.compactions
        order by id
        limit 1
        for update skip locked`)
  if (request === undefined) return false
  const { databaseId } = request
  await lockHistory(transaction, databaseId)
  // Whatever is asked for from here on gets a compaction of its own.
  await transaction.query(sql`
        delete from offshoot.compactions
        where id = any(array(
          select id from offshoot.compactions where database_id = ${databaseId} for update skip locked
        ))`)
  await compact(transaction, databaseId)
  return true
}

async function compact(transaction: Queryable, databaseId: string): Promise<void> {
  const history = await findDatabaseHistory(transaction, databaseId)
  if (history.merges.length === 0) return
  const { removed, added } = await compactHistory(history, history.heads, () => setImmediate())
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

/** A merge of a state that has a fork: its schema is known by that. */
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
  if (inserted.length === 0) throw new HistoryChangedError('a fork is gone')
  await transaction.query(sql`
    insert into offshoot.merges
      (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
    values (${into.branchId}, ${into.epoch}, ${from.branchId}, ${from.epoch}, ${baseId},
      ${leftOut}::bigint[])`)
}
