import type { Database, Queryable } from '../postgres/database.js'
import type { Transaction } from '../postgres/run-transaction.js'
import { join, type Sql, sql } from '../postgres/sql.js'
import { enclosingObjects, type TableCodec, type TableCodecOptions } from './columns/table-codec.js'
import {
  type BranchRows,
  findLayout,
  layoutOf,
  ownHeap,
  ownOverlay,
  type ReadIds,
  withColumns,
  withIds,
  withoutOwnRows,
  withoutRows,
} from './layout/layout.js'
import { refillSpares } from './layout/spare-heaps.js'
import { listAllColumns, type StoredTable } from './layout/stored-schema.js'
import { addsOwnHeap, changedIds, mayDiffer, repeatedIds } from './merging/changed-ids.js'
import {
  findMissingValues,
  findRuleBreakers,
  findUniqueClashes,
  type MissingValues,
  type UniqueClash,
} from './merging/check-stage.js'
import { NO_COLUMN, type RowTexts } from './merging/compare-rows.js'
import {
  countChanges,
  digestWritten,
  hasChangedRow,
  hasWrittenRow,
} from './merging/count-changed.js'
import { type ForwardTable, forwardRows, isContested } from './merging/forward.js'
import { amendOverlay, buildOverlay, type StagedOverlay } from './merging/publish-overlay.js'
import type { ReviewedSides } from './merging/review-tokens.js'
import { type RowResolution, type RowStrategy, settleRest, settleRows } from './merging/settle.js'
import {
  addUnchanged,
  countStaged,
  type MergeTally,
  mapTally,
  type RowBase,
  type RowMerge,
  restageRows,
  type Stage,
  type StagedRows,
  settledRows,
  stageNothing,
  stageRows,
} from './merging/stage.js'
import type { MergeColumn } from './merging/stage-sql.js'

/*
 * Comparing and merging the rows of two branches. A merge of a table has four steps: find candidates
 * (changed-ids), compare them in three states and stage the decisions (stage), check the outcome (check-stage),
 * and write it (publish-stage).
 */

export { boundOwnRows } from './layout/heap-sizes.js'
export { analyzeGrownHeaps } from './layout/heap-statistics.js'
export type { ReadIds, StoredAs } from './layout/layout.js'
export { areRelated, mayDiffer } from './merging/changed-ids.js'
export type { MissingValues, UniqueClash } from './merging/check-stage.js'
export {
  type ComparedPage,
  type ComparedRow,
  changedColumns,
  listCompared,
  NO_COLUMN,
  type RowTexts,
  UNDECIDED,
} from './merging/compare-rows.js'
export { type ChangeCounts, countChanges } from './merging/count-changed.js'
export {
  dropStagedOverlays,
  isPinOf,
  publishOverlays,
  type StagedOverlay,
} from './merging/publish-overlay.js'
export { publishRows } from './merging/publish-stage.js'
export {
  type RecordToken,
  type ReviewedSides,
  readConflictsToken,
  readTokens,
} from './merging/review-tokens.js'
export type { RowResolution, RowTake } from './merging/settle.js'
export {
  areRowsLost,
  createStage,
  dropLostStages,
  dropStage,
  findConflicts,
  listConflicts,
  type MergeTally,
  type RowBase,
  type RowConflict,
  type Stage,
  sharedStage,
  temporaryStage,
} from './merging/stage.js'
export { isWrittenBetween } from './merging/written-between.js'

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

/** A state of a branch at the end of an epoch. */
export interface StartPoint {
  readonly branchId: string
  readonly epoch: number
}

/** Returns the state of another branch that a fork started with. undefined: the branch is no fork. */
export function startPoint(rows: BranchRows): StartPoint | undefined {
  const parent = layoutOf(rows).levels[1]
  if (parent?.asOf === undefined) return undefined
  return { branchId: parent.branchId, epoch: parent.asOf }
}

/** Returns rows whose tables and columns are read by other ids than those of their branch. */
export function readByIds(rows: BranchRows, ids: ReadIds): BranchRows {
  return ids.tables.size + ids.columns.size === 0 ? rows : withIds(layoutOf(rows), ids)
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
  /** Ids of the rows that were decided one by one. */
  readonly resolved: readonly string[]
  /** The number of conflicts that the strategy has decided. */
  readonly decidedByStrategy: number
  /** Whether the strategy is a decision about the conflicts that were there, and not about whatever comes. */
  readonly isReviewed: boolean
}

