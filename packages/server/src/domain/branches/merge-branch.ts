import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Database } from '../../postgres/database.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { commonBase, mayDiffer } from '../../rows/changed-ids.js'
import { compileTable, type TableCodec } from '../../rows/columns/table-codec.js'
import { listCompared } from '../../rows/compare-rows.js'
import { enterGate } from '../../rows/gate.js'
import { createHeap } from '../../rows/heap-ddl.js'
import { findLayout, type Layout, ownHeap } from '../../rows/layout.js'
import {
  type MergeTally,
  mergeRows,
  NotUniqueError,
  type RowConflict,
} from '../../rows/merge-rows.js'
import { applySchemaChanges } from '../../rows/schema-changes.js'
import type { StoredSchema, StoredTable } from '../../rows/stored-schema.js'
import { compileTableStatements } from '../../rows/table-statements.js'
import type { BranchAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { newMigrationId } from '../ids.js'
import { describeRefusal } from '../records/failures.js'
import { checksumOf } from '../schemas/checksum.js'
import {
  type MergedSchema,
  type MergeStrategy,
  mergeSchemas,
  type TableRule,
} from '../schemas/merge-schemas.js'
import { deleteUnusedSchema, findHead, updateHead } from '../schemas/queries.js'
import { schemaDifference, storageChanges } from '../schemas/schema-difference.js'
import { type BranchState, findState, getForkSchema, getState } from './branch-state.js'
import { findMergeBase, replaceMergeBase } from './merge-base.js'
import { findGate, insertMigration, insertSchema } from './queries.js'

export interface MergeOptions {
  readonly from: BranchAccess
  readonly into: BranchAccess
  readonly dryRun: boolean
  readonly strategy: MergeStrategy
  readonly tables: Readonly<Record<string, { strategy?: MergeStrategy; mode?: TableRule['mode'] }>>
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
    return await runTransaction(
      database,
      async (transaction) => {
        for (const gate of gates) await enterGate(transaction, { gate, alone: true })
        const result = await mergeLocked(transaction, options)
        if (options.dryRun) throw new DryRun(result)
        return result
      },
      // The gates keep everyone else out; what they let in before must be seen.
      { isolation: 'read committed' },
    )
  } catch (error) {
    if (error instanceof DryRun) return error.result
    throw error
  }
}

/** In one order for everyone, so that two merges cannot wait for each other. */
async function listGates(database: Database, branches: readonly BranchAccess[]): Promise<number[]> {
  const gates = new Set<number>()
  for (const { databaseId, branchId, branchName } of branches) {
    const found = await findGate(database, { databaseId, id: branchId })
    if (found === undefined) {
      throw new AppError('branch_not_found', `branch [${branchName}] not found`)
    }
    gates.add(found.gate)
  }
  return [...gates].sort((left, right) => left - right)
}

async function mergeLocked(transaction: Transaction, options: MergeOptions): Promise<MergeResult> {
  const { from, into, limits } = options
  const theirs = await getState(transaction, from)
  const ours = await getState(transaction, into)
  const base = await getBase(transaction, { from, into, theirs, ours })
  const ruleOf = (tableName: string): TableRule => ({
    strategy: options.tables[tableName]?.strategy ?? options.strategy,
    mode: options.tables[tableName]?.mode ?? 'merge',
  })
  requireKnownTables(options.tables, [theirs.schema, ours.schema])
  const merged = mergeSchemas(
    { base: base.schema, ours: ours.schema, theirs: theirs.schema },
    ruleOf,
  )
  const operations = schemaDifference(ours.schema, merged.schema)
  if (merged.conflicts.length > 0) return refuse(options, { operations, merged, tables: [] })
  if (operations.length > 0) await applySchema(transaction, { into, ours, merged, limits })

  const tables: TableMerge[] = []
  for (const table of merged.schema.tables) {
    const { mode, strategy } = ruleOf(table.name)
    const isShared = theirs.schema.tables.some(({ id }) => id === table.id)
    if (mode !== 'merge' || !isShared) continue
    if (!mayDiffer(base.layout, theirs.layout, table.id)) continue
    tables.push(await mergeTable(transaction, { table, base, theirs, into, strategy, limits }))
  }
  const result = { operations, merged, tables }
  if (tables.some(({ tally }) => tally.conflictCount > 0)) return refuse(options, result)
  if (!options.dryRun) await replaceMergeBase(transaction, { from, into })
  return toResult(options, result)
}

