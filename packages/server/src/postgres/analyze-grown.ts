import type { Database } from './database.js'
import { ident, sql } from './sql.js'

/*
 * PostgreSQL keeps the plan of a prepared statement until the statistics of one of its tables change. Its own daemon looks
 * at a table once a minute. A program can create thousands of branches within that time, and statements that were planned
 * for a few branches would read all of them.
 */

/** Plans for smaller tables do not matter. */
const BYTES_MIN = 64 * 1024
/** Statistics are renewed when a table has grown by this factor. */
const GROWTH = 2

/** Renews the statistics of those tables of the catalogue that have grown. Returns their names. */
export async function analyzeGrown(database: Database): Promise<string[]> {
  const grown = await database.query<{ name: string }>(sql`
    select relname as name
    from pg_class, pg_relation_size(oid) as bytes
    where relnamespace = 'offshoot'::regnamespace and relkind = 'r'
      and bytes >= ${BYTES_MIN} and bytes >= ${GROWTH} * relpages * current_setting('block_size')::bigint`)
  for (const { name } of grown) {
    // Another process may do the same.
    await database.query(sql`analyze (skip_locked) offshoot.${ident(name)}`)
  }
  return grown.map(({ name }) => name)
}
