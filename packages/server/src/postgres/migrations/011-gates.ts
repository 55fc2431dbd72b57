/** A gate for each branch, instead of 64 gates for all. */
export const gates = `
-- Tables that hold no rows of users, and are no part of a backup.
create schema if not exists offshoot_work;

-- Locked by transactions that run alone on a branch, and by a backup while it lists tables.
create table offshoot_work.instance ();

-- Streams of records in progress: offshoot_work.stream_<id> has the rows so far.
create table offshoot_work.streams (
  id text primary key,
  used_at timestamptz not null default now()
);

-- The gates of branches are created when they are first needed: offshoot_work.gate_<branch id>. Processes
-- of an earlier version lock the old gates; without these they fail, instead of writing into a fork.
do $$
begin
  for number in 0..63 loop
    execute format('drop table offshoot.%I', 'gate_' || number);
  end loop;
end
$$;
alter table offshoot.branches drop column gate;
`
