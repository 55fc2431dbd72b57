import { haveSameForm } from '../../rows/columns/conversions.js'
import {
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { withColumnIds, withUsedIds } from './store-constraint.js'

/*
 * A column whose type was changed and then changed back has another id than before, and remembers all that it was made of. To
 * a merge, its type has not changed: the values of the other side stay as they are, and are not converted to the other type
 * and back. So schemas are merged by the ids that such columns had in the beginning.
 */

/** The schemas of a merge. */
interface Sides {
  readonly base: StoredSchema
  readonly ours: StoredSchema
  readonly theirs: StoredSchema
}

/** The columns of a schema whose type was changed back, by the ids that they had in the beginning. */
type RoundTrips = ReadonlyMap<number, StoredColumn>

export class SchemasBeforeRoundTrips {
  /** The schemas by the ids that columns had in the beginning. */
  readonly sides: Sides
  readonly #ours: RoundTrips
  readonly #theirs: RoundTrips
  /** The ids of the columns of the target. */
  readonly #known: ReadonlySet<number>

  constructor({ base, ours, theirs }: Sides) {
    this.#known = new Set(ours.tables.flatMap(({ columns }) => columns.map(({ id }) => id)))
    this.#ours = findRoundTrips(ours)
    this.#theirs = findRoundTrips(theirs)
    this.sides = {
      base: withFirstIds(base, findRoundTrips(base)),
      ours: withFirstIds(ours, this.#ours),
      theirs: withFirstIds(theirs, this.#theirs),
    }
  }

  /** Returns what is known by the ids of columns, also by the ids that they had in the beginning. */
  byFirstIds<Known>(known: ReadonlyMap<number, Known>): ReadonlyMap<number, Known> {
    const added = [...this.#theirs, ...this.#ours].flatMap(([first, { id }]): [number, Known][] => {
      const found = known.get(id)
      return found === undefined ? [] : [[first, found]]
    })
    return added.length === 0 ? known : new Map([...known, ...added])
  }

  /** Returns a merged schema by the ids that columns have on the target, or else on the merged branch. */
  restore(merged: StoredSchema): StoredSchema {
    if (this.#ours.size + this.#theirs.size === 0) return merged
    const latest = (id: number) =>
      this.#known.has(id) ? undefined : (this.#ours.get(id) ?? this.#theirs.get(id))
    const tables = merged.tables.map((table) => {
      const columns = table.columns.map((column): StoredColumn => {
        const { fill: _, from: __, ...rest } = column
        const own = latest(column.id)
        if (own !== undefined) return { ...rest, ...storedAs(own) }
        return column.from === undefined ? column : { ...column, from: this.#latestOf(column.from) }
      })
      return withIds({ ...table, columns }, (id) => latest(id)?.id ?? id)
    })
    const live = new Set(tables.flatMap(({ columns }) => columns.map(({ id }) => id)))
    const removed = (merged.removedIds ?? [])
      .flatMap((id) => [id, this.#ours.get(id)?.id ?? id, this.#theirs.get(id)?.id ?? id])
      .filter((id) => !live.has(id))
    return { ...merged, tables, ...(merged.removedIds && { removedIds: [...new Set(removed)] }) }
  }

  /** Returns the column that another one was made of, as the target has it. */
  #latestOf(origin: StoredColumn): StoredColumn {
    const { id, from } = origin
    const own = this.#ours.get(id)
    if (own !== undefined) return { ...origin, ...storedAs(own) }
    return from === undefined ? origin : { ...origin, from: this.#latestOf(from) }
  }
}

/** The parts of a column that tell how it is stored. */
export function storedAs({
  id,
  fill,
  from,
}: StoredColumn): Pick<StoredColumn, 'id' | 'fill' | 'from'> {
  return { id, ...(fill !== undefined && { fill }), ...(from && { from }) }
}

function findRoundTrips({ tables }: StoredSchema): RoundTrips {
  const trips = new Map<number, StoredColumn>()
  for (const { columns } of tables) {
    for (const column of columns) {
      const { id } = firstOf(column)
      if (id === column.id || columns.some((each) => each.id === id)) continue
      trips.set(id, column)
    }
  }
  return trips
}

/** Returns the first column of the same type that a column was made of, or the column itself. */
export function firstOf(column: StoredColumn): StoredColumn {
  let first = column
  let each = column
  // A link may have been to another table.
  while (column.type !== 'link' && !isFilled(each, column) && each.from !== undefined) {
    each = each.from
    if (haveSameForm(each, column)) first = each
  }
  return first
}

function withFirstIds(schema: StoredSchema, trips: RoundTrips): StoredSchema {
  if (trips.size === 0) return schema
  const firstIds = new Map([...trips].map(([first, { id }]) => [id, first]))
  return {
    ...schema,
    tables: schema.tables.map((table) => {
      const columns = table.columns.map((column): StoredColumn => {
        if (!firstIds.has(column.id)) return column
        const { from: _, ...rest } = column
        return { ...rest, ...storedAs(firstOf(column)) }
      })
      return withIds({ ...table, columns }, (id) => firstIds.get(id) ?? id)
    }),
  }
}

/** Returns a table whose constraints and computed columns use other ids of columns. */
export function withIds(table: StoredTable, idOf: (id: number) => number): StoredTable {
  const { columns, constraints } = table
  return {
    ...table,
    columns: columns.map((column) => withUsedIds(column, idOf)),
    ...(constraints && { constraints: constraints.map((each) => withColumnIds(each, idOf)) }),
  }
}

/**
 * Returns whether a column was stored anew since another one, because records without a value got one, and must have one since.
 * If they need none any more, values that they got are changes of records.
 */
export function isFilledSince(column: StoredColumn, since: number): boolean {
  const chain = [column, ...listOrigins(column)]
  return chain.slice(0, since).some((each) => isFilled(each, column))
}

function isFilled({ fill }: StoredColumn, latest: StoredColumn): boolean {
  return fill !== undefined && latest.notNull === true
}
