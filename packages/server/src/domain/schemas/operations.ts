import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { ColumnProblem } from '@offshoot/contract/column-problems'
import type { DataLoss } from '@offshoot/contract/data-loss'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Column, Constraint, Schema } from '@offshoot/contract/schema'
import {
  type AlterColumnRequest,
  type ColumnPreview,
  type CompareBranch,
  type CompareSchema,
  type Comparison,
  type ConstraintPreview,
  HISTORY_PAGE_SIZE,
  type History,
  type HistoryRequest,
  type Preview,
  type PreviewEdits,
  type PushMigrations,
  type SchemaOperation,
  type SchemaUpdate,
  type UpdateSchema,
} from '@offshoot/contract/schema-edits'
import { inTurns } from '../../common/in-turns.js'
import type { Database, Queryable } from '../../postgres/database.js'
import {
  runTransaction,
  SNAPSHOT,
  type Transaction,
  type TransactionOptions,
  WRITABLE_SNAPSHOT,
} from '../../postgres/run-transaction.js'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { BranchAccess } from '../access/resolve.js'
import type { LongWork } from '../long-work/long-work.js'
import { applyOperations } from './apply-operations.js'
import { canAlter, compareConstraints, NEVER } from './compare-columns.js'
import { compareSchemasByName, idTypesOf, withoutRemoved } from './compare-schemas-by-name.js'
import { listLost, measureLoss } from './data-loss.js'
import { dryRunOptions, parseExpressions } from './edit-options.js'
import { editInside, editSchema, getHead, type PlanEdits, type WithPin } from './edit-schema.js'
import { planPush } from './plan-push.js'
import { findColumn, flattenColumns, toPublicSchema } from './public-schema.js'
import { type BranchHead, findMigrations, listMigrations, type MigrationRow } from './queries.js'
import { readSchema } from './read-schema.js'
import { setColumns } from './set-columns.js'

export interface EditContext {
  readonly access: BranchAccess
  readonly limits: Limits
}

/** The context of an edit that is applied, and may lose values if `allowDataLoss` is set. */
interface WriteContext extends EditContext {
  readonly allowDataLoss: boolean
  /** The request may be answered before the edit ends. */
  readonly work?: LongWork | undefined
}

/** The context of an edit that runs its own transactions. */
export interface EditorContext extends WriteContext {
  readonly withPin: WithPin
}

/** A constraint, and the name of its table. */
interface ConstraintChange {
  readonly tableName: string
  readonly constraint: Constraint
}

/** Returns the operations that add a constraint, or replace the one of that name. An equal one stays as it is. */
function operationsOf(
  schema: StoredSchema,
  { tableName: table, constraint }: ConstraintChange,
): SchemaOperation[] {
  const { constraints = [] } = publicTable(schema, table)
  const known = constraints.filter(({ name }) => name === constraint.name)
  const { removed, added } = compareConstraints(known, [constraint])
  return [
    ...removed.map((name) => ({ removeConstraint: { table, constraint: name } })),
    ...added.map((each) => ({ addConstraint: { table, constraint: each } })),
  ]
}

/** Adds a constraint to a table, or replaces the one of that name. */
export function setConstraint(
  storage: Storage,
  context: EditorContext,
  change: ConstraintChange,
): Promise<SchemaUpdate> {
  return editDirectly(storage, context, async ({ schema }) => {
    const operations = operationsOf(schema, change)
    return operations.length === 0 ? [] : [{ operations }]
  })
}

/** Returns a constraint, and the records that do not allow it. Changes nothing. */
export function previewConstraint(
  database: Database,
  { access, limits }: EditContext,
  change: ConstraintChange,
): Promise<ConstraintPreview> {
  return look(
    database,
    async (transaction) => {
      const { schema: before } = await getHead(transaction, access)
      const operations = operationsOf(before, change)
      const { problems } = await tryEdit(transaction, { access, limits }, { before, operations })
      return { constraint: change.constraint, problems }
    },
    LOOK_AT_ROWS,
  )
}

/** Returns the schema after operations, and the records that do not allow them. Changes nothing. */
async function tryEdit(
  transaction: Queryable,
  { access, limits }: EditContext,
  { before, operations }: { before: StoredSchema; operations: readonly SchemaOperation[] },
): Promise<{ after: StoredSchema; problems: ColumnProblem[] }> {
  const options = dryRunOptions(limits, await parseExpressions(operations, before))
  const { schema: after, changes } = await inTurns(applyOperations(before, operations, options))
  await yieldToOthers()
  const rows = new RowState(await getRows(transaction, access))
  const checked = { before: byId(before), changes, limits }
  return { after, problems: await rows.findChangeProblems(transaction, checked) }
}

