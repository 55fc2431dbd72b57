import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { Constant } from '../../postgres/statement.js'
import { type PhysicalColumn, physicalName } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import { convertedSql, textOf } from '../columns/conversions.js'
import type { StoredColumn, StoredSchema } from '../columns/stored-schema.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type Heap, heapName, type Layout, pastName, tiersOf } from '../layout/layout.js'

/*
 * A branch reads its own heap and those that it inherits. Each physical table that rows can come from is an
 * arm of a union. The nearest arm with a row of an id decides; if that row is a tombstone, the record does
 * not exist.
 *
 * A query for many rows searches all nearer arms for each row of an arm. So that its length does not grow
 * with the square of the number of levels, only the nearest levels are arms of their own. All others form one
 * arm, a subquery that sorts their rows by id and takes the nearest one.
 */

/** Levels that have arms of their own in a query for many rows. */
export const NEAR_LEVELS_MAX = 6

export interface Arm {
  /** The nearest have the lowest. Arms of one level never have rows of the same id at the same epoch. */
  readonly level: number
  readonly table: Sql
  /** Returns the condition that a row of the arm is visible at the epoch that the branch reads. */
  inEpoch(alias: Sql): Sql
  /**
   * Returns the same condition for the row of an id, so that PostgreSQL finds it by its id, whatever the statistics say.
   * They can say that no row is younger than an epoch, when there are thousands by now: a search by epoch would then
   * read all of these for each id.
   */
  ofId(alias: Sql, id: Sql): Sql
  /** undefined: the arm has all columns of the schema. */
  readonly columnIds: ReadonlySet<number> | undefined
  /** The columns that are stored under another id than the one they are read by. */
  readonly storedAs?: Heap['storedAs']
  /** The columns whose values are those of another column, converted. */
  readonly readAs?: Heap['readAs'] | undefined
  /** The arm is the own heap of the branch, as it is now. */
  readonly isCurrent?: boolean
  /** The arms whose rows hide those of this one. */
  readonly nearer: readonly Arm[]
}

/** Returns the arms of all tiers, the nearest first. */
export function listArms(layout: Layout, tableId: number): Arm[] {
  const arms = tiersOf(layout, tableId).flatMap((tier): Omit<Arm, 'nearer'>[] => {
    const { kind, level, branchId, asOf, columnIds, storedAs, readAs } = tier
    const heap = { level, table: heapName(tier), columnIds, storedAs, readAs }
    if (asOf === undefined) {
      return [{ ...heap, inEpoch: () => sql`true`, ofId: hasId, isCurrent: kind === 'heap' }]
    }
    // A parameter, so that all forks without own rows share prepared statements.
    const epoch = sql`${new Constant(`${branchId}@${asOf}`, asOf)}::integer`
    return [
      {
        ...heap,
        inEpoch: (alias) => sql`${alias}.epoch <= ${epoch}`,
        ofId: (alias, id) => sql`${hasId(alias, id)} and ${alias}.epoch <= ${epoch}`,
      },
      {
        ...heap,
        table: pastName(tier),
        inEpoch: (alias) => sql`${alias}.epoch <= ${epoch} and ${alias}.until > ${epoch}`,
        // Of the indexes of the past, only the primary key has both columns.
        ofId: (alias, id) => sql`
          ${hasId(alias, id)} and ${alias}.epoch <= ${epoch}
          and (${alias}.id, ${alias}.until) > (${id}, ${epoch})`,
      },
    ]
  })
  const known: Arm[] = []
  for (const arm of arms) {
    known.push({ ...arm, nearer: known.filter(({ level }) => level < arm.level) })
  }
  return known
}

const hasId = (alias: Sql, id: Sql): Sql => sql`${alias}.id = ${id}`

