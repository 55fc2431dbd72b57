import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement } from '../../postgres/statement.js'
import { type VisibleArm, visibleArms } from '../../rows/arms.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { type ReadPlan, selectPlan, type TableLookup } from '../../rows/read-plan.js'
import type { Position } from './cursor.js'
import type { FieldType } from './field.js'
import { FieldExpressions } from './field-sql.js'
import type { Filter } from './filter.js'
import { filterSql } from './filter-sql.js'
import { Parameters } from './parameters.js'
import type { Direction, Sort } from './sort.js'

/** A query whose names are resolved and whose values are checked. */
export interface QueryPlan {
  readonly lookup: TableLookup
  readonly codec: TableCodec
  readonly read: ReadPlan
  readonly filter: Filter
  readonly sort: Sort
  readonly after: Position | undefined
  readonly before: Position | undefined
  readonly isBackward: boolean
  readonly limit: number
  readonly offset: number
}

const SQL_TYPES: Readonly<Partial<Record<FieldType, Sql>>> = {
  text: sql`text`,
  int: sql`bigint`,
  float: sql`double precision`,
  bool: sql`boolean`,
  datetime: sql`timestamptz`,
}

/**
 * One statement. Each table that rows of the branch come from is asked on its own, with filter, order
 * and limit, so that each can use its indexes; their few rows are then put in order together.
 */
export function querySql(plan: QueryPlan): Call {
  const parameters = new Parameters()
  const arms = visibleArms(plan.lookup.layout, plan.codec, ROOT)
  const selects = arms.map((arm) => armSql(plan, arm, parameters))
  const [only] = selects
  if (only === undefined) {
    return { statement: compileStatement(sql`select null where false`), values: [] }
  }
  const order = orderSql(plan)
  const offset = plan.offset === 0 ? empty : sql` offset ${raw(String(plan.offset))}`
  const limit = raw(String(plan.limit))
  const text =
    selects.length === 1
      ? sql`${only} order by ${order} limit ${limit}${offset}`
      : sql`
          select * from (${join(
            selects.map((select) => sql`(${select} order by ${order} limit ${armLimit(plan)})`),
            ' union all ',
          )}) arms
          order by ${order} limit ${limit}${offset}`
  return { statement: compileStatement(text), values: parameters.values }
}

/** The first rows of the whole can all come from one arm. */
function armLimit({ limit, offset }: QueryPlan): Sql {
  return raw(String(limit + offset))
}

/** The records that are looked for; a name that no joined part uses inside. */
const ROOT = ident('found')

/** Columns of the result by which it is ordered, after those of the records. */
const keyName = (index: number): Sql => ident(`key_${index}`)
const KEY_ID = ident('key_id')

function armSql(plan: QueryPlan, arm: VisibleArm, parameters: Parameters): Sql {
  const root = { alias: ROOT, column: (index: number) => arm.column(index) }
  const fields = new FieldExpressions(plan.lookup, root)
  const { selected, joins } = selectPlan(plan.lookup, plan.read, root)
  const keys = plan.sort.keys.map(({ field }) => fields.expression(field))
  const keyColumns = keys.map((key, index) => sql`, ${key} as ${keyName(index)}`)
  const conditions = [
    arm.condition,
    filterSql(plan.filter, fields, parameters),
    ...boundsSql(plan, keys, parameters),
  ]
  return sql`
    select ${selected}${join([empty, ...keyColumns], '')}, ${ROOT}.id as ${KEY_ID}
    from ${arm.table} ${ROOT}${joins}${fields.joins}
    where ${join(conditions, ' and ')}`
}

function orderSql({ sort, isBackward }: QueryPlan): Sql {
  const keys = sort.keys.map(({ direction }, index) =>
    isBackward
      ? sql`${keyName(index)} ${raw(opposite(direction))} nulls first`
      : sql`${keyName(index)} ${raw(direction)} nulls last`,
  )
  const last = sort.isRandom ? sql`random()` : sql`${KEY_ID} ${raw(isBackward ? 'desc' : 'asc')}`
  return join([...keys, last], ', ')
}

function opposite(direction: Direction): Direction {
  return direction === 'asc' ? 'desc' : 'asc'
}

function boundsSql(plan: QueryPlan, keys: readonly Sql[], parameters: Parameters): Sql[] {
  const bounds: Sql[] = []
  if (plan.after !== undefined) {
    bounds.push(beyondSql(plan, { keys, position: plan.after, isAfter: true, parameters }))
  }
  if (plan.before !== undefined) {
    bounds.push(beyondSql(plan, { keys, position: plan.before, isAfter: false, parameters }))
  }
  return bounds
}

/** Rows that come after, or before, a position: by the first key that differs, nulls being last. */
function beyondSql(
  { sort }: QueryPlan,
  options: {
    keys: readonly Sql[]
    position: Position
    isAfter: boolean
    parameters: Parameters
  },
): Sql {
  const { keys, position, isAfter, parameters } = options
  const alternatives: Sql[] = []
  const equal: Sql[] = []
  for (const [index, { field, direction }] of sort.keys.entries()) {
    const key = keys[index] ?? empty
    const text = position.keys[index] ?? null
    const type = SQL_TYPES[field.type] ?? sql`text`
    const value = sql`${parameters.add(text)}::${type}`
    const isGreater = (direction === 'asc') === isAfter
    const sign = isGreater ? sql`>` : sql`<`
    const beyond =
      text === null
        ? isAfter
          ? sql`false`
          : sql`${key} is not null`
        : isAfter
          ? sql`(${key} ${sign} ${value} or ${key} is null)`
          : sql`${key} ${sign} ${value}`
    alternatives.push(sql`(${join([...equal, beyond], ' and ')})`)
    equal.push(text === null ? sql`${key} is null` : sql`${key} = ${value}`)
  }
  const id = sql`${parameters.add(position.id)}::text`
  const beyond = isAfter ? sql`${ROOT}.id > ${id}` : sql`${ROOT}.id < ${id}`
  alternatives.push(sql`(${join([...equal, beyond], ' and ')})`)
  return sql`(${join(alternatives, ' or ')})`
}
