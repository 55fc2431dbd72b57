import { GATE_KEY } from '../advisory-keys.js'

/** Functions for the gates of branches, so that a transaction can run alone on a branch that has no gate. */
export const gateFunctions = `
create function offshoot_work.has_gate(branch_id text) returns boolean language sql volatile as $$
  select exists (
    select from pg_class
    where relname = ('gate_' || branch_id)::name and relnamespace = 'offshoot_work'::regnamespace
  )
$$;

-- Waits until no one else is at the gate of a branch, and keeps others out until the transaction ends. A branch without a
-- gate has no writers, so it is enough that nobody creates the gate. The transaction must be read committed: each statement
-- of the function then sees what was committed while the one before waited.
create function offshoot_work.enter_alone(branch_id text) returns void language plpgsql as $$
begin
  if not offshoot_work.has_gate(branch_id) then
    perform pg_advisory_xact_lock(${GATE_KEY}, hashtext(branch_id));
    if not offshoot_work.has_gate(branch_id) then return; end if;
  end if;
  execute format('lock table offshoot_work.%I in exclusive mode', 'gate_' || branch_id);
end
$$;

-- Creates the gate of a branch, unless it has one.
create function offshoot_work.create_gate(branch_id text) returns void language plpgsql as $$
begin
  if offshoot_work.has_gate(branch_id) then return; end if;
  perform pg_advisory_xact_lock(${GATE_KEY}, hashtext(branch_id));
  if offshoot_work.has_gate(branch_id) then return; end if;
  execute format('create table offshoot_work.%I ()', 'gate_' || branch_id);
end
$$;
`
