/**
 * Overlays: the outcome of a large merge, until it is in the heap. Like folds, they have no past. Before the
 * merge is published, they belong to a hidden branch and have the kind `staged`.
 */
export const overlays = `
drop index offshoot.heaps_branch_table;
create unique index heaps_branch_table on offshoot.heaps (branch_id, table_id)
where kind in ('heap', 'gone');
create unique index heaps_overlays on offshoot.heaps (branch_id, table_id) where kind = 'overlay';
`
