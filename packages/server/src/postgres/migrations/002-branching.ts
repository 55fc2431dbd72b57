/** Difference, merge and life-cycle of branches. */
export const branching = `
alter table offshoot.branches
  -- The schema that the branch started with: what its own edits are told by.
  add column fork_schema_id bigint references offshoot.schemas,
  -- Refuses deletion and direct schema edits.
  add column protected boolean not null default false,
  -- When the collector may delete the branch.
  add column expires_at timestamptz,
  -- Moves the expiry ahead with each use; null: the expiry stays where it is.
  add column ttl_seconds integer;
create index branches_hidden on offshoot.branches (database_id) where deleted_at is not null;
create index branches_fork_schema on offshoot.branches (fork_schema_id);
create index branches_expiry on offshoot.branches (expires_at)
  where expires_at is not null and deleted_at is null;

-- What new branches of a database get by their name; the first pattern that matches decides.
create table offshoot.branch_rules (
  database_id bigint not null references offshoot.databases on delete cascade,
  position integer not null,
  pattern text not null,
  settings jsonb not null,
  primary key (database_id, position)
);

-- The last time two branches were brought together, in either direction. The base is a hidden fork of
-- the branch that was taken over, as it was then: what the next merge of the two compares with.
create table offshoot.merges (
  first_branch_id text not null references offshoot.branches on delete cascade,
  second_branch_id text not null references offshoot.branches on delete cascade,
  base_branch_id text not null references offshoot.branches on delete cascade,
  merged_at timestamptz not null default now(),
  primary key (first_branch_id, second_branch_id)
);
create index merges_second on offshoot.merges (second_branch_id);
create index merges_base on offshoot.merges (base_branch_id);

-- Branches whose kept versions may have lost their last reader.
create table offshoot.sweeps (
  branch_id text primary key,
  requested_at timestamptz not null default now()
);
`