/** A table in a state that belongs to a base. */
interface BaseState extends TableState {
  /**
   * Ids of the columns that the state has removed. Their values may still be stored, and are then those that
   * both sides had before the removal. They are needed if a side has kept such a column.
   */
  readonly removedIds?: readonly number[] | undefined
}

/** The states that form the base of one table, and a function that merges their rows into one. */
export interface TableBase {
  readonly states: readonly BaseState[]
  readonly rowOf: RowBase['rowOf']
}

/**
 * Counts the rows of a state that were inserted or updated since the base, in the columns of the codec. `digest` is
 * that of their values. With `values`, inserted rows count only if they have a value in one of the columns.
 */
export async function countWritten(
  transaction: Queryable,
  options: {
    codec: TableCodec
    base: TableBase
    state: TableState
    counts: 'records' | 'values'
  },
): Promise<{ written: number; deleted: number; digest: string }> {
  const { codec, base, state, counts } = options
  const compared = {
    codec,
    columns: new Set(codec.physical.keys()),
    base: rowsOfBase(base, codec),
    after: rowsOfTable(state),
    inserted: counts === 'records' ? 'all' : 'withValues',
  } as const
  const { inserted, updated, deleted } = await countChanges(transaction, compared)
  const written = inserted + updated
  return {
    written,
    deleted,
    digest: written === 0 ? '' : await digestWritten(transaction, compared),
  }
}

/**
 * Returns whether a row was inserted or updated between two states, each of which may be virtual, in the columns of
 * the codec. With `values`, inserted rows count only if they have a value in one of the columns.
 */
export function isWrittenSince(
  transaction: Queryable,
  options: {
    codec: TableCodec
    base: TableBase
    later: TableBase
    counts: 'records' | 'values'
  },
): Promise<boolean> {
  const { codec, base, later, counts } = options
  return hasWrittenRow(transaction, {
    codec,
    columns: new Set(codec.physical.keys()),
    base: rowsOfBase(base, codec),
    after: rowsOfBase(later, codec),
    inserted: counts === 'records' ? 'all' : 'withValues',
  })
}

function rowsOfBase(base: TableBase, codec: TableCodec): RowBase {
  const { states } = base
  const { columns } = codec.table
  const rowsOf = ({ rows, table, removedIds }: BaseState) => {
    const removed = columns.filter(({ id }) => removedIds?.includes(id))
    return rowsOfTable({
      rows,
      table: table && { ...table, columns: [...table.columns, ...removed] },
    })
  }
  return { states: states.map(rowsOf), rowOf: rowOfMarked(base, codec) }
}

/** Returns a function that merges rows of the states of a base, in which columns that a state never had are marked. */
function rowOfMarked({ states, rowOf }: TableBase, { physical }: TableCodec): RowBase['rowOf'] {
  const missing = states.map(({ table, removedIds = [] }) => {
    const known = new Set([
      ...listAllColumns(table?.columns ?? []).map(({ id }) => id),
      ...removedIds,
    ])
    return new Set(physical.flatMap(({ id }, index) => (known.has(id) ? [] : [index])))
  })
  if (states.length === 1 || missing.every(({ size }) => size === 0)) return rowOf
  const mark = (row: RowTexts, state: number): RowTexts =>
    row?.map((text, index) => (missing[state]?.has(index) ? NO_COLUMN : text))
  return (rows) => rowOf(rows.map(mark))?.map((text) => (text === NO_COLUMN ? null : text))
}

/** The decisions of a request about the rows of a table. */
export interface RowDecisions {
  readonly rows: readonly RowResolution[]
  /** Decides the conflicts that are left, instead of the strategy of the merge. */
  readonly rest: RowStrategy | undefined
}

/** Returns the decisions about rows of a table, after looking at the staged rows. */
type ResolveRows = (staged: StagedRows, tally: MergeTally) => Promise<RowDecisions>

const UNDECIDED_ROWS: RowDecisions = { rows: [], rest: undefined }

