import type { MergeResult } from '@offshoot/contract/branch-changes'
import type { Limits } from '@offshoot/contract/limits'
import type { Database } from '../../postgres/database.js'
import {
  CHECK_VIOLATION,
  codeOf,
  isDataException,
  isUndefinedTable,
  UNIQUE_VIOLATION,
} from '../../postgres/failures.js'
import {
  runTransaction,
  SNAPSHOT,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { OutdatedError } from '../../rows/merging/comparison.js'
import { Difference } from '../../rows/merging/difference.js'
import { RowState } from '../../rows/row-state.js'
import type { Storage } from '../../rows/storage.js'
import { type BranchState, getState } from '../branches/branch-state.js'
import { withBranches } from '../branches/lock-branches.js'
import { insertAutomatic } from '../checkpoints/queries.js'
import { changesOf, pairColumns } from '../schemas/alter-column.js'
import { dataLossError } from '../schemas/data-loss.js'
import { firstOf } from '../schemas/round-trips.js'
import { applyMerge } from './merge-apply.js'
import {
  baseOfTable,
  baseSchema,
  findHistoryOf,
  getPin,
  insertMergeOfPin,
  insertPin,
  NOW,
  nameBases,
  StateGoneError,
  tableBase,
  tableOf,
} from './merge-base.js'
import { type ComparedMerge, compareMerge } from './merge-compare.js'
import {
  admitMerge,
  findSides,
  type MergeOptions,
  type MergePlan,
  type MergeSides,
  type Pins,
  planMerge,
} from './merge-plan.js'
import {
  hasNothingNew,
  isRecorded,
  logMerge,
  requireNoConflicts,
  toResult,
} from './merge-result.js'
import { deleteLostPins, deletePins } from './pins.js'
import { progressOf } from './progress.js'
import { getStepStates } from './step-states.js'

/*
 * A merge of many rows takes seconds, and no writer should wait for that. Closed epochs never change. So the
 * merge first closes the epochs of both branches and pins these states, compares them and stages the outcome
 * without any lock. Then it locks the target, decides again about the few rows that were written meanwhile,
 * and publishes the staged rows. Those of large tables are written to layers before, so publishing takes no
 * longer for more rows.
 */

/**
 * The share of `mergeLockedRowsMax` that a merge of pinned states may write to the locked target. Further rows are
 * written before.
 */
const WRITTEN_SHARE = 0.5

/** Returns whether more rows have to be compared than a merge may do with locked branches. */
export async function isLarge(
  transaction: Transaction,
  { limits }: MergeOptions,
  sides: MergeSides,
): Promise<boolean> {
  const { ownRowsMax, records } = sides
  // The limit of records that a request names is low enough.
  if (records !== undefined) return false
  const limit = limits.mergeLockedRowsMax
  for (const table of listReread(sides)) {
    const counted = { table, columns: [], limits, rowsMax: limit + 1 }
    const { rows } = await new RowState(sides.theirs.rows).countValues(transaction, counted)
    if (rows > limit) return true
  }
  return Difference.areMany(transaction, listMerged(sides, limits), { limit, ownRowsMax })
}

/** Lists the merged tables of which all rows are compared, because the type of a column was changed and changed back. */
function listReread({ theirs, ours, bases, ruleOf }: MergeSides): StoredTable[] {
  const known = new Map(baseSchema(bases).tables.map(({ id, columns }) => [id, columns]))
  const here = new Map(ours.schema.tables.map(({ id, columns }) => [id, columns]))
  return theirs.schema.tables.filter(({ id, columns }) => {
    const before = new Set(known.get(id)?.map((column) => column.id))
    const isReread = (column: StoredColumn) =>
      !before.has(column.id) && firstOf(column).id !== column.id
    return ruleOf(id).mode === 'merge' && [...columns, ...(here.get(id) ?? [])].some(isReread)
  })
}

/** Lists the differences of the tables whose rows are merged. */
function listMerged({ theirs, bases, ruleOf }: MergeSides, limits: Limits): Difference[] {
  return theirs.schema.tables
    .filter(({ id }) => ruleOf(id).mode === 'merge')
    .map((table) => {
      const base = tableBase(baseOfTable(bases, table.id), table)
      const form = { limits, jsonAsText: false }
      return new Difference({ table, form, base, after: { rows: theirs.rows, table } })
    })
}

/**
 * Returns whether a merge has something new for the target for sure. Pinning the states of a merge that brings
 * nothing would leave a trace in the history.
 */
export function isNewForSure(database: Database, options: MergeOptions): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      // Whether a revert has an effect is known when it has compared.
      if (options.step !== undefined) return true
      const sides = await findSides(transaction, options, { locks: false })
      if (!sides.bases.general.isUpToDate || sides.ids.isNew) return true
      for (const difference of listMerged(sides, options.limits)) {
        if (await difference.isAny(transaction)) return true
      }
      return false
    },
    { ...SNAPSHOT, bounds: options.work?.bounds },
  )
}