/** Applies operations as one migration. */
export function applySchemaOperations(
  storage: Storage,
  context: EditorContext,
  operations: readonly SchemaOperation[],
): Promise<SchemaUpdate> {
  return editDirectly(storage, context, async () => [{ operations: [...operations] }])
}

/** A column by its names, and what is to change in it. */
interface ColumnChange {
  readonly tableName: string
  readonly columnName: string
  readonly changes: Omit<AlterColumnRequest, 'dryRun'>
}

function toOperation({ tableName, columnName, changes }: ColumnChange): SchemaOperation {
  const { name, ...others } = changes
  // Clients that store migrations in files know this operation for a name alone.
  if (name !== undefined && Object.keys(others).length === 0) {
    return { renameColumn: { table: tableName, oldName: columnName, newName: name } }
  }
  return { alterColumn: { table: tableName, column: columnName, ...changes } }
}

/** Changes the name or the definition of a column as one migration. */
export function alterColumn(
  storage: Storage,
  context: EditorContext,
  change: ColumnChange,
): Promise<SchemaUpdate> {
  return applySchemaOperations(storage, context, [toOperation(change)])
}

/** Returns the column that a change leads to, and the records that do not allow it. Changes nothing. */
export function previewColumn(
  database: Database,
  { access, limits }: EditContext,
  change: ColumnChange,
): Promise<ColumnPreview> {
  return look(
    database,
    async (transaction) => {
      const { schema: before } = await getHead(transaction, access)
      const operations = [toOperation(change)]
      const edit = { before, operations }
      const { after, problems } = await tryEdit(transaction, { access, limits }, edit)
      const { tableName, columnName, changes } = change
      const column = findColumn(publicTable(after, tableName), changes.name ?? columnName)
      if (column === undefined) throw new Error('a column that was changed must exist')
      return { column, problems }
    },
    LOOK_AT_ROWS,
  )
}

/** Whether an expression can be used is found out by a temporary table. */
const LOOK_AT_ROWS = WRITABLE_SNAPSHOT

const byId = ({ tables }: StoredSchema): ReadonlyMap<number, StoredTable> =>
  new Map(tables.map((table) => [table.id, table]))

export function updateSchema(
  storage: Storage,
  context: EditorContext,
  { parentID, operations }: UpdateSchema,
): Promise<SchemaUpdate> {
  return editDirectly(storage, context, async (head) => {
    if (parentID !== undefined && parentID !== head.lastMigrationId) {
      throw new AppError(
        'conflict',
        `migration [${parentID}]: is not the last migration of the branch, which is [${head.lastMigrationId}]`,
      )
    }
    return [{ operations }]
  })
}

/** Replaces the column list of a table. */
export function replaceColumns(
  storage: Storage,
  context: EditorContext,
  options: { tableName: string; columns: readonly Column[] },
): Promise<SchemaUpdate> {
  return editDirectly(storage, context, async ({ schema }) => {
    const before = toPublicSchema(schema)
    const canBecome = canAlter(idTypesOf(before, before))
    const table = publicTable(schema, options.tableName)
    return [{ operations: setColumns(table, options.columns, canBecome) }]
  })
}

export function pushMigrations(
  storage: Storage,
  context: EditorContext,
  { migrations }: PushMigrations,
): Promise<SchemaUpdate> {
  return editDirectly(storage, context, async (head, transaction) => {
    const { found } = await findMigrations(transaction, {
      databaseId: context.access.databaseId,
      fromId: head.lastMigrationId,
      ids: migrations.map(({ id }) => id),
    })
    return planPush({ head: head.lastMigrationId, known: found, migrations })
  })
}

/** Applies schema edits of a request. A protected branch refuses them; it accepts merges. */
export function editDirectly(
  storage: Storage,
  { access, limits, allowDataLoss, work, withPin }: EditorContext,
  plan: PlanEdits,
  finish?: Parameters<typeof editSchema>[2]['finish'],
): Promise<SchemaUpdate> {
  return editSchema(storage, access, {
    limits,
    allowDataLoss,
    work,
    withPin,
    finish,
    plan: unlessProtected(access, plan),
  })
}

/** Does so in a transaction that has the branch alone. */
export function editWithin(
  transaction: Transaction,
  { access, limits, allowDataLoss }: WriteContext,
  plan: PlanEdits,
  finish: Parameters<typeof editSchema>[2]['finish'],
): Promise<SchemaUpdate> {
  const edit = { limits, allowDataLoss, finish, plan: unlessProtected(access, plan) }
  return editInside(transaction, access, edit)
}

function unlessProtected(access: BranchAccess, plan: PlanEdits): PlanEdits {
  return async (head, transaction) => {
    requireUnprotected(access, head)
    return plan(head, transaction)
  }
}

