import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import { allDone } from '../../common/all-done.js'
import type { Database } from '../../postgres/database.js'
import {
  runTransaction,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import type { Outcome } from '../../rows/merging/comparison.js'
import { guardedByKey } from '../../rows/running/staleness.js'
import type { Storage } from '../../rows/storage.js'
import { merges } from '../../telemetry/events.js'
import { reachesWholeWorkspace, requireAccess } from '../access/scope.js'
import { getState } from '../branches/branch-state.js'
import { confirmWithBranches } from '../branches/lock-branches.js'
import { hasCheckpoints, insertAutomatic } from '../checkpoints/queries.js'
import type { Quotas } from '../quotas/quotas.js'
import { dataLossError } from '../schemas/data-loss.js'
import { applyMerge } from './merge-apply.js'
import { insertMergeSql, StateGoneError } from './merge-base.js'
import { compareMerge } from './merge-compare.js'
import { isLarge, isNewForSure, mergePinned } from './merge-pinned.js'
import {
  admitMerge,
  findSides,
  type MergeOptions,
  type MergeSides,
  planMerge,
} from './merge-plan.js'
import {
  hasNothingNew,
  isRecorded,
  logMerge,
  requireNoConflicts,
  toResult,
} from './merge-result.js'
import { checkOnly } from './only.js'
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
  { storage, quotas }: { storage: Storage; quotas: Quotas },
  options: MergeOptions,
): Promise<MergeResult> {
  const { from, into } = options
  requireAccess(into.principal.scope, 'write')
  if (from.branchId === into.branchId && options.step === undefined) {
    throw new AppError(
      'invalid_request',
      `branch [${into.branchName}]: cannot be merged into itself`,
    )
  }
  if (!options.dryRun && options.page.after !== undefined) {
    throw new AppError('invalid_request', 'body: field [page.after]: needs [dryRun]')
  }
  checkOnly(options.only, options.tables)
  // Malformed resolutions are refused before anything is read.
  Resolutions.check(options.resolutions)
  if (!options.dryRun) {
    const showsUsage = reachesWholeWorkspace(into.principal.scope)
    await quotas.growth(into.workspaceId, { showsUsage }).admit(0)
  }
  if (options.dryRun) return dryRunMerge(storage.database, options)
  const merged = await mergeChanges(storage, options)
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
  return guardedByKey(options.into.principal, (check) =>
    runTransaction(
      database,
      async (transaction) => {
        const sides = await findSides(transaction, options, { locks: false })
        const plan = await planMerge(transaction, options, sides)
        const compared = await compareMerge(transaction, plan)
        await compared.comparison.count(transaction)
        return {
          result: toResult(plan, compared),
          isNothingNew: compared.conflicts.count === 0 && hasNothingNew(plan, compared),
        }
      },
      { ...WRITABLE_SNAPSHOT, opening: [check], bounds: options.work?.bounds },
    ),
  )
}

async function mergeChanges(storage: Storage, options: MergeOptions): Promise<MergeResult> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await mergeInSteps(storage, options)
    } catch (error) {
      if (!(error instanceof StateGoneError) || attempt === ATTEMPTS_MAX) throw error
    }
  }
}

async function mergeInSteps(storage: Storage, options: MergeOptions): Promise<MergeResult> {
  const small = await runLocked(storage, options, async (transaction, sides) =>
    (await isLarge(transaction, options, sides))
      ? undefined
      : mergeLocked(transaction, options, sides),
  )
  if (small !== undefined) {
    small.outcome?.refillSpares(storage.spares, options.into.databaseId)
    return small.result
  }
  if (!(await isNewForSure(storage.database, options))) {
    const compared = await compareInSnapshot(storage.database, options)
    if (compared.isNothingNew) return compared.result
  }
  for (let attempt = 0; attempt < PINNED_ATTEMPTS; attempt++) {
    const merged = await mergePinned(storage, options)
    if (merged !== undefined) return merged
  }
  const { result } = await runLocked(storage, options, (transaction, sides) =>
    mergeLocked(transaction, options, sides),
  )
  return result
}

function runLocked<Result>(
  storage: Storage,
  options: MergeOptions,
  body: (transaction: Transaction, sides: MergeSides) => Promise<Result>,
): Promise<Result> {
  return confirmWithBranches(storage, [options.from, options.into], {
    read: async (transaction) => {
      options.work?.begin({ step: 'reading the branches', done: 0, total: 1 })
      const finding = findSides(transaction, options, { locks: true })
      if (options.admit !== undefined) return finding
      const [sides] = await allDone([finding, admitMerge(transaction, options)])
      return sides
    },
    body: async (transaction, sides) => {
      // Admission locks a proposal, which must wait until the branches are locked.
      if (options.admit !== undefined) await admitMerge(transaction, options)
      return body(transaction, sides)
    },
  })
}

/** Merges locked branches: plans the merge, compares and applies, then records it, unless it brings nothing new. */
async function mergeLocked(
  transaction: Transaction,
  options: MergeOptions,
  sides: MergeSides,
): Promise<{ result: MergeResult; outcome?: Outcome }> {
  const plan = await planMerge(transaction, options, sides)
  const { dataLoss } = plan
  if (dataLoss.length > 0 && !plan.allowDataLoss) throw dataLossError(dataLoss)
  const compared = await compareMerge(transaction, plan)
  requireNoConflicts(plan, compared)
  const { comparison } = compared
  const { into, kind, limits } = plan
  if (hasNothingNew(plan, compared)) return { result: toResult(plan, compared) }
  // A checkpoint closes the epoch, and rows are written with the next one, which is read in the same round trip.
  const [checkpoint, ours] = hasCheckpoints(limits)
    ? await allDone([
        insertAutomatic(transaction, into, { before: kind, limits }),
        getState(transaction, into),
      ])
    : [undefined, plan.ours]
  const outcome = await applyMerge(transaction, plan, { comparison, ours })
  if (isRecorded(plan)) transaction.lastStatements.push(insertMergeSql(plan))
  const effect = { ...compared, tables: outcome.tables }
  const result = logMerge(transaction, plan, { effect, checkpoint })
  await plan.keep?.(transaction, result)
  await plan.work?.keep((statement) => transaction.query(statement), result)
  return { result, outcome }
}
