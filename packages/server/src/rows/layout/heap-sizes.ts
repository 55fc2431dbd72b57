import { onNode } from '../../postgres/cluster.js'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { SCHEMA_PREFIX, schemaName } from './database-schema.js'
import type { HeapAddress } from './layout.js'

/**
 * Returns the size on disk of some heaps of databases, including pasts, indexes and TOAST. Heaps are read in the
 * order of ids, starting after `afterId`. `lastId` is undefined if there are no more.
 */
export async function sizeHeaps(
  database: Queryable,
  options: { databaseIds: readonly string[]; afterId: string; heapsMax: number },
): Promise<{ bytes: number; lastId: string | undefined }> {
  const { databaseIds, afterId, heapsMax } = options
  if (database.isCluster) return sizeOnNodes(database, options)
  // A heap that was just dropped counts as 0 bytes.
  const [row] = await database.query<{ bytes: string | null; count: number; lastId: string }>(sql`
    select sum(coalesce(pg_total_relation_size(to_regclass(h.schema || '.heap_' || h.id)), 0)
        + coalesce(pg_total_relation_size(to_regclass(h.schema || '.past_' || h.id)), 0)) as bytes,
      count(*)::integer as count, max(h.id) as "lastId"
    from (
      select id, ${SCHEMA_PREFIX} || database_id as schema
      from offshoot.heaps
      where database_id = any(${databaseIds}::bigint[]) and id > ${afterId}
      order by id
      limit ${heapsMax}
    ) h`)
  const isLast = row === undefined || row.count < heapsMax
  return { bytes: Number(row?.bytes ?? 0), lastId: isLast ? undefined : row.lastId }
}

async function sizeOnNodes(
  database: Queryable,
  { databaseIds, afterId, heapsMax }: Parameters<typeof sizeHeaps>[1],
): Promise<{ bytes: number; lastId: string | undefined }> {
  const heaps = await database.query<HeapAddress>(sql`
    select id as "heapId", database_id as "databaseId"
    from offshoot.heaps
    where database_id = any(${databaseIds}::bigint[]) and id > ${afterId}
    order by id
    limit ${heapsMax}`)
  let bytes = 0
  for (const databaseId of new Set(heaps.map((heap) => heap.databaseId))) {
    const names = heaps.flatMap((heap) => (heap.databaseId === databaseId ? tablesOf(heap) : []))
    bytes += await sizeTables(database, { databaseId, names })
  }
  return { bytes, lastId: heaps.length < heapsMax ? undefined : heaps.at(-1)?.heapId }
}

const tablesOf = ({ heapId }: HeapAddress): string[] => [`heap_${heapId}`, `past_${heapId}`]

/** Functions of PostgreSQL that return a size: of everything, without indexes, or of the rows without TOAST. */
const MEASURES = {
  total: sql`pg_total_relation_size`,
  table: sql`pg_table_size`,
  rows: sql`pg_relation_size`,
}

/** Returns the size on disk of some tables of a database together, in bytes. Tables that do not exist count as 0. */
export async function sizeTables(
  database: Queryable,
  options: {
    databaseId: string
    names: readonly string[]
    measure?: keyof typeof MEASURES
  },
): Promise<number> {
  const { databaseId, names, measure = 'total' } = options
  const schema = schemaName(databaseId)
  const sum = (relation: Sql): Sql => sql`
    select coalesce(sum(${MEASURES[measure]}(c.oid)), 0)::double precision as bytes
    from pg_class c
    where c.relnamespace = to_regnamespace(${schema}) and c.relname = any(${relation})`
  // The tables of a node have the numbers of their shards in their names.
  const statement = database.isCluster
    ? onNode(
        schema,
        sum(sql`array(
          select coalesce(t.name || '_' || s.shardid, t.name)
          from unnest(${names}::text[]) t (name)
          left join pg_dist_shard s on s.logicalrelid = to_regclass(format('%I.%I', ${schema}::text, t.name))
        )`),
      )
    : sum(sql`${names}::text[]`)
  const [row] = await database.query<{ bytes: number }>(statement)
  return row?.bytes ?? 0
}

/** The least size of a row in a heap: its header, the common columns and an id. */
const ROW_BYTES_MIN = 60
/** The size of more heaps is not read. */
const SIZED_HEAPS_MAX = 50

/** Returns a bound of the number of rows in the heaps of a branch, from their size. It can be infinite. */
export async function boundOwnRows(transaction: Queryable, branchId: string): Promise<number> {
  // The sizes of tables on nodes take a round trip for each.
  if (transaction.isCluster) return Number.POSITIVE_INFINITY
  const [row] = await transaction.query<{ bytes: number; count: number }>(
    prepared(sql`
    select count(*)::integer as count,
      coalesce(sum(pg_relation_size(to_regclass(${SCHEMA_PREFIX} || h.database_id || '.heap_' || h.id))), 0)::float8 as bytes
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
