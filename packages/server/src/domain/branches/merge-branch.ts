import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import {
  runTransaction,
  type Transaction,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import type { StoredTable } from '../../rows/columns.js'
import { merges } from '../../telemetry/events.js'
import { reachesWholeWorkspace, requireAccess } from '../access/scope.js'
import type { Quotas } from '../quotas/quotas.js'
import { dataLossError } from '../schemas/data-loss.js'
import { withBranches } from './lock-branches.js'
import { applyMerge } from './merge-apply.js'
import { baseOfTable, baseSchema, insertMerge } from './merge-base.js'
import { compareMerge, type MergeComparison } from './merge-compare.js'
import { type MergeOptions, type MergePlan, planMerge } from './merge-plan.js'

/**
 * Merges the changes of one branch into another: the schema and the rows of all tables, by a three-way
 * comparison, in one transaction. Neither branch can be written to meanwhile.
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
  if (!options.dryRun) {
    const showsUsage = reachesWholeWorkspace(into.principal.scope)
    await quotas.growth(into.workspaceId, { showsUsage }).admit(0)
  }
  if (options.dryRun) return dryRunMerge(database, options)
  const merged = await withBranches(database, [from, into], (transaction) =>
    mergeLocked(transaction, options),
  )
  merges.add()
  // The merge is done; if this fails, the next measurement comes a little later.
  await quotas.measureSoon(into.workspaceId).catch(() => undefined)
  return merged
}

/** Plans and compares in a snapshot, without any lock, and rolls back. */
async function dryRunMerge(database: Database, options: MergeOptions): Promise<MergeResult> {
  return runTransaction(
    database,
    async (transaction) => {
      const plan = await planMerge(transaction, options, { locks: false })
      const comparison = await compareMerge(transaction, plan)
      return toResult(plan, comparison, { isMerged: false })
    },
    WRITABLE_SNAPSHOT,
  )
}

/** Merges locked branches: plans the merge, compares and applies, then records it. */
async function mergeLocked(transaction: Transaction, options: MergeOptions): Promise<MergeResult> {
  const plan = await planMerge(transaction, options, { locks: true })
  const { from, into, dataLoss, leftOut } = plan
  if (dataLoss.length > 0 && !plan.allowDataLoss) throw dataLossError(dataLoss)
  const comparison = await compareMerge(transaction, plan)
  requireNoConflicts(plan, comparison)
  if (hasNothingNew(plan, comparison)) return toResult(plan, comparison, { isMerged: false })
  await applyMerge(transaction, plan, comparison)
  await insertMerge(transaction, { from, into, leftOut })
  return toResult(plan, comparison, { isMerged: true })
}

/**
 * Returns whether the target already contains the whole merged branch. Changes without an effect,
 * because both sides made them or the strategy rejected them, count as new: the merge must be recorded
 * so that the base of the next merge contains them.
 */
function hasNothingNew(plan: MergePlan, comparison: MergeComparison): boolean {
  const { theirs, bases, schema, changedRecords } = plan
  const leftOut = new Set(plan.leftOut)
  const isMerged = ({ id }: StoredTable) => !leftOut.has(id)
  const tables = theirs.schema.tables.filter(isMerged)
  const used = [bases.general, ...tables.map(({ id }) => baseOfTable(bases, id))]
  if (!used.every(({ isUpToDate }) => isUpToDate)) return false
  const before = baseSchema(bases)
  const isSameSchema =
    JSON.stringify(before.tables.filter(isMerged)) === JSON.stringify(tables) &&
    JSON.stringify(before.tablesOrder) === JSON.stringify(theirs.schema.tablesOrder)
  const compared = new Set(schema.tables.map(({ id }) => id))
  return (
    isSameSchema &&
    tables.every(({ id }) => compared.has(id)) &&
    [...changedRecords.values()].every((count) => count === 0) &&
    comparison.tables.every(({ tally }) => tally.changed === 0)
  )
}

function toResult(
  plan: MergePlan,
  comparison: MergeComparison,
  { isMerged }: { isMerged: boolean },
): MergeResult {
  return {
    merged: isMerged,
    from: plan.from.branchName,
    into: plan.into.branchName,
    schema: { operations: plan.operations },
    dataLoss: [...plan.dataLoss],
    tables: comparison.tables.map(({ name, tally: { inserted, updated, deleted } }) => ({
      name,
      inserted,
      updated,
      deleted,
    })),
    conflicts: [...comparison.conflicts],
    conflictCount: comparison.conflictCount,
  }
}

function requireNoConflicts({ from, into }: MergePlan, comparison: MergeComparison): void {
  const { conflicts, conflictCount } = comparison
  if (conflictCount === 0) return
  const count = conflictCount === 1 ? '1 conflict' : `${conflictCount} conflicts`
  throw new AppError(
    'merge_conflict',
    `branch [${from.branchName}] cannot be merged into [${into.branchName}]: ${count}; nothing was merged`,
    { details: { conflicts, conflictCount } },
  )
}
