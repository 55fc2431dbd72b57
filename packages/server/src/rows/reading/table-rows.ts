import { ident, type Sql, sql } from '../../postgres/sql.js'
import type { Slot } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, type Layout, layoutOf, tiersOf } from '../layout/layout.js'
import {
  type Arm,
  type JoinOptions,
  joinArms,
  listArms,
  listScannedArms,
  selectNoRows,
  splitLevels,
  type VisibleArm,
  visibleArms,
} from './arms.js'
import { selectJsonRows } from './json-rows.js'
import { estimateTexts } from './text-statistics.js'

/** A record in a statement: its alias, and its columns as expressions. */
export interface PlanRoot {
  readonly alias: Sql
  column(index: number): Sql
}

/** Returns the record that has the given alias. */
export function recordAs(codec: TableCodec, alias: Sql): PlanRoot {
  return {
    alias,
    column: (index) => sql`${alias}.${ident(codec.physical[index]?.physicalName ?? '')}`,
  }
}

/** The rows of a table on a branch, as statements read them. */
export class TableRows {
  readonly #codec: TableCodec
  readonly #layout: Layout
  /** Every query needs them, and a layout never changes. */
  #known: readonly Arm[] | undefined

  constructor(rows: BranchRows, codec: TableCodec) {
    this.#codec = codec
    this.#layout = layoutOf(rows)
  }

  get #arms(): readonly Arm[] {
    this.#known ??= listArms(this.#layout, this.#codec.table.id)
    return this.#known
  }

  /** The ids of the heaps that rows come from. */
  get heapIds(): readonly string[] {
    return tiersOf(this.#layout, this.#codec.table.id).map(({ heapId }) => heapId)
  }

  /** The number of tables of PostgreSQL that rows come from. 0: nothing was ever written. */
  get armCount(): number {
    return this.#arms.length
  }

  /** The number of physical tables in a query for all rows. Each arm also searches the nearer arms. */
  get scanCount(): number {
    const { near, far } = splitLevels(this.#arms.map(({ level }) => level))
    const nearScans = near.map((level) => 1 + near.filter((other) => other < level).length)
    const farScans = far.length === 0 ? 0 : far.length + near.length
    return nearScans.reduce((sum, scans) => sum + scans, farScans)
  }

  /** Whether the nearest arm is a layer over a heap, which may hide most rows of that heap. */
  get isLayered(): boolean {
    const [nearest] = tiersOf(this.#layout, this.#codec.table.id)
    return nearest?.kind === 'layer' && !Number.isInteger(nearest.level)
  }

  /** Lists the tables that rows come from. Together they contain each visible row once. */
  arms(alias: Sql): VisibleArm[] {
    return visibleArms(listScannedArms(this.#arms, this.#codec), this.#codec, alias)
  }

  /** Returns the record that has the given alias. */
  record(alias: Sql): PlanRoot {
    return recordAs(this.#codec, alias)
  }

  /**
   * Returns a join with the visible record of an id. `columns` are the indexes of the needed columns; by
   * default all.
   */
  join(options: JoinOptions): Sql {
    return joinArms(this.#arms, this.#codec, options)
  }

  /** Returns a relation with the columns of the table and without rows. */
  selectNone(): Sql {
    return selectNoRows(this.#codec)
  }

  /**
   * Returns records that are not stored, as rows of the table, with their `position` from 1. `records` is JSON: for each
   * record, a list of its id and the texts of its physical columns.
   */
  selectJson(records: Slot): Sql {
    return selectJsonRows(this.#codec, records)
  }

  /** Returns a query for estimates: the number of rows, and the average length of columns. */
  estimateTexts(options: { columns: readonly number[]; add(text: string): Slot }): Sql {
    const tables = this.#arms.map(({ table }) => table)
    const { databaseId } = this.#layout
    return estimateTexts(this.#codec, { ...options, databaseId, tables })
  }
}
