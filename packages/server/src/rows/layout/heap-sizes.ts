import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { SCHEMA_PREFIX } from './database-schema.js'

/**
 * Returns the size on disk of some heaps of databases, including pasts, indexes and TOAST. Heaps are read in the
 * order of ids, starting after `afterId`. `lastId` is undefined if there are no more.
 */
export async function sizeHeaps(
  database: Queryable,
  options: { databaseIds: readonly string[]; afterId: string; heapsMax: number },
): Promise<{ bytes: number; lastId: string | undefined }> {
  const { databaseIds, afterId, heapsMax } = options
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
