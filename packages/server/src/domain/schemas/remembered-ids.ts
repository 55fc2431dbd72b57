import type { StoredSchema } from '../../rows/columns/stored-schema.js'

/**
 * Returns the later of two schemas of a branch, with the ids of the tables and columns that have been
 * removed from the branch so far, and with the ids that it knows to be the same.
 */
export function rememberIds(before: StoredSchema, after: StoredSchema): StoredSchema {
  const tables = new Map(after.tables.map((table) => [table.id, table]))
  const lost = before.tables.flatMap(({ id, columns }) => {
    const table = tables.get(id)
    if (table === undefined) return [id]
    const kept = new Set(table.columns.map((column) => column.id))
    return columns.filter((column) => !kept.has(column.id)).map((column) => column.id)
  })
  const removedIds = [...(before.removedIds ?? []), ...lost]
  return {
    ...after,
    ...(removedIds.length > 0 && { removedIds }),
    ...(before.sameIds && { sameIds: before.sameIds }),
  }
}
