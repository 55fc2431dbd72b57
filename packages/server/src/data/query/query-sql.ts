import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileSharing, compileStatement } from '../../postgres/statement.js'
import { beyondSql, listParts, partSql } from './bounds-sql.js'
import { Parameters } from './parameters.js'
import type { QueryPlan } from './query-plan.js'
import { reverseLinkSql } from './reverse-link.js'
import { type ArmSelect, armSelects, type RowSelect } from './select-rows.js'
import {
  KEY_ID,
  type KeyExpression,
  keyName,
  orderSql,
  type Part,
  ROOT,
  sortKeys,
  sortTypes,
} from './sort-sql.js'

/**
 * Compiles a query to one statement. Each physical table that rows come from is selected separately, with
 * filter, order and limit, so that it can use its indexes. The results are then merged and sorted. A row has
 * the texts of the record, its sort keys, its id, and one text for each reverse link.
 */
export function querySql(plan: QueryPlan): Call {
  const parameters = new Parameters()
  for (const read of [plan.read, ...plan.reverseLinks.map((link) => link.read)]) {
    parameters.countTables(read.linkedArmCount)
  }
  const parts = listParts(plan).map((part) => pagePart(plan, part, parameters))
  const selects = parts.flatMap((part) => part.selects)
  const nearest = parts.flatMap((part) => part.nearest ?? [])
  const [only] = selects
  if (only === undefined) {
    return { statement: compileStatement(sql`select null where false`), values: [] }
  }
  const order = orderSql(plan.sort, plan.isBackward)
  const offset = plan.offset === 0 ? empty : sql` offset ${raw(String(plan.offset))}`
  const limit = raw(String(plan.limit))
  const page =
    selects.length === 1
      ? sql`${only} limit ${limit}${offset}`
      : sql`
          ${nearest.length === 0 ? empty : sql`with ${join(nearest, ', ')}`}
          select * from (${join(
            selects.map((select) => sql`(${select} limit ${armLimit(plan)})`),
            ' union all ',
          )}) arms
          order by ${order} limit ${limit}${offset}`
  const text = isWhole(plan) ? page : withLinked(plan, { page, order, parameters })
  const call = { statement: compileSharing(text), values: parameters.values }
  // Unnamed, because the offset is part of the text: prepared statements for each would be too many.
  return plan.offset === 0 ? call : { ...call, isUnnamed: true }
}

/** Names for the values of a record itself, in a page that is joined with more. */
const valueName = (position: number): Sql => ident(`value_${position}`)

/** Follows links for the records of the page only. Reverse links are read for all of them at once. */
function withLinked(
  { lookup, read, reverseLinks, sort, seed }: QueryPlan,
  { page, order, parameters }: { page: Sql; order: Sql; parameters: Parameters },
): Sql {
  const ofPage = (position: number): Sql => sql`page.${valueName(position)}`
  const own = Array.from({ length: read.ownCount }, (_, position) => ofPage(position))
  const linked = read.selectLinked(ofPage)
  const keys = sortTypes(sort).map((_type, index) => sql`page.${keyName(index)}`)
  const reverse = reverseLinks.map((link, index) => {
    const alias = ident(`reverse_${index}`)
    const records = reverseLinkSql(lookup, link, { seed, parameters })
    return {
      selected: sql`${alias}.records`,
      joined: sql`
        left join (${records}) ${alias} on ${alias}.target = page.${KEY_ID}`,
    }
  })
  const selected = [
    ...own,
    ...linked.selected,
    ...keys,
    sql`page.${KEY_ID}`,
    ...reverse.map(({ selected }) => selected),
  ]
  const joined = reverse.map(({ joined }) => joined)
  return sql`
    with page as materialized (${page})
    select ${join(selected, ', ')}
    from page${linked.joins}${join([empty, ...joined], '')}
    order by ${order}`
}

/** Returns whether the query reads no other table, by links or reverse links. */
function isWhole({ read, reverseLinks }: QueryPlan): boolean {
  return read.linkedTables.length === 0 && reverseLinks.length === 0
}

/** The limit for each arm. All rows up to the end of the page may come from one arm. */
function armLimit({ limit, offset }: QueryPlan): Sql {
  return raw(String(limit + offset))
}

