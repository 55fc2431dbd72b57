import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import type { StoredTable } from '../../rows/columns.js'
import { baseOfTable, baseSchema } from './merge-base.js'
import type { MergeComparison } from './merge-compare.js'
import type { MergePlan } from './merge-plan.js'

/**
 * Returns whether the target already contains the whole merged branch. Changes without an effect,
 * because both sides made them or the strategy rejected them, count as new: the merge must be recorded
 * so that the base of the next merge contains them.
 */
export function hasNothingNew(plan: MergePlan, comparison: MergeComparison): boolean {
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

export function toResult(
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

export function requireNoConflicts({ from, into }: MergePlan, comparison: MergeComparison): void {
  const { conflicts, conflictCount } = comparison
  if (conflictCount === 0) return
  const count = conflictCount === 1 ? '1 conflict' : `${conflictCount} conflicts`
  throw new AppError(
    'merge_conflict',
    `branch [${from.branchName}] cannot be merged into [${into.branchName}]: ${count}; nothing was merged`,
    { details: { conflicts, conflictCount } },
  )
}
