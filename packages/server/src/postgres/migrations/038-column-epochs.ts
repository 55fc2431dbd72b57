/**
 * A column that a heap got after it was created belongs to the epochs since then. Forks of an earlier epoch do not read it:
 * they make its value as their own schema says. Values of columns that exist are right for all forks.
 */
export const columnEpochs = `
-- The epochs in which columns were added, by the ids of these columns. Null: the heap was created with all of them.
alter table offshoot.heaps add column column_epochs jsonb;
`
