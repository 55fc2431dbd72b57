/** Bounds of the answers kept for idempotency keys, and checks of file contents in slices. */
export const answers = `
alter table offshoot.idempotency_keys
  -- Null: from an earlier version. They are gone after a day.
  add column database_id bigint,
  -- Bytes of the answer, and of its entry.
  add column size integer not null default 0,
  -- Null: the answer is no longer kept, but its request must not be executed again.
  alter column body drop not null;
create index idempotency_keys_database
on offshoot.idempotency_keys (database_id, (body is null), created_at) include (size);

-- Searches for rows that refer to contents. A search looks at some heaps at a time.
create table offshoot.blob_checks (
  id bigint generated always as identity primary key,
  sha256s text[] not null,
  started_at timestamptz not null default now(),
  -- The search is done with the heaps up to this one.
  heap_id bigint not null default 0,
  -- A heap could not be searched, so a content that was not found may still be in use.
  is_incomplete boolean not null default false,
  due_at timestamptz not null default now()
);
create table offshoot.blob_check_mentions (
  check_id bigint not null references offshoot.blob_checks on delete cascade,
  sha256 text not null,
  database_id bigint not null,
  primary key (check_id, sha256, database_id)
);
`
