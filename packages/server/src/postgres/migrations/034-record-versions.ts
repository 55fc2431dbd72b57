/** Versions of records, for tables that keep them. */
export const recordVersions = `
-- Who writes in this transaction, as the transaction itself has noted it.
create function offshoot.version_author(out user_id text, out key_name text, out cause text)
language sql stable as $$
  select k.user_id, coalesce(p.name, k.name), nullif(current_setting('offshoot.cause', true), '')
  from (select) as always
  left join offshoot.api_keys k
    on k.id = nullif(current_setting('offshoot.key_id', true), '')::bigint
  left join offshoot.api_keys p on p.id = k.parent_id
$$;

-- A trigger sees every writer: requests, streams, merges. It belongs to the heaps of tables that keep versions, and to no
-- others. The table of versions is beside the heap.
create function offshoot.keep_versions() returns trigger language plpgsql as $$
declare
  versions text := format('%I.%I', tg_table_schema, 'versions_' || substr(tg_table_name, 6));
  columns text := ' (id, at, epoch, user_id, key_name, cause, old_row, new_row) ';
begin
  -- Rows that only move to the heap are no new versions.
  if current_setting('offshoot.moves_rows', true) = 'on' then
    return null;
  end if;
  if tg_op = 'INSERT' then
    execute 'insert into ' || versions || columns || '
      select n.id, clock_timestamp(), n.epoch, a.user_id, a.key_name, a.cause, null,
        case when not n.deleted then to_jsonb(n) end
      from new_rows n cross join offshoot.version_author() a';
  elsif tg_op = 'UPDATE' then
    execute 'insert into ' || versions || columns || '
      select n.id, clock_timestamp(), n.epoch, a.user_id, a.key_name, a.cause,
        case when not o.deleted then to_jsonb(o) end, case when not n.deleted then to_jsonb(n) end
      from new_rows n join old_rows o on o.id = n.id cross join offshoot.version_author() a
      where not (o.deleted and n.deleted)';
  else
    -- A deleted row has the epoch of its last change.
    execute 'insert into ' || versions || columns || '
      select o.id, clock_timestamp(), b.epoch, a.user_id, a.key_name, a.cause, to_jsonb(o), null
      from old_rows o cross join offshoot.version_author() a
      cross join (
        select b.epoch from offshoot.heaps h join offshoot.branches b on b.id = h.branch_id
        where h.id = $1
      ) b
      where not o.deleted'
      using substr(tg_table_name, 6)::bigint;
  end if;
  return null;
end
$$;
`
