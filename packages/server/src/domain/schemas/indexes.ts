import { AppError } from '@offshoot/contract/errors'
import type { Index, Indexes } from '@offshoot/contract/indexes'
import type { Limits } from '@offshoot/contract/limits'
import type { Database, Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { COLUMN_TYPE_ENTRIES } from '../../rows/columns/column-types.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { getVectorIndexing, UnindexableError, wantsIndex } from '../../rows/indexes/heap-indexes.js'
import { findIndexStates } from '../../rows/indexes/index-state.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { BranchAccess } from '../access/resolve.js'
import { getHead, withHead } from './edit-schema.js'
import {
  columnNotFound,
  type EditContext,
  requireUnprotected,
  tableNotFound,
} from './operations.js'
import { type BranchHead, deleteUnusedSchema, insertSchema, updateHead } from './queries.js'

/*
 * An index is part of the schema of a branch, so that forks inherit it and merges transfer it. It is
 * not part of migrations: it does not change the data, and clients that store migrations in files have
 * no operation for it.
 */

/** A table, and the dotted path of one of its columns. */
interface Target {
  readonly tableName: string
  readonly columnName: string
}

interface FoundColumn {
  readonly table: StoredTable
  readonly column: StoredColumn
  readonly path: string
}

export async function listIndexes(
  database: Database,
  { access }: EditContext,
  tableName: string,
): Promise<Indexes> {
  const { schema } = await getHead(database, access)
  const rows = await getRows(database, access)
  const table = getTable(schema, tableName)
  return { indexes: await findIndexes(database, rows, listColumns(table)) }
}

export async function readIndex(
  database: Database,
  { access }: EditContext,
  target: Target,
): Promise<Index> {
  const { schema } = await getHead(database, access)
  const rows = await getRows(database, access)
  const [index] = await findIndexes(database, rows, [getColumn(schema, target)])
  if (index === undefined) throw indexNotFound(target)
  return index
}

/** Requests an index. If it has failed, it is built again; otherwise an existing index is kept. */
export async function addIndex(
  storage: Storage,
  { access, limits }: EditContext,
  target: Target,
): Promise<Index> {
  // Vector indexes need the extension. It is created here, outside the transaction of the edit.
  await storage.extensions.find('vector')
  return withHead(storage, access, async (transaction, head) => {
    requireUnprotected(access, head)
    return insertIndex(transaction, { access, limits, head, target })
  })
}

interface IndexEdit extends EditContext {
  readonly head: BranchHead
  readonly target: Target
}

async function insertIndex(
  transaction: Transaction,
  { access, limits, head, target }: IndexEdit,
): Promise<Index> {
  const rows = await getRows(transaction, access)
  const found = getColumn(head.schema, target)
  await requireIndexable(transaction, found)
  const [index] = await findIndexes(transaction, rows, [found])
  const isThere = index !== undefined && index.state !== 'failed'
  if (isThere && index.origin !== 'link') return index
  // A link has its index anyway. That it was asked for is noted, because PostgreSQL clients look for what they have made.
  if (!isThere) requireRoom(found, limits)
  const column = { ...found.column, index: true }
  const table = withColumn(found.table, column)
  const columns = isThere ? [] : [column]
  await setTable(transaction, { access, rows, head, table, limits, columns })
  const [made] = await findIndexes(transaction, rows, [{ ...found, column }])
  if (made === undefined) throw new Error('a column that was given an index must have it')
  return made
}

/** Adds and removes indexes in a transaction that holds the branch exclusively. */
export async function setIndexes(
  transaction: Transaction,
  context: EditContext,
  wishes: readonly {
    readonly table: string
    readonly column: string
    readonly isWanted: boolean
  }[],
): Promise<void> {
  for (const { table, column, isWanted } of wishes) {
    const target = { tableName: table, columnName: column }
    const edit = { ...context, head: await getHead(transaction, context.access), target }
    if (isWanted) await insertIndex(transaction, edit)
    else await removeIndex(transaction, edit)
  }
}

export async function deleteIndex(
  storage: Storage,
  { access, limits }: EditContext,
  target: Target,
): Promise<void> {
  await withHead(storage, access, async (transaction, head) => {
    requireUnprotected(access, head)
    await removeIndex(transaction, { access, limits, head, target })
  })
}

async function removeIndex(
  transaction: Transaction,
  { access, limits, head, target }: IndexEdit,
): Promise<void> {
  const rows = await getRows(transaction, access)
  const found = getColumn(head.schema, target)
  if (found.column.unique) {
    throw new AppError(
      'invalid_schema',
      `table [${target.tableName}]: column [${found.path}]: is unique, so its index cannot be deleted`,
    )
  }
  if (!wantsIndex(found.column)) throw indexNotFound(target)
  const column = { ...found.column, index: false }
  const table = withColumn(found.table, column)
  await setTable(transaction, { access, rows, head, table, limits, columns: [column] })
}

/** Replaces a table of the schema by a version in which the indexes of the given columns differ. */
export async function setTable(
  transaction: Transaction,
  change: {
    access: BranchAccess
    rows: BranchRows
    head: BranchHead
    table: StoredTable
    columns: readonly StoredColumn[]
    limits: Limits
  },
): Promise<void> {
  const { access, rows, head, table, columns, limits } = change
  const document = {
    ...head.schema,
    tables: head.schema.tables.map((candidate) => (candidate.id === table.id ? table : candidate)),
  }
  await new RowState(rows).change(transaction, {
    before: new Map(head.schema.tables.map((candidate) => [candidate.id, candidate])),
    changes: columns.map((column) => ({ kind: 'indexChanged', table, column })),
    limits,
  })
  const { databaseId, branchId } = access
  const schemaId = await insertSchema(transaction, { databaseId, document })
  const migrationId = head.lastMigrationId
  await updateHead(transaction, { branchId, schemaId, migrationId, migrations: 0 })
  await deleteUnusedSchema(transaction, head.schemaId)
}

function withColumn(table: StoredTable, column: StoredColumn): StoredTable {
  return { ...table, columns: replaceColumn(table.columns, column) }
}

function replaceColumn(columns: readonly StoredColumn[], column: StoredColumn): StoredColumn[] {
  return columns.map((candidate) => {
    if (candidate.id === column.id) return column
    if (candidate.columns === undefined) return candidate
    return { ...candidate, columns: replaceColumn(candidate.columns, column) }
  })
}

/** Lists the indexes of the given columns of a table. Columns without an index are skipped. */
async function findIndexes(
  database: Queryable,
  rows: BranchRows,
  columns: readonly FoundColumn[],
): Promise<Index[]> {
  const wanted = columns.filter(({ column }) => wantsIndex(column))
  const states = await findIndexStates(database, rows, {
    tableId: columns[0]?.table.id ?? 0,
    columnIds: wanted.map(({ column }) => column.id),
    kind: 'values',
  })
  return columns.flatMap(({ column, path }): Index[] => {
    if (column.unique) return [{ column: path, origin: 'unique', state: 'ready' }]
    const state = states.get(column.id)
    if (state === undefined) return []
    return [{ column: path, origin: column.index ? 'asked' : 'link', ...state }]
  })
}

export function listColumns(table: StoredTable): FoundColumn[] {
  const list = (columns: readonly StoredColumn[], prefix: string): FoundColumn[] =>
    columns.flatMap((column) => [
      { table, column, path: `${prefix}${column.name}` },
      ...list(column.columns ?? [], `${prefix}${column.name}.`),
    ])
  return list(table.columns, '')
}

export function getTable(schema: StoredSchema, name: string): StoredTable {
  const table = schema.tables.find((candidate) => candidate.name === name)
  if (table === undefined) throw tableNotFound(name)
  return table
}

function getColumn(schema: StoredSchema, target: Target): FoundColumn {
  const table = getTable(schema, target.tableName)
  const found = listColumns(table).find(({ path }) => path === target.columnName)
  if (found === undefined) throw columnNotFound(target)
  return found
}

async function requireIndexable(
  database: Queryable,
  { table, column, path }: FoundColumn,
): Promise<void> {
  const invalid = (message: string) =>
    new AppError('invalid_schema', `table [${table.name}]: column [${path}]: ${message}`)
  if (column.computed) throw invalid('a computed column cannot be indexed')
  if (!COLUMN_TYPE_ENTRIES[column.type].allows.index) {
    throw invalid(`a column of type [${column.type}] cannot be indexed`)
  }
  if (column.type !== 'vector') return
  await getVectorIndexing(database, column).catch((error) => {
    throw error instanceof UnindexableError ? invalid(`cannot be indexed: ${error.message}`) : error
  })
}

function requireRoom({ table, column }: FoundColumn, { indexesPerTableMax }: Limits): void {
  const others = listAllColumns(table.columns).filter(
    ({ index, id, type }) => index === true && type !== 'link' && id !== column.id,
  )
  if (others.length < indexesPerTableMax) return
  throw new AppError(
    'limit_reached',
    `table [${table.name}]: cannot have more than ${indexesPerTableMax} requested indexes; delete one first`,
  )
}

function indexNotFound({ tableName, columnName }: Target): AppError {
  return new AppError(
    'index_not_found',
    `table [${tableName}]: column [${columnName}]: has no index`,
  )
}

export async function getRows(database: Queryable, { branchId, branchName }: BranchAccess) {
  const rows = await new StoredBranch(database, branchId).findRows()
  if (rows !== undefined) return rows
  throw new AppError('branch_not_found', `branch [${branchName}] not found`)
}
