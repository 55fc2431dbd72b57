import type { Database, Queryable } from '../../postgres/database.js'
import { codeOf, isUndefinedTable, QUERY_CANCELED } from '../../postgres/failures.js'
import { sql } from '../../postgres/sql.js'
import { foldTable, OverlaidError } from './build-fold.js'
import { BACKGROUND, needsFold, SOURCES_MAX } from './fold-policy.js'
import type { Layout } from './layout.js'
import type { StoredTable } from './stored-schema.js'

/*
 * The queue of tables to fold. The background works it off; a branch that would become too deep does not wait for it.
 */

/** A fold that fails as often is given up. Reads work without it. */
const ATTEMPTS_MAX = 10

/**
 * Queues tables that a branch reads from many sources. Called in the transaction that creates the own heaps
 * of the branch.
 */
export async function requestFolds(
  transaction: Queryable,
  layout: Layout,
  tables: readonly Pick<StoredTable, 'id'>[],
): Promise<void> {
  const deep = tables.filter(({ id }) => needsFold(layout, id, BACKGROUND))
  if (deep.length === 0) return
  await transaction.query(sql`
    insert into offshoot.fold_work (branch_id, table_id)
    select ${layout.branchId}, unnest(${deep.map(({ id }) => id)}::bigint[])`)
}

/** Requests fold one at a time, because each fold needs a connection of its own. */
let lastFold: Promise<unknown> = Promise.resolve()

/** Folds tables that have so many sources that another one would be too many. */
export async function foldTooDeep(
  database: Database,
  layout: Layout,
  tables: readonly Pick<StoredTable, 'id'>[],
): Promise<void> {
  for (const { id } of tables) {
    if (!needsFold(layout, id, { ...BACKGROUND, sourcesMax: SOURCES_MAX })) continue
    const fold = lastFold.then(() => {
      return foldTable(database, { branchId: layout.branchId, tableId: id })
    })
    lastFold = fold.catch(() => undefined)
    await fold.catch((error: unknown) => {
      if (!isPassing(error)) throw error
    })
  }
}

/** Folds the first table in the queue. Returns whether there was one. */
export async function foldNext(database: Database): Promise<boolean> {
  const [work] = await database.query<{ id: string; branchId: string; tableId: string }>(sql`
    select id, branch_id as "branchId", table_id as "tableId"
    from offshoot.fold_work
    order by id
    limit 1`)
  if (work === undefined) return false
  try {
    await foldTable(database, { branchId: work.branchId, tableId: Number(work.tableId) })
    await database.query(sql`delete from offshoot.fold_work where id = ${work.id}`)
  } catch (error) {
    // To the end of the queue, so that it does not keep others waiting.
    await database.query(sql`
      with failed as (delete from offshoot.fold_work where id = ${work.id} returning *)
      insert into offshoot.fold_work (branch_id, table_id, attempts)
      select branch_id, table_id, attempts + 1 from failed where attempts < ${ATTEMPTS_MAX}`)
    if (!isPassing(error)) throw error
  }
  return true
}

/**
 * A schema edit has cancelled the fold, its sources are gone or have an overlay, or another process has built
 * it.
 */
function isPassing(error: unknown): boolean {
  if (error instanceof OverlaidError) return true
  const passing = [QUERY_CANCELED, '55P03', '23505', '40P01']
  return isUndefinedTable(error) || passing.includes(codeOf(error) ?? '')
}

/** Returns the number of tables in the queue. */
export async function countFoldWork(database: Queryable): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count from offshoot.fold_work`)
  return row?.count ?? 0
}