/** What both had when they were last the same: at their last merge, or where their ways parted. */
async function getBase(
  transaction: Transaction,
  sides: { from: BranchAccess; into: BranchAccess; theirs: BranchState; ours: BranchState },
): Promise<BranchState> {
  const { from, into, theirs, ours } = sides
  const lastMerge = await findMergeBase(transaction, { from, into })
  if (lastMerge !== undefined) {
    const state = await findState(transaction, lastMerge, { hidden: true })
    if (state !== undefined) return state
  }
  const common = commonBase(theirs.layout, ours.layout)
  if (common === undefined) {
    throw new AppError(
      'unrelated_branches',
      `branches [${from.branchName}] and [${into.branchName}] have no rows of a common past`,
    )
  }
  const schema = await getForkSchema(transaction, common.forkedBranchId)
  return { layout: common.layout, schema }
}

/** The schema of the target, its migration and its tables; ids stay those of the merged branch. */
async function applySchema(
  transaction: Transaction,
  options: { into: BranchAccess; ours: BranchState; merged: MergedSchema; limits: Limits },
): Promise<void> {
  const { into, ours, merged, limits } = options
  const { databaseId, branchId } = into
  const head = await findHead(transaction, branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  const before = new Map(ours.schema.tables.map((table) => [table.id, table]))
  const changes = storageChanges(ours.schema, merged.schema)
  await applySchemaChanges(transaction, ours.layout, { before, changes, limits })
  const operations = schemaDifference(ours.schema, merged.schema)
  const migrationId = newMigrationId()
  await insertMigration(transaction, {
    id: migrationId,
    databaseId,
    parentId: head.lastMigrationId,
    checksum: checksumOf(operations),
    operations,
    title: 'merge',
  })
  const schemaId = await insertSchema(transaction, { databaseId, document: merged.schema })
  await updateHead(transaction, { branchId, schemaId, migrationId, migrations: 1 })
  await deleteUnusedSchema(transaction, head.schemaId)
}

interface TableMerge {
  readonly table: StoredTable
  readonly tally: MergeTally
  readonly conflicts: readonly Readonly<Record<string, unknown>>[]
}

async function mergeTable(
  transaction: Transaction,
  options: {
    table: StoredTable
    base: BranchState
    theirs: BranchState
    into: BranchAccess
    strategy: MergeStrategy
    limits: Limits
  },
): Promise<TableMerge> {
  const { table, base, theirs, into, strategy, limits } = options
  const codec = compileTable(table, { limits, jsonAsText: false })
  const ours = await writableLayout(transaction, into, table)
  const heap = ownHeap(ours, table.id)
  if (heap === undefined) throw new Error('a heap that was made must be there')
  const target = compileTableStatements(ours, codec, heap)
  const states = [base.layout, theirs.layout, ours] as const
  try {
    const tally = await mergeRows(transaction, {
      codec,
      base: base.layout,
      theirs: theirs.layout,
      ours,
      strategy,
      target,
    })
    const conflicts = await describeConflicts(transaction, { codec, states, tally })
    return { table, tally, conflicts }
  } catch (error) {
    const reason = error instanceof NotUniqueError ? error.message : describeRefusal(error, [codec])
    if (reason === undefined) throw error
    throw new AppError(
      'merge_conflict',
      `table [${table.name}]: ${reason} after the merge; nothing was merged`,
      { cause: error },
    )
  }
}

/** The layout of the target with a heap of its own for the table. */
async function writableLayout(
  transaction: Transaction,
  { branchId }: BranchAccess,
  table: StoredTable,
): Promise<Layout> {
  const layout = await findLayout(transaction, branchId)
  if (layout === undefined) throw new Error('a locked branch must have a layout')
  if (ownHeap(layout, table.id) !== undefined) return layout
  await createHeap(transaction, { ...layout, table })
  const head = await findHead(transaction, branchId)
  if (head === undefined) throw new Error('a locked branch must have a head')
  // Other processes must learn of the heap: the same head, with a new stamp.
  await updateHead(transaction, {
    branchId,
    schemaId: head.schemaId,
    migrationId: head.lastMigrationId,
    migrations: 0,
  })
  return writableLayout(transaction, { branchId } as BranchAccess, table)
}

/** Conflicts with the values of all three sides. */
async function describeConflicts(
  transaction: Transaction,
  options: {
    codec: TableCodec
    states: readonly [Layout, Layout, Layout]
    tally: MergeTally
  },
): Promise<Readonly<Record<string, unknown>>[]> {
  const { codec, states, tally } = options
  if (tally.conflicts.length === 0) return []
  const ids = tally.conflicts.map((conflict) => conflict.id)
  const rows = await listCompared(transaction, {
    codec,
    states,
    form: 'json',
    after: '',
    limit: ids.length,
    ids,
  })
  const byId = new Map(rows.map((row) => [row.id, row.states]))
  return tally.conflicts.map((conflict) => {
    const [base, theirs, ours] = byId.get(conflict.id) ?? []
    return describeConflict(codec, conflict, { base, ours, theirs })
  })
}

function describeConflict(
  codec: TableCodec,
  conflict: RowConflict,
  sides: Readonly<Record<'base' | 'ours' | 'theirs', readonly (string | null)[] | undefined>>,
): Readonly<Record<string, unknown>> {
  const { id, kind, columns } = conflict
  const named = { table: codec.table.name, id, kind }
  const readValue = (texts: readonly (string | null)[] | undefined, column: number): unknown => {
    const text = texts?.[column]
    const physical = codec.physical[column]
    return text == null || physical === undefined ? null : JSON.parse(physical.codec.decode(text))
  }
  if (columns.length > 0) {
    return {
      ...named,
      columns: Object.fromEntries(
        columns.map((column) => [
          codec.physical[column]?.path.join('.') ?? '',
          {
            base: readValue(sides.base, column),
            ours: readValue(sides.ours, column),
            theirs: readValue(sides.theirs, column),
          },
        ]),
      ),
    }
  }
  const recordOf = (texts: readonly (string | null)[] | undefined): unknown =>
    texts === undefined ? null : JSON.parse(`{${codec.decodeRow(texts)}}`)
  return {
    ...named,
    base: recordOf(sides.base),
    ours: recordOf(sides.ours),
    theirs: recordOf(sides.theirs),
  }
}

interface MergeOutcome {
  readonly operations: MergeResult['schema']['operations']
  readonly merged: MergedSchema
  readonly tables: readonly TableMerge[]
}

function toResult(options: MergeOptions, outcome: MergeOutcome): MergeResult {
  const conflicts = [
    ...outcome.merged.conflicts.map((conflict) => ({ ...conflict, kind: 'schema' })),
    ...outcome.tables.flatMap((table) => table.conflicts),
  ]
  return {
    merged: !options.dryRun,
    from: options.from.branchName,
    into: options.into.branchName,
    schema: { operations: outcome.operations },
    tables: outcome.tables.map(({ table, tally }) => ({
      name: table.name,
      inserted: tally.inserted,
      updated: tally.updated,
      deleted: tally.deleted,
    })),
    conflicts,
    conflictCount:
      outcome.merged.conflicts.length +
      outcome.tables.reduce((count, { tally }) => count + tally.conflictCount, 0),
  }
}

/** A dry run shows the conflicts; a merge is refused because of them. */
function refuse(options: MergeOptions, outcome: MergeOutcome): MergeResult {
  const result = toResult(options, outcome)
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
