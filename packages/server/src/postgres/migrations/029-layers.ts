/** One kind of layer, instead of folds and overlays. What is not yet published, and what a stream fills, is in the list of spare heaps. */
export const layers = `
alter table offshoot.heaps
  -- heap: the rows that the branch wrote.
  -- layer: rows that hide those of the next branch. It has no past.
  -- gone: marks that a heap was dropped because all reads skip it. The branch has other uses.
  --
  -- A layer is read as of the epochs of the branch from epoch to until_epoch; null: as of all later ones, and now.
  add column until_epoch integer;
comment on column offshoot.heaps.next_branch_id is
  'For a layer: the branch that is read next, which may be the same one; null if the layer has all rows.';
drop index offshoot.heaps_folds, offshoot.heaps_overlays;
-- The outcome of a merge that has not ended. The collector drops it.
update offshoot.heaps set branch_id = 'dropped ' || id where kind = 'staged';
update offshoot.heaps
set kind = 'layer',
  until_epoch = case when kind = 'fold' then epoch end,
  next_branch_id = case when kind = 'fold' then next_branch_id else branch_id end
where kind in ('fold', 'overlay', 'staged');
create unique index heaps_layers on offshoot.heaps (branch_id, table_id, until_epoch) nulls not distinct
where kind = 'layer';

-- A spare heap has its own time, because a heap that is being filled is kept longer than an empty one.
alter table offshoot_work.spares rename column created_at to kept_until;
alter table offshoot_work.spares alter column kept_until drop default;
-- Streams are listed there, too. Their stages have ended with the processes that filled them.
do $$
declare
  stage record;
begin
  for stage in select id, database_id from offshoot_work.streams loop
    execute format('drop table if exists offshoot_db_%s.%I', stage.database_id, 'stream_' || stage.id);
  end loop;
end
$$;
drop table offshoot_work.streams;
delete from offshoot.work where database_id = 0 and kind in ('overlays', 'stages');
`
