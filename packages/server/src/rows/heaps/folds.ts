import type { Database, Queryable } from '../../postgres/database.js'
import { codeOf, isUndefinedTable, QUERY_CANCELED } from '../../postgres/failures.js'
import { sql } from '../../postgres/sql.js'
import type { Work } from '../../postgres/work.js'
import type { StoredTable } from '../columns/stored-schema.js'
import { BACKGROUND, needsFold, SOURCES_MAX } from '../layout/fold-policy.js'
import type { Layout } from '../layout/layout.js'
import { foldTable, LayeredError } from './build-fold.js'

/*
 * The queue of tables to fold. The background works it off; a branch that would become too deep does not wait for it.
 */

/** A fold that fails as often is given up. Reads work without it. */
const ATTEMPTS_MAX = 10

/**
 * Queues tables that a branch reads from many tiers. Called in the transaction that creates the own heaps
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
    insert into offshoot.work (kind, database_id, subject)
    select 'fold', ${layout.databaseId}::bigint, unnest(${deep.map(({ id }) => foldOf(layout, id))}::text[])`)
}

/**
 * Folds tables that have so many tiers that another one would be too many. Requests fold one at a time, because each
 * fold needs a connection of its own.
 */
export class DeepFolds {
  readonly #database: Database
  #last: Promise<unknown> = Promise.resolve()

  constructor(database: Database) {
    this.#database = database
  }

  async fold(layout: Layout, tables: readonly Pick<StoredTable, 'id'>[]): Promise<void> {
    for (const { id } of tables) {
      if (!needsFold(layout, id, { ...BACKGROUND, sourcesMax: SOURCES_MAX })) continue
      const fold = this.#last.then(() => {
        return foldTable(this.#database, { branchId: layout.branchId, tableId: id })
      })
      this.#last = fold.catch(() => undefined)
      await fold.catch((error: unknown) => {
        if (!isPassing(error)) throw error
      })
    }
  }
}

/** Names a table of a branch. */
const foldOf = ({ branchId }: Pick<Layout, 'branchId'>, tableId: number): string =>
  `${branchId} ${tableId}`

/** Folds a table of the queue. */
export async function foldNext(database: Database, { subject, failures }: Work): Promise<void> {
  const [branchId = '', tableId] = subject.split(' ')
  try {
    await foldTable(database, { branchId, tableId: Number(tableId) })
  } catch (error) {
    if (!isPassing(error) || failures < ATTEMPTS_MAX) throw error
  }
}

/** A schema edit has cancelled the fold, its tiers are gone or have a layer, or another process has built it. */
function isPassing(error: unknown): boolean {
  if (error instanceof LayeredError) return true
  const passing = [QUERY_CANCELED, '55P03', '23505', '40P01']
  return isUndefinedTable(error) || passing.includes(codeOf(error) ?? '')
}
