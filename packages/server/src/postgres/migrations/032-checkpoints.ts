/** Checkpoints: states of branches that are kept. */
export const checkpoints = `
-- The pin is a hidden fork of the state, which keeps it readable. It belongs to the checkpoint alone.
create table offshoot.checkpoints (
  id text primary key default 'cp_' || replace(gen_random_uuid()::text, '-', ''),
  database_id bigint not null references offshoot.databases on delete cascade,
  branch_id text not null references offshoot.branches on delete cascade,
  pin_id text not null references offshoot.branches on delete cascade,
  name text not null,
  note text,
  -- manual, automatic or scheduled
  kind text not null,
  -- The kind of the change that an automatic one was made before.
  before text,
  created_at timestamptz not null default clock_timestamp(),
  unique (branch_id, name)
);
create unique index checkpoints_pin on offshoot.checkpoints (pin_id);
create index checkpoints_branch on offshoot.checkpoints (branch_id, created_at, id);
create index checkpoints_database on offshoot.checkpoints (database_id);

alter table offshoot.branches
  -- The schedule of checkpoints: seconds between them, and how many are kept. Null: none.
  add column checkpoint_every integer,
  add column checkpoint_keep integer,
  add column checkpoint_due timestamptz;
create index branches_checkpoints on offshoot.branches (checkpoint_due)
  where checkpoint_due is not null and deleted_at is null;
`
