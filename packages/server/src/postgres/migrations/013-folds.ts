/** Folds: tables with the condensed rows of several levels of a chain of forks. */
export const folds = `
alter table offshoot.heaps
  -- heap: the rows that the branch wrote.
  -- fold: what the branch as of the epoch shows, down to the next branch of its chain. It has no past.
  -- gone: marks that a heap was dropped because all reads skip it. The branch has other uses.
  add column kind text not null default 'heap',
  -- For a fold: the branch that further rows are read from; null if the fold has all rows.
  add column next_branch_id text;
alter table offshoot.heaps drop constraint heaps_branch_id_table_id_key;
create unique index heaps_branch_table on offshoot.heaps (branch_id, table_id) where kind <> 'fold';
create unique index heaps_folds on offshoot.heaps (branch_id, epoch, table_id) where kind = 'fold';
create index heaps_branch on offshoot.heaps (branch_id);
create index heaps_next on offshoot.heaps (next_branch_id) where next_branch_id is not null;

-- Tables of branches that are read from many levels, for the background to fold. Requests only add rows.
create table offshoot.fold_work (
  id bigint generated always as identity primary key,
  branch_id text not null,
  table_id bigint not null,
  attempts integer not null default 0
);

insert into offshoot.fold_work (branch_id, table_id)
with recursive depths as (
  select id, 0 as depth from offshoot.branches where parent_id is null
  union all
  select b.id, d.depth + 1 from depths d join offshoot.branches b on b.parent_id = d.id
)
select h.branch_id, h.table_id
from offshoot.heaps h
join depths d on d.id = h.branch_id
where d.depth > 3
order by d.depth, h.id;
`