/**
 * Merges pinned states. Returns undefined, and has no effect, if the target has changed meanwhile in a way
 * that the staged rows do not allow for.
 */
export async function mergePinned(
  storage: Storage,
  options: MergeOptions,
): Promise<MergeResult | undefined> {
  const { database } = storage
  const { from, into } = options
  await deleteLostPins(database, into.databaseId)
  // A layer could be dropped between the transactions of the merge.
  await storage.absorb(into.branchId)
  await storage.absorb(from.branchId)
  await storage.analyzeGrown(into.databaseId, [from.branchId, into.branchId])
  // No merge into either branch is recorded while both are locked, so states and history are of one moment.
  const pins = await withBranches(storage, [from, into], async (transaction): Promise<Pins> => {
    if (options.step) return { ours: await insertPin(transaction, into), merged: undefined }
    const history = await findHistoryOf(transaction, { theirs: from, ours: into })
    const pinId = await insertPin(transaction, from)
    const bases = nameBases(history, { from, into })
    return { ours: await insertPin(transaction, into), merged: { pinId, bases } }
  })
  let kept: ComparedMerge | undefined
  try {
    const { plan, compared } = await comparePins(database, { options, pins })
    kept = compared
    requireNoConflicts(plan, compared)
    // Whether a merge brings something new is known before its states are pinned.
    if (plan.step && hasNothingNew(plan, compared)) return toResult(plan, compared)
    const writtenMax = WRITTEN_SHARE * options.limits.mergeLockedRowsMax
    await compared.comparison.prepare(database, {
      rowsMax: writtenMax,
      bounds: options.work?.bounds,
      onTable: (name, count) =>
        options.work?.begin(progressOf(plan, { name, count, step: 'write' })),
    })
    options.work?.begin(progressOf(plan, { step: 'publish' }))
    // The merged state is pinned, so its branch can go on.
    return await withBranches(storage, [into], (transaction) =>
      publish(transaction, { plan, compared, pins }),
    )
  } catch (error) {
    // A layer of a base may have been dropped.
    const isStale = [OutdatedError, StateGoneError].some((kind) => error instanceof kind)
    if (isStale || isUndefinedTable(error)) return undefined
    throw error
  } finally {
    // The merge is decided by now. What could not be deleted is found by the background.
    await endMerge(database, pins, kept).catch(() => undefined)
  }
}

function comparePins(
  database: Database,
  { options, pins }: { options: MergeOptions; pins: Pins },
): Promise<{ plan: MergePlan; compared: ComparedMerge }> {
  return runTransaction(
    database,
    async (transaction) => {
      const sides = await findSides(transaction, options, { locks: false, pins })
      const plan = await planMerge(transaction, options, sides)
      if (plan.dataLoss.length > 0 && !plan.allowDataLoss) throw dataLossError(plan.dataLoss)
      return { plan, compared: await compareMerge(transaction, plan, { pinId: pins.ours }) }
    },
    { ...WRITABLE_SNAPSHOT, bounds: options.work?.bounds },
  )
}