/** Returns the arms of a query for many rows: levels far away form a single arm. */
export function listScannedArms(arms: readonly Arm[], codec: TableCodec): readonly Arm[] {
  const { near, far } = splitLevels(arms.map(({ level }) => level))
  const [nearest] = far
  if (nearest === undefined) return arms
  const farArms = arms.filter(({ level }) => level >= nearest)
  const nearArms = arms.slice(0, near.length)
  return [
    ...nearArms,
    {
      level: nearest,
      nearer: nearArms,
      // What is computed of the nearest row is computed where the arm is read.
      table: nearestRows(farArms, codec.stored),
      inEpoch: () => sql`true`,
      ofId: hasId,
      columnIds: undefined,
    },
  ]
}

/** Splits the levels of arms. A single far level would gain nothing from a subquery. */
export function splitLevels(levels: readonly number[]): { near: number[]; far: number[] } {
  const distinct = [...new Set(levels)]
  const first = distinct.length > NEAR_LEVELS_MAX + 1 ? distinct[NEAR_LEVELS_MAX] : undefined
  const isFar = (level: number) => first !== undefined && level >= first
  return { near: levels.filter((level) => !isFar(level)), far: levels.filter(isFar) }
}

/** Returns a subquery for the nearest row of each id. In the order of ids, PostgreSQL reads only what it needs. */
function nearestRows(arms: readonly Arm[], codec: TableCodec): Sql {
  const selects = arms.map(
    (arm) => sql`
      select ${armSelect(sql`a`, { arm, codec })}, ${raw(String(arm.level))} as level
      from ${arm.table} a
      where ${arm.inEpoch(sql`a`)}`,
  )
  return sql`(
    select distinct on (a.id) a.*
    from (${join(selects, ' union all ')}) a
    order by a.id, a.level
  )`
}

/** The visible row of an id, as a statement joins it. */
export interface JoinOptions {
  readonly id: Sql
  readonly alias: Sql
  readonly outer?: boolean
  readonly columns?: ReadonlySet<number>
}

/**
 * Returns a column of an arm as an expression. A computed value is calculated for visible rows alone: those that nobody
 * sees may have values that the expression fails for, and PostgreSQL may evaluate a condition for them, too. With `isFirst`,
 * the row is known to be the nearest one of its id.
 */
function armColumn(
  alias: Sql,
  { column, computed }: PhysicalColumn,
  { arm, isFirst = false }: { arm: Arm; isFirst?: boolean | undefined },
): Sql {
  if (computed === undefined) return storedValue(alias, column, arm)
  const value = computed.valueSql((id) => {
    const used = computed.uses.get(id)
    if (used === undefined) throw new Error(`column ${column.id} uses a column that is not there`)
    return storedValue(alias, used, arm)
  })
  const isVisible = isFirst ? sql`not ${alias}.deleted` : visibleIn(arm, arm.nearer, alias)
  return sql`(case when ${isVisible} then ${value} end)`
}

/** The columns that a table has. */
interface TableColumns extends Pick<Arm, 'columnIds' | 'storedAs' | 'readAs'> {
  /** Some rows are older than columns of the table. */
  readonly older?: OlderRows
}

/** Rows that may be older than a column, and that a table has had columns under other ids for. */
interface OlderRows {
  /** Returns the condition that a row has a column. */
  isIn(name: string): Sql
  /** Lists the columns that have held the values of a column before, with the condition that a row has its value there. */
  listEarlier(id: number): readonly { readonly name: string; readonly condition: Sql }[]
}

/**
 * Returns a column of a table as an expression. If the table lacks the column, that is the converted value of the column
 * that it was made of, or else its fill value.
 */
