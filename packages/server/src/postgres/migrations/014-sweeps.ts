/** Sweeps look at what one fork could see, and one that fails waits behind the others. */
export const sweeps = `
alter table offshoot.sweeps
  -- The epoch of the branch that a deleted fork could see. Null: look at all versions of the branch.
  add column fork_epoch integer,
  add column created_at timestamptz not null default now(),
  -- A sweep that fails is repeated later, after a longer time with each failure.
  add column due_at timestamptz not null default now(),
  add column failures integer not null default 0,
  add column error text;
create index sweeps_due on offshoot.sweeps (due_at, id);
`
