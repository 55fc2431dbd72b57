import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import { newEntryId } from '../../common/ids.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import { insertAfterSql } from '../checkpoints/queries.js'
import { entryOf, insertEntrySql } from '../log/entries.js'
import { updateTimesSql } from '../log/loads.js'
import { conflictFields } from './conflict-list.js'
import { baseOfTable, baseSchema } from './merge-base.js'
import type { ComparedMerge, MergeEffect } from './merge-compare.js'
import type { MergePlan } from './merge-plan.js'
import { describeOnly } from './only.js'

/**
 * Returns whether the target already contains the whole merged branch. Changes without an effect,
 * because both sides made them or the strategy rejected them, count as new: the merge must be recorded
 * so that the base of the next merge contains them.
 */
export function hasNothingNew(plan: MergePlan, effect: ComparedMerge): boolean {
  const { theirs, ours, bases, ids, schema, changedRecords, deletedFrom } = plan
  if (ids.isNew) return false
  if (plan.step !== undefined) {
    const isSame = JSON.stringify(plan.ours.schema.tables) === JSON.stringify(schema.tables)
    return isSame && !effect.comparison.hasEffect
  }
  // Records that are merged one by one have no history with this merge, so only the effect counts.
  if (plan.records !== undefined) return effect.tables.every(({ tally }) => tally.changed === 0)
  const leftOut = new Set(plan.leftOut)
  // A table whose schema alone is merged has no history with this merge, so only the effect counts.
  const onlySchema = ({ tables }: StoredSchema) =>
    JSON.stringify(tables.filter(({ id }) => plan.ruleOf(id).mode === 'schema'))
  if (onlySchema(ours.schema) !== onlySchema(schema)) return false
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
    // Tables that the target has removed are counted, and not compared.
    tables.every(
      ({ id }) => compared.has(id) || (changedRecords.has(id) && !deletedFrom.has(id)),
    ) &&
    [...changedRecords.values()].every((count) => count === 0) &&
    effect.tables.every(({ tally }) => tally.changed === 0)
  )
}

/**
 * Returns whether the history records a merge. A state with some of the records of another one does not contain it. A revert
 * is a change of the target itself: the target still contains what it takes back, so a later merge does not bring it again.
 */
export function isRecorded({ records, step }: MergePlan): boolean {
  return records === undefined && step === undefined
}

/** Returns the result of a merge that is published, and adds it to the log at the end of the transaction. */
export function logMerge(
  { lastStatements }: Transaction,
  plan: MergePlan,
  { effect, checkpoint }: { effect: MergeEffect; checkpoint: string | undefined },
): MergeResult {
  const id = newEntryId()
  const sum = (count: (tally: MergeEffect['tables'][number]['tally']) => number) =>
    effect.tables.reduce((total, { tally }) => total + count(tally), 0)
  const counts = {
    tables: effect.tables.filter(({ tally }) => tally.changed > 0).length,
    inserted: sum(({ inserted }) => inserted),
    updated: sum(({ updated }) => updated),
    deleted: sum(({ deleted }) => deleted),
    operations: plan.operations.length,
  }
  const entry = entryOf(plan.into)
  const only = plan.only && describeOnly(plan.only)
  const after = insertAfterSql(plan.into, checkpoint)
  if (after !== undefined) lastStatements.push(after.statement)
  const what = plan.step?.details ?? { from: plan.from.branchName }
  const details = { ...entry.details, ...what, only, checkpoint, after: after?.id, counts }
  lastStatements.push(insertEntrySql({ ...entry, id, kind: plan.kind, details }))
  const { restores } = plan.step ?? {}
  if (restores !== undefined) lastStatements.push(updateTimesSql(restores.load, restores.since))
  return toResult(plan, effect, { entry: id })
}

/** `entry` is that of a merge that was applied. */
export function toResult(
  plan: MergePlan,
  effect: MergeEffect,
  { entry }: { entry?: string } = {},
): MergeResult {
  return {
    merged: entry !== undefined,
    ...(entry === undefined ? {} : { entry }),
    from: plan.from.branchName,
    into: plan.into.branchName,
    schema: { operations: plan.operations },
    dataLoss: [...plan.dataLoss],
    tables: effect.tables.map(({ name, tally: { inserted, updated, deleted } }) => ({
      name,
      inserted,
      updated,
      deleted,
    })),
    ...conflictFields(effect.conflicts),
  }
}

export function requireNoConflicts({ from, into, step }: MergePlan, effect: MergeEffect): void {
  const { count } = effect.conflicts
  if (count === 0) return
  const conflicts = count === 1 ? '1 conflict' : `${count} conflicts`
  const message =
    step === undefined
      ? `branch [${from.branchName}] cannot be merged into [${into.branchName}]: ${conflicts}; nothing was merged`
      : `branch [${into.branchName}]: ${step.name} cannot be reverted: ${conflicts}; nothing was changed`
  throw new AppError('merge_conflict', message, { details: conflictFields(effect.conflicts) })
}
