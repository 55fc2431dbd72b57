/** The log: who did what in a workspace, a database or a branch. */
export const log = `
-- Entries are added in the transaction of what they describe, and never changed. They have no foreign keys: an entry outlives
-- its branch and its database, and requests must not lock rows of others.
create table offshoot.log (
  position bigint generated always as identity primary key,
  -- The default is for restored databases, whose entries get new ids.
  id text not null unique default 'log_' || replace(gen_random_uuid()::text, '-', ''),
  workspace_id text not null,
  database_id bigint,
  branch_id text,
  kind text not null,
  at timestamptz not null default clock_timestamp(),
  -- Null: the service did it by itself.
  user_id text,
  key_name text,
  request_id text,
  details jsonb not null default '{}'
);
create index log_branch on offshoot.log (branch_id, position) where branch_id is not null;
create index log_workspace on offshoot.log (workspace_id, position);
create index log_age on offshoot.log (at);
`
