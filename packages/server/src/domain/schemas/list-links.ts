import type { StoredColumn } from '../../rows/columns.js'

export interface StoredLink {
  /** The name of the column, or its dotted path if it is nested. */
  readonly path: string
  readonly columnId: number
  readonly tableId: number
}

/** Lists the links among columns, including nested columns. */
export function listLinks(columns: readonly StoredColumn[], prefix = ''): StoredLink[] {
  return columns.flatMap((column) => {
    const path = `${prefix}${column.name}`
    if (column.link) return [{ path, columnId: column.id, tableId: column.link.tableId }]
    return column.columns ? listLinks(column.columns, `${path}.`) : []
  })
}
