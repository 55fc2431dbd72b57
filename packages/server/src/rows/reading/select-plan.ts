import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import type { TableCodec } from '../columns/table-codec.js'
import { layoutOf } from '../layout/layout.js'
import { guardRelation } from '../running/guard.js'
import { joinVisible } from './arms.js'
import {
  countOwn,
  METADATA_COUNT,
  METADATA_NAMES,
  type ReadPlan,
  type TableLookup,
} from './read-plan.js'

/** A record in a statement: its alias, and its columns as expressions. */
export interface PlanRoot {
  readonly alias: Sql
  column(index: number): Sql
}

/** The record that an alias stands for. */
export function recordAs(codec: TableCodec, alias: Sql): PlanRoot {
  return {
    alias,
    column: (index) => sql`${alias}.${ident(codec.physical[index]?.physicalName ?? '')}`,
  }
}

/**
 * A join with the record of an id that the branch sees. `columns` are the indexes of the columns that are
 * needed; by default all of them.
 */
export function joinRecord(
  lookup: TableLookup,
  codec: TableCodec,
  options: { id: Sql; alias: Sql; outer?: boolean; columns?: ReadonlySet<number> },
): Sql {
  return joinVisible(layoutOf(lookup.rows), codec, options)
}

/** Reads the record of one id (slot 0). */
export function compileReadOne(lookup: TableLookup, plan: ReadPlan): Statement {
  return compileStatement(readFrom(lookup, plan, sql`(select ${slot(0)}::text as id) k`))
}

/** Reads the record of one id (slot 0) while the guard holds (its values follow the id). */
export function compileGuardedRead(lookup: TableLookup, plan: ReadPlan): Statement {
  const source = sql`${guardRelation(1)} cross join (select ${slot(0)}::text as id) k`
  return compileStatement(readFrom(lookup, plan, source))
}

/** Reads the records of many ids (slot 0, an array); ids without a record give no row. */
export function compileReadMany(lookup: TableLookup, plan: ReadPlan): Statement {
  return compileStatement(readFrom(lookup, plan, sql`unnest(${slot(0)}::text[]) as k (id)`))
}

function readFrom(lookup: TableLookup, plan: ReadPlan, source: Sql): Sql {
  const alias = ident('r0')
  const joined = joinRecord(lookup, plan.codec, { id: sql`k.id`, alias })
  const { selected, joins } = selectPlan(lookup, plan, recordAs(plan.codec, alias))
  return sql`select ${join(selected, ', ')} from ${source} ${joined} ${joins}`
}

/** The values that a plan selects, and the joins that its links take. */
export function selectPlan(
  lookup: TableLookup,
  plan: ReadPlan,
  root: PlanRoot,
): { selected: Sql[]; joins: Sql } {
  const own = selectOwn(plan, root)
  const linked = selectLinked(lookup, plan, (position) => own[position] ?? empty)
  return { selected: [...own, ...linked.selected], joins: linked.joins }
}

/** The values of the record that a plan starts from, without those of linked records. */
export function selectOwn({ codec, projection }: ReadPlan, { alias, column }: PlanRoot): Sql[] {
  return [
    ...METADATA_NAMES.map((name) => sql`${alias}.${name}`),
    ...projection.columns.map((index) => selectColumn(codec, index, column(index))),
  ]
}

/**
 * The records that the links of a plan lead to. `textOf` gives the values of `selectOwn`, by position.
 *
 * Each record is an array of texts that a subquery finds by its id. If links were joins of one query,
 * PostgreSQL would consider every order of them: planning 64 of them took seconds. Links should be looked
 * up when the rows are known, not for every row that is sorted.
 */
export function selectLinked(
  lookup: TableLookup,
  plan: ReadPlan,
  textOf: (position: number) => Sql,
): { selected: Sql[]; joins: Sql } {
  const selected: Sql[] = []
  /** By the number of links that lead there. */
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
  // Without the offset PostgreSQL would look a record up once for each of its values.
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
    ${joinRecord(lookup, codec, { id: sql`k.id`, alias, columns })}`
}

function selectColumn(codec: TableCodec, index: number, value: Sql): Sql {
  const column = codec.physical[index]
  if (column === undefined) throw new Error('a projection must be of its own table')
  return raw(COLUMN_TYPE_ENTRIES[column.column.type].select(value.text))
}
