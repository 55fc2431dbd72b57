import type { Table } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { parseArray } from '../../postgres/array-literal.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { SchemaChange } from '../../rows/heaps/schema-changes.js'
import { wantsIndex, wantsSearchIndex } from '../../rows/indexes/heap-indexes.js'
import { changesOf, pairColumns } from './alter-column.js'
import { addTable } from './compare-schemas-by-name.js'
import { toPublicSchema } from './public-schema.js'
import { pathsOf } from './store-constraint.js'

interface Named {
  readonly id: number
  readonly name: string
}

/**
 * Compares two schemas with a common ancestor by the ids of tables and columns, so that renames are
 * recognised. Returns the edits that turn one into the other, in an order in which they can be
 * applied. Works in steps. All tables are added before any column, because columns can link to them.
 */
export function* compareSchemasById(
  before: StoredSchema,
  after: StoredSchema,
): Generator<undefined, SchemaOperation[], undefined> {
  const { removed, renamed, added } = compareNames(before.tables, after.tables)
  const operations: SchemaOperation[] = [
    ...removed.map((table) => ({ removeTable: { table } })),
    ...renamed.map((names) => ({ renameTable: names })),
    ...added.map(addTable),
  ]
  const old = new Map(before.tables.map((table) => [table.id, table]))
  yield
  const definitions = new Map(toPublicSchema(after).tables.map((table) => [table.name, table]))
  yield
  for (const table of after.tables) {
    const definition = definitions.get(table.name)
    for (const operation of compareTableById(old.get(table.id), table, definition)) {
      operations.push(operation)
    }
    yield
  }
  return operations
}

function compareTableById(
  before: StoredTable | undefined,
  after: StoredTable,
  definition: Table | undefined,
): SchemaOperation[] {
  const table = after.name
  const rules = compareNames(before?.constraints ?? [], after.constraints ?? [])
  const constraints = new Map((definition?.constraints ?? []).map((each) => [each.name, each]))
  const old = before?.columns ?? []
  const successors = pairColumns(old, after.columns)
  const paired = old.map((column) => ({
    ...column,
    id: successors.get(column.id)?.id ?? column.id,
  }))
  const { removed, renamed, added } = compareNames(paired, after.columns)
  const columns = new Map((definition?.columns ?? []).map((column) => [column.name, column]))
  const isHistoryChanged = before !== undefined && before.history?.keep !== after.history?.keep
  const isIdChanged = before !== undefined && before.idBits !== after.idBits
  const tableChanges = {
    ...(isHistoryChanged && { history: after.history ?? null }),
    ...(isIdChanged && { idBits: after.idBits ?? null }),
  }
  const alterations = old.flatMap((column) => {
    const successor = successors.get(column.id)
    const changes = successor && changesOf(column, successor, pathsOf(after.columns))
    if (successor === undefined || changes === undefined) return []
    const { link } = columns.get(successor.name) ?? {}
    const linked =
      changes.type === 'link' && link ? { link: { onDelete: 'none' as const, ...link } } : {}
    return [{ alterColumn: { table, column: successor.name, ...changes, ...linked } }]
  })
  const additions = added.flatMap((stored) => {
    const column = columns.get(stored.name)
    if (column === undefined) return []
    const fill = before && fillOf(stored)
    return [{ addColumn: { table, column, ...(fill && { fill }) } }]
  })
  const uses = ({ computed }: { readonly computed?: string }) => computed !== undefined
  return [
    ...(isHistoryChanged || isIdChanged ? [{ alterTable: { table, ...tableChanges } }] : []),
    ...rules.removed.map((constraint) => ({ removeConstraint: { table, constraint } })),
    ...removed.map((column) => ({ removeColumn: { table, column } })),
    ...renamed.map((names) => ({ renameColumn: { table, ...names } })),
    ...alterations.filter(({ alterColumn }) => !uses(alterColumn)),
    // An added column can use columns that are added after it.
    ...additions,
    // Changed expressions use columns that are there by now.
    ...alterations.filter(({ alterColumn }) => uses(alterColumn)),
    ...rules.added.flatMap(({ name }): SchemaOperation[] => {
      const constraint = constraints.get(name)
      return constraint === undefined ? [] : [{ addConstraint: { table, constraint } }]
    }),
  ]
}

/** Returns what gives records a value of an added column, unless its definition does. */
function fillOf(column: StoredColumn): { readonly defaultValue: string } | undefined {
  const { notNull, defaultValue, type, fill } = column
  if (fill === undefined || (notNull && defaultValue !== undefined)) return undefined
  if (type === 'bool') return { defaultValue: String(fill === 't') }
  return { defaultValue: type === 'multiple' ? JSON.stringify(parseArray(fill).items) : fill }
}

interface Rename {
  readonly oldName: string
  readonly newName: string
}

