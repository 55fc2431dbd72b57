import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../../postgres/database.js'
import { type Extension, installedExtension } from '../../postgres/extension.js'
import { codeOf } from '../../postgres/failures.js'
import { ident, raw, type Sql, sql } from '../../postgres/sql.js'
import type { StoredColumn, StoredTable } from '../columns/stored-schema.js'
import { schemaName } from '../layout/database-schema.js'
import { sizeTables } from '../layout/heap-sizes.js'
import {
  type HeapAddress,
  heapName,
  indexName,
  pastName,
  qualified,
  uniqueIndexName,
} from '../layout/layout.js'
import { SearchedText } from '../reading/searched-text.js'

/*
 * A column index consists of an index on the heap and an index on the past, both on (column, id): rows with
 * equal values come in the order of ids, which is the order of pages. A heap has the indexes that the schema
 * of its branch defines. Indexes of small heaps are created at once. Those of large heaps are queued in
 * `offshoot.index_work` and built concurrently, without blocking writers.
 */

type IdTypeOfTable = NonNullable<StoredTable['idType']>

/** SQLSTATE program_limit_exceeded: a value is too long for an index entry. */
export const TOO_LONG = '54000'

/** Up to this size, including long values, an index is created while writers wait. */
const AT_ONCE_BYTES_MAX = 1024 * 1024

/**
 * Link columns are indexed by default, because queries often filter by them. Unique columns have a unique
 * index.
 */
export function wantsIndex({ unique, index, type }: StoredColumn): boolean {
  return unique !== true && (index ?? type === 'link')
}

/** Returns whether a column needs a search index. A table has one on all its text columns or on none. */
export function wantsSearchIndex(
  { searchIndex }: Pick<StoredTable, 'searchIndex'>,
  { type, computed }: Pick<StoredColumn, 'type' | 'computed'>,
): boolean {
  const isSearched = searchIndex === true && computed === undefined
  return isSearched && SearchedText.of(type)?.indexed !== undefined
}

export interface HeapColumn extends HeapAddress {
  readonly column: Pick<StoredColumn, 'id'>
}

/** A column of a heap, with its definition in the schema of the branch. */
export interface IndexTarget extends HeapAddress {
  readonly table: Pick<StoredTable, 'searchIndex'>
  readonly column: StoredColumn
}

const INDEX_KINDS = ['values', 'search', 'typed'] as const
export type IndexKind = (typeof INDEX_KINDS)[number]

/** An index on one of the tables of a heap. */
export interface HeapIndex {
  readonly kind: IndexKind
  readonly name: string
  readonly isOnPast: boolean
  /** The SQL after `create index`. */
  readonly definition: Sql
}

/** Returns all possible index names of a column, without that of its unique index. */
export function indexNames(
  { heapId, column: { id } }: HeapColumn,
  kinds: readonly IndexKind[] = INDEX_KINDS,
): string[] {
  return kinds.flatMap((kind) => [
    indexName('heap', { heapId, columnId: id, kind }),
    indexName('past', { heapId, columnId: id, kind }),
  ])
}

/** Returns an index on the heap and one on the past. `of` is the SQL after the table name. */
function twoIndexes(kind: IndexKind, target: HeapColumn, of: Sql): HeapIndex[] {
  const named = { heapId: target.heapId, columnId: target.column.id, kind }
  const [heap, past] = [indexName('heap', named), indexName('past', named)]
  return [
    {
      kind,
      name: heap,
      isOnPast: false,
      definition: sql`${ident(heap)} on ${heapName(target)} ${of}`,
    },
    {
      kind,
      name: past,
      isOnPast: true,
      definition: sql`${ident(past)} on ${pastName(target)} ${of}`,
    },
  ]
}

/** pgvector cannot index vectors of more than 2000 dimensions. */
const INDEXED_DIMENSION_MAX = 2000

/** The column cannot have an index, regardless of its values. The message is the reason. */
export class UnindexableError extends Error {}

/**
 * Returns the HNSW index of a vector column, by cosine distance. It is on the heap only, because inherited
 * rows are compared one by one.
 */