/** Writes the staged rows to the target, which is locked, and records the merge. */
async function publish(
  transaction: Transaction,
  { plan, compared, pins }: { plan: MergePlan; compared: ComparedMerge; pins: Pins },
): Promise<MergeResult> {
  const { into, leftOut } = plan
  const pinned = await getPin(transaction, pins.ours)
  if (pinned.branchId !== into.branchId) throw new OutdatedError('the target was reset')
  await admitMerge(transaction, plan)
  const { kind, limits } = plan
  const checkpoint = await insertAutomatic(transaction, into, { before: kind, limits })
  const ours = await getState(transaction, into)
  if (ours.rows.schemaId !== plan.ours.rows.schemaId) throw new OutdatedError('the schema changed')
  if (plan.step) await getStepStates(transaction, plan.step, { now: ours, locks: true, limits })
  else await requireSameBases(transaction, plan, pins)
  await requireUnwritten(transaction, plan, ours)
  const { comparison } = compared
  const { tables } = await applyMerge(transaction, plan, { comparison, ours }).catch(
    (error: unknown) => {
      const code = codeOf(error)
      const isRuleBroken = code === UNIQUE_VIOLATION || code === CHECK_VIOLATION
      if (!isRuleBroken && !isDataException(error)) throw error
      // A writer has changed rows meanwhile, so that the outcome breaks a rule. Comparing again shows which one.
      throw new OutdatedError('the outcome breaks a rule', { cause: error })
    },
  )
  if (pins.merged && isRecorded(plan)) {
    await insertMergeOfPin(transaction, { pinId: pins.merged.pinId, into, leftOut })
  }
  const result = logMerge(transaction, plan, { effect: { ...compared, tables }, checkpoint })
  await plan.keep?.(transaction, result)
  await plan.work?.keep((statement) => transaction.query(statement), result)
  return result
}

/**
 * Throws if the pinned state has other bases with the target as it is now than it was compared with: other merges have
 * brought a part of it to the target.
 */
async function requireSameBases(
  transaction: Transaction,
  { from, into }: MergePlan,
  { merged }: Pins,
): Promise<void> {
  if (merged === undefined) return
  const theirs = await getPin(transaction, merged.pinId)
  const states = { theirs, ours: { branchId: into.branchId, epoch: NOW } }
  const history = await findHistoryOf(transaction, states)
  if (nameBases(history, { from, into }, states) !== merged.bases) {
    throw new OutdatedError('the history changed')
  }
}

/**
 * Throws if the target has written to a table whose rows were counted or checked as a whole: one that is
 * removed, loses a column, gets a constraint or a column that must have a value, or has links whose records must exist.
 */
async function requireUnwritten(
  transaction: Transaction,
  plan: MergePlan,
  ours: BranchState,
): Promise<void> {
  const linked = new Set(plan.schema.tables.flatMap(listRequired))
  const checked = plan.ours.schema.tables.filter(
    (before) =>
      linked.has(before.id) ||
      isCheckedAsWhole(before, tableOf({ ...plan.ours, schema: plan.schema }, before)),
  )
  const form = { limits: plan.limits, jsonAsText: false }
  const since = checked.map((table) => {
    const base = { rows: plan.ours.rows, table }
    return new Difference({ table, form, base, after: { rows: ours.rows, table } })
  })
  if (await Difference.areMany(transaction, since, { limit: 0, ownRowsMax: Infinity })) {
    throw new OutdatedError('a table was written')
  }
}

function isCheckedAsWhole(before: StoredTable, after: StoredTable | undefined): boolean {
  if (after === undefined) return true
  const kept = new Set(after.columns.map(({ id }) => id))
  const known = new Set(before.columns.map(({ id }) => id))
  return (
    before.columns.some(({ id }) => !kept.has(id)) ||
    hasNewConstraint(before, after) ||
    // A rule that the target does not have yet.
    [...pairColumns(before.columns, after.columns)].some(([id, column]) =>
      before.columns.some((each) => each.id === id && changesOf(each, column) !== undefined),
    ) ||
    after.columns.some(
      ({ id, notNull, fill, computed }) =>
        !known.has(id) && ((notNull && fill === undefined) || computed !== undefined),
    )
  )
}

/** Lists a table with links whose records must exist, and the linked ones. */
function listRequired({ id, columns }: StoredTable): number[] {
  const targets = listAllColumns(columns).flatMap(({ link, onDelete }) =>
    onDelete === undefined ? [] : (link?.tableId ?? []),
  )
  return targets.length === 0 ? [] : [id, ...targets]
}

function hasNewConstraint(before: StoredTable, after: StoredTable): boolean {
  const known = new Set((before.constraints ?? []).map(({ id }) => id))
  return (after.constraints ?? []).some(({ id }) => !known.has(id))
}

/** Deletes the pins, unless the merge was recorded with one, and what the comparison has stored. */
async function endMerge(
  database: Database,
  pins: Pins,
  compared: ComparedMerge | undefined,
): Promise<void> {
  await compared?.comparison.drop(database)
  await deletePins(database, [pins.ours, ...(pins.merged ? [pins.merged.pinId] : [])])
}