export function requireUnprotected({ branchName }: BranchAccess, head: BranchHead): void {
  if (!head.isProtected) return
  throw new AppError(
    'protected_branch',
    `branch [${branchName}]: is protected and its schema cannot be edited directly; ` +
      'merge a branch into it, or remove the protection first',
  )
}

export async function readTableColumns(
  database: Database,
  { access }: EditContext,
  tableName: string,
): Promise<{ columns: Column[] }> {
  const { schema } = await getHead(database, access)
  return { columns: [...publicTable(schema, tableName).columns] }
}

export async function readFlatColumns(
  database: Database,
  { access }: EditContext,
  tableName: string,
): Promise<{ columns: Column[] }> {
  const { schema } = await getHead(database, access)
  return { columns: flattenColumns(publicTable(schema, tableName)) }
}

export async function readColumn(
  database: Database,
  { access }: EditContext,
  options: { tableName: string; columnName: string },
): Promise<Column> {
  const { schema } = await getHead(database, access)
  const column = findColumn(publicTable(schema, options.tableName), options.columnName)
  if (column === undefined) throw columnNotFound(options)
  return column
}

/** The context of a comparison or preview, which applies nothing. */
export interface LookContext extends EditContext {
  /** Whether the response lists the values that would be lost. */
  readonly showsLoss: boolean
  /** Whether a comparison may answer that a column gets another definition, instead of removing and adding it. */
  readonly altersColumns: boolean
}

/** Returns the edits that turn the schema of the branch into the given schema. */
export function compareWithSchema(
  database: Database,
  context: LookContext,
  request: CompareSchema,
): Promise<Comparison> {
  return look(database, async (transaction) => {
    const head = await getHead(transaction, context.access)
    const { branchOperations = [], schemaOperations = [] } = request
    const expressions = await parseExpressions(
      [...branchOperations, ...schemaOperations],
      head.schema,
      request.schema,
    )
    const options = dryRunOptions(context.limits, expressions)
    const { schema: source } = await inTurns(
      applyOperations(head.schema, branchOperations, options),
    )
    await yieldToOthers()
    const given = await inTurns(readSchema(request.schema, options))
    await yieldToOthers()
    const { schema: target } = await inTurns(applyOperations(given, schemaOperations, options))
    await yieldToOthers()
    const compared = comparison(context, source, keepConstraints(source, target, request.schema), {
      sourceMigrationID: head.lastMigrationId,
    })
    const after = withoutRemoved(source, compared.edits.operations)
    await yieldToOthers()
    return { ...compared, ...(await lossOf(transaction, context, { before: head.schema, after })) }
  })
}

/** Returns the edits that turn the schema of the branch into the schema of another branch. */
export function compareWithBranch(
  database: Database,
  context: LookContext,
  options: { other: BranchAccess; request: CompareBranch },
): Promise<Comparison> {
  const { sourceBranchOperations = [], targetBranchOperations = [] } = options.request
  return look(database, async (transaction) => {
    const head = await getHead(transaction, context.access)
    const other = await getHead(transaction, options.other)
    const expressions = await parseExpressions(
      [...sourceBranchOperations, ...targetBranchOperations],
      { tables: [...head.schema.tables, ...other.schema.tables] },
    )
    const dryRun = dryRunOptions(context.limits, expressions)
    const { schema: source } = await inTurns(
      applyOperations(head.schema, sourceBranchOperations, dryRun),
    )
    await yieldToOthers()
    const { schema: target } = await inTurns(
      applyOperations(other.schema, targetBranchOperations, dryRun),
    )
    await yieldToOthers()
    const compared = comparison(context, source, toPublicSchema(target), {
      sourceMigrationID: head.lastMigrationId,
      targetMigrationID: other.lastMigrationId,
    })
    const after = withoutRemoved(source, compared.edits.operations)
    return { ...compared, ...(await lossOf(transaction, context, { before: head.schema, after })) }
  })
}

export function previewEdits(
  database: Database,
  context: LookContext,
  request: PreviewEdits,
): Promise<Preview> {
  return look(
    database,
    async (transaction) => {
      const { schema: before } = await getHead(transaction, context.access)
      const operations = request.edits?.operations ?? []
      const { after, problems } = await tryEdit(transaction, context, { before, operations })
      return {
        original: toPublicSchema(before),
        updated: toPublicSchema(after),
        ...(await lossOf(transaction, context, { before, after })),
        ...(operations.some(mayAddRule) && { problems }),
      }
    },
    LOOK_AT_ROWS,
  )
}

/** Returns whether records can be a reason against an operation. */
function mayAddRule(operation: SchemaOperation): boolean {
  if (!('addColumn' in operation)) {
    return ['alterColumn', 'alterTable', 'addConstraint'].some((kind) => kind in operation)
  }
  const { notNull, computed } = operation.addColumn.column
  return notNull === true || computed !== undefined
}

