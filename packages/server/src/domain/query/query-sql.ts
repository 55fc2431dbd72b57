import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement } from '../../postgres/statement.js'
import { type VisibleArm, visibleArms } from '../../rows/arms.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { type ReadPlan, selectPlan, type TableLookup } from '../../rows/read-plan.js'
import type { Position } from './cursor.js'
import { SQL_TYPES } from './field.js'
import { FieldExpressions } from './field-sql.js'
import type { Filter } from './filter.js'
import { filterSql } from './filter-sql.js'
import { Parameters } from './parameters.js'
import { type ReverseLink, reverseLinkSql } from './reverse-link.js'
import type { Sort } from './sort.js'
import { KEY_ID, type KeyExpression, keyName, orderSql, ROOT, sortKeys } from './sort-sql.js'

/** A query whose names are resolved and whose values are checked. */
export interface QueryPlan {
  readonly lookup: TableLookup
  readonly codec: TableCodec
  readonly read: ReadPlan
  readonly reverseLinks: readonly ReverseLink[]
  readonly filter: Filter
  readonly sort: Sort
  readonly seed: number
  readonly after: Position | undefined
  readonly before: Position | undefined
  readonly isBackward: boolean
  readonly limit: number
  readonly offset: number
}

/**
 * One statement. Each table that rows of the branch come from is asked on its own, with filter, order
 * and limit, so that each can use its indexes; their few rows are then put in order together. A row
 * is the texts of the record, those it is sorted by, its id, and one of each reverse link.
 */
export function querySql(plan: QueryPlan): Call {
  const parameters = new Parameters()
  const arms = visibleArms(plan.lookup.layout, plan.codec, ROOT)
  const selects = arms.map((arm) => armSql(plan, arm, parameters))
  const [only] = selects
  if (only === undefined) {
    return { statement: compileStatement(sql`select null where false`), values: [] }
  }
  const order = orderSql(plan.sort, plan.isBackward)
  const offset = plan.offset === 0 ? empty : sql` offset ${raw(String(plan.offset))}`
  const limit = raw(String(plan.limit))
  const page =
    selects.length === 1
      ? sql`${only} order by ${order} limit ${limit}${offset}`
      : sql`
          select * from (${join(
            selects.map((select) => sql`(${select} order by ${order} limit ${armLimit(plan)})`),
            ' union all ',
          )}) arms
          order by ${order} limit ${limit}${offset}`
  const text = plan.reverseLinks.length === 0 ? page : withReverseLinks(plan, page, order)
  return { statement: compileStatement(text), values: parameters.values }
}

/** Only the records of the page are looked up, all of them together. */
function withReverseLinks({ lookup, reverseLinks, seed }: QueryPlan, page: Sql, order: Sql): Sql {
  const parts = reverseLinks.map((link, index) => {
    const alias = ident(`reverse_${index}`)
    return {
      selected: sql`, ${alias}.records`,
      joined: sql`
        left join (${reverseLinkSql(lookup, link, seed)}) ${alias} on ${alias}.target = page.${KEY_ID}`,
    }
  })
  return sql`
    with page as materialized (${page})
    select page.*${join(
      parts.map(({ selected }) => selected),
      '',
    )}
    from page${join(
      parts.map(({ joined }) => joined),
      '',
    )}
    order by ${order}`
}

/** The first rows of the whole can all come from one arm. */
function armLimit({ limit, offset }: QueryPlan): Sql {
  return raw(String(limit + offset))
}

function armSql(plan: QueryPlan, arm: VisibleArm, parameters: Parameters): Sql {
  const record = { alias: ROOT, column: (index: number) => arm.column(index) }
  const fields = new FieldExpressions(plan.lookup, { codec: plan.codec, record })
  const { selected, joins } = selectPlan(plan.lookup, plan.read, record)
  const keys = sortKeys(plan.sort, plan.seed, fields)
  const keyColumns = keys.map(({ expression }, index) => sql`, ${expression} as ${keyName(index)}`)
  const conditions = [
    arm.condition,
    filterSql(plan.filter, fields, parameters),
    ...boundsSql(plan, keys, parameters),
  ]
  return sql`
    select ${join(selected, ', ')}${join([empty, ...keyColumns], '')}, ${ROOT}.id as ${KEY_ID}
    from ${arm.table} ${ROOT}${joins}${fields.joins}
    where ${join(conditions, ' and ')}`
}

function boundsSql(
  { after, before }: QueryPlan,
  keys: readonly KeyExpression[],
  parameters: Parameters,
): Sql[] {
  const bounds: Sql[] = []
  if (after !== undefined) bounds.push(beyondSql(keys, { at: after, isAfter: true, parameters }))
  if (before !== undefined) bounds.push(beyondSql(keys, { at: before, isAfter: false, parameters }))
  return bounds
}

/** Rows that come after, or before, a position: by the first key that differs, nulls being last. */
function beyondSql(
  keys: readonly KeyExpression[],
  { at, isAfter, parameters }: { at: Position; isAfter: boolean; parameters: Parameters },
): Sql {
  const alternatives: Sql[] = []
  const equal: Sql[] = []
  for (const [index, { expression, type, direction }] of keys.entries()) {
    const text = at.keys[index] ?? null
    if (text === null) {
      if (!isAfter) alternatives.push(every([...equal, sql`${expression} is not null`]))
      equal.push(sql`${expression} is null`)
      continue
    }
    const value = () => sql`${parameters.add(text)}::${SQL_TYPES[type] ?? sql`text`}`
    const sign = (direction === 'asc') === isAfter ? sql`>` : sql`<`
    const isBeyond = sql`${expression} ${sign} ${value()}`
    const beyond = isAfter ? sql`(${isBeyond} or ${expression} is null)` : isBeyond
    alternatives.push(every([...equal, beyond]))
    equal.push(sql`${expression} = ${value()}`)
  }
  const sign = isAfter ? sql`>` : sql`<`
  const orItself = at.isInclusive ? sql`=` : empty
  const id = sql`${parameters.add(at.id)}::text`
  alternatives.push(every([...equal, sql`${ROOT}.id ${sign}${orItself} ${id}`]))
  return sql`(${join(alternatives, ' or ')})`
}

function every(conditions: readonly Sql[]): Sql {
  return sql`(${join([...conditions], ' and ')})`
}
