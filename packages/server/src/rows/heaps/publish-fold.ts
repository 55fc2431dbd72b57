import { FOLD_KEY } from '../../postgres/advisory-keys.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { enterBesideBackups } from '../gates/gate.js'
import { inheritedSources } from '../layout/fold-policy.js'
import { findLayout, type Layout, type Source } from '../layout/layout.js'
import { renewReaders } from './renew-readers.js'

/** Others may lock the rows of branches. The fold is built again later, so it does not wait long. */
const PUBLISH_TIMEOUT_MS = 5_000

/**
 * Inserts the fold into the catalogue, unless a reset has moved its sources to another branch meanwhile. The
 * stamps of all branches that inherit the state change, so that they read the fold from now on.
 */
export async function publishFold(
  connection: Queryable,
  options: {
    layout: Layout
    tableId: number
    heapId: string
    folded: readonly Source[]
    columnIds: readonly number[]
    fileColumnIds: readonly number[]
  },
): Promise<boolean> {
  const { tableId, heapId, folded, columnIds, fileColumnIds } = options
  const { branchId, databaseId } = options.layout
  await connection.query(
    sql`select set_config('lock_timeout', ${String(PUBLISH_TIMEOUT_MS)}, true)`,
  )
  await enterBesideBackups(connection)
  await lockFolds(connection, databaseId)
  const layout = await findLayout(connection, branchId)
  const sources = layout && inheritedSources(layout, tableId)
  const state = layout?.levels[1]
  const isSame =
    sources !== undefined &&
    folded.every(({ heapId, asOf }, index) => {
      return sources[index]?.heapId === heapId && sources[index]?.asOf === asOf
    })
  if (!isSame || state?.asOf === undefined) return false
  const next = sources[folded.length]
  await connection.query(sql`
    insert into offshoot.heaps
      (id, database_id, branch_id, table_id, column_ids, file_column_ids, epoch, kind, next_branch_id)
    overriding system value
    values (${heapId}, ${databaseId}, ${state.branchId}, ${tableId}, ${columnIds}::bigint[],
      ${fileColumnIds}::bigint[], ${state.asOf}, 'fold', ${next?.branchId ?? null})`)
  const { branchId: stateId, asOf } = state
  await renewReaders(connection, { branchId: stateId, forks: sql`fork_epoch = ${asOf}` })
  // Deleted branches of the chain may have lost their last reader.
  const levels = layout?.levels.slice(1, next?.level) ?? []
  await connection.query(sql`
    insert into offshoot.work (kind, database_id, subject, details)
    select 'sweep', database_id, id, '[null]'
    from offshoot.branches
    where id = any(${levels.map((level) => level.branchId)}::text[]) and deleted_at is not null`)
  return true
}

/** Excludes others that publish folds of a database or move rows to another branch. */
export async function lockFolds(transaction: Queryable, databaseId: string): Promise<void> {
  await transaction.query(sql`
    select pg_advisory_xact_lock(${FOLD_KEY}::integer, hashint8(${databaseId}::bigint))`)
}
