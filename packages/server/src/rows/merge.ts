import type { Queryable } from '../postgres/database.js'
import type { Transaction } from '../postgres/run-transaction.js'
import { join, sql } from '../postgres/sql.js'
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
import { changedIds, mayDiffer } from './merging/changed-ids.js'
import {
  findMissingValues,
  findUniqueClashes,
  type MissingValues,
  type UniqueClash,
} from './merging/check-stage.js'
import { countChanges, hasChangedRow } from './merging/count-changed.js'
import type { MergeColumn, RowConflict, RowStrategy } from './merging/decide.js'
import {
  countStaged,
  listConflicts,
  type MergeTally,
  type RowBase,
  type RowMerge,
  restageRows,
  type Stage,
  type StagedRows,
  stageRows,
} from './merging/stage.js'

/*
 * Comparing and merging the rows of two branches. A merge of a table has four steps: find candidates
 * (changed-ids), compare them in three states and stage the decisions (stage), check the outcome (check-stage),
 * and write it (publish-stage).
 */

export { areRelated, mayDiffer } from './merging/changed-ids.js'
export type { MissingValues, UniqueClash } from './merging/check-stage.js'
export {
  type ComparedPage,
  type ComparedRow,
  changedColumns,
  listCompared,
  type RowTexts,
} from './merging/compare-rows.js'
export { type ChangeCounts, countChanges } from './merging/count-changed.js'
export type { RowConflict } from './merging/decide.js'
export { publishRows } from './merging/publish-stage.js'
export {
  createStage,
  dropLostStages,
  dropStage,
  type MergeTally,
  type RowBase,
  type Stage,
  sharedStage,
  TEMPORARY_STAGE,
} from './merging/stage.js'

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

/** The staged rows of a table, and what they were compared with. */
export interface StagedTable {
  readonly staged: StagedRows
  readonly merge: RowMerge
  readonly tally: MergeTally
  /** The first conflicts of rows. */
  readonly conflicts: readonly RowConflict[]
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

/**
 * Compares the rows of a table in three states, and stages the changes of theirs since the base. Returns
 * undefined if there cannot be any changes. `createStage` must have been called in the transaction.
 */
export async function stageTable(
  transaction: Transaction,
  options: {
    codec: TableCodec
    base: TableBase
    theirs: TableState & { readonly table: StoredTable }
    ours: TableState
    strategy: RowStrategy
    stage: Stage
  },
): Promise<StagedTable | undefined> {
  const { codec, theirs, strategy, stage } = options
  const base = rowsOfBase(options.base)
  const canDiffer = base.states.some((state) => mayDiffer(state, theirs.rows, codec.table.id))
  if (!canDiffer) return undefined
  const sides = { base, theirs: rowsOfTable(theirs), ours: rowsOfTable(options.ours) }
  const columns = mergeColumns(codec, theirs.table)
  const merge = { codec, columns, strategy, ...sides }
  const staged = await stageRows(transaction, stage, merge)
  const tally = await countStaged(transaction, staged)
  const conflicts = tally.conflictCount === 0 ? [] : await listConflicts(transaction, staged)
  return { staged, merge, tally, conflicts }
}

/**
 * Decides again about staged rows that the target has changed since they were staged. Returns the table as it
 * is staged now, or undefined if it must be staged anew.
 */
export async function restageTable(
  transaction: Transaction,
  table: StagedTable,
  ours: TableState,
): Promise<StagedTable | undefined> {
  const { staged, merge } = table
  const now = { ...merge, ours: rowsOfTable(ours) }
  const count = await restageRows(transaction, staged, { ...now, oursBefore: merge.ours })
  if (count === undefined) return undefined
  if (count === 0) return table
  return { ...table, merge: now, tally: await countStaged(transaction, staged) }
}

/** Returns whether a state has more than `limit` rows of a table that may have changed since the base. */
export async function hasManyChanges(
  transaction: Queryable,
  options: {
    base: TableBase
    state: TableState & { readonly table: StoredTable }
    limit: number
  },
): Promise<boolean> {
  const { base, state, limit } = options
  const { id } = state.table
  const [after, { states }] = [rowsOfTable(state), rowsOfBase(base)]
  const changed = states.filter((before) => mayDiffer(before, after, id))
  if (changed.length === 0) return false
  const ids = changed.map((before) => sql`(${changedIds(before, after, id)} limit ${limit + 1})`)
  const [row] = await transaction.query<{ count: number }>(sql`
    select count(*)::integer as count from (${join(ids, ' union ')}) c`)
  return (row?.count ?? 0) > limit
}

/** Returns whether a row of a table has changed since the base. */
export function hasChanges(
  transaction: Queryable,
  { codec, base, state }: { codec: TableCodec; base: TableBase; state: TableState },
): Promise<boolean> {
  return hasChangedRow(transaction, {
    codec,
    columns: new Set(codec.physical.keys()),
    base: rowsOfBase(base),
    after: rowsOfTable(state),
  })
}

/** Finds the violations of unique and not-null columns that a table would have after the merge. */
export async function checkTable(
  transaction: Transaction,
  options: { codec: TableCodec; ours: TableState; staged: StagedRows | undefined },
): Promise<{ clashes: { count: number; listed: UniqueClash[] }; missing: MissingValues[] }> {
  const { codec, staged } = options
  const outcome = { codec, staged, ours: rowsOfTable(options.ours) }
  const known = options.ours.table === undefined ? new Set() : columnIdsOf(options.ours.table)
  const added = new Set(codec.physical.flatMap(({ id }) => (known.has(id) ? [] : [id])))
  return {
    clashes: await findUniqueClashes(transaction, outcome),
    missing: await findMissingValues(transaction, { ...outcome, added }),
  }
}

/** Returns the rows of a table, restricted to the columns that the state has. */
function rowsOfTable({ rows, table }: TableState): BranchRows {
  const layout = layoutOf(rows)
  if (table === undefined) return withoutRows(layout)
  return withColumns(layout, { tableId: table.id, columnIds: columnIdsOf(table) })
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
