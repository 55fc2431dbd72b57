/** The last number that each sequence has given. All branches of a database share its sequences. */
export const sequences = `
create table offshoot.sequences (
  database_id bigint not null references offshoot.databases on delete cascade,
  -- The id of the table or column whose values are numbered.
  item_id bigint not null,
  last bigint not null,
  primary key (database_id, item_id)
);
`
