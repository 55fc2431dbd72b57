/** The contents of files, and the keys that sign links to them. */
export const files = `
-- All contents in the file store, whether or not a row refers to them yet.
create table offshoot.blobs (
  sha256 bytea primary key,
  size bigint not null,
  -- Time of the last upload of this content. The collector spares recent ones, which a row may not
  -- refer to yet.
  put_at timestamptz not null default now(),
  -- Time when the collector last searched for rows that refer to it.
  checked_at timestamptz not null default now(),
  -- Time since which no row refers to it; null while it is in use.
  unused_since timestamptz
);
create index blobs_checked on offshoot.blobs (checked_at);
create index blobs_unused on offshoot.blobs (unused_since) where unused_since is not null;

-- The newest key signs links; all keys verify them. Deleting a key revokes every link it signed.
create table offshoot.link_keys (
  id bigint generated always as identity primary key,
  secret bytea not null,
  created_at timestamptz not null default now()
);
insert into offshoot.link_keys (secret)
select sha256(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8'))
from generate_series(1, 4);

-- The physical columns that hold files, including those dropped from the schema.
alter table offshoot.heaps add column file_column_ids bigint[] not null default '{}';
update offshoot.heaps h
set file_column_ids = array(
  select distinct (c ->> 'id')::bigint
  from offshoot.schemas s,
    jsonb_path_query(s.document,
      '$.**.columns[*] ? (@.type == "file" || @.type == "file[]")') c
  where s.database_id = h.database_id and (c ->> 'id')::bigint = any(h.column_ids)
);
`
