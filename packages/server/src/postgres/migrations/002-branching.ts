/** Comparison, merge and expiry of branches. */
export const branching = `
alter table offshoot.branches
  -- The schema at the time of the fork, from which the edits of the branch itself are derived.
  add column fork_schema_id bigint references offshoot.schemas,
  -- Increases with every fork, so it tells which of two ancestor states is the later one.
  add column fork_stamp bigint not null default nextval('offshoot.stamps'),
  -- Refuses deletion and direct schema edits.
  add column protected boolean not null default false,
  -- When the collector may delete the branch.
  add column expires_at timestamptz,
  -- Each use extends the expiry by this time; null: the expiry is fixed.
  add column ttl_seconds integer;
-- For existing forks, the schema at the fork is the one that either side still has. If both were edited
-- since, it is unknown.
update offshoot.branches b
set fork_schema_id = case
  when b.last_migration_id = b.started_from ->> 'migrationID' then b.schema_id
  else (
    select p.schema_id
    from offshoot.branches p
    where p.id = b.started_from ->> 'dbBranchID'
      and p.last_migration_id = b.started_from ->> 'migrationID'
  )
end
where b.started_from is not null;
update offshoot.branches b
set fork_stamp = o.stamp
from (
  select id, nextval('offshoot.stamps') as stamp
  from (select id from offshoot.branches order by created_at, id) made
) o
where o.id = b.id;
create index branches_hidden on offshoot.branches (database_id) where deleted_at is not null;
create index branches_fork_schema on offshoot.branches (fork_schema_id);
create index branches_expiry on offshoot.branches (expires_at)
  where expires_at is not null and deleted_at is null;

-- The epoch of its branch in which a heap was made: forks from before it have no rows there.
alter table offshoot.heaps add column epoch integer not null default 1;

-- What new branches of a database get by their name; the first pattern that matches decides.
create table offshoot.branch_rules (
  database_id bigint not null references offshoot.databases on delete cascade,
  position integer not null,
  pattern text not null,
  settings jsonb not null,
  primary key (database_id, position)
);

-- What branches have taken over from others: from an epoch of the target on, it includes everything
-- of the other branch as of an epoch, except for some tables. The base is a fork of that epoch, mostly a
-- hidden one, and keeps the state readable.
create table offshoot.merges (
  id bigint generated always as identity primary key,
  into_branch_id text not null references offshoot.branches on delete cascade,
  into_epoch integer not null,
  from_branch_id text not null references offshoot.branches on delete cascade,
  from_epoch integer not null,
  base_branch_id text not null references offshoot.branches on delete cascade,
  left_out bigint[] not null,
  merged_at timestamptz not null default now()
);
create index merges_into on offshoot.merges (into_branch_id, from_branch_id);
create index merges_from on offshoot.merges (from_branch_id);
create index merges_base on offshoot.merges (base_branch_id);

-- Branches to look at: one may have lost its last reader, or the versions it keeps for others theirs.
-- Requests only ever add rows, so that they do not wait for each other, nor for the collector.
create table offshoot.sweeps (
  id bigint generated always as identity primary key,
  branch_id text not null
);
create index sweeps_branch on offshoot.sweeps (branch_id);
`
