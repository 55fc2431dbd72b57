/** Work that goes on after the answer to its request. It belongs to a running service, so it is not backed up. */
export const operations = `
create table offshoot_work.operations (
  id text primary key,
  -- The database may be deleted meanwhile. A restore empties the tables of the catalogue, which nothing else may refer to.
  database_id bigint not null,
  -- The branch of the request, which may be deleted meanwhile.
  branch_name text not null,
  kind text not null,
  -- running, done, failed or cancelled
  state text not null default 'running',
  is_cancelled boolean not null default false,
  -- The progress, the result and the error, as JSON texts. The order of their fields is kept.
  progress text not null,
  result text,
  error text,
  started_at timestamptz not null,
  -- The process that does the work updates it all the time.
  seen_at timestamptz not null default clock_timestamp(),
  ended_at timestamptz
);
create index operations_ended on offshoot_work.operations (ended_at);
`
