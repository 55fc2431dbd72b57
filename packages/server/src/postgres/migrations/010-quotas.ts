/** Storage of workspaces, and their quotas. */
export const quotas = `
-- Null: the default of the settings applies.
alter table offshoot.workspaces add column bytes_max bigint;

-- Contents that rows of a workspace refer to, or that are being uploaded. Workspaces share contents; each
-- counts its own references. There is no foreign key, because an upload may outlive its workspace; the
-- check of contents removes such rows.
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
  -- Start of the last complete measurement; null if there was none yet.
  measured_at timestamptz,
  due_at timestamptz not null default now(),
  -- A measurement in progress: its start, the last heap that was measured, and the sum so far.
  started_at timestamptz,
  heap_id bigint not null default 0,
  heap_bytes bigint not null default 0
);
create index workspace_usage_due on offshoot.workspace_usage (due_at);
create index heaps_database on offshoot.heaps (database_id, id);

-- Existing contents are checked again, which finds the workspaces that refer to them.
update offshoot.blobs set checked_at = put_at;
`
