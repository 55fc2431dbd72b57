import { newMigrationId } from '../../common/ids.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import type { SchemaChange } from '../../rows/heaps/schema-changes.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import type { Comparison, Outcome } from '../../rows/merging/comparison.js'
import { RowState } from '../../rows/row-state.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { BranchState } from '../branches/branch-state.js'
import { checksumOf } from '../schemas/checksum.js'
import { storageChanges } from '../schemas/compare-schemas-by-id.js'
import {
  deleteUnusedSchema,
  findHead,
  insertMigration,
  insertSchema,
  updateHead,
} from '../schemas/queries.js'
import { joinSequences } from './join-sequences.js'
import { stateOf } from './merge-base.js'
import type { MergePlan } from './merge-plan.js'

/**
 * Applies a merge without conflicts to the target, which is locked: first its schema, then its rows. `ours` is the state
 * of the target now. Throws an `OutdatedError` if it does not fit the comparison any more.
 */
export async function applyMerge(
  transaction: Transaction,
  plan: MergePlan,
  { comparison, ours }: { comparison: Comparison; ours: BranchState },
): Promise<Outcome> {
  const outcome = await comparison.renew(transaction, (table) => stateOf(ours, table))
  const changes = storageChanges(ours.schema, plan.schema)
  const { before, after } = RowState.divideChanges(changes)
  const isChanged = await applySchema(transaction, { ...plan, ours }, changes, before)
  const target = isChanged ? await getRows(transaction, plan) : ours.rows
  await outcome.publish(transaction, target, { by: plan.into.principal, cause: plan.kind })
  if (after.length > 0) {
    await new RowState(await getRows(transaction, plan)).change(transaction, {
      before: new Map(),
      changes: after,
      limits: plan.limits,
      areRowsChecked: true,
    })
  }
  const rows = isChanged ? await getRows(transaction, plan) : target
  await joinSequences(transaction, plan, { rows, before: ours.schema })
  return outcome
}

async function getRows(transaction: Transaction, { into }: MergePlan): Promise<BranchRows> {
  const rows = await new StoredBranch(transaction, into.branchId).findRows()
  if (rows === undefined) throw new Error('a locked branch must exist')
  return rows
}

/**
 * Updates the schema of the target and adds a migration to its history. New tables and columns keep
 * the ids that they have on the merged branch. Returns whether there was something to update.
 */
async function applySchema(
  transaction: Transaction,
  plan: MergePlan,
  changes: readonly SchemaChange[],
  early: readonly SchemaChange[],
): Promise<boolean> {
  const { into, ours, limits, schema, operations } = plan
  const { databaseId, branchId } = into
  // The schema also remembers columns that the target has decided against.
  const known = new Set(ours.schema.removedIds)
  const isRemembered = (schema.removedIds ?? []).every((id) => known.has(id))
  if (operations.length + changes.length === 0 && isRemembered && !plan.ids.isNew) return false
  const head = await findHead(transaction, branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  const before = new Map(ours.schema.tables.map((table) => [table.id, table]))
  await new RowState(ours.rows).change(transaction, {
    before,
    changes: early,
    limits,
    areRowsChecked: true,
  })
  // Indexes and the ids of other branches are not part of migrations.
  const isMigration = operations.length > 0
  const migrationId = isMigration ? newMigrationId() : head.lastMigrationId
  if (isMigration) {
    await insertMigration(transaction, {
      id: migrationId,
      databaseId,
      parentId: head.lastMigrationId,
      checksum: checksumOf(operations),
      operations,
      title: plan.kind === 'revert' ? 'revert' : 'merge',
    })
  }
  const schemaId = await insertSchema(transaction, { databaseId, document: schema })
  const migrations = isMigration ? 1 : 0
  await updateHead(transaction, { branchId, schemaId, migrationId, migrations })
  await deleteUnusedSchema(transaction, head.schemaId)
  return true
}
