/*
 * Merging from its definition, without bases, epochs or bookkeeping of merges. Every write is
 * remembered together with the writes it was made on top of, and every branch with the set of writes
 * it contains. The base of a merge is what the writes that both sides contain leave behind.
 *
 * A cell is anything that can be written: a value, the existence of a record, of a column or of a table,
 * and the name of a column. A write of a value also says that its record, column and table exist. A deletion of a
 * record also removes its values, those of removed columns included.
 *
 * Tables of the same name that two branches add, and columns of the same name and definition, are one table or
 * column from their first merge on. Every branch keeps the id that it has. Whoever contains the merge knows that the
 * ids are the same, and two branches are merged under the ids of the target.
 */

export type Value = string | null
/** Values by the id of the column. */
export type Row = ReadonlyMap<number, Value>

export interface HistoryColumn {
  readonly id: number
  readonly name: string
  readonly unique: boolean
  readonly notNull: boolean
}

export interface HistoryTable {
  readonly id: number
  readonly name: string
  readonly columns: readonly HistoryColumn[]
  readonly rows: ReadonlyMap<string, Row>
}

export type Tables = ReadonlyMap<number, HistoryTable>

interface Write {
  readonly value: Value
  /** Earlier writes of the same cell that the branch contained. */
  readonly onTopOf: ReadonlySet<Write>
}

export interface HistoryBranch {
  readonly name: string
  readonly source: HistoryBranch | undefined
  /** By cell. */
  readonly writes: Map<string, ReadonlySet<Write>>
  tables: Tables
  /** Ids of the tables and columns that the branch had or rejected, and does not have. */
  removed: ReadonlySet<number>
  /** Ids that stand for one table or column. */
  same: readonly ReadonlySet<number>[]
}

export type Strategy = 'fail' | 'ours' | 'theirs'

interface Outcome {
  readonly tables: Tables
  /** Conflicts that prevent the merge. */
  readonly conflicts: readonly string[]
  /** Rows, as `table/row`, for which the definition allows several outcomes. */
  readonly openRows: ReadonlySet<string>
  /**
   * Rows with a value in a column that the base has removed. The service may have lost the value of the base, and
   * then reports a conflict. It must not merge them in another way.
   */
  readonly fadedRows: ReadonlySet<string>
  /** The definition allows several outcomes for the schema. */
  readonly isSchemaOpen: boolean
}

/** The rows of one table that a branch has changed since a base. */
interface TableChanges {
  readonly inserted: number
  readonly updated: number
  readonly deleted: number
}

/** A cell for merges and for writes that change nothing: the service may count them as new or not. */
const EVENTS = 'events'
const YES = 'yes'
const UNDECIDED = Symbol('the common writes contradict each other')
type BaseValue = Value | typeof UNDECIDED

const tableCell = (table: number): string => `${table}`
const columnCell = (table: number, column: number): string => `${table}.${column}`
const nameCell = (table: number, column: number): string => `${table}.${column}.name`
const rowCell = (table: number, row: string): string => `${table}/${row}`
const valueCell = (table: number, row: string, column: number): string =>
  `${table}/${row}/${column}`

export class WriteHistory {
  readonly branches = new Map<string, HistoryBranch>()

  constructor(first: string) {
    this.branches.set(first, {
      name: first,
      source: undefined,
      writes: new Map(),
      tables: new Map(),
      removed: new Set(),
      same: [],
    })
  }

  addTable(branch: HistoryBranch, table: Pick<HistoryTable, 'id' | 'name'>): void {
    write(branch, tableCell(table.id), YES)
    this.#setTable(branch, { ...table, columns: [], rows: new Map() })
  }

  removeTable(branch: HistoryBranch, { id }: HistoryTable): void {
    write(branch, tableCell(id), null)
    const tables = new Map(branch.tables)
    tables.delete(id)
    this.#setTables(branch, tables)
  }

  addColumn(branch: HistoryBranch, table: HistoryTable, column: HistoryColumn): void {
    write(branch, tableCell(table.id), YES)
    write(branch, columnCell(table.id, column.id), YES)
    write(branch, nameCell(table.id, column.id), column.name)
    this.#setTable(branch, { ...table, columns: [...table.columns, column] })
  }

