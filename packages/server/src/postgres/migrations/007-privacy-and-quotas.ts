/** Upload links that are used once, contents that are private everywhere, storage per workspace. */
export const privacyAndQuotas = `
-- Uploads by link that are under way. The row is a lease: its holder renews it while bytes arrive, so a
-- process that dies gives the link back.
create table offshoot.upload_claims (
  -- Of the access id of the link.
  link_hash bytea primary key,
  -- Tells the holder from one who took the link over after the lease had ended.
  holder uuid not null,
  expires_at timestamptz not null
);
create index upload_claims_expiry on offshoot.upload_claims (expires_at);

-- Contents that no link without a signature opens, on any branch of the database.
create table offshoot.private_contents (
  database_id bigint not null references offshoot.databases on delete cascade,
  sha256 bytea not null,
  created_at timestamptz not null default now(),
  primary key (database_id, sha256)
);

-- Users choose their e-mail address, and nobody proves one. So the address that a user shows is not
-- unique: a refusal would tell which addresses have an account. The administrator's own choice is.
alter table offshoot.users add column assigned_email text;
update offshoot.users set assigned_email = email;
drop index offshoot.users_email;
create unique index users_assigned_email on offshoot.users (lower(assigned_email));

-- What a workspace may store, where it differs from the settings: null there means the setting, a
-- negative number means as much as it likes.
alter table offshoot.workspaces
  add column row_bytes_max bigint,
  add column file_bytes_max bigint;

-- What a workspace stores, as of the last time somebody looked.
create table offshoot.workspace_usage (
  workspace_id text primary key references offshoot.workspaces on delete cascade,
  row_bytes bigint not null,
  rows_estimate bigint not null,
  file_bytes bigint not null,
  measured_at timestamptz not null default now()
);

-- Which workspace uses which content. Uploads add to it; the collector compares it with the rows.
create table offshoot.workspace_blobs (
  workspace_id text not null references offshoot.workspaces on delete cascade,
  sha256 bytea not null,
  size bigint not null,
  put_at timestamptz not null default now(),
  primary key (workspace_id, sha256)
);
create index workspace_blobs_content on offshoot.workspace_blobs (sha256);
`
