/** Upload links that are used once, contents that are private everywhere, e-mail addresses. */
export const privacy = `
-- Uploads by link that are under way. The row is a lease: its holder renews it while bytes arrive, so a
-- process that dies gives the link back.
create table offshoot.upload_claims (
  -- SHA-256 of the access id of the link.
  link_hash bytea primary key,
  -- Identifies the holder, because another upload can take over the link after the lease has ended.
  holder uuid not null,
  expires_at timestamptz not null
);
create index upload_claims_expiry on offshoot.upload_claims (expires_at);

-- File contents that public links do not open, on any branch of the database.
create table offshoot.private_contents (
  database_id bigint not null references offshoot.databases on delete cascade,
  sha256 bytea not null,
  created_at timestamptz not null default now(),
  primary key (database_id, sha256)
);

-- Users choose their e-mail address, and addresses are not verified. So the address that a user shows is
-- not unique: a refusal would reveal which addresses have an account. The one set by the administrator is.
alter table offshoot.users add column assigned_email text;
update offshoot.users set assigned_email = email;
drop index offshoot.users_email;
create unique index users_assigned_email on offshoot.users (lower(assigned_email));
`