  removeColumn(branch: HistoryBranch, table: HistoryTable, column: HistoryColumn): void {
    write(branch, tableCell(table.id), YES)
    write(branch, columnCell(table.id, column.id), null)
    const columns = table.columns.filter(({ id }) => id !== column.id)
    this.#setTable(branch, { ...table, columns })
  }

  renameColumn(
    branch: HistoryBranch,
    table: HistoryTable,
    { column, name }: { column: HistoryColumn; name: string },
  ): void {
    write(branch, tableCell(table.id), YES)
    write(branch, columnCell(table.id, column.id), YES)
    write(branch, nameCell(table.id, column.id), name)
    const columns = table.columns.map((each) => (each.id === column.id ? { ...each, name } : each))
    this.#setTable(branch, { ...table, columns })
  }

  put(branch: HistoryBranch, table: HistoryTable, id: string, values: Row): void {
    const before = table.rows.get(id)
    const row = new Map<number, Value>()
    write(branch, EVENTS, null)
    for (const column of table.columns) {
      const value = valueIn(values.has(column.id) ? values : before, column.id)
      row.set(column.id, value)
      if (before !== undefined && value === valueIn(before, column.id)) continue
      if (value !== null || before !== undefined)
        write(branch, columnCell(table.id, column.id), YES)
      write(branch, valueCell(table.id, id, column.id), value)
      write(branch, rowCell(table.id, id), YES)
      write(branch, tableCell(table.id), YES)
    }
    if (before === undefined) {
      write(branch, rowCell(table.id, id), YES)
      write(branch, tableCell(table.id), YES)
    }
    this.#setTable(branch, { ...table, rows: new Map(table.rows).set(id, row) })
  }

  delete(branch: HistoryBranch, table: HistoryTable, id: string): void {
    write(branch, rowCell(table.id, id), null)
    clearValues(branch, rowCell(table.id, id))
    const rows = new Map(table.rows)
    rows.delete(id)
    this.#setTable(branch, { ...table, rows })
  }

  fork(source: HistoryBranch, name: string): void {
    this.branches.set(name, { ...source, name, source, writes: new Map(source.writes) })
  }

  reset(branch: HistoryBranch, source: HistoryBranch): void {
    branch.writes.clear()
    for (const [cell, writes] of source.writes) branch.writes.set(cell, writes)
    branch.tables = source.tables
    branch.removed = source.removed
    branch.same = source.same
  }

  /** Returns whether one branch contains all writes and merges of another. */
  contains(branch: HistoryBranch, other: HistoryBranch): boolean {
    const { from, into } = JoinedIds.of(other, branch).view()
    return missingWrites(into, from).size === 0
  }

  /** Returns whether each side has one table or column at most for all that are the same. */
  areIdsPlain(from: HistoryBranch, into: HistoryBranch): boolean {
    return JoinedIds.of(from, into).isPlain
  }

  /**
   * Returns whether a merge needs no record: the new writes change nothing together, and every later merge
   * starts from the same base with and without them.
   */
  isWithoutTrace(source: HistoryBranch, target: HistoryBranch): boolean {
    const ids = JoinedIds.of(source, target)
    if (ids.isNewTo(target)) return false
    const { from, into } = ids.view()
    const missing = new Map(missingWrites(into, from))
    missing.delete(EVENTS)
    const recorded = { ...into, writes: new Map(into.writes) }
    for (const [cell, writes] of missing) {
      recorded.writes.set(cell, new Set([...(into.writes.get(cell) ?? []), ...writes]))
    }
    const others = [...this.branches.values()]
      .filter((other) => other !== source)
      .map((other) => ids.viewOf(other))
    return [...missing.keys()].every((cell) => {
      if (others.some((other) => hasOtherBase(cell, other, { into, recorded }))) return false
      const value = contentOf(from.tables, cell)
      const base = baseOf(cell, from, into)
      // The service compares contents, so a value that was changed and changed back may be decided for it.
      return value === undefined || base === UNDECIDED || value === base
    })
  }

