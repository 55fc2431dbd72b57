import type { MergeResult } from '@offshoot/contract/branch-changes'
import type { Database } from '../../postgres/database.js'
import { codeOf, isUndefinedTable, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import {
  runTransaction,
  SNAPSHOT,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import { absorbOverlays } from '../../rows/branches.js'
import { compileTable, type StoredTable } from '../../rows/columns.js'
import {
  analyzeGrownHeaps,
  areCandidatesOwn,
  areRowsLost,
  type ComparedTable,
  dropStage,
  hasChanges,
  hasManyCandidates,
  isOverlaid,
  publishOverlays,
  type RestagedTable,
  restageOverlay,
  restageTable,
  type Stage,
  type StagedOverlay,
  type StagedTable,
  sharedStage,
  stageOverlay,
} from '../../rows/merge.js'
import { dataLossError } from '../schemas/data-loss.js'
import { type BranchState, getState } from './branch-state.js'
import { withBranches } from './lock-branches.js'
import { applyMerge } from './merge-apply.js'
import {
  baseOfTable,
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
import { compareMerge, type MergeComparison } from './merge-compare.js'
import {
  findSides,
  type MergeOptions,
  type MergePlan,
  type MergeSides,
  type Pins,
  planMerge,
} from './merge-plan.js'
import { requireNoConflicts, toResult } from './merge-result.js'
import { deleteLostPins, deletePins } from './pins.js'

/*
 * A merge of many rows takes seconds, and no writer should wait for that. Closed epochs never change. So the
 * merge first closes the epochs of both branches and pins these states, compares them and stages the outcome
 * without any lock. Then it locks the target, decides again about the few rows that were written meanwhile,
 * and publishes the staged rows. Those of large tables are written to overlays before, so publishing takes no
 * longer for more rows.
 */

/**
 * The share of `mergeLockedRowsMax` that a merge of pinned states may write to the locked target. Tables with
 * further rows are published as overlays.
 */
const WRITTEN_SHARE = 0.5

/** Returns whether more rows have to be compared than a merge may do with locked branches. */
export async function isLarge(
  transaction: Transaction,
  options: MergeOptions,
  sides: MergeSides,
): Promise<boolean> {
  const { mergeLockedRowsMax } = options.limits
  const tables = listMerged(sides)
  // A fork that has written little needs no count.
  if (sides.ownRowsMax <= mergeLockedRowsMax && areCandidatesOwn(tables)) return false
  return hasManyCandidates(transaction, tables, mergeLockedRowsMax)
}

/** Lists the tables whose rows are merged. */
function listMerged({ theirs, bases, ruleOf }: MergeSides): ComparedTable[] {
  return theirs.schema.tables
    .filter(({ id }) => ruleOf(id).mode === 'merge')
    .map((table) => ({
      base: tableBase(baseOfTable(bases, table.id), table),
      state: { rows: theirs.rows, table },
    }))
}

/**
 * Returns whether a merge has something new for the target for sure. Pinning the states of a merge that brings
 * nothing would leave a trace in the history.
 */
export function isNewForSure(database: Database, options: MergeOptions): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      const sides = await findSides(transaction, options, { locks: false })
      if (!sides.bases.general.isUpToDate || sides.ids.isNew) return true
      for (const compared of listMerged(sides)) {
        const { table } = compared.state
        const codec = compileTable(table, { limits: options.limits, jsonAsText: false })
        if (await hasChanges(transaction, { ...compared, codec })) return true
      }
      return false
    },
    SNAPSHOT,
  )
}

/**
 * Merges pinned states. Returns undefined, and has no effect, if the target has changed meanwhile in a way
 * that the staged rows do not allow for.
 */
