import { ident, integer, join, Sql, sql } from '../../postgres/sql.js'
import { slot } from '../../postgres/statement.js'
import type { ResultColumn } from './evaluate.js'
import { mapMembers } from './plan-wire.js'
import { StepRows } from './step-rows.js'

/*
 * A statement whose WITH writes has several steps, each with a query of its own. What a step returns is read once, as texts,
 * and given to the queries after it as a value. So each step sees the tables as they were before the statement, and never
 * runs twice.
 */

/** Puts the rows of earlier steps where the queries of a plan refer to them. */
export function withRows<Plan>(plan: Plan, rows: readonly (Sql | undefined)[]): Plan {
  const fill = (value: unknown): unknown =>
    value instanceof Sql ? fillIn(value, rows) : mapMembers(value, fill)
  return fill(plan) as Plan
}

function fillIn({ strings, values }: Sql, rows: readonly (Sql | undefined)[]): Sql {
  const filled = values.map((value) => {
    if (!(value instanceof StepRows)) return value
    const found = rows[value.step]
    if (found === undefined) throw new Error('a step that is used must return rows')
    return found
  })
  return new Sql([...strings], filled)
}

/** Returns a query for the rows of a step. They are JSON in a slot: a list of texts for each row. */
export function rowsOfStep(
  columns: readonly ResultColumn[],
  { position, typeNames }: { position: number; typeNames: ReadonlyMap<string, string> },
): Sql {
  const values = columns.map(
    ({ typeId }, index) =>
      sql`(e.row ->> ${integer(index)})::pg_catalog.${ident(typeNames.get(typeId) ?? '')}`,
  )
  const list = values.length === 0 ? sql`` : join(values, ', ')
  return sql`select ${list} from json_array_elements(${slot(position)}::json) as e(row)`
}

/** Returns how rows are read as lists of texts. */
export function textsOfRows(columns: readonly ResultColumn[]): (query: Sql) => Sql {
  const names = columns.map((_, index) => ident(`column ${index}`))
  if (names.length === 0) return (query) => sql`select '[]' as row from (${query}) as q`
  const texts = names.map((name) => sql`q.${name}::text`)
  return (query) => sql`
    select to_json(array[${join(texts, ', ')}])::text as row
    from (${query}) as q(${join(names, ', ')})`
}
