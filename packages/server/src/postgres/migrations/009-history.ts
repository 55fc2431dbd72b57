/**
 * The history of a database is a graph: forks lead to what a branch inherits, merges to what was
 * merged into it. A merge is one row now; states that the merged branch contains are reached through
 * the merges into that branch. Rows of earlier versions, which name such states directly, stay true.
 */
export const history = `
-- Databases whose history has changed, for the compaction in the background. Requests only add rows.
create table offshoot.compactions (
  id bigint generated always as identity primary key,
  database_id bigint not null
);
create index compactions_database on offshoot.compactions (database_id);

insert into offshoot.compactions (database_id)
select distinct b.database_id
from offshoot.merges m
join offshoot.branches b on b.id = m.into_branch_id;
`
