/** Content of files, and the keys that links to it are signed with. */
export const files = `
-- Every content that was put into the store, whether or not a row mentions it yet.
create table offshoot.blobs (
  sha256 bytea primary key,
  size bigint not null,
  -- The last time an upload relied on it; one that is under way must find its content.
  put_at timestamptz not null default now(),
  -- The last time the collector looked for rows that mention it.
  checked_at timestamptz not null default now(),
  -- Since when no row has mentioned it.
  unused_since timestamptz
);
create index blobs_checked on offshoot.blobs (checked_at);
create index blobs_unused on offshoot.blobs (unused_since) where unused_since is not null;

-- The newest key signs, all verify; deleting one ends every link that it has signed.
create table offshoot.link_keys (
  id bigint generated always as identity primary key,
  secret bytea not null,
  created_at timestamptz not null default now()
);
insert into offshoot.link_keys (secret)
select sha256(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8'))
from generate_series(1, 4);

-- Which of the columns hold files, also of those that the schema has dropped.
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
