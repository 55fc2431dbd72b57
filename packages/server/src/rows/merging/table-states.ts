import { haveSameForm } from '../columns/conversions.js'
import {
  listAllColumns,
  listOrigins,
  type StoredColumn,
  type StoredTable,
  storedIdsOf,
} from '../columns/stored-schema.js'
import { compileTable, type TableCodec, type TableCodecOptions } from '../columns/table-codec.js'
import {
  type BranchRows,
  layoutOf,
  withColumns,
  withoutRows,
  withReadColumns,
} from '../layout/layout.js'
import { fillValue } from '../reading/arms.js'
import { NO_COLUMN, type RowTexts } from './compare-rows.js'
import type { LoadedRows } from './loaded-rows.js'
import type { MergeColumn } from './stage-sql.js'

/** A branch at one moment, and the definition of a table in it. undefined: the branch does not have the table. */
export interface TableState {
  readonly rows: BranchRows
  readonly table: StoredTable | undefined
  /**
   * Ids of the columns that a state of a base has removed. Their values may still be stored, and are then those that
   * both sides had before the removal. They are needed if a side has kept such a column.
   */
  readonly removedIds?: readonly number[] | undefined
  /** The columns that are read in place of those of the merged table, by the ids of the latter. */
  readonly readAs?: ReadonlyMap<number, StoredColumn> | undefined
}

/** The states that form the base of one table, and a function that merges their rows into one. */
export interface TableBase {
  readonly states: readonly TableState[]
  rowOf(rows: readonly RowTexts[]): RowTexts
  /** The records of a bulk load. The base has those of them that are in its only state, and not yet changed there. */
  readonly loaded?: LoadedRows | undefined
}

/** The rows of a base: those of one state, or the result of merging the rows of several states. */
export interface RowBase {
  readonly states: readonly BranchRows[]
  rowOf(rows: readonly RowTexts[]): RowTexts
  readonly loaded?: LoadedRows | undefined
  /** The columns that theirs has with another type, and the rows of a single state, as theirs has converted them. */
  readonly converted?: { readonly codec: TableCodec; readonly rows: BranchRows } | undefined
}

/** Returns the state of a base that is not virtual. */
export function singleState({ states }: RowBase): BranchRows | undefined {
  return states.length === 1 ? states[0] : undefined
}

/** Returns the rows of a table, restricted to the columns that the state has. */
export function rowsOfTable({ rows, table }: TableState): BranchRows {
  const layout = layoutOf(rows)
  if (table === undefined) return withoutRows(layout)
  return withColumns(layout, { tableId: table.id, columnIds: storedIdsOf(table) })
}

function columnIdsOf(table: StoredTable | undefined): ReadonlySet<number> {
  return new Set(listAllColumns(table?.columns ?? []).map(({ id }) => id))
}

/** Returns the column of a table that is the given one, or that it was made of. */
export function findEarlier(
  table: StoredTable | undefined,
  column: StoredColumn,
): StoredColumn | undefined {
  const ids = [column, ...listOrigins(column)].map(({ id }) => id)
  return listAllColumns(table?.columns ?? []).find(({ id }) => ids.includes(id))
}

/** Returns the rows of a base in the columns of a codec, also in those that a state of it has removed. */
export function rowsOfBase(base: TableBase, codec: TableCodec, options?: ConvertedBase): RowBase {
  const { columns } = codec.table
  const rowsOf = ({ rows, table, removedIds }: TableState) => {
    const removed = columns.filter(({ id }) => removedIds?.includes(id))
    return rowsOfTable({
      rows,
      table: table && { ...table, columns: [...table.columns, ...removed] },
    })
  }
  const { loaded } = base
  const converted = options && convertedState(base, codec, options)
  return {
    states: base.states.map(rowsOf),
    rowOf: rowOfMarked(base, codec),
    loaded,
    converted: converted && { codec: converted.codec, rows: rowsOf(converted.state) },
  }
}

/** The side that may have columns with another type than the merged ones. */
interface ConvertedBase {
  readonly theirs: TableState
  readonly form: TableCodecOptions
}

