import { newMigrationId } from '../../common/ids.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { publishRows } from '../../rows/merge.js'
import { applySchemaChanges } from '../../rows/tables.js'
import { checksumOf } from '../schemas/checksum.js'
import { storageChanges } from '../schemas/compare-schemas-by-id.js'
import {
  deleteUnusedSchema,
  findHead,
  insertMigration,
  insertSchema,
  updateHead,
} from '../schemas/queries.js'
import type { MergeComparison } from './merge-compare.js'
import type { MergePlan } from './merge-plan.js'

/** Applies a merge without conflicts: first the schema of the target, then its rows. */
export async function applyMerge(
  transaction: Transaction,
  plan: MergePlan,
  { tables }: MergeComparison,
): Promise<void> {
  await applySchema(transaction, plan)
  await publishRows(transaction, tables, plan.into.branchId)
}

/**
 * Updates the schema of the target and adds a migration to its history. New tables and columns keep
 * the ids that they have on the merged branch.
 */
async function applySchema(transaction: Transaction, plan: MergePlan): Promise<void> {
  const { into, ours, limits, schema, operations } = plan
  const { databaseId, branchId } = into
  const changes = storageChanges(ours.schema, schema)
  if (operations.length === 0 && changes.length === 0 && !plan.ids.isNew) return
  const head = await findHead(transaction, branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  const before = new Map(ours.schema.tables.map((table) => [table.id, table]))
  await applySchemaChanges(transaction, ours.rows, {
    before,
    changes,
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
      title: 'merge',
    })
  }
  const schemaId = await insertSchema(transaction, { databaseId, document: schema })
  const migrations = isMigration ? 1 : 0
  await updateHead(transaction, { branchId, schemaId, migrationId, migrations })
  await deleteUnusedSchema(transaction, head.schemaId)
}