export function storedValue(alias: Sql, column: StoredColumn, table: TableColumns): Sql {
  const other = table.readAs?.get(column.id)
  if (other !== undefined) {
    return convertedSql(storedValue(alias, other, { ...table, readAs: undefined }), other, column)
  }
  const { older } = table
  const stored = table.storedAs?.get(column.id)
  const name = physicalName(stored ?? column)
  const { fill } = stored?.column ?? column
  const isThere = table.columnIds === undefined || table.columnIds.has(column.id)
  const value = sql`${alias}.${ident(name)}`
  if (older === undefined) return isThere ? value : madeValue(alias, column, table)
  const held = listHeld(column, { ...table, older })
  if (isThere && held.length === 1 && column.from === undefined && fill === undefined) return value
  const made = madeValue(alias, column, table)
  if (held.length === 0) return made
  const cases = held.map((each) => sql`when ${each.condition} then ${alias}.${ident(each.name)}`)
  return sql`case ${join(cases, ' ')} else ${made} end`
}

/** Lists the columns under which older rows can have the value of a column. */
function listHeld(
  column: StoredColumn,
  { columnIds, storedAs, older }: TableColumns & { readonly older: OlderRows },
): ReturnType<OlderRows['listEarlier']> {
  const name = physicalName(storedAs?.get(column.id) ?? column)
  const isThere = columnIds === undefined || columnIds.has(column.id)
  return [
    ...(isThere ? [{ name, condition: older.isIn(name) }] : []),
    ...older.listEarlier(column.id),
  ]
}

/** Returns the value of a column in rows without it. */
function madeValue(alias: Sql, column: StoredColumn, table: TableColumns): Sql {
  const { fill } = table.storedAs?.get(column.id)?.column ?? column
  const constant = fill === undefined ? sql`null` : literal(fill)
  const rest = sql`(${constant}::${raw(COLUMN_TYPE_ENTRIES[column.type].sqlType)})`
  if (column.from === undefined) return rest
  const value = storedValue(alias, column.from, table)
  const converted = convertedSql(value, column.from, column)
  return fill === undefined ? converted : sql`coalesce(${converted}, ${rest})`
}

/** Returns the text of a value that a column was made of and that does not convert, or null. undefined: it was made of none. */
function unconvertedText(
  alias: Sql,
  column: StoredColumn,
  table: TableColumns & { readonly older: OlderRows },
): Sql | undefined {
  const { from } = column
  if (from === undefined) return undefined
  const value = storedValue(alias, from, table)
  const isLost = sql`${value} is not null and ${convertedSql(value, from, column)} is null`
  const text = sql`case when ${isLost} then ${textOf(value, from)} end`
  const made = [unconvertedText(alias, from, table), text].filter((each) => each !== undefined)
  const held = listHeld(column, table).map(({ condition }) => sql`when ${condition} then null `)
  return sql`case ${join([empty, ...held], '')} when true then coalesce(${join(made, ', ')}) end`
}

/** Returns the condition that a row has a value of a column, or none for certain. */
function isKnown(column: StoredColumn, table: TableColumns & { readonly older: OlderRows }): Sql {
  if (column.fill !== undefined) return sql`true`
  const origin = column.from === undefined ? [] : [isKnown(column.from, table)]
  const conditions = [...listHeld(column, table).map(({ condition }) => condition), ...origin]
  return conditions.length === 0 ? sql`false` : sql`(${join(conditions, ' or ')})`
}

/** The columns that are read of a table. */
type ReadColumns = Pick<TableCodec, 'physical'>

/** Returns the value of a column in rows that are older than the column and all that it was made of. */
export function fillValue(column: StoredColumn): Sql {
  return storedValue(empty, column, { columnIds: new Set() })
}

function columnsOf(codec: ReadColumns, wanted?: ReadonlySet<number>): readonly PhysicalColumn[] {
  return wanted === undefined
    ? codec.physical
    : codec.physical.filter((_column, index) => wanted.has(index))
}

/** Returns the select list of an arm: metadata, and the `wanted` columns or all columns of the schema. */
function armSelect(
  alias: Sql,
  options: {
    arm: Arm
    codec: ReadColumns
    wanted?: ReadonlySet<number> | undefined
    isFirst?: boolean
  },
): Sql {
  const columns = columnsOf(options.codec, options.wanted).map(
    (column) => sql`${armColumn(alias, column, options)} as ${ident(column.physicalName)}`,
  )
  const metadata = sql`${alias}.id, ${alias}.version, ${alias}.created_at, ${alias}.updated_at, ${alias}.deleted`
  return columns.length === 0 ? metadata : sql`${metadata}, ${join(columns, ', ')}`
}

