import type { ColumnProblem } from '@offshoot/contract/column-problems'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../postgres/database.js'
import type { Transaction } from '../postgres/run-transaction.js'
import { empty, ident, join, type Sql, sql } from '../postgres/sql.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredTable,
  storedIdsOf,
} from './columns/stored-schema.js'
import { compileTable } from './columns/table-codec.js'
import {
  type AlteredColumn,
  type ChangedIds,
  findColumnProblems,
  findIdProblems,
  type MergedStates,
} from './heaps/column-problems.js'
import {
  applySchemaChanges,
  checkRows,
  divideChanges,
  findChangeProblems,
  readsAllRows,
  type SchemaChanges,
  writesAllRows,
} from './heaps/schema-changes.js'
import { findGreatest } from './heaps/start-sequence.js'
import { sizeTables } from './layout/heap-sizes.js'
import {
  type BranchRows,
  type Layout,
  type LevelRow,
  layoutOf,
  layoutSql,
  ownRows,
  type ReadIds,
  type Tier,
  tiersOf,
  toLayout,
  withColumns,
  withIds,
  withoutOwnRows,
  withReadColumns,
} from './layout/layout.js'
import { continueSequences } from './layout/sequences.js'
import { selectVisible } from './reading/arms.js'

/** The rows or bytes that a branch stores itself, and those that it inherits. */
interface Amounts {
  readonly owned: number
  readonly inherited: number
}

/** The rows of a branch in one state: what they come from, and what they amount to. */
export class RowState {
  readonly #layout: Layout

  constructor(rows: BranchRows) {
    this.#layout = layoutOf(rows)
  }

  /**
   * A subquery that finds the rows of a branch together with other things. `read` takes its result. With `hidden`, the
   * branch may be hidden.
   */
  static readonly select: (branchId: Sql, options?: { hidden?: boolean }) => Sql = layoutSql

  static read(found: unknown): BranchRows | undefined {
    return toLayout((found ?? []) as readonly LevelRow[])
  }

