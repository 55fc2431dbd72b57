import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type Heap, heapName, type Layout, pastName } from '../layout/layout.js'

/*
 * A branch sees its own heap, then what it inherits. Each physical table that a row can come from is
 * an arm of a union; the nearest arm that has a row of an id decides, and a tombstone there hides it.
 */

interface Arm {
  /** How near the arm is; arms of one level never hold a row of the same id at the same epoch. */
  readonly level: number
  readonly table: Sql
  /** Whether a row of the arm, by its alias, is of the epoch that the branch sees. */
  inEpoch(alias: Sql): Sql
  readonly columnIds: ReadonlySet<number>
}

function listArms(layout: Layout, tableId: number): Arm[] {
  return layout.levels.flatMap(({ asOf, heaps }, level): Arm[] => {
    const heap = heaps.get(tableId)
    if (heap === undefined) return []
    const { heapId, columnIds } = heap
    if (asOf === undefined) {
      return [{ level, table: heapName(heapId), inEpoch: () => sql`true`, columnIds }]
    }
    // A parameter, so that all forks that have nothing of their own share their statements.
    const epoch = sql`${asOf}::integer`
    return [
      {
        level,
        table: heapName(heapId),
        inEpoch: (alias) => sql`${alias}.epoch <= ${epoch}`,
        columnIds,
      },
      {
        level,
        table: pastName(heapId),
        inEpoch: (alias) => sql`${alias}.epoch <= ${epoch} and ${alias}.until > ${epoch}`,
        columnIds,
      },
    ]
  })
}

/** A physical column of an arm; rows from before the column have what it was filled with. */
function armColumn(alias: Sql, column: PhysicalColumn, columnIds: ReadonlySet<number>): Sql {
  if (columnIds.has(column.id)) return sql`${alias}.${ident(column.physicalName)}`
  const { fill } = column.column
  const constant = fill === undefined ? sql`null` : literal(fill)
  return sql`(${constant}::${raw(column.sqlType)})`
}

function columnsOf(codec: TableCodec, wanted?: ReadonlySet<number>): readonly PhysicalColumn[] {
  return wanted === undefined
    ? codec.physical
    : codec.physical.filter((_column, index) => wanted.has(index))
}

/** What every arm selects: the metadata and the columns of the schema, or those that are wanted. */
function armSelect(alias: Sql, arm: Arm, codec: TableCodec, wanted?: ReadonlySet<number>): Sql {
  const columns = columnsOf(codec, wanted).map(
    (column) => sql`${armColumn(alias, column, arm.columnIds)} as ${ident(column.physicalName)}`,
  )
  const metadata = sql`${alias}.id, ${alias}.version, ${alias}.created_at, ${alias}.updated_at, ${alias}.deleted`
  return columns.length === 0 ? metadata : sql`${metadata}, ${join(columns, ', ')}`
}

/**
 * A join with the row of the given id that the branch sees, under `alias`. The arms are tried in
 * order and the first row ends the search: an append runs its children one after the other. `columns`
 * are the indexes of those that are needed; all of them, unless it is said.
 */
export function joinVisible(
  layout: Layout,
  codec: TableCodec,
  options: { id: Sql; alias: Sql; outer?: boolean; columns?: ReadonlySet<number> },
): Sql {
  const { id, alias, columns } = options
  const arms = listArms(layout, codec.table.id)
  const kind = options.outer ? sql`left join` : sql`join`
  const [only] = arms
  const hasAll = columnsOf(codec, columns).every((column) => only?.columnIds.has(column.id))
  if (arms.length === 1 && only?.level === 0 && hasAll) {
    return sql`${kind} ${only.table} ${alias} on ${alias}.id = ${id}`
  }
  if (arms.length === 0) {
    return sql`${kind} lateral (${noRow(codec)}) ${alias} on true`
  }
  return sql`${kind} lateral (${firstRow(arms, codec, id, columns)}) ${alias} on not ${alias}.deleted`
}

function firstRow(
  arms: readonly Arm[],
  codec: TableCodec,
  id: Sql,
  columns?: ReadonlySet<number>,
): Sql {
  const found = arms.map(
    (arm) => sql`
      select ${armSelect(sql`h`, arm, codec, columns)}
      from ${arm.table} h
      where h.id = ${id} and ${arm.inEpoch(sql`h`)}`,
  )
  return sql`
    select * from (${join(found, ' union all ')}) arms limit 1`
}

/**
 * The same for a row that is about to be put into the own heap of a branch that inherits, where it
 * meets an own row of that id if there is one: so what is inherited comes first. A row is only taken
 * when it is accepted.
 */