/**
 * Returns a join with the visible row of an id, under `alias`. PostgreSQL runs the arms of the append in
 * order and stops at the first row. `columns` are the indexes of the needed columns; by default all.
 */
export function joinVisible(layout: Layout, codec: TableCodec, options: JoinOptions): Sql {
  return joinArms(listArms(layout, codec.table.id), codec, options)
}

export function joinArms(arms: readonly Arm[], codec: ReadColumns, options: JoinOptions): Sql {
  const { id, alias, columns } = options
  const kind = options.outer ? sql`left join` : sql`join`
  const [only] = arms
  const hasAll = columnsOf(codec, columns).every(
    ({ id }) => only?.columnIds?.has(id) && !only.storedAs?.has(id) && !only.readAs?.has(id),
  )
  if (arms.length === 1 && only?.isCurrent && hasAll) {
    return sql`${kind} ${only.table} ${alias} on ${alias}.id = ${id}`
  }
  if (arms.length === 0) {
    return sql`${kind} lateral (${selectNoRows(codec)}) ${alias} on true`
  }
  return sql`${kind} lateral (${firstRow(arms, codec, id, columns)}) ${alias} on not ${alias}.deleted`
}

/**
 * Selects what the nearest heap of a state has: its rows with their ids as `key`. The `id` of a tombstone is null, like
 * that of a record that an outer join does not find.
 */
export function selectNearestRows(layout: Layout, codec: TableCodec): Sql {
  const arms = listArms(layout, codec.table.id)
  const nearest = arms.filter(({ nearer }) => nearer.length === 0)
  if (nearest.length === 0) throw new Error('the state must read a heap')
  const selects = nearest.map((arm) => {
    const columns = columnsOf(codec).map(
      (column) => sql`, ${armColumn(sql`h`, column, { arm })} as ${ident(column.physicalName)}`,
    )
    return sql`
    select h.id as key, case when not h.deleted then h.id end as id${join([empty, ...columns], '')}
    from ${arm.table} h
    where ${arm.inEpoch(sql`h`)}`
  })
  return join(selects, ' union all ')
}

function firstRow(
  arms: readonly Arm[],
  codec: ReadColumns,
  id: Sql,
  columns?: ReadonlySet<number>,
): Sql {
  const found = arms.map(
    (arm) => sql`
      select ${armSelect(sql`h`, { arm, codec, wanted: columns, isFirst: true })}
      from ${arm.table} h
      where ${arm.ofId(sql`h`, id)}`,
  )
  return sql`
    select * from (${join(found, ' union all ')}) arms limit 1`
}

/**
 * Returns a join with the row of an id that is about to be copied into the branch's own heap, on a branch
 * that inherits rows. Inherited rows come first: the insert meets an own row of the id by conflict, and
 * searching the own heap causes serialization failures. Only rows that meet `accepted` are joined.
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
    arms.filter(({ level }) => level <= 0),
  ].map(
    (of) => sql`
      select * from (${firstRow(of, codec, id)}) r where not r.deleted and ${accepted(sql`r`)}`,
  )
  return sql`
    cross join lateral (
      select * from (${inherited} union all ${own}) r limit 1
    ) ${alias}`
}

/** A row of a heap as JSON, how its columns are read, and those that are not. */
interface JsonRow {
  readonly heap: Heap
  readonly isLeftOut: ReadonlySet<number>
  readonly ids: FormerIds
}

/** Ids that columns of a branch have had. */
export type FormerIds = Pick<StoredSchema, 'sameIds' | 'removedIds'>

/**
 * Returns how JSON has the columns of older rows. A column that was removed and has come back has another id, and the values
 * of the column between are not known: rows with a column that is later than the earlier id and was removed may have them there.
 */
