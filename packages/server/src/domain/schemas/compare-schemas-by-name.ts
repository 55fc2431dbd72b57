import type { Schema } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { StoredSchema } from '../../rows/columns.js'
import { compareColumns } from './compare-columns.js'

/**
 * The edits that turn one schema into another; tables and columns are the same when their names
 * are. Names become free before they are used again, and every table is there before the columns
 * that may link to it.
 */
export function compareSchemasByName(source: Schema, target: Schema): SchemaOperation[] {
  const sourceTables = new Map(source.tables.map((table) => [table.name, table]))
  const removeColumns: SchemaOperation[] = []
  const addTables: SchemaOperation[] = []
  const addColumns: SchemaOperation[] = []
  for (const { name: table, columns } of target.tables) {
    const old = sourceTables.get(table)
    // Deleting it here makes a table that is listed twice an added one, which is then refused.
    if (!sourceTables.delete(table)) addTables.push({ addTable: { table } })
    const { removed, added } = compareColumns(old?.columns ?? [], columns)
    for (const column of removed) removeColumns.push({ removeColumn: { table, column } })
    for (const column of added) addColumns.push({ addColumn: { table, column } })
  }
  const removeTables = [...sourceTables.keys()].map((table) => ({ removeTable: { table } }))
  return [...removeColumns, ...removeTables, ...addTables, ...addColumns]
}

/** The source of a comparison without the tables and columns that its edits remove. */
export function withoutRemoved(
  source: StoredSchema,
  edits: readonly SchemaOperation[],
): StoredSchema {
  const tables = new Set<string>()
  const columns = new Set<string>()
  for (const edit of edits) {
    if ('removeTable' in edit) tables.add(edit.removeTable.table)
    // No name has a dot in it.
    if ('removeColumn' in edit)
      columns.add(`${edit.removeColumn.table}.${edit.removeColumn.column}`)
  }
  return {
    tables: source.tables
      .filter(({ name }) => !tables.has(name))
      .map((table) => ({
        ...table,
        columns: table.columns.filter(({ name }) => !columns.has(`${table.name}.${name}`)),
      })),
  }
}
