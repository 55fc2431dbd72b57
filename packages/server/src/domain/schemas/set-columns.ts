import type { Column, Table } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { compareColumns } from './compare-columns.js'

/** Returns the edits after which a table has exactly these columns. */
export function setColumns(table: Table, columns: readonly Column[]): SchemaOperation[] {
  const { removed, added, altered } = compareColumns(table.columns, columns)
  return [
    ...removed.map((column) => ({ removeColumn: { table: table.name, column } })),
    ...added.map((column) => ({ addColumn: { table: table.name, column } })),
    ...altered.map((column) => ({ alterColumn: { table: table.name, ...column } })),
  ]
}
