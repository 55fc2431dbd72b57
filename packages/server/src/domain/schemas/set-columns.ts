import type { Column, Table } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { type CanBecome, columnEdits, compareColumns } from './compare-columns.js'

/** Returns the edits after which a table has exactly these columns. */
export function setColumns(
  table: Table,
  columns: readonly Column[],
  canBecome: CanBecome,
): SchemaOperation[] {
  const compared = compareColumns(table.columns, columns, canBecome)
  const { removals, changes, expressions } = columnEdits(table.name, compared)
  return [...removals, ...changes, ...expressions]
}