/**
 * Compares the rows of a table in three states, and stages the changes of theirs since the base. Then conflicts
 * are decided one by one by `resolve`, and the others by the strategy. Returns undefined if there cannot be any
 * changes. `createStage` must have been called in the transaction.
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
    resolve?: ResolveRows | undefined
  },
): Promise<StagedTable | undefined> {
  const { codec, theirs, stage, resolve } = options
  const base = rowsOfBase(options.base, codec)
  const columns = mergeColumns(codec, options)
  const canDiffer =
    base.states.some((state) => mayDiffer(state, theirs.rows, codec.table.id)) ||
    columns.some(({ isRestored }) => isRestored)
  if (!canDiffer) return undefined
  const sides = { base, theirs: rowsOfTable(theirs), ours: rowsOfTable(options.ours) }
  const compared = { codec, columns, strategy: options.strategy, ...sides }
  const { staged, tally } = await stageRows(transaction, stage, compared)
  const decided = (await resolve?.(staged, tally)) ?? UNDECIDED_ROWS
  const { rest: strategy = options.strategy } = decided
  const isSettled = decided.rows.length > 0 || (strategy !== 'fail' && tally.conflictCount > 0)
  const rows = settledRows(staged, sides.ours)
  await settleRows(transaction, rows, decided.rows)
  return {
    staged,
    merge: { ...compared, strategy },
    resolved: decided.rows.map(({ id }) => id),
    isReviewed: decided.rest !== undefined,
    decidedByStrategy:
      isSettled && strategy !== 'fail' ? await settleRest(transaction, rows, strategy) : 0,
    tally: isSettled ? await countStaged(transaction, staged) : tally,
  }
}

/** A table of a merge whose rows may be written without staging them. */
export interface UnstagedTable {
  readonly codec: TableCodec
  readonly base: TableState
  readonly theirs: TableState
  readonly ours: TableState
}

/**
 * Merges the rows of tables that have the same columns in all three states. Returns undefined, and has no effect, if
 * the target may have changed one of the rows: they then have to be staged.
 */
export async function forwardTables(
  transaction: Transaction,
  tables: readonly UnstagedTable[],
  target: BranchRows,
): Promise<{ readonly codec: TableCodec; readonly tally: MergeTally }[] | undefined> {
  const changed = tables.flatMap(({ codec, base, theirs, ours }): ForwardTable[] => {
    const [before, after] = [rowsOfTable(base), rowsOfTable(theirs)]
    if (!mayDiffer(before, after, codec.table.id)) return []
    return [{ codec, base: before, theirs: after, ours: rowsOfTable(ours) }]
  })
  for (const table of changed) {
    if (await isContested(transaction, table)) return undefined
  }
  const tallies = await forwardRows(transaction, changed, layoutOf(target))
  return changed.map(({ codec }, index) => ({ codec, tally: tallies[index] as MergeTally }))
}

/**
 * Creates spare heaps for tables of a target that a merge has written to for the first time. Does not wait for it. `ours`
 * is the target before the merge.
 */
export function refillTarget(
  database: Database,
  ours: BranchRows,
  tables: readonly StoredTable[],
): void {
  const layout = layoutOf(ours)
  const opened = tables.filter(({ id }) => ownHeap(layout, id) === undefined)
  refillSpares(database, { databaseId: layout.databaseId, tables: opened })
}

/** Stages a table that theirs has not changed, so that rows of the target can be decided. */
export async function stageUnchanged(
  transaction: Transaction,
  options: { codec: TableCodec; ours: TableState; stage: Stage },
): Promise<StagedTable> {
  const { codec, stage } = options
  const ours = rowsOfTable(options.ours)
  const staged = await stageNothing(transaction, stage, codec)
  const base = { states: [ours], rowOf: ([row]: readonly RowTexts[]) => row }
  return {
    staged,
    merge: { codec, columns: [], strategy: 'fail', base, theirs: ours, ours },
    resolved: [],
    isReviewed: false,
    decidedByStrategy: 0,
    tally: await countStaged(transaction, staged),
  }
}

