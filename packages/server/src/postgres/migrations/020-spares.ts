/** Empty heaps that the first write of a fork takes instead of creating tables. */
export const spares = `
-- The tables are heap_<id> and past_<id> in the schema of the database. They are no part of a backup.
create table offshoot_work.spares (
  heap_id bigint primary key,
  database_id bigint not null,
  -- Identifies the definition of the table, its columns and indexes.
  definition text not null,
  created_at timestamptz not null default now()
);
create index spares_definition on offshoot_work.spares (database_id, definition);
`
