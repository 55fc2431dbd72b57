import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'

/** Returns the tables in display order: those in `tablesOrder`, then the others by creation. */
export function orderTables(schema: StoredSchema): readonly StoredTable[] {
  if (!schema.tablesOrder) return schema.tables
  const rest = new Map(schema.tables.map((table) => [table.name, table]))
  const ordered: StoredTable[] = []
  for (const name of schema.tablesOrder) {
    const table = rest.get(name)
    if (table && rest.delete(name)) ordered.push(table)
  }
  return [...ordered, ...rest.values()]
}
