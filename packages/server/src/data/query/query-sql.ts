import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileSharing, compileStatement } from '../../postgres/statement.js'
import { type VisibleArm, visibleArms } from '../../rows/reading/arms.js'
import { selectPlan } from '../../rows/reading/read-plan.js'
import { beyondSql, listParts, partSql } from './bounds-sql.js'
import { FieldExpressions } from './field-sql.js'
import { filterSql } from './filter-sql.js'
import { Parameters } from './parameters.js'
import type { QueryPlan } from './query-plan.js'
import { reverseLinkSql } from './reverse-link.js'
import { KEY_ID, keyName, orderSql, type Part, ROOT, sortKeys } from './sort-sql.js'

/**
 * One statement. Each table that rows of the branch come from is asked on its own, with filter, order
 * and limit, so that each can use its indexes; their few rows are then put in order together. A row
 * is the texts of the record, those it is sorted by, its id, and one of each reverse link.
 */
export function querySql(plan: QueryPlan): Call {
  const parameters = new Parameters()
  const arms = visibleArms(plan.lookup.layout, plan.codec, ROOT)
  const parts = listParts(plan)
  const selects = arms.flatMap((arm) => parts.map((part) => armSql(plan, arm, part, parameters)))
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
          select * from (${join(
            selects.map((select) => sql`(${select} limit ${armLimit(plan)})`),
            ' union all ',
          )}) arms
          order by ${order} limit ${limit}${offset}`
  const text =
    plan.reverseLinks.length === 0 ? page : withReverseLinks(plan, { page, order, parameters })
  const call = { statement: compileSharing(text), values: parameters.values }
  // The offset is part of the text, and there are too many of them to keep each prepared.
  return plan.offset === 0 ? call : { ...call, isUnnamed: true }
}

/** Only the records of the page are looked up, all of them together. */
function withReverseLinks(
  { lookup, reverseLinks, seed }: QueryPlan,
  { page, order, parameters }: { page: Sql; order: Sql; parameters: Parameters },
): Sql {
  const parts = reverseLinks.map((link, index) => {
    const alias = ident(`reverse_${index}`)
    const records = reverseLinkSql(lookup, link, { seed, parameters })
    return {
      selected: sql`, ${alias}.records`,
      joined: sql`
        left join (${records}) ${alias} on ${alias}.target = page.${KEY_ID}`,
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

/** The rows of one arm that are in one part of the order, in order. */
function armSql(plan: QueryPlan, arm: VisibleArm, part: Part, parameters: Parameters): Sql {
  const record = { alias: ROOT, column: (index: number) => arm.column(index) }
  const fields = new FieldExpressions(plan.lookup, record, parameters)
  const { selected, joins } = selectPlan(plan.lookup, plan.read, record)
  const keys = sortKeys(plan, { fields, parameters })
  const keyColumns = keys.map(({ expression }, index) => sql`, ${expression} as ${keyName(index)}`)
  const { after, before, sort, isBackward } = plan
  const conditions = [
    arm.condition,
    filterSql(plan.filter, fields, parameters),
    ...partSql(part, keys),
    ...(after === undefined ? [] : beyondSql(keys, { at: after, isAfter: true, part, parameters })),
    ...(before === undefined
      ? []
      : beyondSql(keys, { at: before, isAfter: false, part, parameters })),
  ]
  return sql`
    select ${join(selected, ', ')}${join([empty, ...keyColumns], '')}, ${ROOT}.id as ${KEY_ID}
    from ${arm.table} ${ROOT}${joins}${fields.joins}
    where ${join(conditions, ' and ')}
    order by ${orderSql(sort, isBackward, part)}`
}
