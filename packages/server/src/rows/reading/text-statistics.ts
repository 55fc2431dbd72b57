import { arrayLiteral } from '../../postgres/carriers.js'
import { join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Slot } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import { schemaName } from '../layout/database-schema.js'

/** Assumed for tables that PostgreSQL has not analysed yet. */
const ROWS_PER_PAGE = 20
const TEXT_LENGTH = 100

/**
 * Returns a query for one row with estimates from PostgreSQL's statistics: `records`, the number of rows of
 * a table on a branch, and `length`, the average length of the given columns. Exact numbers would need a
 * scan of all rows. `add` adds a parameter to the statement.
 */
export function estimateTexts(
  codec: TableCodec,
  options: {
    databaseId: string
    /** The physical tables that rows come from. */
    tables: readonly Sql[]
    columns: readonly number[]
    add(text: string): Slot
  },
): Sql {
  const tables = options.tables.map((table) => sql`(select tableoid from ${table} limit 1)`)
  const names = options.columns.map((index) => codec.physical[index]?.physicalName ?? '')
  const length = raw(String(TEXT_LENGTH))
  return sql`
    select coalesce(sum(t.rows), 0)::double precision as records,
      greatest(1, coalesce(sum(t.rows * w.length) / nullif(sum(t.rows), 0), ${length})) as length
    from (
      select relname, pg_relation_size(oid) / current_setting('block_size')::double precision
        * case when relpages > 0 and reltuples > 0 then reltuples / relpages
          else ${raw(String(ROWS_PER_PAGE))} end as rows
      from pg_class
      where oid in (${join(tables, ', ')})
    ) t
    cross join lateral (
      select coalesce(avg(avg_width), ${length}) as length
      from pg_stats
      where schemaname = ${literal(schemaName(options.databaseId))} and tablename = t.relname
        and attname = any(${options.add(arrayLiteral(names))}::name[])
    ) w`
}