/** The selects of one part. */
interface PagePart {
  readonly selects: readonly Sql[]
  /** A common table expression that some of them read. */
  readonly nearest?: Sql
}

/** With more arms, the statement would be too long. */
const BOUNDED_ARMS_MAX = 6

/**
 * Selects the rows of one part, in order.
 *
 * A layer may hide most rows of the heap below it, and PostgreSQL would pass all that come before the first visible one. So
 * the page of the layer is read first. If it is full, no row after its last one is needed. If not, the other arms are read
 * without a bound.
 */
function pagePart(plan: QueryPlan, part: Part, parameters: Parameters): PagePart {
  const arms = partArms(plan, part, parameters)
  const [layer, ...others] = arms
  const key = boundKey(plan, part)
  const { isLayered, armCount } = plan.lookup.rowsOf(plan.codec)
  if (layer === undefined || key === undefined || !isLayered || armCount > BOUNDED_ARMS_MAX) {
    return { selects: arms.map((arm) => arm.all()) }
  }
  const name = ident(`nearest_${part}`)
  const last = sql`(
    select ${key.name} from ${name}
    order by ${orderSql(plan.sort, plan.isBackward, part)}
    limit 1 offset ${armLimit(plan)} - 1)`
  const isWithin = ({ keys }: PartSelect) =>
    sql`${key.expressionIn(keys)} ${key.isAscending ? sql`<=` : sql`>=`} ${last}`
  return {
    nearest: sql`${name} as materialized (${layer.all()} limit ${armLimit(plan)})`,
    selects: [
      sql`select * from ${name}`,
      ...others.map((arm) => arm.whereFew(isWithin(arm.described))),
      ...others.map((arm) => arm.where(sql`${last} is null`)),
    ],
  }
}

/** The key by which the rows of a part are ordered first. */
interface BoundKey {
  readonly name: Sql
  readonly isAscending: boolean
  expressionIn(keys: readonly KeyExpression[]): Sql
}

/** Returns the first sort key or the id. undefined: the rows have no bound, because they begin with nulls or are random. */
function boundKey({ sort, isBackward }: QueryPlan, part: Part): BoundKey | undefined {
  const [first, ...further] = sort.keys
  if (sort.isRandom) return undefined
  if (first === undefined || (part === 'nulls' && further.length === 0)) {
    return { name: KEY_ID, isAscending: !isBackward, expressionIn: () => sql`${ROOT}.id` }
  }
  const beginsWithNulls = part === 'all' && isBackward && !first.field.isNeverNull
  if (part === 'nulls' || beginsWithNulls) return undefined
  return {
    name: keyName(0),
    isAscending: (first.direction === 'asc') !== isBackward,
    expressionIn: ([key]) => key?.expression ?? empty,
  }
}

/** A select, and the sort keys of its rows. */
interface PartSelect extends RowSelect {
  readonly keys: readonly KeyExpression[]
}

function partArms(plan: QueryPlan, part: Part, parameters: Parameters): ArmSelect<PartSelect>[] {
  const { after, before, sort, isBackward } = plan
  return armSelects({ ...plan, parameters }, ({ record, fields }) => {
    const own = plan.read.selectOwn(record)
    const selected = isWhole(plan)
      ? own
      : own.map((value, position) => sql`${value} as ${valueName(position)}`)
    const keys = sortKeys(plan, { fields, parameters })
    const keyColumns = keys.map(
      ({ expression }, index) => sql`, ${expression} as ${keyName(index)}`,
    )
    const bounds = [
      ...(after === undefined
        ? []
        : beyondSql(keys, { at: after, isAfter: true, part, parameters })),
      ...(before === undefined
        ? []
        : beyondSql(keys, { at: before, isAfter: false, part, parameters })),
    ]
    return {
      keys,
      selected: sql`${join(selected, ', ')}${join([empty, ...keyColumns], '')}, ${ROOT}.id as ${KEY_ID}`,
      conditions: [...partSql(part, keys), ...bounds],
      end: sql`
        order by ${orderSql(sort, isBackward, part)}`,
    }
  })
}