function olderRows(
  json: Sql,
  { heap, ids: { sameIds = [], removedIds = [] } }: JsonRow,
): OlderRows {
  const isIn = (name: string) => sql`jsonb_exists(${json}, ${literal(name)})`
  return {
    isIn,
    listEarlier(id) {
      const group = sameIds.find((each) => each.includes(id)) ?? []
      const earlier = group.filter((each) => each !== id && heap.columnIds.has(each))
      return earlier
        .sort((left, right) => right - left)
        .map((other) => {
          const later = removedIds.filter((each) => each > other && !group.includes(each))
          const names = later.map((each) => literal(physicalName({ id: each })))
          const name = physicalName({ id: other })
          const isCovered = sql`jsonb_exists_any(${json}, array[${join(names, ', ')}]::text[])`
          const condition =
            names.length === 0 ? isIn(name) : sql`(${isIn(name)} and not ${isCovered})`
          return { name, condition }
        })
    },
  }
}

/**
 * Returns what a row that is given as JSON does not tell of the columns of a table, as JSON: values that do not convert, as pairs
 * of a name and a text, and the names of columns that it does not have.
 */
export function jsonRowGaps(json: Sql, codec: ReadColumns, row: JsonRow): Sql {
  const table = { ...row.heap, older: olderRows(json, row) }
  const read = codec.physical.filter(
    ({ id, computed }) => !row.isLeftOut.has(id) && computed === undefined,
  )
  const unconverted = read.flatMap(({ column, path }) => {
    const text = unconvertedText(sql`h`, column, table)
    const name = literal(path.join('.'))
    return text === undefined
      ? []
      : [
          sql`(select jsonb_build_array(${name}, t.v) from (select ${text} as v) t where t.v is not null)`,
        ]
  })
  const missing = read.map(
    ({ column, path }) =>
      sql`case when not ${isKnown(column, table)} then ${literal(path.join('.'))} end`,
  )
  const listed = ([first, ...others]: Sql[], type: Sql) =>
    first === undefined
      ? sql`'[]'::jsonb`
      : sql`to_jsonb(array_remove(array[${join([first, ...others], ', ')}]::${type}, null))`
  return sql`(
    select jsonb_build_object('unconverted', ${listed(unconverted, sql`jsonb[]`)},
      'missing', ${listed(missing, sql`text[]`)})
    from jsonb_populate_record(null::${heapName(row.heap)}, ${json}) h)`
}

/** Selects a row of a heap, given as JSON, as a row of a table. Columns that are left out have no values. */
export function selectJsonRow(json: Sql, codec: ReadColumns, row: JsonRow): Sql {
  const { heap, isLeftOut } = row
  const older = olderRows(json, row)
  const columns = codec.physical.map(({ id, column, sqlType, physicalName: name, computed }) => {
    // An expression may fail for values that the row has had.
    const value =
      isLeftOut.has(id) || computed !== undefined
        ? sql`null::${raw(sqlType)}`
        : storedValue(sql`h`, column, { ...heap, older })
    return sql`, ${value} as ${ident(name)}`
  })
  return sql`
    select h.id, h.version, h.created_at, h.updated_at${join([empty, ...columns], '')}
    from jsonb_populate_record(null::${heapName(heap)}, ${json}) h`
}

/** Returns a relation with the columns of a table and without rows. */
export function selectNoRows(codec: ReadColumns): Sql {
  const columns = codec.physical.map(
    (column) => sql`, null::${raw(column.sqlType)} as ${ident(column.physicalName)}`,
  )
  return sql`
    select null::text as id, null::integer as version, null::timestamptz as created_at,
      null::timestamptz as updated_at, false as deleted${join([empty, ...columns], '')}
    where false`
}

/**
 * Returns a union of all visible rows that meet a condition. `isInherited` leaves out the own rows of the
 * branch, but they still hide inherited ones.
 */
