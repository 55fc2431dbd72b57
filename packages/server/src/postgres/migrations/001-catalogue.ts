/**
 * The catalogue: users, keys, workspaces, databases, branches, and the layout of rows. The rows
 * themselves are in tables of the schema `offshoot_rows`, which are named by id.
 */
export const catalogue = `
create schema if not exists offshoot_rows;

-- A row gets a new stamp when it changes in a way that invalidates what processes cache about it.
create sequence offshoot.stamps;
-- Ids of tables and columns. Both share one sequence; ids are never reused.
create sequence offshoot.object_ids;

create table offshoot.users (
  id text primary key,
  email text not null,
  fullname text not null,
  image text not null,
  administrator boolean not null default false,
  created_at timestamptz not null default now()
);
create unique index users_email on offshoot.users (lower(email));

create table offshoot.api_keys (
  id bigint generated always as identity primary key,
  user_id text not null references offshoot.users on delete cascade,
  name text not null,
  hash bytea not null unique,
  scope jsonb,
  expires_at timestamptz,
  stamp bigint not null default nextval('offshoot.stamps'),
  created_at timestamptz not null default now(),
  unique (user_id, name)
);

create table offshoot.workspaces (
  id text primary key,
  name text not null,
  slug text not null,
  created_at timestamptz not null default now()
);

create table offshoot.members (
  workspace_id text not null references offshoot.workspaces on delete cascade,
  user_id text not null references offshoot.users on delete cascade,
  role text not null check (role in ('owner', 'maintainer')),
  created_at timestamptz not null default now(),
  primary key (workspace_id, user_id)
);
create index members_user on offshoot.members (user_id);

create table offshoot.invites (
  id text primary key,
  workspace_id text not null references offshoot.workspaces on delete cascade,
  email text not null,
  role text not null check (role in ('owner', 'maintainer')),
  key_hash bytea not null unique,
  expires_at timestamptz not null,
  accepted_at timestamptz,
  created_at timestamptz not null default now()
);
create unique index invites_pending on offshoot.invites (workspace_id, lower(email))
  where accepted_at is null;

create table offshoot.databases (
  id bigint generated always as identity primary key,
  workspace_id text not null references offshoot.workspaces on delete cascade,
  name text not null,
  region text not null,
  color text,
  repository jsonb,
  search_enabled boolean not null default true,
  default_branch_id text,
  created_at timestamptz not null default now(),
  unique (workspace_id, name)
);

-- A schema is immutable and shared by all branches that have it: a fork copies the reference.
create table offshoot.schemas (
  id bigint generated always as identity primary key,
  database_id bigint not null references offshoot.databases on delete cascade,
  document jsonb not null
);
create index schemas_database on offshoot.schemas (database_id);

-- Migrations form a tree through parent_id, like commits. A branch points to its newest migration.
create table offshoot.migrations (
  id text not null,
  database_id bigint not null references offshoot.databases on delete cascade,
  parent_id text,
  checksum text not null,
  operations jsonb not null,
  title text,
  message text,
  created_at timestamptz not null default now(),
  primary key (database_id, id)
);

create table offshoot.branches (
  id text primary key,
  database_id bigint not null references offshoot.databases on delete cascade,
  name text not null,
  -- The branch that rows are inherited from, and the epoch of it that is visible. Null: all rows
  -- are its own.
  parent_id text references offshoot.branches,
  fork_epoch integer,
  -- The number of forks taken so far, plus one. Rows carry the epoch in which they were written.
  epoch integer not null default 1,
  -- Number of the gate table that writers lock in shared mode, forks and schema edits exclusively.
  gate smallint not null default floor(random() * 64),
  schema_id bigint not null references offshoot.schemas,
  version integer not null default 1,
  last_migration_id text not null,
  started_from jsonb,
  metadata jsonb not null default '{}',
  stamp bigint not null default nextval('offshoot.stamps'),
  created_at timestamptz not null default now(),
  -- A deleted branch is kept while another branch inherits rows from it.
  deleted_at timestamptz
);
create unique index branches_name on offshoot.branches (database_id, name)
  where deleted_at is null;
create index branches_parent on offshoot.branches (parent_id, fork_epoch);
create index branches_schema on offshoot.branches (schema_id);

-- The physical tables with the rows that one branch wrote to one table: offshoot_rows.heap_<id>,
-- and offshoot_rows.past_<id> for versions that forks still see. They outlive their branch until
-- the collector drops them, so there is no foreign key to it.
create table offshoot.heaps (
  id bigint generated always as identity primary key,
  database_id bigint not null,
  branch_id text not null,
  table_id bigint not null,
  -- The columns of the physical table.
  column_ids bigint[] not null,
  unique (branch_id, table_id)
);

-- Answers to requests with an Idempotency-Key, written in the same transaction as the change.
create table offshoot.idempotency_keys (
  hash bytea primary key,
  request_hash bytea not null,
  status smallint not null,
  body text not null,
  created_at timestamptz not null default now()
);
create index idempotency_keys_age on offshoot.idempotency_keys (created_at);

create table offshoot.git_branches (
  database_id bigint not null references offshoot.databases on delete cascade,
  git_branch text not null,
  branch_id text not null references offshoot.branches on delete cascade,
  created_at timestamptz not null default now(),
  primary key (database_id, git_branch)
);
create index git_branches_branch on offshoot.git_branches (branch_id);

do $$
begin
  for number in 0..63 loop
    execute format('create table offshoot.%I ()', 'gate_' || number);
  end loop;
end
$$;
`
