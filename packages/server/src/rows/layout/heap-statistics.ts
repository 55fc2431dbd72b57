import type { Database, Queryable } from '../../postgres/database.js'
import { isUndefinedName } from '../../postgres/failures.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { schemaName } from './database-schema.js'
import { qualified } from './layout.js'

/*
 * PostgreSQL plans by statistics that autovacuum collects some time after rows were written. A merge often follows the
 * writes at once, and a plan for few rows can take minutes for many. So large merges do not wait for autovacuum.
 */

/** Smaller tables have few rows, for which any plan will do. */
const ANALYZED_BYTES_MIN = 256 * 1024

/** A tenth of the usual value, which takes a tenth of the time. It tells few rows from many. */
const STATISTICS_TARGET = raw('10')

/**
 * Collects statistics of the columns of a table, of a small sample. PostgreSQL does not count this as done, because columns
 * are named. So autovacuum, which nobody waits for, still collects those of a larger sample.
 */
export async function sampleStatistics(
  transaction: Queryable,
  table: Sql,
  { columns, options = empty }: { columns: Sql; options?: Sql },
): Promise<void> {
  await transaction.query(sql`set local default_statistics_target = ${STATISTICS_TARGET}`)
  await transaction.query(sql`analyze ${options} ${table} (${columns})`)
}

/** Collects statistics of the heaps of branches that have doubled since it was last done. Waits for nobody. */
export async function analyzeGrownHeaps(
  database: Database,
  { databaseId, branchIds }: { databaseId: string; branchIds: readonly string[] },
): Promise<void> {
  // The statistics are where the rows are.
  if (database.server.hasRowsApart) return
  const grown = await database.query<{ name: string; columns: string[] }>(sql`
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
    select f.name, array(
        select a.attname::text
        from pg_attribute a
        where a.attrelid = f.oid and a.attnum > 0 and not a.attisdropped
      ) as columns
    from free f
    cross join lateral (select pg_relation_size(f.oid) as bytes) s
    where s.bytes >= ${ANALYZED_BYTES_MIN}
      -- Without statistics, the number of rows is -1.
      and (f.reltuples < 0 or s.bytes > 2 * f.relpages * current_setting('block_size')::bigint)`)
  // Others that are being collected are as good.
  const options = sql`(skip_locked)`
  for (const { name, columns: names } of grown) {
    const table = qualified(databaseId, name)
    const columns = join(names.map(ident), ', ')
    try {
      await runTransaction(
        database,
        (transaction) => sampleStatistics(transaction, table, { columns, options }),
        { isolation: 'read committed' },
      )
    } catch (error) {
      // A schema edit may have removed a column.
      if (!isUndefinedName(error)) throw error
    }
  }
}
