import type { StoredSchema } from '../../rows/columns.js'

/** The later of two schemas of a branch, with a memory of what it has lost. */
export function rememberRemoved(before: StoredSchema, after: StoredSchema): StoredSchema {
  const tables = new Map(after.tables.map((table) => [table.id, table]))
  const lost = before.tables.flatMap(({ id, columns }) => {
    const table = tables.get(id)
    if (table === undefined) return [id]
    const kept = new Set(table.columns.map((column) => column.id))
    return columns.filter((column) => !kept.has(column.id)).map((column) => column.id)
  })
  const removedIds = [...(before.removedIds ?? []), ...lost]
  return removedIds.length === 0 ? after : { ...after, removedIds }
}
