import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Column, Schema } from '@offshoot/contract/schema'
import type {
  CompareBranch,
  CompareSchema,
  Comparison,
  History,
  HistoryRequest,
  Preview,
  PreviewEdits,
  PushMigrations,
  SchemaOperation,
  SchemaUpdate,
  UpdateSchema,
} from '@offshoot/contract/schema-edits'
import { HISTORY_PAGE_SIZE } from '@offshoot/contract/schema-edits'
import type { Database } from '../../postgres/database.js'
import type { StoredSchema, StoredTable } from '../../rows/layout/stored-schema.js'
import type { BranchAccess } from '../access/resolve.js'
import { applyOperations } from './apply-operations.js'
import { compareSchemas } from './compare-schemas.js'
import { dryRunOptions } from './edit-options.js'
import { editSchema, type PlanEdits } from './edit-schema.js'
import { planPush } from './plan-push.js'
import { findColumn, flattenColumns, toPublicSchema } from './public-schema.js'
import { type BranchHead, findHead, listMigrations, type MigrationRow } from './queries.js'
import { readSchema } from './read-schema.js'
import { setColumns } from './set-columns.js'

/** More migrations than any branch will have; a bound all the same. */
const HISTORY_MAX = 100_000

export interface EditContext {
  readonly access: BranchAccess
  readonly limits: Limits
}

/** Applies operations as one migration. */
export function applySchemaOperations(
  database: Database,
  context: EditContext,
  operations: readonly SchemaOperation[],
): Promise<SchemaUpdate> {
  return editDirectly(database, context, async () => [{ operations: [...operations] }])
}

export function updateSchema(
  database: Database,
  context: EditContext,
  { parentID, operations }: UpdateSchema,
): Promise<SchemaUpdate> {
  return editDirectly(database, context, async (head) => {
    if (parentID !== undefined && parentID !== head.lastMigrationId) {
      throw new AppError(
        'conflict',
        `migration [${parentID}]: is not the newest of the branch; that is [${head.lastMigrationId}]`,
      )
    }
    return [{ operations }]
  })
}

/** Replaces the column list of a table. */
export function replaceColumns(
  database: Database,
  context: EditContext,
  options: { tableName: string; columns: readonly Column[] },
): Promise<SchemaUpdate> {
  return editDirectly(database, context, async (head) => [
    { operations: setColumns(publicTable(head.schema, options.tableName), options.columns) },
  ])
}

export function pushMigrations(
  database: Database,
  context: EditContext,
  { migrations }: PushMigrations,
): Promise<SchemaUpdate> {
  return editDirectly(database, context, async (head, transaction) => {
    const history = await listMigrations(transaction, {
      databaseId: context.access.databaseId,
      fromId: head.lastMigrationId,
      limit: HISTORY_MAX,
    })
    return planPush({ head: head.lastMigrationId, history, migrations })
  })
}

/** Edits that a request asks for itself. What comes by a merge is free to enter a protected branch. */
function editDirectly(
  database: Database,
  { access, limits }: EditContext,
  plan: PlanEdits,
): Promise<SchemaUpdate> {
  return editSchema(database, access, {
    limits,
    plan: async (head, transaction) => {
      requireUnprotected(access, head)
      return plan(head, transaction)
    },
  })
}

export function requireUnprotected({ branchName }: BranchAccess, head: BranchHead): void {
  if (!head.isProtected) return
  throw new AppError(
    'protected_branch',
    `branch [${branchName}]: is protected and its schema cannot be edited directly; ` +
      'merge a branch into it, or take the protection off first',
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

/** The edits that turn the schema of the branch into the given one. */
export async function compareWithSchema(
  database: Database,
  { access, limits }: EditContext,
  request: CompareSchema,
): Promise<Comparison> {
  const head = await getHead(database, access)
  const options = dryRunOptions(limits)
  const source = applyOperations(head.schema, request.branchOperations ?? [], options).schema
  const given = readSchema(request.schema, options)
  const target = applyOperations(given, request.schemaOperations ?? [], options).schema
  return comparison(source, target, { sourceMigrationID: head.lastMigrationId })
}

/** The edits that turn the schema of the branch into that of another one. */
export async function compareWithBranch(
  database: Database,
  { access, limits }: EditContext,
  options: { other: BranchAccess; request: CompareBranch },
): Promise<Comparison> {
  const { other, request } = options
  const head = await getHead(database, access)
  const otherHead = await getHead(database, other)
  const dryRun = dryRunOptions(limits)
  const source = applyOperations(head.schema, request.sourceBranchOperations ?? [], dryRun).schema
  const target = applyOperations(
    otherHead.schema,
    request.targetBranchOperations ?? [],
    dryRun,
  ).schema
  return comparison(source, target, {
    sourceMigrationID: head.lastMigrationId,
    targetMigrationID: otherHead.lastMigrationId,
  })
}

export async function previewEdits(
  database: Database,
  { access, limits }: EditContext,
  request: PreviewEdits,
): Promise<Preview> {
  const { schema } = await getHead(database, access)
  const operations = request.edits?.operations ?? []
  const updated = applyOperations(schema, operations, dryRunOptions(limits)).schema
  return { original: toPublicSchema(schema), updated: toPublicSchema(updated) }
}

/** Migrations of the branch, newest first. The cursor of a page is the id of its last one. */
export async function readHistory(
  database: Database,
  { access }: EditContext,
  { page, since }: HistoryRequest,
): Promise<History> {
  const { lastMigrationId } = await getHead(database, access)
  if (page?.after !== undefined && page.before !== undefined) {
    throw new AppError('invalid_request', 'body: field [page]: takes [after] or [before], not both')
  }
  const all = await listMigrations(database, {
    databaseId: access.databaseId,
    fromId: lastMigrationId,
    limit: HISTORY_MAX,
  })
  const positionOf = (id: string, field: string): number => {
    const position = all.findIndex((row) => row.id === id)
    if (position === -1) {
      throw new AppError('invalid_request', `body: field [${field}]: [${id}] is not in the history`)
    }
    return position
  }
  const end = since === undefined ? all.length : positionOf(since, 'since')
  const size = page?.size ?? HISTORY_PAGE_SIZE
  let start = page?.after === undefined ? 0 : positionOf(page.after, 'page.after') + 1
  let stop = Math.min(end, start + size)
  if (page?.before !== undefined) {
    stop = Math.min(end, positionOf(page.before, 'page.before'))
    start = Math.max(0, stop - size)
  }
  const logs = all.slice(start, stop)
  return {
    meta: { cursor: logs.at(-1)?.id ?? page?.after ?? lastMigrationId, more: stop < end },
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
  source: StoredSchema,
  target: StoredSchema,
  ids: { sourceMigrationID: string; targetMigrationID?: string },
): Comparison {
  const [from, to] = [toPublicSchema(source), toPublicSchema(target)]
  return { source: from, target: to, edits: { ...ids, operations: compareSchemas(from, to) } }
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

export async function getHead(database: Database, access: BranchAccess): Promise<BranchHead> {
  const head = await findHead(database, access.branchId)
  if (head === undefined) {
    throw new AppError('branch_not_found', `branch [${access.branchName}] not found`)
  }
  return head
}
