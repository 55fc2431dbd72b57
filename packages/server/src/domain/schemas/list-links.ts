import type { StoredColumn } from '../../rows/columns.js'

export interface StoredLink {
  /** The name of the column, with dots when it is nested. */
  readonly path: string
  readonly columnId: number
  readonly tableId: number
}

/** The links among columns and the columns nested in them. */
export function listLinks(columns: readonly StoredColumn[], prefix = ''): StoredLink[] {
  return columns.flatMap((column) => {
    const path = `${prefix}${column.name}`
    if (column.link) return [{ path, columnId: column.id, tableId: column.link.tableId }]
    return column.columns ? listLinks(column.columns, `${path}.`) : []
  })
}
