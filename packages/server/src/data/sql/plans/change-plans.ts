import type { Node } from 'libpg-query'
import { createWriter } from '../../../dialect/expressions/writers.js'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { type NodeOf, requireKnown } from '../../../dialect/nodes.js'
import type { Scope } from '../../../dialect/scope.js'
import { empty, join, type Sql, sql } from '../../../postgres/sql.js'
import type { NamedParts } from '../select-sql.js'
import type { WrittenQuery } from '../written-query.js'
import { writeAssignments } from './assignments.js'
import { keepRows, type SourceStep } from './kept-rows.js'
import { type PlanContext, type PlannedWrite, plainColumns } from './plan-context.js'
import { writeReturning } from './returning.js'

/** Plans an UPDATE. `place`: the step for the rows that it joins, if RETURNING has them. */
export function planUpdate(
  context: PlanContext,
  statement: NodeOf<'UpdateStmt'>,
  place: SourceStep | undefined,
): PlannedWrite {
  requireKnown(statement, 'UPDATE', [
    'relation',
    'targetList',
    'whereClause',
    'fromClause',
    'returningClause',
    'withClause',
  ])
  const table = context.tableOf(statement.relation)
  const joined = joinRows(context, statement, statement.fromClause)
  const { columns, values, sources } = writeAssignments(context, {
    given: statement.targetList,
    table,
    scope: joined.scope,
  })
  const { rows, ...more } = changeRows(context, statement, { joined, values, sources, place })
  const plan = {
    kind: 'update',
    table: table.fullName,
    columns: plainColumns(columns),
    rows,
    returning: more.returned?.text,
  } as const
  return { plan, ...more }
}

/** Plans a DELETE. `place`: the step for the rows that it joins, if RETURNING has them. */
export function planDelete(
  context: PlanContext,
  statement: NodeOf<'DeleteStmt'>,
  place: SourceStep | undefined,
): PlannedWrite {
  requireKnown(statement, 'DELETE', [
    'relation',
    'usingClause',
    'whereClause',
    'returningClause',
    'withClause',
  ])
  const table = context.tableOf(statement.relation)
  const joined = joinRows(context, statement, statement.usingClause)
  const none = { values: [], sources: empty }
  const { rows, ...more } = changeRows(context, statement, { joined, ...none, place })
  const returning = more.returned?.text
  return { plan: { kind: 'delete', table: table.fullName, rows, returning }, ...more }
}

/** The rows that an UPDATE or a DELETE finds. */
interface JoinedRows {
  readonly scope: Scope
  readonly named: NamedParts
  /** The written table, further relations, and the condition. */
  readonly table: Sql
  readonly where: Sql
  readonly id: Sql
  /** There are further relations, so that a record can be found several times. */
  readonly hasOthers: boolean
}

/** Writes the parts that UPDATE and DELETE share: the table, further relations, and the condition. */
function joinRows(
  context: PlanContext,
  { relation, withClause, whereClause }: NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>,
  others: readonly Node[] = [],
): JoinedRows {
  if (relation === undefined) throw invalidSql('a table is missing')
  const { writer } = context
  const scope = context.newScope()
  const named = writer.writeWith(withClause, scope)
  const target = writer.target(relation, scope)
  writer.reads.add(target.table.name)
  const hasOthers = others.length > 0
  const beside = hasOthers ? sql`, ${writer.writeRelations(others, scope)}` : empty
  const where =
    whereClause === undefined
      ? empty
      : sql` where ${createWriter(writer, scope).write(whereClause)}`
  const table = sql` from ${target.text}${beside}`
  return { scope, named, table, where, id: sql`${target.alias}.id`, hasOthers }
}

/** Writes the query for the records to write, with their new values, and the one for RETURNING. */
function changeRows(
  context: PlanContext,
  statement: NodeOf<'UpdateStmt'> | NodeOf<'DeleteStmt'>,
  options: {
    joined: JoinedRows
    values: readonly Sql[]
    /** Relations that the values need. */
    sources: Sql
    place: SourceStep | undefined
  },
): { rows: Sql; returned: WrittenQuery | undefined; source?: Sql } {
  const { joined, values, sources, place } = options
  const { scope, named, table, where, id, hasOthers } = joined
  const first = context.with(scope, named)
  const from = sql`${table}${sources}${where}`
  if (place !== undefined) {
    const found = { scope, first, id, values, from }
    const { kept, source, rows } = keepRows(context, statement, { place, joined: found })
    return { rows, returned: writeReturning(context, statement, kept), source }
  }
  const row = sql`to_json(array[${join([sql`to_json(${id})`, ...values], ', ')}]::json[])`
  const rows = hasOthers ? firstRows({ id, row, from }) : sql`select ${row}::text as row${from}`
  return { rows: sql`${first}${rows}`, returned: writeReturning(context, statement) }
}

/** Returns one row for each record, because a record that is joined with several others is written once. */
const firstRows = ({ id, row, from }: { id: Sql; row: Sql; from: Sql }): Sql => sql`
  select distinct on (w.id) w.row from (select ${id} as id, ${row}::text as row${from}) as w`
