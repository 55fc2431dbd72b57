/**
 * A branch inherits rows within its own database only. Existing rows are not checked, so that a catalogue that breaks the
 * rule still starts.
 */
export const parents = `
alter table offshoot.branches
  add constraint branches_database_id_key unique (database_id, id),
  drop constraint branches_parent_id_fkey;
alter table offshoot.branches
  add constraint branches_parent_id_fkey foreign key (database_id, parent_id)
    references offshoot.branches (database_id, id) not valid;
`
