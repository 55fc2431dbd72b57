import type { StoredColumn, StoredTable } from '../../rows/columns/stored-schema.js'

/**
 * Gives links the size of the ids of the tables that they link to. A column has it, so that everything that deals with one
 * table knows what its links can be.
 */
export function withLinkedBits(tables: readonly StoredTable[]): StoredTable[] {
  const bits = new Map(tables.map(({ id, idBits }) => [id, idBits]))
  const withBits = (columns: readonly StoredColumn[]): readonly StoredColumn[] => {
    const after = columns.map((column): StoredColumn => {
      const nested = column.columns && withBits(column.columns)
      const { link } = column
      const idBits = link && bits.get(link.tableId)
      if (nested === column.columns && link?.idBits === idBits) return column
      const { idBits: _, ...target } = link ?? { tableId: 0 }
      return {
        ...column,
        ...(link && { link: { ...target, ...(idBits && { idBits }) } }),
        ...(nested && { columns: nested }),
      }
    })
    return after.every((column, index) => column === columns[index]) ? columns : after
  }
  return tables.map((table) => {
    const columns = withBits(table.columns)
    return columns === table.columns ? table : { ...table, columns }
  })
}

/** Returns a link without the size of the linked ids, which is that of the other table. */
export function withoutBits({ link, ...column }: StoredColumn): StoredColumn {
  if (link === undefined) return column
  const { idBits: _, ...target } = link
  return { ...column, link: target }
}