/** Returns the only state of a base, and the columns that theirs has with another type, as theirs reads them. */
function convertedState(
  { states, loaded }: TableBase,
  { table: { id, name, columns } }: TableCodec,
  { theirs, form }: ConvertedBase,
): { codec: TableCodec; state: TableState } | undefined {
  const [only] = states
  const converted = [...(theirs.readAs ?? [])].filter(([columnId]) =>
    columns.some((column) => column.id === columnId && isOfOtherType(column, theirs)),
  )
  if (only === undefined || states.length > 1 || loaded || converted.length === 0) return undefined
  const own = converted.map(([columnId, column]) => ({ ...column, id: columnId }))
  const readAs = new Map([...(only.readAs ?? []), ...converted])
  return {
    codec: compileTable({ id, name, columns: own }, form).stored,
    state: { ...only, rows: withReadColumns(layoutOf(only.rows), new Map([[id, readAs]])) },
  }
}

/** Returns a function that merges rows of the states of a base, in which columns that a state never had are marked. */
function rowOfMarked({ states, rowOf }: TableBase, { physical }: TableCodec): RowBase['rowOf'] {
  const missing = states.map(({ table, removedIds = [] }) => {
    const known = new Set([...columnIdsOf(table), ...removedIds])
    return new Set(physical.flatMap(({ id }, index) => (known.has(id) ? [] : [index])))
  })
  if (states.length === 1 || missing.every(({ size }) => size === 0)) return rowOf
  const mark = (row: RowTexts, state: number): RowTexts =>
    row?.map((text, index) => (missing[state]?.has(index) ? NO_COLUMN : text))
  return (rows) => rowOf(rows.map(mark))?.map((text) => (text === NO_COLUMN ? null : text))
}

/** Returns the columns that a base has removed and the target gets back. */
function restoredColumns(
  { table }: TableCodec,
  { base, ours }: Pick<TableSides, 'base' | 'ours'>,
): StoredColumn[] {
  const removed = new Set(base.states.flatMap(({ removedIds }) => removedIds ?? []))
  return table.columns.filter(
    (column) => removed.has(column.id) && findEarlier(ours.table, column) === undefined,
  )
}

/**
 * Returns the rows of a target, restricted to the columns that it has or gets back. Rows that are not written then read
 * what is stored of the latter, or of the columns that they were made of.
 */
export function rowsOfTarget(
  codec: TableCodec,
  { base, ours }: Pick<TableSides, 'base' | 'ours'>,
): BranchRows {
  const { rows, table } = ours
  const restored = restoredColumns(codec, { base, ours })
  return rowsOfTable({
    rows,
    table: table && { ...table, columns: [...table.columns, ...restored] },
  })
}

/** The states of a table that a merge compares. */
export interface TableSides {
  readonly base: TableBase
  readonly theirs: TableState
  readonly ours: TableState
}

/** Returns whether theirs has a column with another type than the merged one. */
function isOfOtherType(column: StoredColumn, { readAs }: TableState): boolean {
  const there = readAs?.get(column.id)
  return there !== undefined && !haveSameForm(there, column)
}

/**
 * Returns whether theirs has changed the type of a column since the base, and changed it back: rows that it has not written
 * may have got another value. If the target keeps another type, what the change made of the values is not merged.
 */
function isReread(column: StoredColumn, { base, theirs }: Pick<TableSides, 'base' | 'theirs'>) {
  const there = theirs.readAs?.get(column.id)
  if (isOfOtherType(column, theirs)) return false
  return base.states.some(({ table, readAs }) => {
    const before = readAs?.get(column.id)
    return findEarlier(table, column) !== undefined && before?.id !== there?.id
  })
}

/** Returns the properties of the columns of a merged table. */
export function mergeColumns(codec: TableCodec, { base, theirs, ours }: TableSides): MergeColumn[] {
  const restored = columnIdsOf({ ...codec.table, columns: restoredColumns(codec, { base, ours }) })
  return codec.physical.map(({ id, column }, index) => ({
    isTheirs: findEarlier(theirs.table, column) !== undefined,
    // Both sides have changed the time of a change if both have changed the row, which is no conflict.
    isOurs: findEarlier(ours.table, column) !== undefined && column.generate !== 'updatedAt',
    restored: restored.has(id)
      ? { fill: fillValue(column), isConverted: column.from !== undefined }
      : undefined,
    isReread: isReread(column, { base, theirs }),
    isOfOtherType: isOfOtherType(column, theirs),
    objects: codec.enclosingObjects(index),
    type: column.type,
  }))
}