/** Gives staged rows, and other rows of the target, values in single columns. */
export async function amendTable(
  transaction: Transaction,
  table: StagedTable,
  resolutions: readonly RowResolution[],
): Promise<StagedTable> {
  const { merge, resolved } = table
  const ids = resolutions.map(({ id }) => id)
  const staged = await addUnchanged(transaction, table.staged, ids)
  await settleRows(transaction, settledRows(staged, merge.ours), resolutions)
  return {
    ...table,
    staged,
    resolved: [...resolved, ...ids],
    tally: await countStaged(transaction, staged),
  }
}

/** A table whose staged rows are those of a locked target. */
export interface RestagedTable extends StagedTable {
  /** The rows that were decided again, until the transaction ends. undefined: there are none. */
  readonly since: Sql | undefined
  /** The rows of the target that were compared first. */
  readonly oursBefore: BranchRows
}

/**
 * Decides again about staged rows that the target has changed since they were staged. Returns undefined if the
 * table must be staged anew.
 */
export async function restageTable(
  transaction: Transaction,
  table: StagedTable,
  ours: TableState,
): Promise<RestagedTable | undefined> {
  const { staged, merge, tally, resolved, isReviewed } = table
  const now = { ...merge, ours: rowsOfTable(ours) }
  const oursBefore = merge.ours
  const change = { codec: staged.codec, before: oursBefore, after: now.ours }
  if (resolved.length > 0 && (await hasChangedIds(transaction, change, resolved))) return undefined
  const restaged = await restageRows(transaction, staged, { ...now, oursBefore })
  if (restaged === undefined) return undefined
  const { since, before, after } = restaged
  // Whether these rows are those that were reviewed is known when everything is compared again.
  if (isReviewed && since !== undefined) return undefined
  return {
    ...table,
    merge: now,
    tally: mapTally((count) => tally[count] - before[count] + after[count]),
    since,
    oursBefore,
  }
}

/** Writes the staged outcome for a table to an overlay of the hidden branch `owner`. */
export function stageOverlay(
  transaction: Queryable,
  { staged, merge: { ours } }: StagedTable,
  owner: { branchId: string; databaseId: string },
): Promise<StagedOverlay> {
  return buildOverlay(transaction, { staged, ours }, owner)
}

/** Brings a staged overlay up to date. Returns false if a unique value was taken meanwhile. */
export function restageOverlay(
  transaction: Queryable,
  overlay: StagedOverlay,
  { staged, merge: { ours }, oursBefore, since }: RestagedTable,
): Promise<boolean> {
  return amendOverlay(transaction, overlay, { staged, ours, oursBefore, since })
}

/** Returns whether a table of a branch has an overlay. */
export function isOverlaid(rows: BranchRows, tableId: number): boolean {
  return ownOverlay(layoutOf(rows), tableId) !== undefined
}

/** Returns whether one of the given rows may differ between two states. */
async function hasChangedIds(
  transaction: Queryable,
  change: { codec: TableCodec; before: BranchRows; after: BranchRows },
  ids: readonly string[],
): Promise<boolean> {
  const { codec, before, after } = change
  const { id: tableId } = codec.table
  if (!mayDiffer(before, after, tableId)) return false
  const rows = await transaction.query(sql`
    select c.id from (${changedIds(before, after, tableId)}) c
    where c.id = any(${ids}::text[])
    limit 1`)
  return rows.length > 0
}

/** A table in a later state, and its base. */
export interface ComparedTable {
  readonly base: TableBase
  readonly state: TableState & { readonly table: StoredTable }
}

/** Tables whose rows are counted by one statement. */
const COUNTED_TABLES = 50

/** Returns whether more rows of tables than `limit` may have changed since the base. Reads few more rows than that. */
export async function hasManyCandidates(
  transaction: Queryable,
  tables: readonly ComparedTable[],
  limit: number,
): Promise<boolean> {
  // A row that was changed is in the heap and in the past, so its id is found twice.
  const read = 2 * limit + 1
  const queries = tables.flatMap((table) => {
    const ids = statesThatDiffer(table).map((states) => repeatedIds(...states))
    return ids.map((repeated) => sql`(${repeated} limit ${read})`)
  })
  let total = 0
  for (let start = 0; start < queries.length && total <= limit; start += COUNTED_TABLES) {
    const some = queries.slice(start, start + COUNTED_TABLES)
    const counts = some.map(
      (ids) => sql`
      select count(*)::integer as found, count(distinct id)::integer as count from (${ids}) c`,
    )
    const rows = await transaction.query<{ found: number; count: number }>(
      join(counts, ' union all '),
    )
    for (const { found, count } of rows) total += found === read ? limit + 1 : count
  }
  return total > limit
}

