import type { StoredColumn, StoredSchema, StoredTable } from '../../rows/stored-schema.js'
import { listLinks } from './list-links.js'

export type MergeStrategy = 'fail' | 'ours' | 'theirs'

/** How one table takes part in a merge. */
export interface TableRule {
  readonly strategy: MergeStrategy
  /** `skip` keeps the table out; `schema` takes its schema and not its rows. */
  readonly mode: 'merge' | 'skip' | 'schema'
}

export interface SchemaConflict {
  readonly table: string
  readonly column?: string
  readonly message: string
}

export interface MergedSchema {
  readonly schema: StoredSchema
  readonly conflicts: readonly SchemaConflict[]
}

interface Named {
  readonly id: number
  readonly name: string
}

/**
 * Ours, with what theirs has changed since the base. Tables and columns are known by id, so renames on
 * one side and edits on the other come together.
 */
export function mergeSchemas(
  sides: { base: StoredSchema; ours: StoredSchema; theirs: StoredSchema },
  ruleOf: (tableName: string) => TableRule,
): MergedSchema {
  const { base, ours, theirs } = sides
  const conflicts: SchemaConflict[] = []
  const inBase = byId(base.tables)
  const inTheirs = byId(theirs.tables)
  const inOurs = byId(ours.tables)

  const kept = ours.tables.flatMap((table): StoredTable[] => {
    const before = inBase.get(table.id)
    const other = inTheirs.get(table.id)
    const rule = ruleOf(other?.name ?? table.name)
    if (rule.mode === 'skip' || before === undefined) return [table]
    if (other !== undefined) return [mergeTable({ before, table, other }, rule, conflicts)]
    if (sameTable(before, table) || rule.strategy === 'theirs') return []
    if (rule.strategy === 'fail') {
      conflicts.push({ table: table.name, message: 'was removed there and changed here' })
    }
    return [table]
  })
  const added = theirs.tables.filter(
    (table) => !inBase.has(table.id) && !inOurs.has(table.id) && ruleOf(table.name).mode !== 'skip',
  )
  const tables = [...kept, ...added]
  conflicts.push(...nameConflicts(tables), ...linkConflicts(tables))
  const order = [...(ours.tablesOrder ?? []), ...added.map((table) => table.name)]
  const names = new Set(tables.map((table) => table.name))
  const tablesOrder = order.filter((name) => names.has(name))
  return {
    schema: tablesOrder.length === tables.length ? { tables, tablesOrder } : { tables },
    conflicts,
  }
}

function mergeTable(
  sides: { before: StoredTable; table: StoredTable; other: StoredTable },
  rule: TableRule,
  conflicts: SchemaConflict[],
): StoredTable {
  const { before, table, other } = sides
  const old = byId(before.columns)
  const inOther = byId(other.columns)
  const mine = byId(table.columns)
  const name = mergeName({ before, ours: table, theirs: other }, rule, (message) =>
    conflicts.push({ table: table.name, message }),
  )
  const kept = table.columns.flatMap((column): StoredColumn[] => {
    const previous = old.get(column.id)
    if (previous === undefined) return [column]
    const changed = inOther.get(column.id)
    if (changed === undefined) return []
    const columnName = mergeName(
      { before: previous, ours: column, theirs: changed },
      rule,
      (message) => conflicts.push({ table: table.name, column: column.name, message }),
    )
    return [{ ...column, name: columnName }]
  })
  const added = other.columns.filter((column) => !old.has(column.id) && !mine.has(column.id))
  const columns = [...kept, ...added]
  for (const { name: duplicate } of duplicates(columns)) {
    conflicts.push({
      table: table.name,
      column: duplicate,
      message: 'two different columns have this name; rename one of them first',
    })
  }
  return { ...table, name, columns }
}

/** A name that one side changed; both sides differently is a conflict. */
function mergeName(
  { before, ours, theirs }: { before: Named; ours: Named; theirs: Named },
  rule: TableRule,
  conflict: (message: string) => void,
): string {
  if (theirs.name === before.name || theirs.name === ours.name) return ours.name
  if (ours.name === before.name || rule.strategy === 'theirs') return theirs.name
  if (rule.strategy === 'fail')
    conflict(`was renamed to [${theirs.name}] there and [${ours.name}] here`)
  return ours.name
}

function nameConflicts(tables: readonly StoredTable[]): SchemaConflict[] {
  return duplicates(tables).map(({ name }) => ({
    table: name,
    message: 'two different tables have this name; rename one of them first',
  }))
}

function linkConflicts(tables: readonly StoredTable[]): SchemaConflict[] {
  const ids = new Set(tables.map((table) => table.id))
  return tables.flatMap((table) =>
    listLinks(table.columns)
      .filter((link) => !ids.has(link.tableId))
      .map((link) => ({
        table: table.name,
        column: link.path,
        message: 'links to a table that the merge would remove',
      })),
  )
}

function duplicates<Item extends Named>(items: readonly Item[]): Item[] {
  const seen = new Set<string>()
  return items.filter((item) => {
    const key = item.name.toLowerCase()
    const isDuplicate = seen.has(key)
    seen.add(key)
    return isDuplicate
  })
}

function byId<Item extends Named>(items: readonly Item[]): Map<number, Item> {
  return new Map(items.map((item) => [item.id, item]))
}

function sameTable(left: StoredTable, right: StoredTable): boolean {
  return JSON.stringify(left) === JSON.stringify(right)
}
