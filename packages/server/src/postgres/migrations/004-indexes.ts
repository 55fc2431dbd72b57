/** Indexes on columns. */
export const indexes = `
-- Columns of heaps whose index has to be created or dropped to match the schema of the branch. All other
-- columns match it already.
create table offshoot.index_work (
  heap_id bigint not null references offshoot.heaps on delete cascade,
  column_id bigint not null,
  -- Changes with every request, so that a builder does not mark a newer request as done.
  stamp bigint not null default nextval('offshoot.stamps'),
  -- Why the index could not be built. It is tried again only on request.
  failure text,
  primary key (heap_id, column_id)
);

-- Link columns have an index by default.
insert into offshoot.index_work (heap_id, column_id)
select distinct h.id, (c ->> 'id')::bigint
from offshoot.heaps h
join offshoot.branches b on b.id = h.branch_id
join offshoot.schemas s on s.id = b.schema_id,
  jsonb_path_query(s.document, '$.**.columns[*] ? (@.type == "link")') c
where (c ->> 'id')::bigint = any(h.column_ids);
`
