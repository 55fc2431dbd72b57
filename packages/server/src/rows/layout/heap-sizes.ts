import type { Queryable } from '../../postgres/database.js'
import { SCHEMA_PREFIX } from '../../postgres/place.js'
import type { Measure, TableAddress } from '../../postgres/server.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { schemaName } from './database-schema.js'
import type { HeapAddress } from './layout.js'

/** Returns the tables of a heap: that with the rows, and its past. */
export function tablesOf({ databaseId, heapId }: HeapAddress): [TableAddress, TableAddress] {
  const schema = schemaName(databaseId)
  return [
    { schema, name: `heap_${heapId}` },
    { schema, name: `past_${heapId}` },
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

/** The least size of a row in a heap: its header, the common columns and an id. */
const ROW_BYTES_MIN = 60
/** The size of more heaps is not read. */
const SIZED_HEAPS_MAX = 50

/** Returns a bound of the number of rows in the heaps of a branch, from their size. It can be infinite. */
export async function boundOwnRows(transaction: Queryable, branchId: string): Promise<number> {
  const heap = sql`to_regclass(${SCHEMA_PREFIX} || h.database_id || '.heap_' || h.id)`
  const [row] = await transaction.query<{ bytes: number; count: number }>(
    prepared(sql`
    select count(*)::integer as count,
      coalesce(sum(${transaction.server.boundRowBytes(heap)}), 0)::float8 as bytes
    from (
      select id, database_id
      from offshoot.heaps
      where branch_id = ${branchId} and kind = 'heap'
      limit ${SIZED_HEAPS_MAX + 1}
    ) h`),
  )
  const { bytes = 0, count = 0 } = row ?? {}
  return count > SIZED_HEAPS_MAX ? Number.POSITIVE_INFINITY : bytes / ROW_BYTES_MIN
}
