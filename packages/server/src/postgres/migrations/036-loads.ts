/** Bulk loads: what they have inserted, so that they can be reverted. */
export const loads = `
-- The ids of the records that a bulk load has inserted, in parts. They are written as the records are, which can be before
-- the entry of the log is. Like the log, they have no foreign keys: requests must not lock rows of others.
create table offshoot.loads (
  part bigint generated always as identity primary key,
  entry_id text not null,
  database_id bigint not null,
  -- The id of the table in the schema.
  table_id bigint not null,
  -- The records were created from then on, and not after the end. Without an end, it is the time of the entry.
  at timestamptz not null default now(),
  until timestamptz,
  ids text[] not null
);
-- Ids hardly compress, and most are never read.
alter table offshoot.loads alter column ids set storage external;
create index loads_entry on offshoot.loads (entry_id, part);
create index loads_database on offshoot.loads (database_id);
create index loads_age on offshoot.loads (at);

-- Loads had a reason why they could not be reverted. Without ids and without checkpoints, they still cannot be.
update offshoot.log set details = details - 'notRevertible'
where kind = 'bulk' and details ? 'notRevertible';
`
