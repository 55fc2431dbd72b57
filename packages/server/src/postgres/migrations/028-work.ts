/** One table for all background work, instead of one for each kind. */
export const work = `
-- Requests only ever add rows, so that they wait neither for each other nor for the worker. Several rows may ask for the
-- same work; the first step of it serves them all.
create table offshoot.work (
  id bigint generated always as identity primary key,
  kind text not null,
  -- 0: the work looks through the whole instance, again and again.
  database_id bigint not null default 0,
  -- What the work is about, such as a branch.
  subject text not null default '',
  -- What requests ask for in particular.
  details jsonb not null default '[]',
  -- How far work of several steps is. Null: it has not begun.
  position text,
  created_at timestamptz not null default now(),
  due_at timestamptz not null default now(),
  -- Work that fails is repeated later, after a longer time with each failure.
  failures integer not null default 0,
  error text
);
create index work_due on offshoot.work (database_id, due_at, id);
create index work_subject on offshoot.work (database_id, kind, subject);
create unique index work_of_instance on offshoot.work (kind) where database_id = 0;

insert into offshoot.work (kind, database_id, subject, details)
select 'sweep', b.database_id, b.id, to_jsonb(coalesce(s.fork_epochs, array[s.fork_epoch]))
from offshoot.sweeps s
join offshoot.branches b on b.id = s.branch_id
order by s.id;
insert into offshoot.work (kind, database_id)
select distinct 'compact', database_id from offshoot.compactions;
insert into offshoot.work (kind, database_id, subject)
select 'fold', b.database_id, b.id || ' ' || f.table_id
from offshoot.fold_work f
join offshoot.branches b on b.id = f.branch_id
order by f.id;
insert into offshoot.work (kind, database_id, subject)
select 'migrations', database_id, migration_id from offshoot.unused_migrations order by id;
drop table offshoot.sweeps, offshoot.compactions, offshoot.fold_work, offshoot.unused_migrations;
`