export function joinForCopy(
  layout: Layout,
  codec: TableCodec,
  options: { id: Sql; alias: Sql; accepted(alias: Sql): Sql },
): Sql {
  const { id, alias, accepted } = options
  const arms = listArms(layout, codec.table.id)
  const [inherited, own] = [
    arms.filter(({ level }) => level > 0),
    arms.filter(({ level }) => level === 0),
  ].map(
    (of) => sql`
      select * from (${firstRow(of, codec, id)}) r where not r.deleted and ${accepted(sql`r`)}`,
  )
  return sql`
    cross join lateral (
      select * from (${inherited} union all ${own}) r limit 1
    ) ${alias}`
}

function noRow(codec: TableCodec): Sql {
  const columns = codec.physical.map(
    (column) => sql`, null::${raw(column.sqlType)} as ${ident(column.physicalName)}`,
  )
  return sql`
    select null::text as id, null::integer as version, null::timestamptz as created_at,
      null::timestamptz as updated_at, false as deleted${join([empty, ...columns], '')}
    where false`
}

/**
 * All rows the branch sees that meet a condition, as a union. `from` leaves out nearer levels, whose
 * rows still hide those below.
 */
export function selectVisible(
  layout: Layout,
  codec: TableCodec,
  options: { from?: number; where?(expressionOf: (column: PhysicalColumn) => Sql): Sql } = {},
): Sql {
  const arms = listArms(layout, codec.table.id)
  const chosen = arms.filter((arm) => arm.level >= (options.from ?? 0))
  if (chosen.length === 0) return noRow(codec)
  const selects = chosen.map((arm) => {
    const expressionOf = (column: PhysicalColumn) => armColumn(sql`h`, column, arm.columnIds)
    const condition = options.where === undefined ? empty : sql` and ${options.where(expressionOf)}`
    return sql`
      select ${armSelect(sql`h`, arm, codec)}
      from ${arm.table} h
      where ${visibleIn(arm, arms, sql`h`)}${condition}`
  })
  return join(selects, ' union all ')
}

const METADATA_NAMES = ['id', 'version', 'created_at', 'updated_at', 'epoch', 'deleted']

/** Columns of a heap that are copied when a version is kept, also those the schema has dropped. */
export function heapColumns(heap: Heap, alias?: Sql): Sql {
  const names = [...METADATA_NAMES, ...[...heap.columnIds].map((id) => `c${id}`)].map(ident)
  return join(alias === undefined ? names : names.map((name) => sql`${alias}.${name}`), ', ')
}

/** One physical table that visible rows come from, for statements that look into each of them. */
export interface VisibleArm {
  readonly table: Sql
  /** Which of its rows the branch sees, by the alias it was asked for. */
  readonly condition: Sql
  /** A column of the schema, as an expression. */
  column(index: number): Sql
}

/** All tables that rows of the branch come from. Together they hold each visible row once. */
export function visibleArms(layout: Layout, codec: TableCodec, alias: Sql): VisibleArm[] {
  const arms = listArms(layout, codec.table.id)
  const isPlain = arms.length === 1 && arms[0]?.level === 0
  return arms.map((arm) => ({
    table: arm.table,
    // There are no tombstones in a plain heap, but indexes are of what is not deleted.
    condition: isPlain ? sql`not ${alias}.deleted` : visibleIn(arm, arms, alias, isAbsentIn),
    column(index) {
      const column = codec.physical[index]
      if (column === undefined) throw new Error('a column must be of its own table')
      return armColumn(alias, column, arm.columnIds)
    },
  }))
}

function visibleIn(
  arm: Arm,
  arms: readonly Arm[],
  alias: Sql,
  isAbsent: typeof isNotIn = isNotIn,
): Sql {
  const nearer = arms.filter((other) => other.level < arm.level)
  const isFirst = nearer.length === 0 ? empty : sql` and ${isAbsent(nearer, alias)}`
  return sql`not ${alias}.deleted and ${arm.inEpoch(alias)}${isFirst}`
}

/*
 * However many arms are nearer, they are one relation to look in: PostgreSQL takes far longer to plan a
 * join with each of them, for every arm of a long chain of forks.
 */

/** A probe of the index per row; `not exists` would hash the whole nearer heap. */
function isNotIn(others: readonly Arm[], alias: Sql): Sql {
  const probes = others.map(
    (other) => sql`
      select o.id from ${other.table} o where o.id = ${alias}.id and ${other.inEpoch(sql`o`)}`,
  )
  return sql`(${join(probes, ' union all ')} limit 1) is null`
}

/**
 * The same for statements that may go through all rows: PostgreSQL chooses between a probe of the
 * index, for the few rows of a page, and one pass over the nearer heaps, for everything.
 */
function isAbsentIn(others: readonly Arm[], alias: Sql): Sql {
  const ids = others.map(
    (other) => sql`select o.id from ${other.table} o where ${other.inEpoch(sql`o`)}`,
  )
  return sql`not exists (
    select from (${join(ids, ' union all ')}) o where o.id = ${alias}.id
  )`
}