export async function mergePinned(
  database: Database,
  options: MergeOptions,
): Promise<MergeResult | undefined> {
  const { from, into } = options
  await deleteLostPins(database, into.databaseId)
  // An overlay could be dropped between the transactions of the merge.
  await absorbOverlays(database, into.branchId)
  await absorbOverlays(database, from.branchId)
  await analyzeGrownHeaps(database, {
    databaseId: into.databaseId,
    branchIds: [from.branchId, into.branchId],
  })
  // No merge into either branch is recorded while both are locked, so states and history are of one moment.
  const pins = await withBranches(database, [from, into], async (transaction): Promise<Pins> => {
    const history = await findHistoryOf(transaction, { theirs: from, ours: into })
    return {
      theirs: await insertPin(transaction, from),
      ours: await insertPin(transaction, into),
      bases: nameBases(history, { from, into }),
    }
  })
  const stage = sharedStage({ databaseId: into.databaseId, branchId: pins.ours })
  let staged: readonly StagedTable[] = []
  try {
    const { plan, comparison } = await comparePins(database, { options, pins, stage })
    staged = comparison.tables
    requireNoConflicts(plan, comparison)
    const writtenMax = WRITTEN_SHARE * options.limits.mergeLockedRowsMax
    const overlays = await stageOverlays(database, listOverlaid(comparison.tables, writtenMax), {
      branchId: pins.ours,
      databaseId: into.databaseId,
    })
    // The merged state is pinned, so its branch can go on.
    return await withBranches(database, [into], (transaction) =>
      publish(transaction, { plan, comparison, pins, overlays }),
    )
  } catch (error) {
    // An overlay of a base may have been dropped.
    const isStale = [StaleStageError, StateGoneError].some((kind) => error instanceof kind)
    if (isStale || isUndefinedTable(error)) return undefined
    throw error
  } finally {
    // The merge is decided by now. What could not be deleted is found by the background.
    await endMerge(database, { pins, stage, staged }).catch(() => undefined)
  }
}

function comparePins(
  database: Database,
  { options, pins, stage }: { options: MergeOptions; pins: Pins; stage: Stage },
): Promise<{ plan: MergePlan; comparison: MergeComparison }> {
  return runTransaction(
    database,
    async (transaction) => {
      const sides = await findSides(transaction, options, { locks: false, pins })
      const plan = await planMerge(transaction, options, sides)
      if (plan.dataLoss.length > 0 && !plan.allowDataLoss) throw dataLossError(plan.dataLoss)
      return { plan, comparison: await compareMerge(transaction, plan, stage) }
    },
    WRITABLE_SNAPSHOT,
  )
}

/** Overlays by table id. */
type Overlays = ReadonlyMap<number, StagedOverlay>

/** Writes the outcome for large tables to overlays, which belong to a hidden branch until they are published. */
async function stageOverlays(
  database: Database,
  tables: readonly StagedTable[],
  owner: { branchId: string; databaseId: string },
): Promise<Overlays> {
  const overlays = new Map<number, StagedOverlay>()
  for (const table of tables) {
    const overlay = await runTransaction(
      database,
      async (transaction) => {
        await requireStaged(transaction, table)
        return stageOverlay(transaction, table, owner)
      },
      WRITABLE_SNAPSHOT,
    )
    overlays.set(table.staged.codec.table.id, overlay)
  }
  return overlays
}

/** Returns the tables to publish as overlays: the largest, so that few rows are left to be written. */
function listOverlaid(tables: readonly StagedTable[], writtenMax: number): StagedTable[] {
  const rowsOf = ({ tally: { inserted, updated, deleted } }: StagedTable) =>
    inserted + updated + deleted
  let written = 0
  return [...tables]
    .sort((left, right) => rowsOf(left) - rowsOf(right))
    .filter((table) => {
      written += rowsOf(table)
      return written > writtenMax
    })
}

/** Thrown when staged rows cannot be written, because the target has changed. */
class StaleStageError extends Error {}

/** Throws if the rows of a table were staged before a crash of PostgreSQL. */
async function requireStaged(transaction: Transaction, table: StagedTable): Promise<void> {
  if (await areRowsLost(transaction, table)) {
    throw new StaleStageError('the staged rows were lost in a crash')
  }
}

/** Writes the staged rows to the target, which is locked, and records the merge. */
async function publish(
  transaction: Transaction,
  merge: { plan: MergePlan; comparison: MergeComparison; pins: Pins; overlays: Overlays },
): Promise<MergeResult> {
  const { plan, comparison, pins, overlays } = merge
  const { into, leftOut } = plan
  const pinned = await getPin(transaction, pins.ours)
  if (pinned.branchId !== into.branchId) throw new StaleStageError('the target was reset')
  const ours = await getState(transaction, into)
  if (ours.rows.schemaId !== plan.ours.rows.schemaId)
    throw new StaleStageError('the schema changed')
  await requireSameBases(transaction, plan, pins)
  await requireUnwritten(transaction, plan, ours)
  const tables = await restage(transaction, comparison, ours)
  const overlaid = await restageOverlays(transaction, { tables, overlays, ours })
  const written = tables.filter(({ staged }) => !overlays.has(staged.codec.table.id))
  try {
    await applyMerge(transaction, { ...plan, ours }, { ...comparison, tables: written })
    if (!(await publishOverlays(transaction, overlaid, into.branchId))) {
      throw new StaleStageError('an overlay was dropped')
    }
  } catch (error) {
    if (codeOf(error) !== UNIQUE_VIOLATION) throw error
    // A writer took a unique value meanwhile. Comparing again shows which one.
    throw new StaleStageError('a unique value was taken', { cause: error })
  }
  await insertMergeOfPin(transaction, { pinId: pins.theirs, into, leftOut })
  const result = toResult(plan, { ...comparison, tables }, { isMerged: true })
  await plan.keep?.(transaction, result)
  return result
}

