import type { Transaction } from '../run-transaction.js'
import { ident, join, type Sql, sql } from '../sql.js'

/*
 * A PostgreSQL schema for each database, `offshoot_db_<id>`, instead of `offshoot_rows` for all of them. Tables keep
 * their names, rows and indexes; only the catalogue of PostgreSQL changes.
 */

/** Databases whose schema is created by one transaction, which locks several relations for each. */
const STEP_DATABASES = 50
/** Tables moved by one transaction, which locks each of them. PostgreSQL's lock table is small. */
const STEP_TABLES = 200

const schemaOf = (databaseId: string): Sql => ident(`offshoot_db_${databaseId}`)

/**
 * Creates some schemas, or moves some tables to theirs. Returns whether there may be more. If a start is interrupted,
 * the next one continues.
 */
export async function moveToSchemas(transaction: Transaction): Promise<boolean> {
  // Tables of a deleted database have a schema until the collector has dropped them.
  const databases = await transaction.query<{ id: string }>(sql`
    select d.id
    from (select id from offshoot.databases union select database_id from offshoot.heaps) d
    where to_regnamespace('offshoot_db_' || d.id) is null
    order by d.id
    limit ${STEP_DATABASES}`)
  const tables = await transaction.query<{ name: string; databaseId: string }>(sql`
    select c.relname as name, h.database_id as "databaseId"
    from pg_class c
    join offshoot.heaps h on h.id = substring(c.relname from '^(?:heap|past)_([0-9]{1,18})$')::bigint
    where c.relnamespace = to_regnamespace('offshoot_rows') and c.relkind = 'r'
      and to_regnamespace('offshoot_db_' || h.database_id) is not null
    limit ${databases.length > 0 ? 0 : STEP_TABLES}`)
  const statements = [
    ...databases.flatMap(({ id }) => createSchema(id)),
    ...tables.map(
      ({ name, databaseId }) =>
        sql`alter table offshoot_rows.${ident(name)} set schema ${schemaOf(databaseId)}`,
    ),
  ]
  if (statements.length === 0) return false
  await transaction.query(join(statements, ';\n'))
  return true
}

function createSchema(databaseId: string): Sql[] {
  const schema = schemaOf(databaseId)
  return [
    sql`create schema ${schema}`,
    sql`
      create table ${schema}.idempotency_keys (
        hash bytea primary key,
        request_hash bytea not null,
        -- Null: the answer is no longer kept, but its request must not be executed again.
        body text,
        -- Bytes of the answer, and of its entry.
        size integer not null,
        created_at timestamptz not null default now()
      )`,
    sql`create index on ${schema}.idempotency_keys (created_at)`,
    sql`create index on ${schema}.idempotency_keys (created_at) where body is not null`,
  ]
}

/** Applied after all tables are moved. */
export const schemas = `
-- The id of the instance is part of the names of its roles, which belong to the whole server. It is no part of a
-- backup, because a restored instance is another one.
create table offshoot_work.identity (id text not null);
insert into offshoot_work.identity values (substr(replace(gen_random_uuid()::text, '-', ''), 1, 12));

-- The rows of a stream in progress are in the schema of their database. Those in the old place belong to requests
-- that have ended with their process.
delete from offshoot_work.streams;
alter table offshoot_work.streams add column database_id bigint not null;

do $$
declare
  name text;
begin
  for name in
    select relname from pg_class
    where relnamespace = 'offshoot_work'::regnamespace and relkind = 'r' and relname ~ '^(stream|merge)_'
  loop
    execute format('drop table offshoot_work.%I', name);
  end loop;
  -- Without this schema, processes of an earlier version fail, instead of creating tables that nobody finds.
  if not exists (select from pg_class where relnamespace = 'offshoot_rows'::regnamespace) then
    drop schema offshoot_rows;
  end if;
end
$$;
`