/** Returns whether all rows that may have changed since the base are in heaps of the branch itself. */
export function areCandidatesOwn(tables: readonly ComparedTable[]): boolean {
  return tables.every(
    (table) =>
      table.base.states.length === 1 &&
      statesThatDiffer(table).every((states) => addsOwnHeap(...states)),
  )
}

/** Lists the pairs of a state of the base and the later state between which rows of the table may differ. */
function statesThatDiffer({
  base,
  state,
}: ComparedTable): [before: BranchRows, after: BranchRows, tableId: number][] {
  const { id } = state.table
  const after = rowsOfTable(state)
  return base.states.flatMap((before) => {
    const rows = rowsOfTable(before)
    return mayDiffer(rows, after, id) ? [[rows, after, id]] : []
  })
}

/** Returns whether a row of a table has changed since the base. */
export async function hasChanges(
  transaction: Queryable,
  { codec, base, state }: ComparedTable & { codec: TableCodec },
): Promise<boolean> {
  if (statesThatDiffer({ base, state }).length === 0) return false
  return hasChangedRow(transaction, {
    codec,
    columns: new Set(codec.physical.keys()),
    base: rowsOfBase(base, codec),
    after: rowsOfTable(state),
  })
}

/** The outcome of a merge for one table: the rows of the target, with the staged changes applied. */
interface TableOutcome {
  readonly codec: TableCodec
  readonly ours: TableState
  readonly staged: StagedRows | undefined
}

/** Finds the values of unique columns that several rows of a table would have. */
export function findClashes(
  transaction: Transaction,
  { codec, staged, ours }: TableOutcome,
  page: { offset: number; limit: number },
): Promise<{ count: number; listed: UniqueClash[] }> {
  return findUniqueClashes(transaction, { codec, staged, ours: rowsOfTable(ours) }, page)
}

/** Finds the not-null columns of a table in which rows would have no value. */
export function findMissing(
  transaction: Transaction,
  outcome: TableOutcome,
): Promise<MissingValues[]> {
  return findMissingValues(transaction, withAdded(outcome))
}

/** Finds those of the given rows that would break the rule of a unique or not-null column. */
export function findBreakers(
  transaction: Transaction,
  outcome: TableOutcome,
  cells: { column: number; ids: readonly string[] },
): Promise<string[]> {
  return findRuleBreakers(transaction, withAdded(outcome), cells)
}

/** Adds the ids of columns that the target does not have yet. */
function withAdded({ codec, staged, ours }: TableOutcome) {
  const known = ours.table === undefined ? new Set() : columnIdsOf(ours.table)
  const added = new Set(codec.physical.flatMap(({ id }) => (known.has(id) ? [] : [id])))
  return { codec, staged, ours: rowsOfTable(ours), added }
}

/** Returns a table on both sides of a merge, in the form that tokens are computed from. */
export function reviewedSides(
  { ours, theirs }: Record<'ours' | 'theirs', TableState>,
  options: TableCodecOptions,
): ReviewedSides {
  const sideOf = ({ rows, table }: TableState) =>
    table && { table, rows: rowsOfTable({ rows, table }), options }
  return { ours: sideOf(ours), theirs: sideOf(theirs) }
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

function mergeColumns(
  codec: TableCodec,
  { base, theirs, ours }: { base: TableBase; theirs: TableState; ours: TableState },
): MergeColumn[] {
  const idsIn = ({ table }: TableState) => (table === undefined ? new Set() : columnIdsOf(table))
  const [inTheirs, inOurs] = [idsIn(theirs), idsIn(ours)]
  const removed = new Set(base.states.flatMap(({ removedIds }) => removedIds ?? []))
  const restored = columnIdsOf({
    ...codec.table,
    columns: codec.table.columns.filter(({ id }) => removed.has(id) && !inOurs.has(id)),
  })
  return codec.physical.map(({ id }, index) => ({
    isTheirs: inTheirs.has(id),
    isOurs: inOurs.has(id),
    isRestored: restored.has(id),
    objects: enclosingObjects(codec, index),
  }))
}
