/** Versions of records are not used twice: after a record is deleted, and after a branch is reset. */
export const versions = `
alter table offshoot.heaps
  -- Records that are created with an id of a request start here. Above the versions of all records that were
  -- deleted from the heap and are no longer in deleted_records. Wider than a version, which can be the last one.
  add column given_floor bigint not null default 0,
  -- The floor for ids that the service has generated, above the versions of all deleted ones.
  add column generated_floor bigint not null default 0;

-- The last versions of records that were deleted from heaps without inherited rows. After some time, the
-- collector deletes the entries and raises the floors. There is no foreign key, because heaps are dropped
-- with all of their entries at once.
create table offshoot.deleted_records (
  heap_id bigint not null,
  id text collate "C" not null,
  version integer not null,
  deleted_at timestamptz not null default now(),
  primary key (heap_id, id)
);
create index deleted_records_age on offshoot.deleted_records (deleted_at);

-- Added to the version of every row that the branch reads. Each reset increases it by 2^32, more than the
-- largest version of a row.
alter table offshoot.branches add column version_base bigint not null default 0;
`
