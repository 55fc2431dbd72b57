import { FOLD_KEY } from '../../postgres/advisory-keys.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { enterBesideBackups } from '../gates/gate.js'
import { inheritedTiers } from '../layout/fold-policy.js'
import { findLayout, type Layout, type Tier } from '../layout/layout.js'
import { type NewLayer, publishLayers } from './layers.js'

/** Others may lock the rows of branches. The fold is built again later, so it does not wait long. */
const PUBLISH_TIMEOUT_MS = 5_000

/**
 * Publishes a fold for all branches that inherit the state that it starts with, unless a reset has moved its tiers to
 * another branch meanwhile.
 */
export async function publishFold(
  connection: Queryable,
  fold: NewLayer,
  { layout: { branchId, databaseId }, folded }: { layout: Layout; folded: readonly Tier[] },
): Promise<boolean> {
  await connection.query(
    sql`select set_config('lock_timeout', ${String(PUBLISH_TIMEOUT_MS)}, true)`,
  )
  await enterBesideBackups(connection)
  await lockFolds(connection, databaseId)
  const layout = await findLayout(connection, branchId)
  const tiers = layout && inheritedTiers(layout, fold.tableId)
  const state = layout?.levels[1]
  const isSame =
    tiers !== undefined &&
    folded.every(({ heapId, asOf }, index) => {
      return tiers[index]?.heapId === heapId && tiers[index]?.asOf === asOf
    })
  if (!isSame || state?.asOf === undefined) return false
  const next = tiers[folded.length]
  await publishLayers(connection, [fold], {
    branchId: state.branchId,
    epoch: state.asOf,
    isLasting: false,
    nextBranchId: next?.branchId,
  })
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
