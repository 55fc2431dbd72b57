import type { StoredColumn, StoredTable } from '../../rows/stored-schema.js'

/**
 * What a migration changes in the storage. Renames change nothing there. Tables are as the migration
 * leaves them, and a removed one is as it was before.
 */
export type SchemaChange =
  | { readonly kind: 'tableAdded'; readonly table: StoredTable }
  | { readonly kind: 'tableRemoved'; readonly table: StoredTable }
  | { readonly kind: 'columnAdded'; readonly table: StoredTable; readonly column: StoredColumn }
  | { readonly kind: 'columnRemoved'; readonly table: StoredTable; readonly column: StoredColumn }
