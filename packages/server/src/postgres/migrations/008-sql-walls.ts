/** Functions that are added to statements of users, to limit the size of their values. */
export const sqlWalls = `
create schema if not exists offshoot_sql;
grant usage on schema offshoot_sql to public;

-- Returns the value, or fails if it takes too many bytes. Some functions of PostgreSQL never check for
-- interrupts, so their arguments have to be small. PL/pgSQL checks at each call.
create or replace function offshoot_sql.within(value text, bytes_max integer) returns text
language plpgsql immutable strict parallel safe as $$
begin
  if octet_length(value) > bytes_max then
    raise exception using errcode = '54000', message = format('a value of more than %s bytes', bytes_max);
  end if;
  return value;
end $$;

create or replace function offshoot_sql.within(value bytea, bytes_max integer) returns bytea
language plpgsql immutable strict parallel safe as $$
begin
  if octet_length(value) > bytes_max then
    raise exception using errcode = '54000', message = format('a value of more than %s bytes', bytes_max);
  end if;
  return value;
end $$;

-- Stored documents may be compressed; their text tells how large they are.
create or replace function offshoot_sql.within(value jsonb, bytes_max integer) returns jsonb
language plpgsql stable strict parallel safe as $$
begin
  if octet_length(value::text) > bytes_max then
    raise exception using errcode = '54000', message = format('a value of more than %s bytes', bytes_max);
  end if;
  return value;
end $$;

create or replace function offshoot_sql.within(value json, bytes_max integer) returns json
language plpgsql stable strict parallel safe as $$
begin
  if octet_length(value::text) > bytes_max then
    raise exception using errcode = '54000', message = format('a value of more than %s bytes', bytes_max);
  end if;
  return value;
end $$;

create or replace function offshoot_sql.within(value anyelement, bytes_max integer) returns anyelement
language plpgsql stable strict parallel safe as $$
declare
  kind text := pg_typeof(value)::text;
  bytes integer := pg_column_size(value);
begin
  -- Arrays may be compressed as well.
  if right(kind, 2) = '[]' then
    bytes := greatest(bytes, 8 * cardinality(value));
  end if;
  if bytes > bytes_max then
    raise exception using errcode = '54000', message = format('a value of more than %s bytes', bytes_max);
  end if;
  -- A number has about two digits in a byte; those with thousands are slow to calculate with.
  if kind = 'numeric' and bytes > 1000 then
    raise exception using errcode = '54000', message = 'a number of more than about 2000 digits';
  end if;
  return value;
end $$;

-- Returns the value, and counts the bytes that a statement keeps in memory, such as elements of arrays.
create or replace function offshoot_sql.collected(value anyelement, bytes_max bigint) returns anyelement
language plpgsql volatile parallel restricted as $$
declare
  total bigint := coalesce(nullif(current_setting('offshoot.collected', true), ''), '0')::bigint
    + coalesce(pg_column_size(value), 0) + 48;
  kept text;
begin
  if total > bytes_max then
    raise exception using errcode = '54000', message = format('values of more than %s bytes', bytes_max);
  end if;
  kept := set_config('offshoot.collected', total::text, true);
  return value;
end $$;
`
