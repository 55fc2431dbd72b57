/** Secrets of the instance, one for each purpose, so that all processes on one PostgreSQL share them. */
export const secrets = `
create table offshoot.secrets (
  purpose text primary key,
  secret bytea not null
);

-- Authenticates the cursors of queries. A new one ends every cursor that clients hold.
insert into offshoot.secrets (purpose, secret)
select 'cursors', sha256(convert_to(string_agg(gen_random_uuid()::text, ''), 'UTF8'))
from generate_series(1, 4);
`