  /** The rows that a fork started with. */
  get start(): BranchRows {
    return withoutOwnRows(this.#layout)
  }

  /** The state of another branch that a fork started with. undefined: the branch is no fork. */
  get startPoint(): { readonly branchId: string; readonly epoch: number } | undefined {
    const parent = this.#layout.levels[1]
    if (parent?.asOf === undefined) return undefined
    return { branchId: parent.branchId, epoch: parent.asOf }
  }

  /**
   * Returns rows whose tables and columns are read by other ids than those of their branch. With `storedIds`, they are read
   * by those first, and `readIds` is about the outcome.
   */
  readBy(readIds: ReadIds, storedIds?: ReadIds): BranchRows {
    const ids = storedIds === undefined ? readIds : joinIds(storedIds, readIds)
    return ids.tables.size + ids.columns.size === 0 ? this.#layout : withIds(this.#layout, ids)
  }

  /** Returns rows in which columns of the state are read in place of others, with their values converted. */
  readColumns(columns: Parameters<typeof withReadColumns>[1]): BranchRows {
    return columns.size === 0 ? this.#layout : withReadColumns(this.#layout, columns)
  }

  /** Returns the rows of a table, restricted to the columns that it has and those that these were made of. */
  ofTable(table: StoredTable): BranchRows {
    return withColumns(this.#layout, { tableId: table.id, columnIds: storedIdsOf(table) })
  }

  /** Returns whether the state has a branch in common with another one. */
  isRelatedTo(other: BranchRows): boolean {
    const branches = new Set(this.#layout.levels.map((level) => level.branchId))
    return layoutOf(other).levels.some((level) => branches.has(level.branchId))
  }

  /** Returns the size of a table. Counts every row. */
  async measureTable(
    transaction: Queryable,
    { table, limits }: { table: StoredTable; limits: Limits },
  ): Promise<{ rows: Amounts; bytes: Amounts }> {
    return {
      rows: await countRows(transaction, this.#layout, { table, limits }),
      bytes: await countBytes(transaction, this.#layout, table),
    }
  }

  /**
   * Counts the rows of a table, and for each of the given columns the rows that have a value in it or in a column nested in
   * it. Looks at no more than `rowsMax` rows.
   */
  async countValues(
    transaction: Queryable,
    options: {
      table: StoredTable
      columns: readonly StoredColumn[]
      limits: Limits
      rowsMax: number
    },
  ): Promise<{ rows: number; values: number[] }> {
    const { table, columns, limits, rowsMax } = options
    const codec = compileTable({ ...table, columns }, { limits, jsonAsText: false })
    const counts = columns.map(
      (column, index) => sql`, ${countOf(column)} as ${ident(`column${index}`)}`,
    )
    const [row = {}] = await transaction.query<Record<string, number>>(sql`
      select count(*)::integer as rows${join([empty, ...counts], '')}
      from (select * from (${selectVisible(this.#layout, codec)}) v limit ${rowsMax}) seen`)
    return {
      rows: row.rows ?? 0,
      values: columns.map((_, index) => row[`column${index}`] ?? 0),
    }
  }

  /** Finds the records that do not allow a change of a column. Reads all records of the table, if any rule is new. */
  findProblems(
    transaction: Queryable,
    change: AlteredColumn & { limits: Limits; merged?: MergedStates | undefined },
  ): Promise<ColumnProblem[]> {
    return findColumnProblems(transaction, { rows: this.#layout }, change)
  }

  /** Finds the records that do not allow schema changes to change columns. */
  findChangeProblems(transaction: Queryable, changes: SchemaChanges): Promise<ColumnProblem[]> {
    return findChangeProblems(transaction, this.#layout, changes)
  }

  /** Finds the records that do not allow ids of another size. */
  findIdProblems(
    transaction: Queryable,
    change: ChangedIds & { limits: Limits; merged?: MergedStates | undefined },
  ): Promise<ColumnProblem[]> {
    return findIdProblems(transaction, { rows: this.#layout }, change)
  }

  /**
   * Returns whether more rows of a table have to be looked at before schema changes than a locked branch allows. Changes that
   * write all rows lock the branch in any case.
   */
  async isLargeCheck(
    transaction: Queryable,
    { changes, limits }: Pick<SchemaChanges, 'changes' | 'limits'>,
  ): Promise<boolean> {
    if (changes.some(writesAllRows)) return false
    const read = changes.filter((change) => readsAllRows(change, limits))
    const max = limits.ruleLockedRowsMax
    for (const table of new Map(read.map(({ table }) => [table.id, table])).values()) {
      const counted = { table, columns: [], limits, rowsMax: max + 1 }
      if ((await this.countValues(transaction, counted)).rows > max) return true
    }
    return false
  }

  /** Throws if the rows do not allow schema changes. Changes nothing but where sequences go on. */
  check(transaction: Transaction, changes: SchemaChanges): Promise<void> {
    return checkRows(transaction, this.#layout, changes)
  }

  /** Divides the changes of a merge into those before its rows are written, and those after it. */
  static readonly divideChanges = divideChanges

  /** Applies schema changes to the heaps of the branch. Requires the exclusive gate, and the present state. */
  change(transaction: Transaction, changes: SchemaChanges): Promise<void> {
    return applySchemaChanges(transaction, this.#layout, changes)
  }

  /** Returns the greatest number of a column after which its sequence goes on. 0: there is none. */
  findGreatest(
    transaction: Queryable,
    options: { table: StoredTable; column: StoredColumn; limits: Limits },
  ): Promise<number> {
    return findGreatest(transaction, { rows: this.#layout }, options)
  }

  /** Joins sequences of the database, or lets one go on after a number. */
  continueSequences(
    transaction: Transaction,
    sequences: Parameters<typeof continueSequences>[1]['sequences'],
  ): Promise<void> {
    return continueSequences(transaction, { databaseId: this.#layout.databaseId, sequences })
  }
}

/** Joins two steps of reading by other ids: `second` is about the ids that `first` leads to. */
function joinIds(first: ReadIds, second: ReadIds): ReadIds {
  const tables = new Map(second.tables)
  for (const [stored, read] of first.tables) {
    tables.delete(read)
    tables.set(stored, second.tables.get(read) ?? read)
  }
  const columns = new Map(
    [...second.columns].map(([read, stored]) => [read, first.columns.get(stored.id) ?? stored]),
  )
  const renamed = new Set([...second.columns.values()].map(({ id }) => id))
  for (const [read, stored] of first.columns) if (!renamed.has(read)) columns.set(read, stored)
  return { tables, columns }
}

async function countRows(
  transaction: Queryable,
  layout: Layout,
  { table, limits }: { table: StoredTable; limits: Limits },
): Promise<Amounts> {
  const codec = compileTable(table, { limits, jsonAsText: false }).stored
  const [own, inherited] = [
    selectVisible(ownRows(layout), codec),
    selectVisible(layout, codec, { isInherited: true }),
  ]
  const [row] = await transaction.query<Amounts>(sql`
    select
      (select count(*)::integer from (${own}) o) as owned,
      (select count(*)::integer from (${inherited}) i) as inherited`)
  return row ?? { owned: 0, inherited: 0 }
}

async function countBytes(
  transaction: Queryable,
  layout: Layout,
  table: StoredTable,
): Promise<Amounts> {
  const tiers = tiersOf(layout, table.id)
  const sizeOf = async (isCounted: (tier: Tier) => boolean): Promise<number> => {
    const names = tiers
      .filter(isCounted)
      .flatMap(({ heapId }) => [`heap_${heapId}`, `past_${heapId}`])
    return sizeTables(transaction, { databaseId: layout.databaseId, names })
  }
  return {
    owned: await sizeOf(({ level }) => level <= 0),
    inherited: await sizeOf(({ level }) => level > 0),
  }
}

function countOf(column: StoredColumn): Sql {
  const names = listAllColumns([column]).map(({ id }) => ident(`c${id}`))
  return sql`(count(*) filter (where num_nonnulls(${join(names, ', ')}) > 0))::integer`
}
