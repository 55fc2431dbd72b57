import type { Column } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { SchemaChange } from '../../rows/schema-changes.js'
import type { StoredSchema, StoredTable } from '../../rows/stored-schema.js'
import { toPublicSchema } from './public-schema.js'

/**
 * The edits between two schemas that have a common past. Ids tell a rename from a removal, which
 * names alone cannot. All tables are added before any column, as links may point forward.
 */
export function schemaDifference(before: StoredSchema, after: StoredSchema): SchemaOperation[] {
  const removals: SchemaOperation[] = []
  const tables: SchemaOperation[] = []
  const columns: SchemaOperation[] = []
  const old = new Map(before.tables.map((table) => [table.id, table]))
  const kept = new Set(after.tables.map((table) => table.id))
  for (const table of before.tables) {
    if (!kept.has(table.id)) removals.push({ removeTable: { table: table.name } })
  }
  for (const table of after.tables) {
    const previous = old.get(table.id)
    if (previous === undefined) tables.push({ addTable: { table: table.name } })
    else if (previous.name !== table.name) {
      tables.push({ renameTable: { oldName: previous.name, newName: table.name } })
    }
    columns.push(...columnDifference(previous, table, publicColumns(after, table)))
  }
  return [...removals, ...tables, ...columns]
}

function columnDifference(
  before: StoredTable | undefined,
  after: StoredTable,
  columns: readonly Column[],
): SchemaOperation[] {
  const table = after.name
  const old = new Map(before?.columns.map((column) => [column.id, column]))
  const kept = new Set(after.columns.map((column) => column.id))
  const removed = [...old.values()].filter((column) => !kept.has(column.id))
  return [
    ...removed.map(({ name }) => ({ removeColumn: { table, column: name } })),
    ...after.columns.flatMap((column, index): SchemaOperation[] => {
      const previous = old.get(column.id)
      const definition = columns[index]
      if (previous === undefined) {
        return definition === undefined ? [] : [{ addColumn: { table, column: definition } }]
      }
      if (previous.name === column.name) return []
      return [{ renameColumn: { table, oldName: previous.name, newName: column.name } }]
    }),
  ]
}

function publicColumns(schema: StoredSchema, table: StoredTable): readonly Column[] {
  const found = toPublicSchema(schema).tables.find(({ name }) => name === table.name)
  return found?.columns ?? []
}

/** What the same edits mean for the storage. */
export function storageChanges(before: StoredSchema, after: StoredSchema): SchemaChange[] {
  const old = new Map(before.tables.map((table) => [table.id, table]))
  const kept = new Set(after.tables.map((table) => table.id))
  const removed = before.tables.filter((table) => !kept.has(table.id))
  return [
    ...removed.map((table) => ({ kind: 'tableRemoved' as const, table })),
    ...after.tables.flatMap((table): SchemaChange[] => {
      const previous = old.get(table.id)
      if (previous === undefined) return [{ kind: 'tableAdded', table }]
      const known = new Set(previous.columns.map((column) => column.id))
      const remaining = new Set(table.columns.map((column) => column.id))
      return [
        ...previous.columns
          .filter((column) => !remaining.has(column.id))
          .map((column) => ({ kind: 'columnRemoved' as const, table, column })),
        ...table.columns
          .filter((column) => !known.has(column.id))
          .map((column) => ({ kind: 'columnAdded' as const, table, column })),
      ]
    }),
  ]
}
