import type { MergeResult } from '@offshoot/contract/branch-changes'
import type { DataLoss } from '@offshoot/contract/data-loss'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { newMigrationId } from '../../common/ids.js'
import { brokenRule, describeRefusal } from '../../data/records/failures.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { compileTable, enclosingObjects, type TableCodec } from '../../rows/columns/table-codec.js'
import { createHeap, physicalShapes } from '../../rows/layout/heap-ddl.js'
import {
  findLayout,
  type Layout,
  ownHeap,
  withColumns,
  withoutRows,
} from '../../rows/layout/layout.js'
import { applySchemaChanges, UnfillableColumnError } from '../../rows/layout/schema-changes.js'
import type { StoredSchema, StoredTable } from '../../rows/layout/stored-schema.js'
import { mayDiffer } from '../../rows/merging/changed-ids.js'
import {
  type MergeColumn,
  type MergeTally,
  type MergeTarget,
  mergeRows,
  RefusedRowError,
} from '../../rows/merging/merge-rows.js'
import { compileTableStatements } from '../../rows/writing/table-statements.js'
import { merges } from '../../telemetry/events.js'
import type { BranchAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { checksumOf } from '../schemas/checksum.js'
import { dataLossError, listRemovals, measureLoss } from '../schemas/data-loss.js'
import { type MergeStrategy, mergeSchemas, type TableRule } from '../schemas/merge-schemas.js'
import {
  deleteUnusedSchema,
  findHead,
  insertMigration,
  insertSchema,
  updateHead,
} from '../schemas/queries.js'
import { schemaDifference, storageChanges } from '../schemas/schema-difference.js'
import { type BranchState, getState } from './branch-state.js'
import { listGates, lockBranches } from './lock-branches.js'
import { type Base, type Bases, findBases, insertMerge } from './merge-base.js'
import { describeConflicts, type MergeConflict, type MergeLayouts } from './merge-conflicts.js'

export interface MergeOptions {
  readonly from: BranchAccess
  readonly into: BranchAccess
  readonly dryRun: boolean
  readonly strategy: MergeStrategy
  readonly tables: Readonly<Record<string, { strategy?: MergeStrategy; mode?: TableRule['mode'] }>>
  /** Whether the target may lose tables and columns that its records hold values in. */
  readonly allowDataLoss: boolean
  readonly limits: Limits
}

/** Ends a dry run, so that nothing of it stays. */
class DryRun extends Error {
  constructor(readonly result: MergeResult) {
    super('dry run')
  }
}

/**
 * Brings what one branch has changed into another: the schema and the rows of all tables, in one
 * transaction, three ways. Both stand still meanwhile.
 */
export async function mergeBranches(
  database: Database,
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
  const gates = await listGates(database, [from, into])
  try {
    const merged = await runTransaction(
      database,
      async (transaction) => {
        await lockBranches(transaction, [from, into], gates)
        const result = await mergeLocked(transaction, options)
        if (options.dryRun) throw new DryRun(result)
        return result
      },
      // The gates keep everyone else out; what they let in before must be seen.
      { isolation: 'read committed' },
    )
    merges.add()
    return merged
  } catch (error) {
    if (error instanceof DryRun) return error.result
    throw error
  }
}

/** What is merged, and how. */
interface Merge extends MergeOptions {
  readonly theirs: BranchState
  readonly ours: BranchState
  readonly bases: Bases
  ruleOf(tableId: number): TableRule
}

async function mergeLocked(transaction: Transaction, options: MergeOptions): Promise<MergeResult> {
  const { from, into, limits, dryRun } = options
  const theirs = await getState(transaction, from)
  const ours = await getState(transaction, into)
  requireKnownTables(options.tables, [theirs.schema, ours.schema])
  const bases = await findBases(transaction, { from, into })
  const merge = { ...options, theirs, ours, bases, ruleOf: rulesOf(options, { theirs, ours }) }

  const { schema, conflicts } = mergeSchemas(
    { base: baseSchema(bases), ours: ours.schema, theirs: theirs.schema },
    { limits, ruleOf: merge.ruleOf },
  )
  // A schema in conflict is none that edits could lead to.
  const operations = conflicts.length > 0 ? [] : schemaDifference(ours.schema, schema)
  const removals = conflicts.length > 0 ? [] : listRemovals(ours.schema, schema)
  const outcome: MergeOutcome = {
    operations,
    // Before the schema is applied, because that may drop a heap.
    dataLoss: await measureLoss(transaction, ours.layout, { removals, limits }),
    tables: [],
    conflicts: conflicts.map((conflict) => ({ ...conflict, kind: 'schema' })),
    conflictCount: conflicts.length,
  }
  if (outcome.dataLoss.length > 0 && !options.allowDataLoss && !dryRun) {
    throw dataLossError(outcome.dataLoss)
  }
  try {
    if (conflicts.length > 0) return refuse(options, outcome)
    await applySchema(transaction, merge, { schema, operations })
    for (const table of schema.tables) await mergeTable(transaction, merge, { table, outcome })
  } catch (error) {
    // After this nothing more can be found out, because PostgreSQL may have given up on it.
    if (!(error instanceof RefusedMerge)) throw error
    outcome.conflicts.push(error.conflict)
    outcome.conflictCount++
  }
  if (outcome.conflictCount > 0) return refuse(options, outcome)
  const isMerged = !dryRun && !hasNothingNew(merge, { schema, outcome })
  if (isMerged) await insertMerge(transaction, { from, into, leftOut: listLeftOut(merge) })
  return toResult(options, outcome, { isMerged })
}

/**
 * Whether the target has everything of the merged branch already. Changes that had no effect, because
 * both sides made them or the strategy rejected them, are news: the next base has to contain them.
 */
function hasNothingNew(
  merge: Merge,
  { schema, outcome }: { schema: StoredSchema; outcome: MergeOutcome },
): boolean {
  const { theirs, bases } = merge
  if (!bases.isUpToDate || bases.ofTables.size > 0 || listLeftOut(merge).length > 0) return false
  if (JSON.stringify(bases.general.schema) !== JSON.stringify(theirs.schema)) return false
  const compared = new Set(schema.tables.map(({ id }) => id))
  return (
    theirs.schema.tables.every(({ id }) => compared.has(id)) &&
    outcome.tables.every(({ tally }) => tally.compared === 0)
  )
}

/** The rule of a table that the request knows by the name it has on either side. */
function rulesOf(
  options: MergeOptions,
  { theirs, ours }: { theirs: BranchState; ours: BranchState },
): (tableId: number) => TableRule {
  const rules = new Map(Object.entries(options.tables))
  const byId = new Map<number, TableRule>()
  for (const { id, name } of [...ours.schema.tables, ...theirs.schema.tables]) {
    const rule = rules.get(name)
    if (rule === undefined) continue
    byId.set(id, { strategy: rule.strategy ?? options.strategy, mode: rule.mode ?? 'merge' })
  }
  const rest: TableRule = { strategy: options.strategy, mode: 'merge' }
  return (tableId) => byId.get(tableId) ?? rest
}

function listLeftOut({ theirs, ours, ruleOf }: Merge): number[] {
  const ids = [...theirs.schema.tables, ...ours.schema.tables].map((table) => table.id)
  return [...new Set(ids)].filter((id) => ruleOf(id).mode !== 'merge')
}

/** The schema of the base, with the tables that were left out before as their own bases have them. */
function baseSchema({ general, ofTables }: Bases): StoredSchema {
  const tableIn = ({ schema }: Base, tableId: number) =>
    schema.tables.filter((table) => table.id === tableId)
  return {
    ...general.schema,
    tables: [
      ...general.schema.tables.filter((table) => !ofTables.has(table.id)),
      ...[...ofTables].flatMap(([tableId, base]) => tableIn(base, tableId)),
    ],
  }
}

/** The schema of the target, its migration and its tables; ids stay those of the merged branch. */
async function applySchema(
  transaction: Transaction,
  { into, ours, limits }: Merge,
  merged: { schema: StoredSchema; operations: MergeResult['schema']['operations'] },
): Promise<void> {
  const { databaseId, branchId } = into
  const { schema, operations } = merged
  const changes = storageChanges(ours.schema, schema)
  if (operations.length === 0 && changes.length === 0) return
  const head = await findHead(transaction, branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  const before = new Map(ours.schema.tables.map((table) => [table.id, table]))
  try {
    await applySchemaChanges(transaction, ours.layout, { before, changes, limits })
  } catch (error) {
    if (!(error instanceof UnfillableColumnError)) throw error
    const { table, column, message } = error
    throw new RefusedMerge({ table, column, message, kind: 'notNull' })
  }
  // Indexes are no part of migrations.
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

async function mergeTable(
  transaction: Transaction,
  merge: Merge,
  { table, outcome }: { table: StoredTable; outcome: MergeOutcome },
): Promise<void> {
  const { theirs, into, limits } = merge
  const { mode, strategy } = merge.ruleOf(table.id)
  const other = tableOf(theirs, table)
  const { states, rowOf } = merge.bases.ofTables.get(table.id) ?? merge.bases.general
  const base = { states: states.map((state) => stateOf(state, table)), rowOf }
  if (mode !== 'merge' || other === undefined) return
  if (!base.states.some((state) => mayDiffer(state, theirs.layout, table.id))) return
  const codec = compileTable(table, { limits, jsonAsText: false })
  const layout = await getLayout(transaction, into)
  const sides: MergeLayouts = { base, theirs: stateOf(theirs, table), ours: layout }
  const tally = await refusing(codec, () =>
    mergeRows(transaction, {
      codec,
      columns: mergeColumns(codec, other),
      ...sides,
      strategy,
      dryRun: merge.dryRun,
      openTarget: () => openTarget(transaction, { into, codec }),
    }),
  )
  const conflicts = await describeConflicts(transaction, {
    codec,
    sides,
    conflicts: tally.conflicts,
  })
  outcome.tables.push({ name: table.name, tally })
  outcome.conflicts.push(...conflicts)
  outcome.conflictCount += tally.conflictCount
}

function tableOf({ schema }: BranchState, { id }: StoredTable): StoredTable | undefined {
  return schema.tables.find((table) => table.id === id)
}

/** Where a state has the rows of a table: with the columns it knows, or none of them. */
function stateOf(state: BranchState, table: StoredTable): Layout {
  const known = tableOf(state, table)
  if (known === undefined) return withoutRows(state.layout)
  return withColumns(state.layout, columnIdsOf(known))
}

function columnIdsOf({ columns }: StoredTable): ReadonlySet<number> {
  return new Set(physicalShapes(columns).map((shape) => shape.id))
}

function mergeColumns(codec: TableCodec, theirs: StoredTable): MergeColumn[] {
  const ids = columnIdsOf(theirs)
  return codec.physical.map(({ id }, index) => ({
    isTheirs: ids.has(id),
    objects: enclosingObjects(codec, index),
  }))
}

async function getLayout(transaction: Transaction, { branchId }: BranchAccess): Promise<Layout> {
  const layout = await findLayout(transaction, branchId)
  if (layout === undefined) throw new Error('a locked branch must have a layout')
  return layout
}

/** The heap that the target has of the table, or gets now. */
async function openTarget(
  transaction: Transaction,
  { into, codec }: { into: BranchAccess; codec: TableCodec },
): Promise<MergeTarget> {
  const { table } = codec
  const layout = await getLayout(transaction, into)
  const heap = ownHeap(layout, table.id)
  if (heap !== undefined) {
    return { layout, statements: compileTableStatements(layout, codec, heap) }
  }
  await createHeap(transaction, { ...layout, table })
  const head = await findHead(transaction, into.branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  // Other processes must learn of the heap: the same head, with a new stamp.
  await updateHead(transaction, {
    branchId: into.branchId,
    schemaId: head.schemaId,
    migrationId: head.lastMigrationId,
    migrations: 0,
  })
  return openTarget(transaction, { into, codec })
}

/** The merge cannot be, whatever the strategy. */
class RefusedMerge extends Error {
  constructor(
    readonly conflict: MergeConflict,
    options?: ErrorOptions,
  ) {
    super('the merge is refused', options)
  }
}

/** Turns what rows cannot be into a conflict. */
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
    const column = brokenRule(error, [codec])?.column
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

interface MergeOutcome {
  readonly operations: MergeResult['schema']['operations']
  readonly dataLoss: DataLoss[]
  readonly tables: { readonly name: string; readonly tally: MergeTally }[]
  readonly conflicts: MergeConflict[]
  conflictCount: number
}

function toResult(
  options: MergeOptions,
  outcome: MergeOutcome,
  { isMerged }: { isMerged: boolean },
): MergeResult {
  return {
    merged: isMerged,
    from: options.from.branchName,
    into: options.into.branchName,
    schema: { operations: outcome.operations },
    tables: outcome.tables.map(({ name, tally: { inserted, updated, deleted } }) => ({
      name,
      inserted,
      updated,
      deleted,
    })),
    conflicts: outcome.conflicts,
    conflictCount: outcome.conflictCount,
    dataLoss: outcome.dataLoss,
  }
}

/** A dry run shows the conflicts; a merge is refused because of them. */
function refuse(options: MergeOptions, outcome: MergeOutcome): MergeResult {
  const result = toResult(options, outcome, { isMerged: false })
  if (options.dryRun) return result
  const { conflicts, conflictCount } = result
  const count = conflictCount === 1 ? '1 conflict' : `${conflictCount} conflicts`
  throw new AppError(
    'merge_conflict',
    `branch [${options.from.branchName}] cannot be merged into [${options.into.branchName}]: ${count}; nothing was merged`,
    { details: { conflicts, conflictCount } },
  )
}

function requireKnownTables(
  tables: MergeOptions['tables'],
  schemas: readonly StoredSchema[],
): void {
  const names = new Set(schemas.flatMap((schema) => schema.tables.map((table) => table.name)))
  for (const name of Object.keys(tables)) {
    if (!names.has(name)) {
      throw new AppError(
        'invalid_request',
        `body: field [tables.${name}]: table [${name}] not found`,
      )
    }
  }
}
