import { SEQUENCE_KEY } from '../advisory-keys.js'

/** Tables and columns that are the same on different branches, or were made of each other, share one sequence. */
export const joinedSequences = `
-- The table or column whose sequence is also that of this one. It has a sequence of its own, so there are no chains.
alter table offshoot.sequences add column continues bigint;

-- Joins the sequences of tables and columns, and lets the one that they share go on after a number.
create function offshoot.continue_sequence(of_database bigint, items bigint[], above bigint) returns void
language plpgsql as $$
declare
  joined bigint[];
  owner bigint;
begin
  perform pg_advisory_xact_lock(${SEQUENCE_KEY}, hashint8(of_database));
  joined := array(
    select i from unnest(items) i
    union
    select s.continues from offshoot.sequences s
    where s.database_id = of_database and s.item_id = any(items) and s.continues is not null
  );
  joined := array(
    select i from unnest(joined) i
    union
    select s.item_id from offshoot.sequences s
    where s.database_id = of_database and s.continues = any(joined)
  );
  owner := (select min(i) from unnest(joined) i);
  insert into offshoot.sequences (database_id, item_id, last)
  select of_database, i, 0 from unnest(joined) i
  on conflict do nothing;
  -- Waits for those who take numbers. Nobody takes of the other sequences afterwards.
  update offshoot.sequences set continues = owner
  where database_id = of_database and item_id = any(joined) and item_id <> owner;
  update offshoot.sequences
  set last = greatest(above, (
    select max(s.last) from offshoot.sequences s
    where s.database_id = of_database and s.item_id = any(joined)
  ), last)
  where database_id = of_database and item_id = owner;
end
$$;
`
