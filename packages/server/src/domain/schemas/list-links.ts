import type { StoredColumn } from '../../rows/columns/stored-schema.js'

interface StoredLink {
  /** The name of the column, or its dotted path if it is nested. */
  readonly path: string
  readonly tableId: number
}

/** Lists the links among columns, including nested columns. */
export function listLinks(columns: readonly StoredColumn[], prefix = ''): StoredLink[] {
  return columns.flatMap((column) => {
    const path = `${prefix}${column.name}`
    if (column.link) return [{ path, tableId: column.link.tableId }]
    return column.columns ? listLinks(column.columns, `${path}.`) : []
  })
}
