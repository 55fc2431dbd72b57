/** Indexes on columns. */
export const indexes = `
-- Columns of heaps whose index has to be made, or dropped, to be what the schema of the branch says.
-- What is not here is so.
create table offshoot.index_work (
  heap_id bigint not null references offshoot.heaps on delete cascade,
  column_id bigint not null,
  -- Changes when it is asked for again, so that whoever is at work does not take it for done.
  stamp bigint not null default nextval('offshoot.stamps'),
  -- Why the index cannot be made; nobody tries again unless asked to.
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
