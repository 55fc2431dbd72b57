import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../postgres/database.js'
import { codeOf } from '../postgres/failures.js'
import { ident, raw, type Sql, sql } from '../postgres/sql.js'
import { installedExtension, type VectorExtension } from '../postgres/vector-extension.js'
import { heapName, indexName, pastName } from './layout.js'
import type { StoredColumn } from './stored-schema.js'

/*
 * The index of a column is one on the heap and one on the past, of the column and the id: what is
 * equal comes in the order of ids, which is the order of pages. A heap has the indexes that the
 * schema of its branch asks for. Where there is little to index this is so at once; otherwise it is
 * written down as work, and done without keeping anyone from writing.
 */

/** What PostgreSQL says when a value does not fit into an index. */
export const TOO_LONG = '54000'

/** Up to this size an index takes a few milliseconds, which writers can wait. */
const AT_ONCE_BYTES_MAX = 1024 * 1024

/** Records are often looked for by what they link to. A unique column has an index of its own. */
export function wantsIndex({ unique, index, type }: StoredColumn): boolean {
  return unique !== true && (index ?? type === 'link')
}

export interface HeapColumn {
  readonly heapId: string
  readonly column: Pick<StoredColumn, 'id'>
}

/** A table of a heap with its index on a column. */
export interface IndexedTable {
  readonly name: string
  /** What follows `create index`. */
  readonly definition: Sql
}

export function indexedTables({ heapId, column }: HeapColumn): IndexedTable[] {
  const tables = [
    { table: heapName(heapId), name: indexName('heap', heapId, column.id) },
    { table: pastName(heapId), name: indexName('past', heapId, column.id) },
  ]
  return tables.map(({ table, name }) => ({
    name,
    definition: sql`${ident(name)} on ${table} (${ident(`c${column.id}`)}, id)`,
  }))
}

/** pgvector indexes no longer ones. */
export const INDEXED_DIMENSION_MAX = 2000

/** Why a column cannot have an index, whatever is in it. */
export class UnindexableError extends Error {}

/**
 * The index of a vector is one of its neighbours, by angle, and only on the heap: what a branch
 * inherits is compared one by one.
 */
function vectorIndex(
  { schema }: VectorExtension,
  { heapId, column }: { heapId: string; column: StoredColumn },
): IndexedTable {
  const name = indexName('heap', heapId, column.id)
  const operators = sql`${ident(schema)}.vector_cosine_ops`
  return {
    name,
    definition: sql`${ident(name)} on ${heapName(heapId)}
      using hnsw ((${indexedVector(sql`${ident(`c${column.id}`)}`, schema, column)}) ${operators})`,
  }
}

/** A vector in the form that its index has it. */
export function indexedVector(value: Sql, schema: string, { vector }: StoredColumn): Sql {
  return sql`${value}::${ident(schema)}.vector(${raw(String(vector?.dimension ?? 0))})`
}

/** pgvector, without which, or for longer vectors, there is no index. */
export async function getVectorIndexing(
  database: Queryable,
  { vector }: StoredColumn,
): Promise<VectorExtension> {
  if ((vector?.dimension ?? 0) > INDEXED_DIMENSION_MAX) {
    throw new UnindexableError(`it has more than ${INDEXED_DIMENSION_MAX} numbers`)
  }
  const extension = await installedExtension(database)
  if (extension === undefined) throw new UnindexableError('PostgreSQL has no extension [vector]')
  return extension
}

/** The indexes that a column has when it wants one. */
export async function listIndexedTables(
  database: Queryable,
  target: { heapId: string; column: StoredColumn },
): Promise<IndexedTable[]> {
  if (target.column.type !== 'vector') return indexedTables(target)
  return [vectorIndex(await getVectorIndexing(database, target.column), target)]
}

/** Of a heap that is new and empty. */
export async function createIndexes(
  transaction: Queryable,
  { heapId, column }: { heapId: string; column: StoredColumn },
): Promise<void> {
  if (!wantsIndex(column)) return
  // Nobody asks for it here: where it is not possible any more, records are found without it.
  const tables = await listIndexedTables(transaction, { heapId, column }).catch(unlessUnindexable)
  for (const { definition } of tables ?? []) {
    await transaction.query(sql`create index ${definition}`)
  }
}

function unlessUnindexable(error: unknown): undefined {
  if (!(error instanceof UnindexableError)) throw error
}

/** Gives a heap the index of a column, if the column wants one. Must run alone behind the gate. */
export async function requestIndex(
  transaction: Queryable,
  { heapId, column }: { heapId: string; column: StoredColumn },
): Promise<void> {
  if (!wantsIndex(column)) return
  const [size] = await transaction.query<{ isSmall: boolean }>(sql`
    select pg_relation_size(${`offshoot_rows.heap_${heapId}`}::regclass)
      + pg_relation_size(${`offshoot_rows.past_${heapId}`}::regclass)
      <= ${AT_ONCE_BYTES_MAX} as "isSmall"`)
  const tables = await listIndexedTables(transaction, { heapId, column }).catch((error) => {
    throw error instanceof UnindexableError ? unindexable(column, error.message) : error
  })
  if (size?.isSmall !== true) return insertWork(transaction, { heapId, column })
  await deleteWork(transaction, { heapId, column })
  for (const { name, definition } of tables) {
    // Whoever was interrupted may have left one behind that is not valid.
    await transaction.query(sql`drop index if exists offshoot_rows.${ident(name)}`)
    await transaction.query(sql`create index ${definition}`).catch((error: unknown) => {
      throw codeOf(error) === TOO_LONG ? unindexable(column, TOO_LONG_REASON) : error
    })
  }
}

/** Dropping an index waits for everyone who reads the table, so it is always left as work. */
export async function releaseIndex(transaction: Queryable, target: HeapColumn): Promise<void> {
  const names = indexedTables(target).map(({ name }) => name)
  const [found] = await transaction.query(sql`
    select from pg_class
    where relnamespace = 'offshoot_rows'::regnamespace and relname = any(${names}::name[])
    union all
    select from offshoot.index_work
    where heap_id = ${target.heapId} and column_id = ${target.column.id}
    limit 1`)
  if (found !== undefined) await insertWork(transaction, target)
}

async function insertWork(transaction: Queryable, { heapId, column }: HeapColumn): Promise<void> {
  await transaction.query(sql`
    insert into offshoot.index_work (heap_id, column_id)
    values (${heapId}, ${column.id})
    on conflict (heap_id, column_id)
    do update set stamp = nextval('offshoot.stamps'), failure = null`)
}

async function deleteWork(transaction: Queryable, { heapId, column }: HeapColumn): Promise<void> {
  await transaction.query(sql`
    delete from offshoot.index_work
    where heap_id = ${heapId} and column_id = ${column.id}`)
}

function unindexable({ name }: { readonly name: string }, reason: string): AppError {
  return new AppError('invalid_schema', `column [${name}]: cannot be indexed: ${reason}`)
}

export const TOO_LONG_REASON = 'a value is longer than 2400 bytes'
