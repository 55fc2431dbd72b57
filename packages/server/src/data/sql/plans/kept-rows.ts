import type { Node } from 'libpg-query'
import type { NodeOf } from '../../../dialect/nodes.js'
import type { Relation, Scope } from '../../../dialect/scope.js'
import { empty, ident, join, type Sql, sql } from '../../../postgres/sql.js'
import { keptColumns } from '../returned-relations.js'
import type { PlanContext } from './plan-context.js'

/** The step that has what a part writes. */
export interface SourceStep {
  /** Its position among the steps. */
  readonly step: number
  readonly others: readonly Node[]
}

/** Rows of relations in FROM or USING that RETURNING reads, kept by a step of their own. */
export interface KeptRows extends SourceStep {
  readonly relations: readonly Relation[]
  readonly columns: ReturnType<typeof keptColumns>
}

/** A name that no statement can have. */
export const STEP_NAME = '\0'
export const WRITTEN_ID = ident('written id')
export const KEPT_ROW = ident('kept row')

/**
 * Makes the rows that a part joins a step of its own. They have the ids and values to write, and the columns that RETURNING
 * may have. `source` is the query of the step, and `rows` the one for what is written.
 */
export function keepRows(
  context: PlanContext,
  statement: NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>,
  options: {
    place: SourceStep
    joined: { scope: Scope; first: Sql; id: Sql; values: readonly Sql[]; from: Sql }
  },
): { kept: KeptRows; source: Sql; rows: Sql } {
  const { place, joined } = options
  const { step, others } = place
  const [, ...relations] = joined.scope.relations
  const columns = keptColumns(statement, { relations, others })
  const values = joined.values.map((value, index) => ({
    name: `value ${index}`,
    value: sql`(${value})::json`,
  }))
  const read = columns.map(({ relation, column, name }) => {
    const { alias = '', columns: own = [] } = relations[relation] ?? {}
    return { name, value: sql`${ident(alias)}.${ident(own[column] ?? '')}` }
  })
  const all = [...values, ...read]
  const list = join([empty, ...all.map(({ name, value }) => sql`, ${value} as ${ident(name)}`)], '')
  const source = sql`
    ${joined.first}select distinct on (w.${WRITTEN_ID}) w.*
    from (select ${joined.id} as ${WRITTEN_ID}${list}${joined.from}) as w`
  const { alias } = context.writer.nameQuery({ ctename: 'rows of FROM' })
  const names = ['written id', ...all.map(({ name }) => name)]
  context.steps[step] = { name: STEP_NAME, alias, columns: names, weight: 1 }
  const texts = [
    sql`to_json(${KEPT_ROW}.${WRITTEN_ID})`,
    ...values.map(({ name }) => sql`${KEPT_ROW}.${ident(name)}`),
  ]
  const rows = sql`
    ${context.with(context.scopeWith(step))}select to_json(array[${join(texts, ', ')}]::json[])::text as row
    from ${ident(alias)} as ${KEPT_ROW}`
  return { kept: { step, others, relations, columns }, source, rows }
}
