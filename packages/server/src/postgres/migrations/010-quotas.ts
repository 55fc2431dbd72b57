/** What the workspaces store, and what they may store. */
export const quotas = `
-- None: the default of the settings applies.
alter table offshoot.workspaces add column bytes_max bigint;

-- Which contents the rows of a workspace mention, or are about to. Workspaces share contents, and each
-- of them counts its own mention. There is no foreign key: an upload may outlive its workspace, and the
-- check of contents removes what is left.
create table offshoot.workspace_blobs (
  workspace_id text not null,
  sha256 bytea not null,
  size bigint not null,
  primary key (workspace_id, sha256) include (size)
);
create index workspace_blobs_sha256 on offshoot.workspace_blobs (sha256);

create table offshoot.workspace_usage (
  workspace_id text primary key references offshoot.workspaces on delete cascade,
  row_bytes bigint not null default 0,
  file_bytes bigint not null default 0,
  -- When the last complete measurement began. None: there was none yet.
  measured_at timestamptz,
  due_at timestamptz not null default now(),
  -- A measurement that is under way: when it began, the last heap that it has seen, and the sum so far.
  started_at timestamptz,
  heap_id bigint not null default 0,
  heap_bytes bigint not null default 0
);
create index workspace_usage_due on offshoot.workspace_usage (due_at);
create index heaps_database on offshoot.heaps (database_id, id);

-- Contents from before are looked at again, which tells which workspaces mention them.
update offshoot.blobs set checked_at = put_at;
`