export function selectVisible(
  layout: Layout,
  codec: TableCodec,
  options: {
    isInherited?: boolean
    where?(expressionOf: (column: PhysicalColumn) => Sql): Sql
  } = {},
): Sql {
  const arms = listScannedArms(listArms(layout, codec.table.id), codec)
  const chosen = options.isInherited ? arms.filter((arm) => arm.level > 0) : arms
  if (chosen.length === 0) return selectNoRows(codec)
  const selects = chosen.map((arm) => {
    const expressionOf = (column: PhysicalColumn) => armColumn(sql`h`, column, { arm })
    const condition = options.where === undefined ? empty : sql` and ${options.where(expressionOf)}`
    return sql`
      select ${armSelect(sql`h`, { arm, codec })}
      from ${arm.table} h
      where ${visibleIn(arm, arm.nearer, sql`h`)}${condition}`
  })
  return join(selects, ' union all ')
}

const METADATA_NAMES = ['id', 'version', 'created_at', 'updated_at', 'epoch', 'deleted']

/** Lists the columns of a heap or layer, including columns removed from the schema. */
export function heapColumns(heap: Heap, alias?: Sql): Sql {
  const names = [...METADATA_NAMES, ...[...heap.columnIds].map((id) => `c${id}`)].map(ident)
  return join(alias === undefined ? names : names.map((name) => sql`${alias}.${name}`), ', ')
}

/** One table that visible rows come from: a physical one, or a subquery over several. */
export interface VisibleArm {
  readonly table: Sql
  /** The condition for visible rows, in terms of the requested alias. */
  readonly condition: Sql
  /** Returns the same condition for a statement that reads few rows: each is looked up in the nearer arms. */
  conditionOfFew(): Sql
  /** Returns a column of the schema as an expression. */
  column(index: number): Sql
}

/** Returns the arms as tables that together contain each visible row once. */
export function visibleArms(arms: readonly Arm[], codec: TableCodec, alias: Sql): VisibleArm[] {
  const isPlain = arms.length === 1 && arms[0]?.isCurrent === true
  return arms.map((arm) => ({
    table: arm.table,
    // A plain heap has no tombstones. The condition lets PostgreSQL use the partial indexes.
    condition: isPlain ? sql`not ${alias}.deleted` : visibleIn(arm, arm.nearer, alias, isAbsentIn),
    conditionOfFew: () => visibleIn(arm, arm.nearer, alias),
    column(index) {
      const column = codec.physical[index]
      if (column === undefined) throw new Error('a column must belong to the table')
      return armColumn(alias, column, { arm, isFirst: isPlain })
    },
  }))
}

function visibleIn(
  arm: Arm,
  nearer: readonly Arm[],
  alias: Sql,
  isAbsent: typeof isNotIn = isNotIn,
): Sql {
  const isFirst = nearer.length === 0 ? empty : sql` and ${isAbsent(nearer, alias)}`
  return sql`not ${alias}.deleted and ${arm.inEpoch(alias)}${isFirst}`
}

/*
 * All nearer arms form one relation. With a separate join for each of them, planning takes far longer for
 * long chains of forks.
 */

/** One index probe per row. `not exists` would hash all nearer heaps. */
function isNotIn(others: readonly Arm[], alias: Sql): Sql {
  const probes = others.map(
    (other) => sql`
      select o.id from ${other.table} o where ${other.ofId(sql`o`, sql`${alias}.id`)}`,
  )
  return sql`(${join(probes, ' union all ')} limit 1) is null`
}

/**
 * Alternative to `isNotIn` for statements that may read all rows. PostgreSQL chooses between index probes,
 * for the few rows of a page, and one pass over the nearer heaps.
 */
function isAbsentIn(others: readonly Arm[], alias: Sql): Sql {
  const ids = others.map(
    (other) => sql`select o.id from ${other.table} o where ${other.inEpoch(sql`o`)}`,
  )
  return sql`not exists (
    select from (${join(ids, ' union all ')}) o where o.id = ${alias}.id
  )`
}