/**
 * Throws if the pinned state has other bases with the target as it is now than it was compared with: other merges have
 * brought a part of it to the target.
 */
async function requireSameBases(
  transaction: Transaction,
  { from, into }: MergePlan,
  pins: Pins,
): Promise<void> {
  const theirs = await getPin(transaction, pins.theirs)
  const states = { theirs, ours: { branchId: into.branchId, epoch: NOW } }
  const history = await findHistoryOf(transaction, states)
  if (nameBases(history, { from, into }, states) !== pins.bases) {
    throw new StaleStageError('the history changed')
  }
}

/**
 * Throws if the target has written to a table whose rows were counted or checked as a whole: one that is
 * removed, loses a column, or gets a column that must have a value.
 */
async function requireUnwritten(
  transaction: Transaction,
  plan: MergePlan,
  ours: BranchState,
): Promise<void> {
  const checked: ComparedTable[] = []
  for (const before of plan.ours.schema.tables) {
    const after = tableOf({ ...plan.ours, schema: plan.schema }, before)
    if (!isCheckedAsWhole(before, after)) continue
    checked.push({
      base: { states: [{ rows: plan.ours.rows, table: before }], rowOf: ([row]) => row },
      state: { rows: ours.rows, table: before },
    })
  }
  if (await hasManyCandidates(transaction, checked, 0)) {
    throw new StaleStageError('a table was written')
  }
}

function isCheckedAsWhole(before: StoredTable, after: StoredTable | undefined): boolean {
  if (after === undefined) return true
  const kept = new Set(after.columns.map(({ id }) => id))
  const known = new Set(before.columns.map(({ id }) => id))
  return (
    before.columns.some(({ id }) => !kept.has(id)) ||
    after.columns.some(({ id, notNull, fill }) => !known.has(id) && notNull && fill === undefined)
  )
}

/** Brings the overlays up to date with the target. */
async function restageOverlays(
  transaction: Transaction,
  options: { tables: readonly RestagedTable[]; overlays: Overlays; ours: BranchState },
): Promise<{ overlay: StagedOverlay; staged: StagedTable['staged'] }[]> {
  const { tables, overlays, ours } = options
  const current: { overlay: StagedOverlay; staged: StagedTable['staged'] }[] = []
  for (const table of tables) {
    const { id } = table.staged.codec.table
    const overlay = overlays.get(id)
    if (overlay === undefined) continue
    if (isOverlaid(ours.rows, id)) throw new StaleStageError('another merge has an overlay')
    if (!(await restageOverlay(transaction, overlay, table))) {
      throw new StaleStageError('a unique value was taken')
    }
    current.push({ overlay, staged: table.staged })
  }
  return current
}

/** Decides again about the rows that the target has changed since they were staged. */
async function restage(
  transaction: Transaction,
  { tables }: MergeComparison,
  ours: BranchState,
): Promise<(RestagedTable & { name: string })[]> {
  const current: (RestagedTable & { name: string })[] = []
  for (const table of tables) {
    await requireStaged(transaction, table)
    const { codec } = table.staged
    const now = { rows: ours.rows, table: tableOf(ours, codec.table) }
    const restaged = await restageTable(transaction, table, now)
    if (restaged === undefined || restaged.tally.conflictCount > 0) {
      throw new StaleStageError('rows in conflict were written')
    }
    current.push({ ...restaged, name: table.name })
  }
  return current
}

/** Deletes the pins, unless the merge was recorded with one, and the staged rows. */
async function endMerge(
  database: Database,
  { pins, stage, staged }: { pins: Pins; stage: Stage; staged: readonly StagedTable[] },
): Promise<void> {
  await dropStage(
    database,
    stage,
    staged.map((table) => table.staged),
  )
  await deletePins(database, [pins.ours, pins.theirs])
}