function look<Result>(
  database: Database,
  body: (transaction: Queryable) => Promise<Result>,
  options: TransactionOptions = SNAPSHOT,
): Promise<Result> {
  return runTransaction(database, body, options)
}

async function getRows(transaction: Queryable, { branchId }: BranchAccess): Promise<BranchRows> {
  const rows = await new StoredBranch(transaction, branchId).findRows()
  if (rows === undefined) throw new Error('a branch with a head must have rows')
  return rows
}

async function lossOf(
  transaction: Queryable,
  { access, limits, showsLoss }: LookContext,
  { before, after }: { before: StoredSchema; after: StoredSchema },
): Promise<{ dataLoss?: DataLoss[] }> {
  if (!showsLoss) return {}
  const removals = listLost(before, after)
  if (removals.length === 0) return { dataLoss: [] }
  const rows = await getRows(transaction, access)
  return { dataLoss: await measureLoss(transaction, rows, { removals, limits }) }
}

/**
 * Returns a page of the migrations of the branch, newest first. The cursor of a page is the id of its
 * last migration.
 */
export async function readHistory(
  database: Database,
  { access }: EditContext,
  { page, since }: HistoryRequest,
): Promise<History> {
  const { lastMigrationId } = await getHead(database, access)
  if (page?.after !== undefined && page.before !== undefined) {
    throw new AppError('invalid_request', 'body: field [page]: takes [after] or [before], not both')
  }
  const history = { databaseId: access.databaseId, fromId: lastMigrationId }
  const ids = [since, page?.after, page?.before].filter((id) => id !== undefined)
  const { total, found } = await findMigrations(database, { ...history, ids })
  const positions = new Map(found.map(({ id, position }) => [id, position]))
  const positionOf = (id: string, field: string): number => {
    const position = positions.get(id)
    if (position === undefined) {
      throw new AppError('invalid_request', `body: field [${field}]: [${id}] is not in the history`)
    }
    return position
  }
  const end = since === undefined ? total : positionOf(since, 'since') - 1
  const size = page?.size ?? HISTORY_PAGE_SIZE
  let first = page?.after === undefined ? 1 : positionOf(page.after, 'page.after') + 1
  let last = Math.min(end, first + size - 1)
  if (page?.before !== undefined) {
    last = Math.min(end, positionOf(page.before, 'page.before') - 1)
    first = Math.max(1, last - size + 1)
  }
  const logs = await listMigrations(database, { ...history, first, last })
  return {
    meta: { cursor: logs.at(-1)?.id ?? page?.after ?? lastMigrationId, more: last < end },
    logs: logs.map(toLog),
  }
}

function toLog(row: MigrationRow): History['logs'][number] {
  return {
    id: row.id,
    ...(row.parentId === null ? {} : { parentID: row.parentId }),
    checksum: row.checksum,
    operations: [...row.operations],
    createdAt: row.createdAt.toISOString(),
    ...(row.title === null ? {} : { title: row.title }),
    ...(row.message === null ? {} : { message: row.message }),
  }
}

function comparison(
  { altersColumns }: LookContext,
  source: StoredSchema,
  to: Schema,
  ids: { sourceMigrationID: string; targetMigrationID?: string },
): Comparison {
  const from = toPublicSchema(source)
  const operations = compareSchemasByName(from, to, altersColumns ? undefined : NEVER)
  return { source: from, target: to, edits: { ...ids, operations } }
}

/** Gives tables that a client has sent without `constraints` those that they have: clients may not know of them. */
function keepConstraints(source: StoredSchema, target: StoredSchema, sent: Schema): Schema {
  const known = new Map(toPublicSchema(source).tables.map((table) => [table.name, table]))
  const listed = new Set(sent.tables.flatMap(({ name, constraints }) => (constraints ? name : [])))
  const { tables, ...rest } = toPublicSchema(target)
  return {
    ...rest,
    tables: tables.map((table) => {
      const { constraints } = known.get(table.name) ?? {}
      const isKept = !listed.has(table.name) && table.constraints === undefined
      return isKept && constraints !== undefined ? { ...table, constraints } : table
    }),
  }
}

function publicTable(schema: StoredSchema, name: string): Schema['tables'][number] {
  const table = toPublicSchema(schema).tables.find((candidate) => candidate.name === name)
  if (table === undefined) throw tableNotFound(name)
  return table
}

export function tableNotFound(name: StoredTable['name']): AppError {
  return new AppError('table_not_found', `table [${name}] not found`)
}

export function columnNotFound(options: { tableName: string; columnName: string }): AppError {
  const { tableName, columnName } = options
  return new AppError(
    'column_not_found',
    `table [${tableName}]: column [${columnName}]: column not found`,
  )
}
