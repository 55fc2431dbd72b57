import type { MergeResult } from '@offshoot/contract/branch-changes'
import type { Database } from '../../postgres/database.js'
import { codeOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import {
  runTransaction,
  SNAPSHOT,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { compileTable, type StoredTable } from '../../rows/columns.js'
import {
  dropLostStages,
  dropStage,
  hasChanges,
  hasManyChanges,
  restageTable,
  type Stage,
  type StagedTable,
  sharedStage,
} from '../../rows/merge.js'
import { dataLossError } from '../schemas/data-loss.js'
import { type BranchState, getState } from './branch-state.js'
import { withBranches } from './lock-branches.js'
import { applyMerge } from './merge-apply.js'
import { type Bases, baseOfTable, findBases, insertMergeOfPin, insertPin } from './merge-base.js'
import { compareMerge, type MergeComparison, tableBase, tableOf } from './merge-compare.js'
import { type MergeOptions, type MergePlan, type Pins, planMerge, rulesOf } from './merge-plan.js'
import { requireNoConflicts, toResult } from './merge-result.js'
import { deleteUnusedBranches } from './unused-branches.js'

/*
 * A merge of many rows takes seconds, and no writer should wait for that. Closed epochs never change. So the
 * merge first closes the epochs of both branches and pins these states, compares them and stages the outcome
 * without any lock. Then it locks the target, decides again about the few rows that were written meanwhile,
 * and writes the staged rows.
 */

/** A merge of more changed rows in one table compares pinned states. */
export const LOCKED_ROWS_MAX = 2_000

/**
 * Returns whether a merge has many rows to compare, and whether it has something new for the target for sure.
 * Pinning the states of a merge that brings nothing would leave a trace in the history.
 */
export function measureMerge(
  database: Database,
  options: MergeOptions,
): Promise<{ isLarge: boolean; isNewForSure: boolean }> {
  const { from, into } = options
  return runTransaction(
    database,
    async (transaction) => {
      const theirs = await getState(transaction, from)
      const ours = await getState(transaction, into)
      const bases = await findBases(transaction, { from, into }, { locks: false })
      const ruleOf = rulesOf(options, { theirs, ours })
      for (const table of theirs.schema.tables) {
        if (ruleOf(table.id).mode !== 'merge') continue
        const base = tableBase(baseOfTable(bases, table.id), table)
        const compared = { base, state: { rows: theirs.rows, table } }
        if (!(await hasManyChanges(transaction, { ...compared, limit: LOCKED_ROWS_MAX }))) continue
        const codec = compileTable(table, { limits: options.limits, jsonAsText: false })
        const isNewForSure =
          !bases.general.isUpToDate || (await hasChanges(transaction, { ...compared, codec }))
        return { isLarge: true, isNewForSure }
      }
      return { isLarge: false, isNewForSure: false }
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
  const pins = await withBranches(database, [from, into], async (transaction) => ({
    theirs: await insertPin(transaction, from),
    ours: await insertPin(transaction, into),
  }))
  const stage = sharedStage(pins.ours)
  let staged: readonly StagedTable[] = []
  try {
    const { plan, comparison } = await comparePins(database, { options, pins, stage })
    staged = comparison.tables
    requireNoConflicts(plan, comparison)
    // The merged state is pinned, so its branch can go on.
    return await withBranches(database, [into], (transaction) =>
      publish(transaction, { plan, comparison, pins }),
    )
  } catch (error) {
    if (error instanceof StaleStageError) return undefined
    throw error
  } finally {
    // The merge is decided by now. What could not be deleted is found by a later merge.
    await deletePins(database, { pins, stage, staged }).catch(() => undefined)
  }
}

function comparePins(
  database: Database,
  { options, pins, stage }: { options: MergeOptions; pins: Pins; stage: Stage },
): Promise<{ plan: MergePlan; comparison: MergeComparison }> {
  return runTransaction(
    database,
    async (transaction) => {
      const plan = await planMerge(transaction, options, { locks: false, pins })
      if (plan.dataLoss.length > 0 && !plan.allowDataLoss) throw dataLossError(plan.dataLoss)
      return { plan, comparison: await compareMerge(transaction, plan, stage) }
    },
    WRITABLE_SNAPSHOT,
  )
}

/** Thrown when staged rows cannot be written, because the target has changed. */
class StaleStageError extends Error {}

/** Writes the staged rows to the target, which is locked, and records the merge. */
async function publish(
  transaction: Transaction,
  merge: { plan: MergePlan; comparison: MergeComparison; pins: Pins },
): Promise<MergeResult> {
  const { plan, comparison, pins } = merge
  const { from, into, leftOut } = plan
  await requirePinned(transaction, { pinId: pins.ours, branchId: into.branchId })
  const ours = await getState(transaction, into)
  if (ours.rows.schemaId !== plan.ours.rows.schemaId)
    throw new StaleStageError('the schema changed')
  const bases = await findBases(transaction, { from, into }, { locks: true })
  if (basesKey(bases) !== basesKey(plan.bases)) throw new StaleStageError('the history changed')
  await requireUnwritten(transaction, plan, ours)
  const tables = await restage(transaction, comparison, ours)
  try {
    await applyMerge(transaction, { ...plan, ours }, { ...comparison, tables })
  } catch (error) {
    if (codeOf(error) !== UNIQUE_VIOLATION) throw error
    // A writer took a unique value meanwhile. Comparing again shows which one.
    throw new StaleStageError('a unique value was taken', { cause: error })
  }
  await insertMergeOfPin(transaction, { pinId: pins.theirs, into, leftOut })
  return toResult(plan, { ...comparison, tables }, { isMerged: true })
}

/** Throws if a branch was reset after it was pinned: then the pin is a fork of its previous state. */
async function requirePinned(
  transaction: Transaction,
  { pinId, branchId }: { pinId: string; branchId: string },
): Promise<void> {
  const rows = await transaction.query(sql`
    select id from offshoot.branches where id = ${pinId} and parent_id = ${branchId}`)
  if (rows.length === 0) throw new StaleStageError('the target was reset')
}

function basesKey({ general, ofTables }: Bases): string {
  return JSON.stringify([general.key, [...ofTables].map(([id, { key }]) => [id, key]).sort()])
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
  for (const before of plan.ours.schema.tables) {
    const after = tableOf({ ...plan.ours, schema: plan.schema }, before)
    if (!isCheckedAsWhole(before, after)) continue
    const isWritten = await hasManyChanges(transaction, {
      base: { states: [{ rows: plan.ours.rows, table: before }], rowOf: ([row]) => row },
      state: { rows: ours.rows, table: before },
      limit: 0,
    })
    if (isWritten) throw new StaleStageError('a table was written')
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

/** Decides again about the rows that the target has changed since they were staged. */
async function restage(
  transaction: Transaction,
  { tables }: MergeComparison,
  ours: BranchState,
): Promise<MergeComparison['tables']> {
  const current: (StagedTable & { name: string })[] = []
  for (const table of tables) {
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
async function deletePins(
  database: Database,
  { pins, stage, staged }: { pins: Pins; stage: Stage; staged: readonly StagedTable[] },
): Promise<void> {
  await dropStage(
    database,
    stage,
    staged.map((table) => table.staged),
  )
  await deleteBranches(database, [pins.ours, pins.theirs])
}

/** After this time, the process that pinned a state must have ended. */
const PIN_MINUTES_MAX = 60

/** Deletes the pins and staged rows of processes that have crashed. */
async function deleteLostPins(database: Database, databaseId: string): Promise<void> {
  const lost = await database.query<{ id: string }>(sql`
    select b.id
    from offshoot.branches b
    where b.database_id = ${databaseId}
      and b.deleted_at < now() - make_interval(mins => ${PIN_MINUTES_MAX})
      and not exists (select from offshoot.branches f where f.parent_id = b.id)
      and not exists (select from offshoot.merges m where m.base_branch_id = b.id)`)
  if (lost.length > 0) {
    await deleteBranches(
      database,
      lost.map(({ id }) => id),
    )
  }
  await dropLostStages(database)
}

function deleteBranches(database: Database, ids: readonly string[]): Promise<void> {
  return runTransaction(database, (transaction) => deleteUnusedBranches(transaction, ids), {
    // After waiting for a lock, each statement must see what was committed meanwhile.
    isolation: 'read committed',
  })
}
