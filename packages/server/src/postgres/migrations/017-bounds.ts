/** Bounds of what the background keeps and of how long one of its steps takes. */
export const bounds = `
-- Migrations that may have lost their last branch. The collector removes them and their ancestors, up to the
-- first one that is still in use.
create table offshoot.unused_migrations (
  id bigint generated always as identity primary key,
  database_id bigint not null,
  migration_id text not null,
  due_at timestamptz not null default now(),
  failures integer not null default 0,
  error text
);
create index unused_migrations_due on offshoot.unused_migrations (due_at, id);
create index migrations_parent on offshoot.migrations (database_id, parent_id);
create index branches_migration on offshoot.branches (database_id, last_migration_id);
insert into offshoot.unused_migrations (database_id, migration_id)
select m.database_id, m.id
from offshoot.migrations m
where not exists (
    select from offshoot.migrations c where c.database_id = m.database_id and c.parent_id = m.id
  )
  and not exists (
    select from offshoot.branches b where b.database_id = m.database_id and b.last_migration_id = m.id
  );

-- A compaction that fails is repeated later, like a sweep.
alter table offshoot.compactions
  add column due_at timestamptz not null default now(),
  add column failures integer not null default 0,
  add column error text;
create index compactions_due on offshoot.compactions (due_at, id);

alter table offshoot.sweeps
  -- The sweep is done with the heaps up to this one. Null: it has not begun.
  add column heap_id bigint,
  -- A heap failed, so the sweep starts over when it is done with the others.
  add column has_failed boolean not null default false,
  -- The epochs of all requests that the sweep serves, once it has begun.
  add column fork_epochs integer[];
`
