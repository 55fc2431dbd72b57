import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import {
  runTransaction,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import { absorbOverlays } from '../../rows/branches.js'
import { refillTarget } from '../../rows/merge.js'
import { confirmKey, keyGuardCall } from '../../rows/read.js'
import { merges } from '../../telemetry/events.js'
import { reachesWholeWorkspace, requireAccess } from '../access/scope.js'
import type { Quotas } from '../quotas/quotas.js'
import { dataLossError } from '../schemas/data-loss.js'
import type { BranchState } from './branch-state.js'
import { confirmWithBranches } from './lock-branches.js'
import { applyMerge } from './merge-apply.js'
import { insertMergeSql, StateGoneError } from './merge-base.js'
import { compareMerge, type MergeEffect } from './merge-compare.js'
import { forwardMerge } from './merge-forward.js'
import { isLarge, isNewForSure, mergePinned } from './merge-pinned.js'
import {
  findSides,
  type MergeOptions,
  type MergePlan,
  type MergeSides,
  planMerge,
} from './merge-plan.js'
import { hasNothingNew, requireNoConflicts, toResult } from './merge-result.js'
import { Resolutions } from './resolutions.js'

/** How often a merge is tried whose history changes between two of its statements. */
const ATTEMPTS_MAX = 5

/**
 * How often a large merge compares pinned states. If the target has changed each time in a way that does not fit,
 * the branches are locked.
 */
const PINNED_ATTEMPTS = 3

/**
 * Merges the changes of one branch into another: the schema and the rows of all tables, by a three-way
 * comparison. A small merge is a single transaction, during which neither branch can be written. A large
 * one compares pinned states first, and only its last step excludes writers of the target.
 */
export async function mergeBranches(
  { database, quotas }: { database: Database; quotas: Quotas },
  options: MergeOptions,
): Promise<MergeResult> {
  const { from, into } = options
  requireAccess(into.principal.scope, 'write')
  if (from.branchId === into.branchId) {
    throw new AppError(
      'invalid_request',
      `branch [${into.branchName}]: cannot be merged into itself`,
    )
  }
  if (!options.dryRun && options.page.after !== undefined) {
    throw new AppError('invalid_request', 'body: field [page.after]: needs [dryRun]')
  }
  // Malformed resolutions are refused before anything is read.
  Resolutions.check(options.resolutions)
  if (!options.dryRun) {
    const showsUsage = reachesWholeWorkspace(into.principal.scope)
    await quotas.growth(into.workspaceId, { showsUsage }).admit(0)
  }
  if (options.dryRun) return dryRunMerge(database, options)
  const merged = await mergeChanges(database, options)
  merges.add()
  // The merge is done; if this fails, the next measurement comes a little later.
  await quotas.measureSoon(into.workspaceId).catch(() => undefined)
  return merged
}

/** Plans and compares in a snapshot, without any lock, and writes nothing. */
async function dryRunMerge(database: Database, options: MergeOptions): Promise<MergeResult> {
  const { result } = await compareInSnapshot(database, options)
  return result
}

function compareInSnapshot(
  database: Database,
  options: MergeOptions,
): Promise<{ result: MergeResult; isNothingNew: boolean }> {
  return confirmKey(
    runTransaction(
      database,
      async (transaction) => {
        const sides = await findSides(transaction, options, { locks: false })
        const plan = await planMerge(transaction, options, sides)
        const comparison = await compareMerge(transaction, plan)
        return {
          result: toResult(plan, comparison, { isMerged: false }),
          isNothingNew: comparison.conflicts.count === 0 && hasNothingNew(plan, comparison),
        }
      },
      { ...WRITABLE_SNAPSHOT, opening: [keyGuardCall(options.into.principal)] },
    ),
  )
}

/** Rolls back a merge that turned out to bring nothing new. */
class NothingNewError extends Error {
  constructor(readonly result: MergeResult) {
    super('the merge brings nothing new')
  }
}

async function mergeChanges(database: Database, options: MergeOptions): Promise<MergeResult> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await mergeInSteps(database, options)
    } catch (error) {
      if (error instanceof NothingNewError) return error.result
      if (!(error instanceof StateGoneError) || attempt === ATTEMPTS_MAX) throw error
    }
  }
}

async function mergeInSteps(database: Database, options: MergeOptions): Promise<MergeResult> {
  const small = await runLocked(database, options, async (transaction, sides) =>
    (await isLarge(transaction, options, sides))
      ? undefined
      : { result: await mergeLocked(transaction, options, sides), ours: sides.ours },
  )
  if (small !== undefined) {
    refillSpares(database, small)
    return small.result
  }
  if (!(await isNewForSure(database, options))) {
    const compared = await compareInSnapshot(database, options)
    if (compared.isNothingNew) return compared.result
  }
  for (let attempt = 0; attempt < PINNED_ATTEMPTS; attempt++) {
    const merged = await mergePinned(database, options)
    if (merged === undefined) continue
    // The merge is done. If this fails, the background continues.
    await absorbOverlays(database, options.into.branchId).catch(() => undefined)
    return merged
  }
  return runLocked(database, options, (transaction, sides) =>
    mergeLocked(transaction, options, sides),
  )
}

function refillSpares(
  database: Database,
  { result, ours }: { result: MergeResult; ours: BranchState },
): void {
  const written = new Set(
    result.tables.flatMap(({ name, inserted, updated, deleted }) =>
      inserted + updated + deleted > 0 ? [name] : [],
    ),
  )
  const tables = ours.schema.tables.filter(({ name }) => written.has(name))
  refillTarget(database, ours.rows, tables)
}

function runLocked<Result>(
  database: Database,
  options: MergeOptions,
  body: (transaction: Transaction, sides: MergeSides) => Promise<Result>,
): Promise<Result> {
  return confirmWithBranches(database, [options.from, options.into], {
    read: (transaction) => findSides(transaction, options, { locks: true }),
    body,
  })
}

/** Merges locked branches: plans the merge, compares and applies, then records it. */
async function mergeLocked(
  transaction: Transaction,
  options: MergeOptions,
  sides: MergeSides,
): Promise<MergeResult> {
  const plan = await planMerge(transaction, options, sides)
  const { dataLoss } = plan
  if (dataLoss.length > 0 && !plan.allowDataLoss) throw dataLossError(dataLoss)
  const forwarded = await forwardMerge(transaction, plan)
  if (forwarded !== undefined) {
    if (!hasNothingNew(plan, forwarded)) return recordMerge(transaction, plan, forwarded)
    throw new NothingNewError(toResult(plan, forwarded, { isMerged: false }))
  }
  const comparison = await compareMerge(transaction, plan)
  requireNoConflicts(plan, comparison)
  return recordMerge(transaction, plan, comparison, () => applyMerge(transaction, plan, comparison))
}

/** Applies a merge that is not applied yet, and records it, unless it brings nothing new. */
async function recordMerge(
  transaction: Transaction,
  plan: MergePlan,
  effect: MergeEffect,
  apply?: () => Promise<void>,
): Promise<MergeResult> {
  if (hasNothingNew(plan, effect)) return toResult(plan, effect, { isMerged: false })
  await apply?.()
  transaction.lastStatements.push(insertMergeSql(plan))
  const result = toResult(plan, effect, { isMerged: true })
  await plan.keep?.(transaction, result)
  return result
}