  /** Returns what a merge leaves on the target. */
  outcome(from: HistoryBranch, into: HistoryBranch, strategy: Strategy): Outcome {
    const sides = JoinedIds.of(from, into).view()
    return new ThreeWayMerge(sides.from, sides.into, strategy).run()
  }

  /** Joins the writes of both sides. `tables` is the target after the merge. */
  merge(source: HistoryBranch, into: HistoryBranch, tables: Tables): void {
    const ids = JoinedIds.of(source, into)
    const sides = ids.view()
    into.writes.clear()
    for (const side of [sides.into, sides.from]) {
      for (const [cell, writes] of side.writes) {
        into.writes.set(cell, new Set([...(into.writes.get(cell) ?? []), ...writes]))
      }
    }
    into.same = ids.groups
    write(into, EVENTS, null)
    const rejected = idsIn(sides.from.tables)
    into.removed = new Set([...into.removed, ...sides.into.removed, ...rejected])
    this.#setTables(into, tables)
    // If the joined writes do not produce the outcome, the merge itself counts as a write.
    for (const [cell, writes] of [...into.writes]) {
      if (cell === EVENTS) continue
      const value = contentOf(tables, cell)
      if (value === undefined) continue
      if (latest(writes).every((each) => each.value === value)) continue
      write(into, cell, value)
      // A record that one side has deleted is kept or deleted as a whole, so its values count as written, too.
      if (value === YES) writeValues(into, cell)
      if (value === null) clearValues(into, cell)
    }
  }

  /** Returns the changes since the last common state, by table. Undefined: the definition leaves it open. */
  changes(branch: HistoryBranch, source: HistoryBranch): Map<number, TableChanges> | undefined {
    const sides = JoinedIds.of(source, branch, { added: false }).view()
    return new ThreeWayMerge(sides.from, sides.into, 'fail').changes()
  }

  #setTable(branch: HistoryBranch, table: HistoryTable): void {
    this.#setTables(branch, new Map(branch.tables).set(table.id, table))
  }

  #setTables(branch: HistoryBranch, tables: Tables): void {
    const now = new Set(idsIn(tables))
    branch.removed = new Set(
      [...branch.removed, ...idsIn(branch.tables)].filter((id) => !now.has(id)),
    )
    branch.tables = tables
  }
}

/** The ids of two branches that stand for the same. */
class JoinedIds {
  readonly #groups = new Map<number, ReadonlySet<number>>()
  readonly #live: readonly ReadonlySet<number>[]
  /** Whether no side uses two of the ids, for different tables or columns. */
  isPlain = true

