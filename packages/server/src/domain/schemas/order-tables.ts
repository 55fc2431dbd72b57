import type { StoredSchema, StoredTable } from '../../rows/columns.js'

/** The tables in the order they are shown: that of `tablesOrder`, then that of their creation. */
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
