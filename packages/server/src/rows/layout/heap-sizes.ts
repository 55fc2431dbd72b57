import type { Queryable } from '../../postgres/database.js'
import type { Measure, TableAddress } from '../../postgres/server.js'
import { sql } from '../../postgres/sql.js'
import { schemaName } from './database-schema.js'
import type { HeapAddress } from './layout.js'

/** Returns the tables of a heap: that with the rows, its past, and the versions of its records. */
export function tablesOf({
  databaseId,
  heapId,
}: HeapAddress): [TableAddress, TableAddress, TableAddress] {
  const schema = schemaName(databaseId)
  return [
    { schema, name: `heap_${heapId}` },
    { schema, name: `past_${heapId}` },
    { schema, name: `versions_${heapId}` },
  ]
}

const sum = (sizes: readonly number[]): number => sizes.reduce((total, size) => total + size, 0)

/**
 * Returns the size on disk of some heaps of databases, including pasts, indexes and TOAST. Heaps are read in the
 * order of ids, starting after `afterId`. `lastId` is undefined if there are no more.
 */
export async function sizeHeaps(
  database: Queryable,
  options: { databaseIds: readonly string[]; afterId: string; heapsMax: number },
): Promise<{ bytes: number; lastId: string | undefined }> {
  const { databaseIds, afterId, heapsMax } = options
  const heaps = await database.query<HeapAddress & Record<string, unknown>>(sql`
    select id as "heapId", database_id as "databaseId"
    from offshoot.heaps
    where database_id = any(${databaseIds}::bigint[]) and id > ${afterId}
    order by id
    limit ${heapsMax}`)
  const sizes = await database.server.sizeTables(database, heaps.flatMap(tablesOf), 'total')
  return { bytes: sum(sizes), lastId: heaps.length < heapsMax ? undefined : heaps.at(-1)?.heapId }
}

/** Returns the size on disk of some tables of a database together, in bytes. Tables that do not exist count as 0. */
export async function sizeTables(
  database: Queryable,
  options: { databaseId: string; names: readonly string[]; measure?: Measure },
): Promise<number> {
  const { databaseId, names, measure = 'total' } = options
  const tables = names.map((name) => ({ schema: schemaName(databaseId), name }))
  return sum(await database.server.sizeTables(database, tables, measure))
}
