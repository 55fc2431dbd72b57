import type { Database } from '../../postgres/database.js'
import { isUndefinedTable } from '../../postgres/failures.js'
import { sql } from '../../postgres/sql.js'
import { schemaName } from './database-schema.js'
import { qualified } from './layout.js'

/*
 * PostgreSQL plans by statistics that autovacuum collects some time after rows were written. A merge often follows the
 * writes at once, and a plan for few rows can take minutes for many. So large merges do not wait for autovacuum.
 */

/** Smaller tables have few rows, for which any plan will do. */
const ANALYZED_BYTES_MIN = 256 * 1024

/** Collects statistics of the heaps of branches that have doubled since it was last done. Waits for nobody. */
export async function analyzeGrownHeaps(
  database: Database,
  { databaseId, branchIds }: { databaseId: string; branchIds: readonly string[] },
): Promise<void> {
  // The statistics are where the rows are.
  if (database.server.hasRowsApart) return
  const grown = await database.query<{ name: string }>(sql`
    with free as materialized (
      select c.oid, c.relname as name, c.reltuples, c.relpages
      from offshoot.heaps h
      cross join unnest(array['heap_', 'past_']) p (prefix)
      join pg_class c on c.relname = p.prefix || h.id
        and c.relnamespace = to_regnamespace(${schemaName(databaseId)})
      where h.branch_id = any(${branchIds}::text[]) and h.kind = 'heap'
        -- The size of a table that is being changed is only known when that is done.
        and not exists (
          select from pg_locks l where l.relation = c.oid and l.mode = 'AccessExclusiveLock'
        )
    )
    select f.name
    from free f
    cross join lateral (select pg_relation_size(f.oid) as bytes) s
    where s.bytes >= ${ANALYZED_BYTES_MIN}
      -- Without statistics, the number of rows is -1.
      and (f.reltuples < 0 or s.bytes > 2 * f.relpages * current_setting('block_size')::bigint)`)
  for (const { name } of grown) {
    try {
      // Another one that is being done is as good.
      await database.query(sql`analyze (skip_locked) ${qualified(databaseId, name)}`)
    } catch (error) {
      if (!isUndefinedTable(error)) throw error
    }
  }
}
