import { AppError } from '@offshoot/contract/errors'
import type { Indexes, SearchIndex } from '@offshoot/contract/indexes'
import type { Database, Queryable } from '../../postgres/database.js'
import type { StoredTable } from '../../rows/columns/stored-schema.js'
import { wantsSearchIndex } from '../../rows/indexes/heap-indexes.js'
import { findIndexStates } from '../../rows/indexes/index-state.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import type { Storage } from '../../rows/storage.js'
import { getHead, withHead } from './edit-schema.js'
import { getRows, getTable, listColumns, listIndexes, setTable } from './indexes.js'
import { type EditContext, requireUnprotected } from './operations.js'

/*
 * The search index of a table consists of a trigram index on each of its columns that contain words.
 * Like the indexes of columns, it is part of the schema, but not of migrations.
 */

/** Lists the indexes of a table, with its search index if it has one. */
export async function listAllIndexes(
  database: Database,
  context: EditContext,
  tableName: string,
): Promise<Indexes> {
  const { indexes } = await listIndexes(database, context, tableName)
  const { schema } = await getHead(database, context.access)
  const table = getTable(schema, tableName)
  if (!table.searchIndex) return { indexes }
  const rows = await getRows(database, context.access)
  return { indexes, searchIndex: await describe(database, rows, table) }
}

export async function readSearchIndex(
  database: Database,
  { access }: EditContext,
  tableName: string,
): Promise<SearchIndex> {
  const { schema } = await getHead(database, access)
  const table = getTable(schema, tableName)
  if (!table.searchIndex) throw searchIndexNotFound(table)
  return describe(database, await getRows(database, access), table)
}

/** Requests the index. If it has failed, it is built again; otherwise an existing index is kept. */
export async function addSearchIndex(
  storage: Storage,
  { access, limits }: EditContext,
  tableName: string,
): Promise<SearchIndex> {
  // The extension is created here, outside the transaction of the edit.
  const extension = await storage.extensions.find('pg_trgm')
  return withHead(storage, access, async (transaction, head) => {
    requireUnprotected(access, head)
    const rows = await getRows(transaction, access)
    const found = getTable(head.schema, tableName)
    if (extension === undefined) {
      throw new AppError(
        'invalid_schema',
        `table [${found.name}]: cannot have a search index: PostgreSQL has no extension [pg_trgm]`,
      )
    }
    if (found.searchIndex) {
      const index = await describe(transaction, rows, found)
      if (index.state !== 'failed') return index
    }
    const table = { ...found, searchIndex: true }
    const columns = searchedColumns(table).map(({ column }) => column)
    await setTable(transaction, { access, rows, head, table, limits, columns })
    return describe(transaction, rows, table)
  })
}

export async function deleteSearchIndex(
  storage: Storage,
  { access, limits }: EditContext,
  tableName: string,
): Promise<void> {
  await withHead(storage, access, async (transaction, head) => {
    requireUnprotected(access, head)
    const found = getTable(head.schema, tableName)
    if (!found.searchIndex) throw searchIndexNotFound(found)
    const rows = await getRows(transaction, access)
    const table = { ...found, searchIndex: false }
    const columns = searchedColumns(found).map(({ column }) => column)
    await setTable(transaction, { access, rows, head, table, limits, columns })
  })
}

const searchedColumns = (table: StoredTable) =>
  listColumns(table).filter(({ column }) => wantsSearchIndex(table, column))

/** Describes the search index. Its state is the least advanced state of the indexes of its columns. */
async function describe(
  database: Queryable,
  rows: BranchRows,
  table: StoredTable,
): Promise<SearchIndex> {
  const columns = searchedColumns(table)
  const states = await findIndexStates(database, rows, {
    tableId: table.id,
    columnIds: columns.map(({ column }) => column.id),
    kind: 'search',
  })
  const all = [...states.values()]
  const { state, message } = all.find((one) => one.state === 'failed') ??
    all.find((one) => one.state === 'building') ??
    all.find((one) => one.message !== undefined) ?? { state: 'ready' as const, message: undefined }
  return {
    columns: columns.map(({ path }) => path),
    state,
    ...(message === undefined ? {} : { message }),
  }
}

function searchIndexNotFound({ name }: StoredTable): AppError {
  return new AppError('index_not_found', `table [${name}]: has no search index`)
}
