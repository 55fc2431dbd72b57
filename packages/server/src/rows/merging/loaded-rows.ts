import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { rowColumns } from '../heaps/heap-ddl.js'
import { dropNewLayers, keepNewHeap, listNewHeap } from '../heaps/layers.js'
import {
  type BranchRows,
  type HeapAddress,
  heapName,
  type Layer,
  layoutOf,
} from '../layout/layout.js'

/*
 * The records that a bulk load has inserted, as a table of tombstones. A state of the branch that reads this table first is
 * the state without these records. No branch reads it but the one that a revert compares. Until it is dropped, it is
 * listed like a layer that is not yet published. The times of a row are the period in which its record was created.
 */

/** How often a revert says that the table is in use. */
const SIGN_OF_LIFE_MS = 60_000

export class LoadedRows {
  readonly tableId: number
  readonly #database: Database
  readonly #table: HeapAddress
  readonly #life: NodeJS.Timeout

  private constructor(
    database: Database,
    { table, tableId }: { table: HeapAddress; tableId: number },
  ) {
    this.#database = database
    this.#table = table
    this.tableId = tableId
    const signLife = () => keepNewHeap(database, table).catch(() => undefined)
    this.#life = setInterval(signLife, SIGN_OF_LIFE_MS).unref()
  }

  static async create(
    database: Database,
    { databaseId, tableId }: { databaseId: string; tableId: number },
  ): Promise<LoadedRows> {
    const create = async (transaction: Queryable): Promise<HeapAddress> => {
      const table = { databaseId, heapId: await listNewHeap(transaction, databaseId) }
      await transaction.query(sql`
        create table ${heapName(table)} (${rowColumns()}, id text collate "C" primary key)`)
      return table
    }
    const table = await runTransaction(database, create, { isolation: 'read committed' })
    return new LoadedRows(database, { table, tableId })
  }

  /** The table. It has `id`, and the period in `created_at` and `updated_at`. */
  get name(): Sql {
    return heapName(this.#table)
  }

  /** Adds records that were created in a period. One that was loaded twice belongs to the later period. */
  async add({
    ids,
    from,
    until,
  }: {
    readonly ids: readonly string[]
    readonly from: Date
    readonly until: Date
  }): Promise<void> {
    await this.#database.query(sql`
      insert into ${this.name} (id, epoch, created_at, updated_at, deleted)
      select id, 0, ${from}::timestamptz, ${until}::timestamptz, true
      from unnest(${ids}::text[]) as g (id)
      on conflict (id) do update
      set created_at = excluded.created_at, updated_at = excluded.updated_at`)
  }

  /** Call it when all records were added. */
  async end(): Promise<void> {
    await this.#database.query(sql`analyze ${this.name}`)
  }

  /** Returns a state without the records. */
  removedFrom(rows: BranchRows): BranchRows {
    const layout = layoutOf(rows)
    const [next] = layout.levels
    if (next === undefined) throw new Error('a branch must have a level')
    const layer: Layer = {
      ...this.#table,
      columnIds: new Set(),
      nextBranchId: next.branchId,
      epoch: 0,
      latestFork: 0,
    }
    const level = {
      branchId: `loaded ${this.#table.heapId}`,
      asOf: undefined,
      heaps: new Map(),
      layers: new Map([[this.tableId, layer]]),
    }
    return { ...layout, levels: [level, ...layout.levels] } as BranchRows
  }

  async drop(): Promise<void> {
    clearInterval(this.#life)
    await dropNewLayers(this.#database, [this.#table])
  }
}
