import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { type NodeOf, requireKnown } from '../../../dialect/nodes.js'
import type { Scope } from '../../../dialect/scope.js'
import { empty, ident, join, type Sql, sql } from '../../../postgres/sql.js'
import { slot } from '../../../postgres/statement.js'
import { listReferences, ReturnedRelations } from '../returned-relations.js'
import { shownQuery, type WrittenQuery } from '../written-query.js'
import { KEPT_ROW, type KeptRows, WRITTEN_ID } from './kept-rows.js'
import type { PlanContext } from './plan-context.js'

const RETURNED = ident('returned ids')
const RETURNED_ID = ident('returned id')
const RETURNED_POSITION = ident('returned position')

/** Writes the query for RETURNING. It returns the written records in order. */
export function writeReturning(
  context: PlanContext,
  { relation, returningClause }: Pick<NodeOf<'UpdateStmt'>, 'relation' | 'returningClause'>,
  kept?: KeptRows,
): WrittenQuery | undefined {
  if (returningClause === undefined || relation === undefined) return undefined
  if (returningClause.options !== undefined) throw noVersions()
  requireKnown(returningClause, 'RETURNING', ['exprs'])
  const { writer } = context
  const scope = kept === undefined ? context.newScope() : context.scopeWith(kept.step)
  const target = writer.target(relation, scope)
  const beside = kept && besideReturned(context, { kept, scope, target: target.alias })
  requireNoVersions(returningClause.exprs, scope)
  const star = () => join([sql`${target.alias}.*`, ...(beside?.star ?? [])], ', ')
  const before = new Set(writer.reads)
  writer.reads.clear()
  const targets = writer.writeTargets(returningClause.exprs, scope, star)
  for (const table of writer.reads) context.readAfter.add(table)
  for (const table of before) writer.reads.add(table)
  const { idType } = target.table
  const ids = sql`${slot(context.valueCount)}::${idType}[]`
  // The ids are given twice, so that a fork can use its indexes; see `isInTheWay`.
  const rows = sql`
    ${context.with(scope)}select ${targets.text}
    from unnest(${ids}) with ordinality as ${RETURNED}(${RETURNED_ID}, ${RETURNED_POSITION})
    join ${target.text}
      on ${target.alias}.id = ${RETURNED}.${RETURNED_ID} and ${target.alias}.id = any(${ids})${beside?.text ?? empty}
    order by ${RETURNED}.${RETURNED_POSITION}`
  return { ...targets, text: shownQuery(rows, targets) }
}

/** Joins what was kept of other relations to the written records. */
function besideReturned(
  { steps, writer }: PlanContext,
  { kept, scope, target }: { kept: KeptRows; scope: Scope; target: Sql },
): { text: Sql; star: readonly Sql[] } {
  const { alias = '' } = steps[kept.step] ?? {}
  const relations = new ReturnedRelations(writer, scope, { ...kept, row: KEPT_ROW })
  const { text, star } = relations.write(kept.others)
  const rows = sql` join ${ident(alias)} as ${KEPT_ROW} on ${KEPT_ROW}.${WRITTEN_ID} = ${target}.id`
  return { text: sql`${rows}, ${text}`, star }
}

/** Throws if RETURNING names the record before or after the change. A relation of the statement can have these names. */
function requireNoVersions(nodes: readonly Node[] | undefined, scope: Scope): void {
  const names = new Set(listReferences(nodes).map((path) => path.at(-2)))
  for (const name of ['old', 'new']) {
    if (names.has(name) && scope.findRelation(name) === undefined) throw noVersions()
  }
}

const noVersions = () => invalidSql('RETURNING: old and new are not supported')