function vectorIndex({ schema }: Extension, target: IndexTarget): HeapIndex {
  const { heapId, column } = target
  const kind = 'values'
  const name = indexName('heap', { heapId, columnId: column.id, kind })
  const operators = sql`${ident(schema)}.vector_cosine_ops`
  return {
    kind,
    name,
    isOnPast: false,
    definition: sql`${ident(name)} on ${heapName(target)}
      using hnsw ((${indexedVector(sql`${ident(`c${column.id}`)}`, schema, column)}) ${operators})`,
  }
}

/** Casts a vector to the type that its index uses. */
export function indexedVector(value: Sql, schema: string, { vector }: StoredColumn): Sql {
  return sql`${value}::${ident(schema)}.vector(${raw(String(vector?.dimension ?? 0))})`
}

/**
 * Returns the pgvector extension. Throws UnindexableError if it is missing or the vector has too many
 * dimensions.
 */
export async function getVectorIndexing(
  database: Queryable,
  { vector }: StoredColumn,
): Promise<Extension> {
  if ((vector?.dimension ?? 0) > INDEXED_DIMENSION_MAX) {
    throw new UnindexableError(`it has more than ${INDEXED_DIMENSION_MAX} dimensions`)
  }
  const extension = await installedExtension(database, 'vector')
  if (extension === undefined) throw new UnindexableError('PostgreSQL has no extension [vector]')
  return extension
}

/** Lists the indexes that the schema defines for a column. */
export async function listHeapIndexes(
  database: Queryable,
  target: IndexTarget,
): Promise<HeapIndex[]> {
  return [
    ...(await valueIndexes(database, target)),
    ...typedIndexes(target),
    ...(await searchIndexes(database, target)),
  ]
}

async function valueIndexes(database: Queryable, target: IndexTarget): Promise<HeapIndex[]> {
  const { column } = target
  if (!wantsIndex(column)) return []
  if (column.type === 'vector') {
    return [vectorIndex(await getVectorIndexing(database, column), target)]
  }
  return twoIndexes('values', target, sql`(${ident(`c${column.id}`)}, id)`)
}

/** Links are stored as texts. SQL compares those to ids of another type by that type. */
function typedIndexes(target: IndexTarget): HeapIndex[] {
  const { link, unique } = target.column
  if (link?.idType === undefined || !(wantsIndex(target.column) || unique)) return []
  return twoIndexes('typed', target, typedKeys(`c${target.column.id}`, link.idType))
}

/** Returns the keys of an index by the type of ids. The order of UUIDs is that of their texts. */
export function typedKeys(column: string, idType: IdTypeOfTable): Sql {
  return sql`((${ident(column)}::${idType === 'int' ? sql`bigint` : sql`uuid`}), id)`
}

/** Trigram indexes for search. */
async function searchIndexes(database: Queryable, target: IndexTarget): Promise<HeapIndex[]> {
  const { table, column } = target
  const indexed = SearchedText.of(column.type)?.indexed
  if (!wantsSearchIndex(table, column) || indexed === undefined) return []
  // Without pg_trgm, which may have been dropped since, search scans all records.
  const extension = await installedExtension(database, 'pg_trgm')
  if (extension === undefined) return []
  const text = indexed(sql`${ident(`c${column.id}`)}`)
  const operators = sql`${ident(extension.schema)}.gin_trgm_ops`
  return twoIndexes('search', target, sql`using gin ((${text}) ${operators})`)
}

/** Returns statements that create the indexes of a column on a new heap, and on its past if it has one. */
export async function newIndexStatements(
  database: Queryable,
  target: IndexTarget,
  { past } = { past: true },
): Promise<Sql[]> {
  // An index that has become impossible is no error here: queries work without it.
  const indexes = await listHeapIndexes(database, target).catch(unlessUnindexable)
  return (indexes ?? [])
    .filter(({ isOnPast }) => past || !isOnPast)
    .map(({ definition }) => sql`create index ${definition}`)
}

function unlessUnindexable(error: unknown): undefined {
  if (!(error instanceof UnindexableError)) throw error
}

