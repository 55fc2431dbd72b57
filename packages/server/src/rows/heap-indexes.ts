import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../postgres/database.js'
import { codeOf } from '../postgres/failures.js'
import { ident, type Sql, sql } from '../postgres/sql.js'
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

/** Of a heap that is new and empty. */
export async function createIndexes(
  transaction: Queryable,
  { heapId, column }: { heapId: string; column: StoredColumn },
): Promise<void> {
  if (!wantsIndex(column)) return
  for (const { definition } of indexedTables({ heapId, column })) {
    await transaction.query(sql`create index ${definition}`)
  }
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
  if (size?.isSmall !== true) return insertWork(transaction, { heapId, column })
  await deleteWork(transaction, { heapId, column })
  for (const { name, definition } of indexedTables({ heapId, column })) {
    // Whoever was interrupted may have left one behind that is not valid.
    await transaction.query(sql`drop index if exists offshoot_rows.${ident(name)}`)
    await transaction.query(sql`create index ${definition}`).catch((error: unknown) => {
      throw codeOf(error) === TOO_LONG ? tooLong(column) : error
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

function tooLong({ name }: { readonly name: string }): AppError {
  return new AppError('invalid_schema', `column [${name}]: cannot be indexed: ${TOO_LONG_REASON}`)
}

export const TOO_LONG_REASON = 'a value is longer than 2400 bytes'
