/** Proposals to merge a branch, their comments and reviews, and branches that require approvals. */
export const proposals = `
alter table offshoot.branches
  -- Approvals that a proposal needs to change a protected branch. 0: it can be changed directly.
  add column required_approvals integer not null default 0;

alter table offshoot.databases
  -- The number of the last proposal. Proposals are deleted at some time, and numbers are not used again.
  add column last_proposal integer not null default 0;

-- Branches are named by their ids, which may be those of deleted branches. The names are those at the time of the proposal.
create table offshoot.proposals (
  database_id bigint not null references offshoot.databases on delete cascade,
  number integer not null,
  from_branch_id text not null,
  from_name text not null,
  into_branch_id text not null,
  into_name text not null,
  title text not null,
  body text not null,
  user_id text not null,
  key_name text,
  -- open, merged or closed
  state text not null default 'open',
  -- Counts the states that were reviewed. The pins are hidden forks, which keep the last of them.
  revision integer not null default 1,
  from_pin_id text references offshoot.branches on delete set null,
  into_pin_id text references offshoot.branches on delete set null,
  created_at timestamptz not null default clock_timestamp(),
  -- When it was merged or closed, and by whom.
  ended_at timestamptz,
  ended_by text,
  -- The entry of the log that its merge has made.
  entry_id text,
  primary key (database_id, number)
);
create unique index proposals_from_pin on offshoot.proposals (from_pin_id);
create unique index proposals_into_pin on offshoot.proposals (into_pin_id);
create index proposals_open on offshoot.proposals (database_id, number) where state = 'open';
create index proposals_ended on offshoot.proposals (database_id, ended_at) where state <> 'open';

create table offshoot.proposal_comments (
  position bigint generated always as identity primary key,
  id text not null unique default 'com_' || replace(gen_random_uuid()::text, '-', ''),
  database_id bigint not null,
  number integer not null,
  user_id text not null,
  key_name text,
  body text not null,
  -- What it is about: null for the whole proposal, a table, a record or a cell.
  table_name text,
  record_id text,
  column_name text,
  revision integer not null,
  created_at timestamptz not null default clock_timestamp(),
  foreign key (database_id, number) references offshoot.proposals on delete cascade
);
create index proposal_comments_proposal on offshoot.proposal_comments (database_id, number, position);

-- The last word of each reviewer.
create table offshoot.proposal_reviews (
  database_id bigint not null,
  number integer not null,
  user_id text not null,
  key_name text,
  -- approve or requestChanges
  verdict text not null,
  body text not null,
  revision integer not null,
  created_at timestamptz not null default clock_timestamp(),
  primary key (database_id, number, user_id),
  foreign key (database_id, number) references offshoot.proposals on delete cascade
);
`