  /** `added`: joins what both sides have added, too. */
  static of(from: HistoryBranch, into: HistoryBranch, { added = true } = {}): JoinedIds {
    const ids = new JoinedIds(from, into)
    for (const group of [...into.same, ...from.same]) ids.#join(...group)
    if (added) {
      ids.#joinAdded(({ tables }) => [...tables.values()], tableCell)
      for (const table of ids.view().into.tables.values()) {
        ids.#joinAdded(
          ({ tables }) => tables.get(table.id)?.columns ?? [],
          (column) => columnCell(table.id, column),
        )
      }
    }
    return ids
  }

  private constructor(
    readonly from: HistoryBranch,
    readonly into: HistoryBranch,
  ) {
    this.#live = [into, from].map(({ tables }) => new Set(idsIn(tables)))
  }

  #join(...ids: readonly number[]): void {
    const joined = new Set(ids.flatMap((id) => [...(this.#groups.get(id) ?? [id])]))
    if (this.#live.some((live) => [...joined].filter((id) => live.has(id)).length > 1)) {
      this.isPlain = false
      return
    }
    for (const id of joined) this.#groups.set(id, joined)
  }

  #joinAdded<Item extends HistoryTable | HistoryColumn>(
    itemsOf: (side: HistoryBranch) => readonly Item[],
    cellOf: (id: number) => string,
  ): void {
    const { from, into } = this.view()
    const isAdded = ({ id }: Item, other: HistoryBranch) => {
      const [theirs, ours] = [from, into].map(
        ({ writes }) => writes.get(cellOf(id)) ?? new Set<Write>(),
      )
      const isCommon = [...(theirs ?? [])].some((each) => ours?.has(each))
      return !isCommon && !other.removed.has(id) && itemsOf(other).every((item) => item.id !== id)
    }
    const there = itemsOf(from).filter((item) => isAdded(item, into))
    for (const item of itemsOf(into).filter((each) => isAdded(each, from))) {
      const other = there.find((each) => definition(each) === definition(item))
      if (other !== undefined) this.#join(item.id, other.id)
    }
  }

  get groups(): readonly ReadonlySet<number>[] {
    return [...new Set(this.#groups.values())]
  }

  isNewTo(into: HistoryBranch): boolean {
    return this.groups.some((group) =>
      into.same.every(
        (known) => known.size !== group.size || [...group].some((id) => !known.has(id)),
      ),
    )
  }

  #idOf(id: number): number {
    const group = [...(this.#groups.get(id) ?? [id])]
    const used = this.#live.flatMap((live) => group.filter((each) => live.has(each)))
    return used[0] ?? Math.min(...group)
  }

  /** Returns both branches under the ids of the target. */
  view(): { from: HistoryBranch; into: HistoryBranch } {
    return { from: this.viewOf(this.from), into: this.viewOf(this.into) }
  }

  viewOf(branch: HistoryBranch): HistoryBranch {
    const writes = new Map<string, ReadonlySet<Write>>()
    for (const [cell, each] of branch.writes) {
      const viewed = this.#cell(cell)
      writes.set(viewed, new Set([...(writes.get(viewed) ?? []), ...each]))
    }
    const column = (each: HistoryColumn) => ({ ...each, id: this.#idOf(each.id) })
    const row = (values: Row): Row => {
      const viewed = [...values].map(([id, value]) => [this.#idOf(id), value] as const)
      return viewed.every(([id]) => values.has(id)) ? values : new Map(viewed)
    }
    const tables = [...branch.tables.values()].map((table) => ({
      ...table,
      id: this.#idOf(table.id),
      columns: table.columns.map(column),
      rows: new Map([...table.rows].map(([id, values]) => [id, row(values)])),
    }))
    const live = new Set(tables.flatMap(({ id, columns }) => [id, ...columns.map((c) => c.id)]))
    const removed = [...branch.removed].map((id) => this.#idOf(id)).filter((id) => !live.has(id))
    return {
      ...branch,
      writes,
      tables: new Map(tables.map((table) => [table.id, table])),
      removed: new Set(removed),
    }
  }

  #cell(cell: string): string {
    if (cell === EVENTS) return cell
    const [item = '', rowId, valueColumn] = cell.split('/')
    const [tableId, columnId, name] = item.split('.')
    const idOf = (id: string | undefined) => this.#idOf(Number(id))
    if (rowId !== undefined && valueColumn === undefined) return rowCell(idOf(tableId), rowId)
    if (rowId !== undefined) return valueCell(idOf(tableId), rowId, idOf(valueColumn))
    if (columnId === undefined) return tableCell(idOf(tableId))
    const table = idOf(tableId)
    return name === undefined ? columnCell(table, idOf(columnId)) : nameCell(table, idOf(columnId))
  }
}

/** Returns what is the same in tables, or in columns, that are the same. */
function definition(item: HistoryTable | HistoryColumn): string {
  return 'rows' in item ? item.name : JSON.stringify([item.name, item.unique, item.notNull])
}

function idsIn(tables: Tables): number[] {
  return [...tables.values()].flatMap(({ id, columns }) => [id, ...columns.map((each) => each.id)])
}

function write(branch: HistoryBranch, cell: string, value: Value): void {
  const onTopOf = branch.writes.get(cell) ?? new Set<Write>()
  branch.writes.set(cell, new Set([...onTopOf, { value, onTopOf }]))
}

/** Writes the values that a record has. Does nothing if the cell is not that of a record. */
function writeValues(branch: HistoryBranch, cell: string): void {
  const [tableId, id] = cell.split('/')
  const table = branch.tables.get(Number(tableId))
  const row = id === undefined ? undefined : table?.rows.get(id)
  if (table === undefined || id === undefined || row === undefined) return
  for (const column of table.columns) {
    write(branch, valueCell(table.id, id, column.id), valueIn(row, column.id))
  }
}

/** Removes the values that a record has ever had. Does nothing if the cell is not that of a record. */
function clearValues(branch: HistoryBranch, cell: string): void {
  if (cell.split('/').length !== 2) return
  const values = [...branch.writes.keys()].filter((each) => each.startsWith(`${cell}/`))
  for (const each of values) write(branch, each, null)
}

/** Returns the writes that no other write was made on top of. */
function latest(writes: ReadonlySet<Write>): Write[] {
  const covered = new Set([...writes].flatMap((each) => [...each.onTopOf]))
  return [...writes].filter((each) => !covered.has(each))
}

/** Returns the writes of another branch that a branch does not contain, by cell. */
function missingWrites(
  branch: HistoryBranch,
  other: HistoryBranch,
): ReadonlyMap<string, ReadonlySet<Write>> {
  const missing = new Map<string, ReadonlySet<Write>>()
  for (const [cell, writes] of other.writes) {
    const own = branch.writes.get(cell)
    const unknown = new Set([...writes].filter((each) => !own?.has(each)))
    if (unknown.size > 0) missing.set(cell, unknown)
  }
  return missing
}

function baseOf(cell: string, left: HistoryBranch, right: HistoryBranch): BaseValue {
  const theirs = left.writes.get(cell)
  const common = [...(right.writes.get(cell) ?? [])].filter((each) => theirs?.has(each))
  const values = new Set(latest(new Set(common)).map((each) => each.value))
  if (values.size > 1) return UNDECIDED
  return [...values][0] ?? null
}

/** Returns whether merges of two branches have another base for a cell after a merge into one of them is recorded. */
function hasOtherBase(
  cell: string,
  other: HistoryBranch,
  { into, recorded }: { into: HistoryBranch; recorded: HistoryBranch },
): boolean {
  const basesOf = (each: string) => [baseOf(each, other, into), baseOf(each, other, recorded)]
  // Without the record, column or table that it belongs to, the cell does not count.
  if (ownersOf(cell).some((owner) => basesOf(owner).every((base) => base === null))) return false
  const [without, afterwards] = basesOf(cell)
  return without !== afterwards
}

/** Lists the cells that say whether what a cell belongs to exists. */
function ownersOf(cell: string): string[] {
  const [item = '', rowId, valueColumn] = cell.split('/')
  const [tableId, columnId, name] = item.split('.')
  const table = Number(tableId)
  if (rowId !== undefined) {
    if (valueColumn === undefined) return [tableCell(table)]
    return [tableCell(table), rowCell(table, rowId), columnCell(table, Number(valueColumn))]
  }
  if (columnId === undefined) return []
  if (name === undefined) return [tableCell(table)]
  return [tableCell(table), columnCell(table, Number(columnId))]
}

/** Returns the content of a cell. Undefined if what it belongs to does not exist. */
function contentOf(tables: Tables, cell: string): Value | undefined {
  const [item = '', rowId, valueColumn] = cell.split('/')
  const [tableId, columnId, name] = item.split('.')
  const table = tables.get(Number(tableId))
  const present = (found: unknown) => (found === undefined ? null : YES)
  if (rowId !== undefined) {
    const row = table?.rows.get(rowId)
    if (valueColumn === undefined) return table && present(row)
    const column = table?.columns.find(({ id }) => id === Number(valueColumn))
    return row && column && valueIn(row, column.id)
  }
  if (columnId === undefined) return present(table)
  const column = table?.columns.find(({ id }) => id === Number(columnId))
  return name === undefined ? table && present(column) : column?.name
}

/** Thrown when the definition allows several outcomes. */
class OpenError extends Error {}

interface BaseRow {
  readonly isPresent: boolean
  valueOf(column: number): Value
}

class ThreeWayMerge {
  readonly #conflicts: string[] = []
  readonly #openRows = new Set<string>()
  readonly #fadedRows = new Set<string>()

  constructor(
    readonly from: HistoryBranch,
    readonly into: HistoryBranch,
    readonly strategy: Strategy,
  ) {}

  run(): Outcome {
    const tables = new Map<number, HistoryTable>()
    const [conflicts, openRows, fadedRows] = [this.#conflicts, this.#openRows, this.#fadedRows]
    try {
      for (const id of new Set([...this.into.tables.keys(), ...this.from.tables.keys()])) {
        const table = this.#table(this.from.tables.get(id), this.into.tables.get(id))
        if (table !== undefined) tables.set(id, table)
      }
    } catch (error) {
      if (!(error instanceof OpenError)) throw error
      return { tables, conflicts, openRows, fadedRows, isSchemaOpen: true }
    }
    this.#requireNames([...tables.values()])
    for (const table of tables.values()) {
      this.#requireNames(table.columns)
      this.#requireRules(table)
    }
    return { tables, conflicts, openRows, fadedRows, isSchemaOpen: false }
  }

  changes(): Map<number, TableChanges> | undefined {
    const changes = new Map<number, TableChanges>()
    try {
      for (const table of this.into.tables.values()) {
        // A column that the base has removed and the branch has kept is not compared.
        if (table.columns.some(({ id }) => this.#wasRemoved(columnCell(table.id, id))))
          return undefined
        changes.set(table.id, this.#tableChanges(table))
      }
    } catch (error) {
      if (error instanceof OpenError) return undefined
      throw error
    }
    return changes
  }

  #tableChanges(table: HistoryTable): TableChanges {
    const counts = { inserted: 0, updated: 0, deleted: 0 }
    const isPresent = this.#isPresent(tableCell(table.id))
    for (const id of this.#rowIds(table.id)) {
      const base = this.#baseRow(table.id, id)
      const row = table.rows.get(id)
      const wasThere = isPresent && base.isPresent
      if (row === undefined) counts.deleted += wasThere ? 1 : 0
      else if (!wasThere) counts.inserted++
      else if (table.columns.some((each) => valueIn(row, each.id) !== base.valueOf(each.id))) {
        counts.updated++
      }
    }
    return counts
  }

  /** Returns whether both sides contain a removal. */
  #wasRemoved(cell: string): boolean {
    const theirs = this.from.writes.get(cell)
    const ours = this.into.writes.get(cell) ?? new Set<Write>()
    return [...ours].some((each) => each.value === null && theirs?.has(each))
  }

  #clash(text: string): void {
    this.#conflicts.push(text)
  }

  #base(cell: string): Value {
    const value = baseOf(cell, this.from, this.into)
    if (value === UNDECIDED) throw new OpenError(cell)
    return value
  }

  #isPresent(cell: string): boolean {
    return this.#base(cell) !== null
  }

  #baseRow(table: number, id: string): BaseRow {
    return {
      isPresent: this.#isPresent(rowCell(table, id)),
      valueOf: (column) => {
        const existence = columnCell(table, column)
        if (this.#wasRemoved(existence) && !this.#isPresent(existence)) {
          // With another strategy, the strategy decides the conflict.
          if (this.strategy !== 'fail') throw new OpenError(existence)
          this.#fadedRows.add(rowCell(table, id))
        }
        return this.#base(valueCell(table, id, column))
      },
    }
  }

  /** Lists the rows of a table that either side has or had. */
  #rowIds(table: number): string[] {
    const prefix = `${table}/`
    const cells = [...this.from.writes.keys(), ...this.into.writes.keys()]
    const own = cells.filter((cell) => cell.startsWith(prefix))
    return [...new Set(own.map((cell) => cell.split('/')[1] ?? ''))].sort()
  }

  #table(
    theirs: HistoryTable | undefined,
    ours: HistoryTable | undefined,
  ): HistoryTable | undefined {
    if (theirs !== undefined && ours !== undefined) return this.#both(theirs, ours)
    const only = ours ?? theirs
    if (only === undefined) return undefined
    const wasThere = this.#isPresent(tableCell(only.id))
    const isChanged = () => this.#isTableChanged(only)
    return this.#oneSided(only, { isOurs: only === ours, wasThere, isChanged })
  }

  /** Decides about a table or column that one side has. Undefined: the target does not have it afterwards. */
  #oneSided<Item extends { readonly id: number; readonly name: string }>(
    item: Item,
    options: { isOurs: boolean; wasThere: boolean; isChanged(): boolean },
  ): Item | undefined {
    const { isOurs, wasThere, isChanged } = options
    if (isOurs) {
      if (!wasThere) return item
      if (!isChanged() || this.strategy === 'theirs') return undefined
      if (this.strategy === 'fail') this.#clash(`${item.name} was removed there`)
      return item
    }
    // A merge cannot restore what the target has removed.
    const isRemoved = this.into.removed.has(item.id)
    if (!wasThere && !isRemoved) return item
    const isLost = wasThere ? isChanged() : isRemoved
    if (isLost && this.strategy !== 'ours') this.#clash(`${item.name} was removed here`)
    return undefined
  }

  #isTableChanged(table: HistoryTable): boolean {
    const prefix = `${table.id}.`
    const cells = [...this.from.writes.keys(), ...this.into.writes.keys()]
    const columns = cells.filter((cell) => cell.startsWith(prefix) && !cell.endsWith('.name'))
    const isEdited = columns.some((cell) => {
      const id = Number(cell.slice(prefix.length))
      const own = table.columns.find((each) => each.id === id)
      if ((own !== undefined) !== this.#isPresent(cell)) return true
      return own !== undefined && own.name !== this.#base(nameCell(table.id, id))
    })
    return isEdited || this.#isWritten(table, table.columns, { countsEmpty: true })
  }

  #isWritten(
    table: HistoryTable,
    columns: readonly HistoryColumn[],
    { countsEmpty }: { countsEmpty: boolean },
  ): boolean {
    return [...table.rows].some(([id, row]) => {
      const base = this.#baseRow(table.id, id)
      if (!base.isPresent && countsEmpty) return true
      return columns.some((each) => {
        return valueIn(row, each.id) !== (base.isPresent ? base.valueOf(each.id) : null)
      })
    })
  }

  #both(theirs: HistoryTable, ours: HistoryTable): HistoryTable {
    const columns: HistoryColumn[] = []
    const ids = [...ours.columns, ...theirs.columns].map(({ id }) => id)
    for (const id of new Set(ids)) {
      const here = ours.columns.find((each) => each.id === id)
      const there = theirs.columns.find((each) => each.id === id)
      const only = here ?? there
      if (only === undefined) continue
      if (here !== undefined && there !== undefined) {
        columns.push({ ...here, name: this.#name(ours.id, { here, there }) })
        continue
      }
      const side = here === undefined ? theirs : ours
      const kept = this.#oneSided(only, {
        isOurs: here !== undefined,
        wasThere: this.#isPresent(columnCell(ours.id, id)),
        isChanged: () =>
          only.name !== this.#base(nameCell(ours.id, id)) ||
          this.#isWritten(side, [only], { countsEmpty: false }),
      })
      if (kept !== undefined) columns.push(kept)
    }
    this.#decideNames(columns, { theirs, ours })
    const rows = new Map<string, Row>()
    for (const id of this.#rowIds(ours.id)) {
      const row = this.#row(id, { theirs, ours, columns })
      if (row !== undefined) rows.set(id, row)
    }
    return { ...ours, columns, rows }
  }

  /** Decides about columns of the same name that both sides have added, with different definitions. */
  #decideNames(
    columns: HistoryColumn[],
    { theirs, ours }: { theirs: HistoryTable; ours: HistoryTable },
  ): void {
    const isNewIn = (side: HistoryTable, other: HistoryTable) =>
      columns.filter(
        ({ id }) =>
          side.columns.some((each) => each.id === id) &&
          other.columns.every((each) => each.id !== id) &&
          !this.#isPresent(columnCell(side.id, id)),
      )
    const there = isNewIn(theirs, ours)
    for (const here of isNewIn(ours, theirs)) {
      const other = there.find(({ name }) => name === here.name)
      if (other === undefined) continue
      if (this.strategy === 'fail') this.#clash(`${here.name} was added on both sides`)
      columns.splice(columns.indexOf(this.strategy === 'theirs' ? here : other), 1)
    }
  }

  #name(table: number, { here, there }: { here: HistoryColumn; there: HistoryColumn }): string {
    if (here.name === there.name) return here.name
    const before = this.#base(nameCell(table, here.id))
    if (there.name === before) return here.name
    if (here.name === before || this.strategy === 'theirs') return there.name
    if (this.strategy === 'fail') this.#clash(`${here.name} was renamed on both sides`)
    return here.name
  }

  #row(
    id: string,
    tables: { theirs: HistoryTable; ours: HistoryTable; columns: readonly HistoryColumn[] },
  ): Row | undefined {
    const { theirs, ours, columns } = tables
    const [there, here] = [theirs.rows.get(id), ours.rows.get(id)]
    const asIs = here && restrict(here, columns)
    try {
      return this.#decide(id, { there, here: asIs, theirs, ours, columns })
    } catch (error) {
      if (!(error instanceof OpenError)) throw error
      this.#openRows.add(rowCell(ours.id, id))
      return asIs
    }
  }

  #decide(
    id: string,
    sides: {
      there: Row | undefined
      here: Row | undefined
      theirs: HistoryTable
      ours: HistoryTable
      columns: readonly HistoryColumn[]
    },
  ): Row | undefined {
    const { there, here, theirs, ours, columns } = sides
    if (there === undefined && here === undefined) return undefined
    const shared = columns.filter((each) => theirs.columns.some((own) => own.id === each.id))
    const isSame = (column: HistoryColumn) => valueIn(there, column.id) === valueIn(here, column.id)
    if (there !== undefined && here !== undefined && shared.every(isSame)) return here
    const base = this.#baseRow(theirs.id, id)
    const isChanged = (row: Row, compared: readonly HistoryColumn[]) =>
      compared.some((each) => valueIn(row, each.id) !== base.valueOf(each.id))
    if (there === undefined) {
      if (here === undefined || !base.isPresent) return here
      return isChanged(here, columns) ? this.#choose(id, { ours: here }) : undefined
    }
    const whole = new Map([...restrict(there, shared)])
    for (const { id: added } of columns) if (!whole.has(added)) whole.set(added, null)
    if (here === undefined) {
      if (!base.isPresent) return whole
      return isChanged(there, shared) ? this.#choose(id, { theirs: whole }) : undefined
    }
    const merged = new Map(here)
    let isClash = false
    for (const column of shared) {
      if (isSame(column)) continue
      const value = valueIn(there, column.id)
      // The target gets the whole column, and not only what has changed in it. It has no value of its own there.
      if (!ours.columns.some((own) => own.id === column.id)) {
        merged.set(column.id, value)
        continue
      }
      if (base.isPresent && value === base.valueOf(column.id)) continue
      if (!base.isPresent || valueIn(here, column.id) !== base.valueOf(column.id)) {
        isClash = true
        if (this.strategy !== 'theirs') continue
      }
      merged.set(column.id, value)
    }
    if (isClash && this.strategy === 'fail') this.#clash(`record ${id}`)
    return isClash && this.strategy === 'fail' ? here : merged
  }

  #choose(id: string, sides: { ours?: Row; theirs?: Row }): Row | undefined {
    if (this.strategy === 'fail') this.#clash(`record ${id}`)
    return this.strategy === 'theirs' ? sides.theirs : sides.ours
  }

  #requireNames(items: readonly { readonly name: string }[]): void {
    const names = items.map(({ name }) => name)
    if (new Set(names).size < names.length) this.#clash('two of one name')
  }

  /** An open row may have other values, or be deleted, so no conflict is certain because of it. */
  #requireRules({ id: table, columns, rows }: HistoryTable): void {
    const decided = [...rows].filter(([row]) => !this.#openRows.has(rowCell(table, row)))
    for (const { id, name, unique, notNull } of columns) {
      const values = decided.map(([, row]) => valueIn(row, id))
      const present = values.filter((value) => value !== null)
      if (notNull && present.length < values.length) this.#clash(`${name} must have a value`)
      if (unique && new Set(present).size < present.length) this.#clash(`${name} is not unique`)
    }
  }
}

/** Returns a value. Rows may lack columns that were added later, and have columns that were removed. */
export function valueIn(row: Row | undefined, column: number): Value {
  return row?.get(column) ?? null
}

/** Returns a row with exactly the given columns. */
function restrict(row: Row, columns: readonly HistoryColumn[]): Row {
  return new Map(columns.map(({ id }) => [id, valueIn(row, id)]))
}