function compareNames<Item extends Named>(
  before: readonly Item[],
  after: readonly Item[],
): { removed: string[]; renamed: Rename[]; added: Item[] } {
  const kept = new Map(after.map((item) => [item.id, item]))
  const old = new Set(before.map((item) => item.id))
  return {
    removed: before.filter((item) => !kept.has(item.id)).map((item) => item.name),
    renamed: orderRenames(
      before.flatMap(({ id, name: oldName }) => {
        const newName = kept.get(id)?.name
        return newName === undefined ? [] : [{ oldName, newName }]
      }),
    ),
    added: after.filter((item) => !old.has(item.id)),
  }
}

/**
 * Orders renames so that each new name is free when it is needed. Items that exchange their names need
 * an additional rename to a temporary name. `items` has all items that stay, including those that are
 * not renamed, because their names are in use.
 */
function orderRenames(items: readonly Rename[]): Rename[] {
  const changed = items.filter(({ oldName, newName }) => oldName !== newName)
  const waiting = new Map(changed.map((item) => [item.newName.toLowerCase(), item]))
  const names = new Set(items.map(({ oldName }) => oldName.toLowerCase()))
  const ordered: Rename[] = []
  const rename = (first: Rename) => {
    // The name that a rename gives up may be the one that another rename is waiting for.
    let next: Rename | undefined = first
    while (next !== undefined) {
      const oldKey: string = next.oldName.toLowerCase()
      const newKey: string = next.newName.toLowerCase()
      if (oldKey !== newKey && names.has(newKey)) return
      ordered.push(next)
      waiting.delete(newKey)
      names.delete(oldKey)
      names.add(newKey)
      next = oldKey === newKey ? undefined : waiting.get(oldKey)
    }
  }
  for (const item of changed) {
    if (waiting.get(item.newName.toLowerCase()) === item) rename(item)
  }
  // All that still wait exchange their names in cycles.
  const wanted = new Set(items.map(({ newName }) => newName.toLowerCase()))
  for (const [key, item] of waiting) {
    const step = { oldName: item.oldName, newName: freeName(names, wanted) }
    waiting.set(key, { ...item, oldName: step.newName })
    rename(step)
  }
  return ordered
}

/** Returns a name that no item has, before or after the renames. */
function freeName(names: ReadonlySet<string>, wanted: ReadonlySet<string>): string {
  for (let number = 1; ; number++) {
    const name = `renamed_${number}`
    if (!names.has(name) && !wanted.has(name)) return name
  }
}

/** Compares two schemas by id, and returns the changes for the storage. */
export function storageChanges(before: StoredSchema, after: StoredSchema): SchemaChange[] {
  const old = new Map(before.tables.map((table) => [table.id, table]))
  const kept = new Set(after.tables.map((table) => table.id))
  const removed = before.tables.filter((table) => !kept.has(table.id))
  return [
    ...removed.map((table) => ({ kind: 'tableRemoved' as const, table })),
    ...after.tables.flatMap((table): SchemaChange[] => {
      const previous = old.get(table.id)
      if (previous === undefined) return [{ kind: 'tableAdded', table }]
      const successors = pairColumns(previous.columns, table.columns)
      const known = new Set([...successors.values()].map((column) => column.id))
      const isHistoryChanged = previous.history?.keep !== table.history?.keep
      return [
        ...(isHistoryChanged ? [{ kind: 'historyChanged' as const, table }] : []),
        ...changedConstraints('constraintRemoved', previous, table),
        ...previous.columns.flatMap((column): SchemaChange[] => {
          const successor = successors.get(column.id)
          if (successor === undefined) return [{ kind: 'columnRemoved', table, column }]
          if (successor.id === column.id && changesOf(column, successor) === undefined) return []
          return [{ kind: 'columnAltered', table, before: column, column: successor }]
        }),
        ...table.columns
          .filter((column) => !known.has(column.id))
          .map((column) => ({ kind: 'columnAdded' as const, table, column })),
        ...changedIndexes(previous, table),
        ...changedConstraints('constraintAdded', previous, table),
      ]
    }),
  ]
}

/** Lists the constraints that only one of two versions of a table has. */
function changedConstraints(
  kind: 'constraintAdded' | 'constraintRemoved',
  before: StoredTable,
  table: StoredTable,
): SchemaChange[] {
  const [from, to] = kind === 'constraintAdded' ? [before, table] : [table, before]
  const known = new Set((from.constraints ?? []).map(({ id }) => id))
  return (to.constraints ?? [])
    .filter(({ id }) => !known.has(id))
    .map((constraint) => ({ kind, table, constraint }))
}

/** Lists the columns whose indexes differ. Migrations do not contain indexes; stored schemas do. */
function changedIndexes(before: StoredTable, table: StoredTable): SchemaChange[] {
  const old = new Map(listAllColumns(before.columns).map((column) => [column.id, column]))
  return listAllColumns(table.columns).flatMap((column): SchemaChange[] => {
    const previous = old.get(column.id)
    if (previous === undefined) return []
    const isSame =
      wantsIndex(previous) === wantsIndex(column) &&
      wantsSearchIndex(before, previous) === wantsSearchIndex(table, column)
    if (isSame) return []
    return [{ kind: 'indexChanged', table, column }]
  })
}
