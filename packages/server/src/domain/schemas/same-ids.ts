import { toCanonicalJson } from '../../common/write-json.js'
import {
  listAllColumns,
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { ReadIds, StoredAs } from '../../rows/layout/layout.js'
import { withoutBits } from './id-bits.js'
import { withColumnIds, withUsedIds } from './store-constraint.js'

/*
 * Branches that add the same table or column separately have different ids for it. The first merge between them
 * finds that out, and the schema of the target remembers it in `sameIds`. From then on, a merge reads the states of
 * all branches by the ids of its target. The rest of a merge knows nothing of it: it compares ids.
 */

/** The two sides of a merge or a difference. Their states are read by the ids of `ours`. */
interface ComparedSchemas {
  readonly ours: StoredSchema
  readonly theirs: StoredSchema
}

/** Tables, or the columns of one table, and the ids that each side has removed. */
interface ComparedItems<Item> {
  readonly ours: readonly Item[]
  readonly theirs: readonly Item[]
  readonly removed: Readonly<Record<'ours' | 'theirs', ReadonlySet<number>>>
}

export class SameIds {
  readonly #sides: ComparedSchemas
  /** The ids that each side uses. Most merges do not need them, and a schema can have 20,000 columns. */
  #used: readonly ReadonlySet<number>[] | undefined
  #known: ReadonlySet<number> | undefined
  /** By id: all ids of the table or column. */
  readonly #groups = new Map<number, ReadonlySet<number>>()

  /** Joins the ids that one of the sides knows to be the same. */
  constructor(sides: ComparedSchemas) {
    this.#sides = sides
    for (const { sameIds = [] } of [sides.ours, sides.theirs]) {
      for (const [first, ...others] of sameIds) {
        for (const other of others) this.#join(first as number, other)
      }
    }
  }

  get #live(): readonly ReadonlySet<number>[] {
    const { ours, theirs } = this.#sides
    this.#used ??= [new Set(idsOf(ours)), new Set(idsOf(theirs))]
    return this.#used
  }

  /** The ids of columns that columns of ours were made of. Rows of ours have values under them. */
  get #origins(): ReadonlySet<number> {
    this.#known ??= new Set(
      this.#sides.ours.tables.flatMap((table) =>
        listAllColumns(table.columns).flatMap((column) => listOrigins(column).map(({ id }) => id)),
      ),
    )
    return this.#known
  }

  /** Joins two ids, unless one of the sides uses both, for different tables or columns. */
  #join(one: number, other: number): void {
    const joined = new Set([...this.#groupOf(one), ...this.#groupOf(other)])
    if (this.#live.some((live) => [...joined].filter((id) => live.has(id)).length > 1)) return
    for (const id of joined) this.#groups.set(id, joined)
  }

  #groupOf(id: number): ReadonlySet<number> {
    return this.#groups.get(id) ?? new Set([id])
  }

  /** Returns the id by which a table or column is read: that of ours, or else that of theirs. */
  idOf(id: number): number {
    const group = this.#groups.get(id)
    if (group === undefined) return id
    const [ours, theirs] = this.#live
    const all = [...group]
    return (
      all.find((each) => ours?.has(each)) ??
      all.find((each) => this.#origins.has(each)) ??
      all.find((each) => theirs?.has(each)) ??
      Math.min(...all)
    )
  }

  /** Returns all ids of the given tables or columns. */
  allOf(ids: readonly number[]): number[] {
    return [...new Set(ids.flatMap((id) => [...this.#groupOf(id)]))]
  }

  /** The groups as a schema stores them. undefined: there are none. */
  get stored(): StoredSchema['sameIds'] {
    const groups = [...new Set(this.#groups.values())].map((group) => [...group].sort(ascending))
    const sorted = groups.sort(([left = 0], [right = 0]) => left - right)
    return sorted.length === 0 ? undefined : sorted
  }

  /** Whether ours does not know all of it. */
  get isNew(): boolean {
    const { ours } = this.#sides
    if (this.#groups.size === 0 && ours.sameIds === undefined) return false
    const known = new SameIds({ ours, theirs: ours })
    return JSON.stringify(this.stored) !== JSON.stringify(known.stored)
  }

  /** Returns a schema of ours as it is stored. */
  store(schema: StoredSchema): StoredSchema {
    const removed = [...(this.#sides.ours.removedIds ?? []), ...(schema.removedIds ?? [])]
    const sameIds = this.stored
    return {
      ...schema,
      ...(removed.length > 0 && { removedIds: [...new Set(removed)] }),
      ...(sameIds && { sameIds }),
    }
  }

  /** Returns a schema by the ids that it is read by. */
  read(schema: StoredSchema): StoredSchema {
    const { sameIds: _, removedIds, ...rest } = schema
    if (this.#groups.size === 0) return { ...rest, ...(removedIds && { removedIds }) }
    const readIds = this.#readIdsIn(schema)
    const idOf = (id: number) => readIds.get(id) ?? id
    const readOrigin = ({ from, ...column }: StoredColumn): StoredColumn => ({
      ...column,
      id: this.#origins.has(column.id) ? column.id : this.idOf(column.id),
      ...(from && { from: readOrigin(from) }),
    })
    const readColumn = ({ columns, link, from, ...column }: StoredColumn): StoredColumn => ({
      ...withUsedIds(column, idOf),
      id: idOf(column.id),
      ...(from && { from: readOrigin(from) }),
      ...(link && { link: { ...link, tableId: idOf(link.tableId) } }),
      ...(columns && { columns: columns.map(readColumn) }),
    })
    const tables = schema.tables.map((table) => ({
      ...table,
      id: idOf(table.id),
      columns: table.columns.map(readColumn),
      ...(table.constraints && {
        constraints: table.constraints.map((each) => withColumnIds(each, idOf)),
      }),
    }))
    const live = new Set(idsOf({ tables }))
    const removed = removedIds?.map((id) => this.idOf(id)).filter((id) => !live.has(id))
    return { ...rest, tables, ...(removed && { removedIds: [...new Set(removed)] }) }
  }

  /** Returns how the rows of a state with the given schema are read. */
  readIds(schema: StoredSchema): ReadIds {
    const readIds = this.#readIdsIn(schema)
    const tables = new Map<number, number>()
    const columns = new Map<number, StoredAs>()
    if (this.#groups.size === 0) return { tables, columns }
    const isRead = new Set(readIds.values())
    for (const id of schema.removedIds ?? []) {
      const readId = this.idOf(id)
      if (readId === id || isRead.has(readId)) continue
      columns.set(readId, { id, column: undefined })
    }
    for (const table of schema.tables) {
      const readId = readIds.get(table.id)
      if (readId !== undefined && readId !== table.id) tables.set(table.id, readId)
      for (const column of listAllColumns(table.columns)) {
        const columnId = readIds.get(column.id)
        if (columnId !== undefined && columnId !== column.id) {
          columns.set(columnId, { id: column.id, column })
        }
      }
    }
    return { tables, columns }
  }

  /**
   * Returns the ids by which the tables and columns of a schema are read, where they have several. If a schema has two
   * tables or columns that later became the same, one of them keeps its own id.
   */
  #readIdsIn(schema: StoredSchema): ReadonlyMap<number, number> {
    if (this.#groups.size === 0) return new Map()
    const ids = idsOf(schema).filter((id) => this.#groups.has(id))
    const readIds = new Map<number, number>()
    const used = new Set<number>()
    const isExact = (id: number) => this.idOf(id) === id
    for (const id of [...ids.filter(isExact), ...ids.filter((each) => !isExact(each))]) {
      const readId = this.idOf(id)
      if (used.has(readId)) continue
      used.add(readId)
      readIds.set(id, readId)
    }
    return readIds
  }

  /**
   * Also joins tables and columns that both sides have added since the base: tables of the same name, and columns of
   * the same name and definition. `isMerged` says whether a table takes part in the merge.
   */
  withAdded(base: StoredSchema, isMerged: (tableId: number) => boolean = () => true): SameIds {
    const same = new SameIds(this.#sides)
    const { tables: known, removedIds = [] } = this.read(base)
    let ids: ReadonlySet<number> | undefined
    const isOld = (id: number) => {
      ids ??= new Set([...idsOf({ tables: known }), ...removedIds])
      return ids.has(id)
    }
    for (const [ours, theirs] of listAdded(same.#read(), isOld)) {
      const haveSameIds = ours.idType === theirs.idType
      if (haveSameIds && isMerged(ours.id) && isMerged(theirs.id)) same.#join(ours.id, theirs.id)
    }
    const { ours, theirs, removed } = same.#read()
    const others = new Map(theirs.map((table) => [table.id, table]))
    for (const table of ours) {
      const other = others.get(table.id)
      if (other === undefined || !isMerged(table.id)) continue
      const columns = { ours: table.columns, theirs: other.columns, removed }
      // Columns that a computed one uses come before it, and are joined by then.
      const readId = (id: number) => same.idOf(id)
      for (const [left, right] of listAdded(columns, isOld)) {
        const [one, two] = [left, right].map((column) => definitionOf(withUsedIds(column, readId)))
        if (one === two) same.#joinColumns(left, right)
      }
    }
    return same
  }

  /** Returns the tables of both sides as they are read. */
  #read(): ComparedItems<StoredTable> {
    const [ours, theirs] = [this.read(this.#sides.ours), this.read(this.#sides.theirs)]
    const removed = { ours: new Set(ours.removedIds), theirs: new Set(theirs.removedIds) }
    return { ours: ours.tables, theirs: theirs.tables, removed }
  }

  /** Joins two columns of the same definition, and those nested in them. */
  #joinColumns(ours: StoredColumn, theirs: StoredColumn): void {
    this.#join(ours.id, theirs.id)
    for (const nested of ours.columns ?? []) {
      const other = theirs.columns?.find(({ name }) => name === nested.name)
      if (other !== undefined) this.#joinColumns(nested, other)
    }
  }
}

/** Lists the pairs of items that both sides have added under the same name. */
function listAdded<Item extends StoredTable | StoredColumn>(
  { ours, theirs, removed }: ComparedItems<Item>,
  isOld: (id: number) => boolean,
): [Item, Item][] {
  if (ours.every(({ id }, index) => id === theirs[index]?.id)) return []
  const [here, there] = [new Set(ours.map(({ id }) => id)), new Set(theirs.map(({ id }) => id))]
  const added = ours.filter(({ id }) => !there.has(id) && !isOld(id) && !removed.theirs.has(id))
  if (added.length === 0) return []
  const others = theirs.filter(({ id }) => !here.has(id) && !isOld(id) && !removed.ours.has(id))
  const byName = new Map(others.map((item) => [item.name, item]))
  return added.flatMap((item): [Item, Item][] => {
    const other = byName.get(item.name)
    return other === undefined ? [] : [[item, other]]
  })
}

/** Returns what is the same in columns of the same definition. Indexes are merged, and never differ in that sense. */
function definitionOf(column: StoredColumn): string {
  return toCanonicalJson(definition(column))
}

function definition(stored: StoredColumn): object {
  const { id: _, index: __, fill: ___, from: ____, replaced: _____, ...rest } = withoutBits(stored)
  const { columns, ...column } = rest
  const nested = columns?.map(definition) as { name: string }[] | undefined
  return {
    ...column,
    ...(nested && { columns: nested.sort((one, other) => (one.name < other.name ? -1 : 1)) }),
  }
}

function idsOf({ tables }: StoredSchema): number[] {
  return tables.flatMap(({ id, columns }) => [
    id,
    ...listAllColumns(columns).map((each) => each.id),
  ])
}

function ascending(left: number, right: number): number {
  return left - right
}
