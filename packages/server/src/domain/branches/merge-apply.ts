import { newMigrationId } from '../../common/ids.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { compileTable, type StoredTable, type TableCodec } from '../../rows/columns.js'
import { type MergeTally, mergeTable, RefusedRowError } from '../../rows/merge.js'
import { applySchemaChanges, UnfillableColumnError } from '../../rows/tables.js'
import { describeRefusal, takenColumn } from '../../rows/write.js'
import { checksumOf } from '../schemas/checksum.js'
import { storageChanges } from '../schemas/compare-schemas-by-id.js'
import {
  deleteUnusedSchema,
  findHead,
  insertMigration,
  insertSchema,
  updateHead,
} from '../schemas/queries.js'
import type { BranchState } from './branch-state.js'
import { baseOfTable } from './merge-base.js'
import { describeConflicts, type MergeConflict } from './merge-conflicts.js'
import type { MergePlan } from './merge-plan.js'

/** The effect of a merge, or the conflicts that prevent it. */
export interface MergeOutcome {
  readonly tables: readonly { readonly name: string; readonly tally: MergeTally }[]
  readonly conflicts: readonly MergeConflict[]
  /** Number of all conflicts. `conflicts` lists only the first ones of each table. */
  readonly conflictCount: number
}

/** Applies a merge whose schemas have no conflicts: first the schema of the target, then its rows. */
export async function applyMerge(transaction: Transaction, plan: MergePlan): Promise<MergeOutcome> {
  const tables: { name: string; tally: MergeTally }[] = []
  const conflicts: MergeConflict[] = []
  let conflictCount = 0
  try {
    await applySchema(transaction, plan)
    for (const table of plan.schema.tables) {
      const merged = await applyTable(transaction, plan, table)
      if (merged === undefined) continue
      tables.push({ name: table.name, tally: merged.tally })
      conflicts.push(...merged.conflicts)
      conflictCount += merged.tally.conflictCount
    }
  } catch (error) {
    // PostgreSQL may have aborted the transaction, so the search for conflicts ends here.
    if (!(error instanceof RefusedMerge)) throw error
    conflicts.push(error.conflict)
    conflictCount++
  }
  return { tables, conflicts, conflictCount }
}

/**
 * Updates the schema of the target and adds a migration to its history. New tables and columns keep
 * the ids that they have on the merged branch.
 */
async function applySchema(transaction: Transaction, plan: MergePlan): Promise<void> {
  const { into, ours, limits, schema, operations } = plan
  const { databaseId, branchId } = into
  const changes = storageChanges(ours.schema, schema)
  if (operations.length === 0 && changes.length === 0) return
  const head = await findHead(transaction, branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  const before = new Map(ours.schema.tables.map((table) => [table.id, table]))
  try {
    await applySchemaChanges(transaction, ours.rows, { before, changes, limits })
  } catch (error) {
    if (!(error instanceof UnfillableColumnError)) throw error
    const { table, column, message } = error
    throw new RefusedMerge({ table, column, message, kind: 'notNull' })
  }
  // Indexes are not part of migrations.
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

/** Merges the rows of a table. Returns undefined if the merged branch cannot have changed any. */
async function applyTable(
  transaction: Transaction,
  plan: MergePlan,
  table: StoredTable,
): Promise<{ tally: MergeTally; conflicts: MergeConflict[] } | undefined> {
  const { into, dryRun, limits } = plan
  const { mode, strategy } = plan.ruleOf(table.id)
  const theirs = { rows: plan.theirs.rows, table: tableOf(plan.theirs, table) }
  if (mode !== 'merge' || theirs.table === undefined) return undefined
  const base = baseOfTable(plan.bases, table.id)
  const codec = compileTable(table, { limits, jsonAsText: false })
  const merged = await refusing(codec, () =>
    mergeTable(transaction, {
      codec,
      base: {
        states: base.states.map((state) => ({ rows: state.rows, table: tableOf(state, table) })),
        rowOf: base.rowOf,
      },
      theirs: { rows: theirs.rows, table: theirs.table as StoredTable },
      into: into.branchId,
      strategy,
      dryRun,
    }),
  )
  if (merged === undefined) return undefined
  const { tally, sides } = merged
  const conflicts = await describeConflicts(transaction, {
    codec,
    sides,
    conflicts: tally.conflicts,
  })
  return { tally, conflicts }
}

function tableOf({ schema }: BranchState, { id }: StoredTable): StoredTable | undefined {
  return schema.tables.find((table) => table.id === id)
}

/** Thrown when a merge is impossible with any strategy. */
class RefusedMerge extends Error {
  constructor(
    readonly conflict: MergeConflict,
    options?: ErrorOptions,
  ) {
    super('the merge is refused', options)
  }
}

/** Converts the refusal of a row, here or by PostgreSQL, into a conflict. */
async function refusing<Result>(codec: TableCodec, body: () => Promise<Result>): Promise<Result> {
  try {
    return await body()
  } catch (error) {
    const table = codec.table.name
    if (error instanceof RefusedRowError) {
      const { column, kind, message } = error
      throw new RefusedMerge({ table, column, kind, message: `${message} after the merge` })
    }
    const reason = describeRefusal(error, [codec])
    if (reason === undefined) throw error
    const column = takenColumn(error, [codec])?.column
    throw new RefusedMerge(
      {
        table,
        ...(column === undefined ? {} : { column }),
        kind: column === undefined ? 'refused' : 'notUnique',
        message: `${reason} after the merge`,
      },
      { cause: error },
    )
  }
}
