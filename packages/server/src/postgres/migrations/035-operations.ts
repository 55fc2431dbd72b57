/** Work that goes on after the answer to its request. It belongs to a running service, so it is not backed up. */
export const operations = `
create table offshoot_work.operations (
  id text primary key,
  -- The database may be deleted meanwhile. A restore empties the tables of the catalogue, which nothing else may refer to.
  database_id bigint not null,
  -- The branch of the request, which may be deleted meanwhile.
  branch_name text not null,
  kind text not null,
  is_cancelled boolean not null default false,
  -- JSON text
  progress text not null,
  started_at timestamptz not null,
  -- The process that does the work updates it all the time.
  seen_at timestamptz not null default clock_timestamp()
);

-- How operations have ended. The transaction in which the work takes effect inserts it. Its snapshot may be older than the
-- operation, so it could not update a row of that.
create table offshoot_work.operation_ends (
  operation_id text primary key,
  -- done, failed or cancelled
  state text not null,
  -- The result and the error, as JSON texts. The order of their fields is kept.
  result text,
  error text,
  ended_at timestamptz not null default clock_timestamp()
);
create index operation_ends_ended on offshoot_work.operation_ends (ended_at);
`
