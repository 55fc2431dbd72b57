import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import type { TableCodec } from '../columns/table-codec.js'
import {
  countOwn,
  METADATA_COUNT,
  METADATA_NAMES,
  type ReadPlan,
  type TableLookup,
} from './read-plan.js'
import { type PlanRoot, recordAs } from './table-rows.js'

/** Reads the record of one id (slot 0). */
export function compileReadOne(lookup: TableLookup, plan: ReadPlan): Statement {
  return compileStatement(readFrom(lookup, plan, sql`(select ${slot(0)}::text as id) k`))
}

/** Reads the records of many ids (slot 0, an array); ids without a record give no row. */
export function compileReadMany(lookup: TableLookup, plan: ReadPlan): Statement {
  return compileStatement(readFrom(lookup, plan, sql`unnest(${slot(0)}::text[]) as k (id)`))
}

function readFrom(lookup: TableLookup, plan: ReadPlan, source: Sql): Sql {
  const alias = ident('r0')
  const joined = lookup.rowsOf(plan.codec).join({ id: sql`k.id`, alias })
  const { selected, joins } = selectPlan(lookup, plan, recordAs(plan.codec, alias))
  return sql`select ${join(selected, ', ')} from ${source} ${joined} ${joins}`
}

/** Returns the values that a plan selects, and the joins for its links. */
export function selectPlan(
  lookup: TableLookup,
  plan: ReadPlan,
  root: PlanRoot,
): { selected: Sql[]; joins: Sql } {
  const own = selectOwn(plan, root)
  const linked = selectLinked(lookup, plan, (position) => own[position] ?? empty)
  return { selected: [...own, ...linked.selected], joins: linked.joins }
}

/** Returns the selected values of the record itself, without linked records. */
export function selectOwn({ codec, projection }: ReadPlan, { alias, column }: PlanRoot): Sql[] {
  return [
    ...METADATA_NAMES.map((name) => sql`${alias}.${name}`),
    ...projection.columns.map((index) => selectColumn(codec, index, column(index))),
  ]
}

/**
 * Selects the linked records of a plan. `textOf` returns the values of `selectOwn` by position.
 *
 * A subquery reads each linked record by id, as an array of texts. With plain joins, PostgreSQL would
 * consider every join order: planning 64 links took seconds. Use this after sorting and paging, so that
 * links are followed only for the rows of the result.
 */
export function selectLinked(
  lookup: TableLookup,
  plan: ReadPlan,
  textOf: (position: number) => Sql,
): { selected: Sql[]; joins: Sql } {
  const selected: Sql[] = []
  /** Linked records by depth: the number of links that lead to them. */
  const levels: Sql[][] = []

  function add(node: ReadPlan, textAt: (position: number) => Sql, depth: number): void {
    for (const link of node.links) {
      const level = levels[depth] ?? []
      levels[depth] = level
      const name = sql`${ident(`links_${depth}`)}.${ident(`link_${level.length}`)}`
      const id = textAt(METADATA_COUNT + link.position)
      level.push(sql`(${linkedSql(lookup, link.plan, id)}) as ${ident(`link_${level.length}`)}`)
      const linkedText = (position: number) => sql`${name}[${raw(String(position + 1))}]`
      const count = countOwn(link.plan)
      for (let position = 0; position < count; position++) selected.push(linkedText(position))
      add(link.plan, linkedText, depth + 1)
    }
  }

  add(plan, textOf, 0)
  // `offset 0` keeps PostgreSQL from inlining the subquery, which would run once for each value.
  const joins = levels.map(
    (links, depth) =>
      sql` cross join lateral (select ${join(links, ', ')} offset 0) ${ident(`links_${depth}`)}`,
  )
  return { selected, joins: join([empty, ...joins], '') }
}

function linkedSql(lookup: TableLookup, plan: ReadPlan, id: Sql): Sql {
  const alias = ident('linked')
  const { codec, projection } = plan
  const texts = selectOwn(plan, recordAs(codec, alias)).map((value) => sql`${value}::text`)
  const columns = new Set(projection.columns)
  return sql`
    select array[${join(texts, ', ')}] from (select ${id} as id) k
    ${lookup.rowsOf(codec).join({ id: sql`k.id`, alias, columns })}`
}

function selectColumn(codec: TableCodec, index: number, value: Sql): Sql {
  const column = codec.physical[index]
  if (column === undefined) throw new Error('a projection must belong to the table')
  return COLUMN_TYPE_ENTRIES[column.column.type].select(value)
}
