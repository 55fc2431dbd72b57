import type { Queryable } from '../postgres/database.js'
import type { Transaction } from '../postgres/run-transaction.js'
import { enclosingObjects, type TableCodec } from './columns/table-codec.js'
import {
  type BranchRows,
  findLayout,
  layoutOf,
  withColumns,
  withoutOwnRows,
  withoutRows,
} from './layout/layout.js'
import { listAllColumns, type StoredTable } from './layout/stored-schema.js'
import { mayDiffer } from './merging/changed-ids.js'
import { countChanges } from './merging/count-changed.js'
import type { MergeColumn, RowStrategy } from './merging/decide.js'
import { type MergeTally, mergeRows, type RowBase } from './merging/merge-rows.js'
import { getLayout } from './merging/merge-writer.js'

/*
 * Comparing and merging the rows of two branches. A merge of a table has four steps: find candidates
 * (changed-ids), compare them in three states (compare-rows), decide (decide), and write (merge-writer).
 */

export { areRelated, mayDiffer } from './merging/changed-ids.js'
export {
  type ComparedPage,
  type ComparedRow,
  changedColumns,
  listCompared,
  type RowTexts,
} from './merging/compare-rows.js'
export { type ChangeCounts, countChanges } from './merging/count-changed.js'
export type { RowConflict } from './merging/decide.js'
export type { MergeTally, RowBase } from './merging/merge-rows.js'
export { RefusedRowError } from './merging/merge-writer.js'

/** Finds the rows that a fork started with, even if the fork is hidden. */
export async function findStartRows(
  database: Queryable,
  branchId: string,
): Promise<BranchRows | undefined> {
  const layout = await findLayout(database, branchId, { hidden: true })
  return layout && withoutOwnRows(layout)
}

/** Returns the rows that a fork started with. */
export function startRows(rows: BranchRows): BranchRows {
  return withoutOwnRows(layoutOf(rows))
}

/** Returns a state in which every table is empty. */
export function noRows(rows: BranchRows): BranchRows {
  return withoutRows(layoutOf(rows))
}

/**
 * A branch at one moment, and the definition of the table in it. undefined: the branch does not have the
 * table.
 */
export interface TableState {
  readonly rows: BranchRows
  readonly table: StoredTable | undefined
}

/** The three sides of a merge, as rows of one table. */
export interface MergeSides {
  readonly base: RowBase
  readonly theirs: BranchRows
  readonly ours: BranchRows
}

export interface MergedTable {
  readonly tally: MergeTally
  readonly sides: MergeSides
}

/**
 * Applies the changes of theirs since the base to a table of the branch `into`, which must be locked. Returns
 * undefined if there cannot be any changes.
 */
export async function mergeTable(
  transaction: Transaction,
  options: {
    codec: TableCodec
    base: TableBase
    theirs: TableState & { readonly table: StoredTable }
    into: string
    strategy: RowStrategy
    dryRun: boolean
  },
): Promise<MergedTable | undefined> {
  const { codec, theirs, strategy, dryRun } = options
  const base = rowsOfBase(options.base)
  const canDiffer = base.states.some((state) => mayDiffer(state, theirs.rows, codec.table.id))
  if (!canDiffer) return undefined
  const ours = await getLayout(transaction, options.into)
  const sides = { base, theirs: rowsOfTable(theirs), ours }
  const columns = mergeColumns(codec, theirs.table)
  const tally = await mergeRows(transaction, { codec, columns, strategy, dryRun, ...sides })
  return { tally, sides }
}

/** The states that form the base of one table, and a function that merges their rows into one. */
export interface TableBase {
  readonly states: readonly TableState[]
  readonly rowOf: RowBase['rowOf']
}

/**
 * Counts the rows of a state that were inserted or updated since the base, in the columns of the codec.
 * With `values`, inserted rows count only if they have a value in one of the columns.
 */
export async function countWritten(
  transaction: Queryable,
  options: {
    codec: TableCodec
    base: TableBase
    state: TableState
    counts: 'records' | 'values'
  },
): Promise<number> {
  const { codec, base, state, counts } = options
  const { inserted, updated } = await countChanges(transaction, {
    codec,
    columns: new Set(codec.physical.keys()),
    base: rowsOfBase(base),
    after: rowsOfTable(state),
    inserted: counts === 'records' ? 'all' : 'withValues',
  })
  return inserted + updated
}

function rowsOfBase({ states, rowOf }: TableBase): RowBase {
  return { states: states.map(rowsOfTable), rowOf }
}

/** Returns the rows of a table, restricted to the columns that the state has. */
function rowsOfTable({ rows, table }: TableState): BranchRows {
  const layout = layoutOf(rows)
  return table === undefined ? withoutRows(layout) : withColumns(layout, columnIdsOf(table))
}

function columnIdsOf({ columns }: StoredTable): ReadonlySet<number> {
  return new Set(listAllColumns(columns).map(({ id }) => id))
}

function mergeColumns(codec: TableCodec, theirs: StoredTable): MergeColumn[] {
  const ids = columnIdsOf(theirs)
  return codec.physical.map(({ id }, index) => ({
    isTheirs: ids.has(id),
    objects: enclosingObjects(codec, index),
  }))
}
