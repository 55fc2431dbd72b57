import type { Transaction } from '../run-transaction.js'
import { ident, join, sql } from '../sql.js'

/*
 * A record that is created anew starts at version 0. So nothing remembers the versions of deleted records, and a reset no
 * longer adds to the versions of a branch. It is only counted, for idempotency keys.
 */

/** Databases whose table is dropped by one transaction, which locks several relations for each. */
const STEP_DATABASES = 50

/**
 * Drops the versions of deleted records of some databases. Returns whether there may be more. If a start is interrupted,
 * the next one continues. Processes of an earlier version fail without the table.
 */
export async function dropDeletedRecords(transaction: Transaction): Promise<boolean> {
  const schemas = await transaction.query<{ name: string }>(sql`
    select n.nspname as name
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where c.relname = 'deleted_records' and c.relkind = 'r'
      and n.nspname ~ '^offshoot_db_[0-9]{1,18}$'
    limit ${STEP_DATABASES}`)
  if (schemas.length === 0) return false
  const tables = schemas.map(({ name }) => sql`${ident(name)}.deleted_records`)
  await transaction.query(sql`drop table ${join(tables, ', ')}`)
  return true
}

/** Applied after all tables are dropped. */
export const firstVersions = `
alter table offshoot.branches add column resets integer not null default 0;
-- Sessions of earlier processes add the base to versions. The stamp makes them look for it.
update offshoot.branches
set resets = version_base / 4294967296, stamp = nextval('offshoot.stamps')
where version_base > 0;
alter table offshoot.branches drop column version_base;
`