/** Creates or queues the indexes that the schema defines for a column. Requires the exclusive gate. */
export async function requestIndexes(transaction: Queryable, target: IndexTarget): Promise<void> {
  const { databaseId, heapId, column } = target
  const indexes = await listHeapIndexes(transaction, target).catch((error) => {
    throw error instanceof UnindexableError ? unindexable(column, error.message) : error
  })
  if (indexes.length === 0) return releaseIndexes(transaction, target)
  const wanted = new Set(indexes.map(({ name }) => name))
  const others = indexNames(target).filter((name) => !wanted.has(name))
  // Dropping an index waits for all readers of the table, so it is always queued. If the heap has queued
  // work, a running builder that read the old schema could drop an index created here.
  const isLeft =
    (await isLarge(transaction, target)) ||
    (await hasOneOf(transaction, databaseId, others)) ||
    (await hasWork(transaction, heapId))
  if (isLeft) return insertWork(transaction, target)
  await deleteWork(transaction, target)
  for (const { name, definition } of indexes) {
    // An interrupted builder may have left an invalid index.
    await transaction.query(sql`drop index if exists ${qualified(databaseId, name)}`)
    await transaction.query(sql`create index ${definition}`).catch((error: unknown) => {
      throw codeOf(error) === TOO_LONG ? unindexable(column, TOO_LONG_REASON) : error
    })
  }
}

async function hasWork(transaction: Queryable, heapId: string): Promise<boolean> {
  const rows = await transaction.query(sql`
    select from offshoot.index_work where heap_id = ${heapId} and failure is null limit 1`)
  return rows.length > 0
}

async function isLarge(transaction: Queryable, heap: HeapAddress): Promise<boolean> {
  const { databaseId, heapId } = heap
  const names = [`heap_${heapId}`, `past_${heapId}`]
  const bytes = await sizeTables(transaction, { databaseId, names, measure: 'table' })
  return bytes > AT_ONCE_BYTES_MAX
}

/**
 * Queues all indexes that need an extension, of one database or of all. Backups leave them out, so a restore builds
 * them again.
 */
export async function requestExtensionIndexes(
  database: Queryable,
  { databaseId = null }: { databaseId?: string | null } = {},
): Promise<void> {
  await database.query(sql`
    insert into offshoot.index_work (heap_id, column_id)
    select distinct h.id, (c ->> 'id')::bigint
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    cross join lateral (
      select jsonb_path_query(s.document, '$.tables[*] ? (@.searchIndex == true).**.columns[*]')
      union all
      select jsonb_path_query(s.document,
        '$.**.columns[*] ? (@.type == "vector" && @.index == true)')
    ) as wanted (c)
    where (c ->> 'id')::bigint = any(h.column_ids)
      and h.database_id = coalesce(${databaseId}::bigint, h.database_id)
    on conflict do nothing`)
}

/** Queues the removal of all indexes of a column, if it has any. */
export async function releaseIndexes(transaction: Queryable, target: HeapColumn): Promise<void> {
  const [work] = await transaction.query(sql`
    select from offshoot.index_work
    where heap_id = ${target.heapId} and column_id = ${target.column.id}`)
  const names = [...indexNames(target), uniqueIndexName(target.heapId, target.column.id)]
  if (work !== undefined || (await hasOneOf(transaction, target.databaseId, names))) {
    await insertWork(transaction, target)
  }
}

async function hasOneOf(
  transaction: Queryable,
  databaseId: string,
  names: readonly string[],
): Promise<boolean> {
  const [found] = await transaction.query(sql`
    select from pg_class
    where relnamespace = to_regnamespace(${schemaName(databaseId)}) and relname = any(${names}::name[])
    limit 1`)
  return found !== undefined
}

async function insertWork(transaction: Queryable, { heapId, column }: HeapColumn): Promise<void> {
  await transaction.query(sql`
    insert into offshoot.index_work (heap_id, column_id)
    values (${heapId}, ${column.id})
    on conflict (heap_id, column_id)
    do update set stamp = nextval('offshoot.stamps'), failure = null`)
}

/** Marks an index that the schema of its branch no longer defines, but a fork reads by. */
export const KEPT_FOR_FORKS = 'a fork reads by the index'

/** Queues the indexes of a branch that were kept for forks again, because a fork was deleted. */
export async function releaseKeptIndexes(transaction: Queryable, branchId: string): Promise<void> {
  await transaction.query(sql`
    update offshoot.index_work
    set stamp = nextval('offshoot.stamps'), failure = null
    where failure = ${KEPT_FOR_FORKS}
      and heap_id in (select id from offshoot.heaps where branch_id = ${branchId})`)
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
