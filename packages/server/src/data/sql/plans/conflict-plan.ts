import { createWriter } from '../../../dialect/expressions/writers.js'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, type NodeOf, requireKnown } from '../../../dialect/nodes.js'
import { cutName, findName } from '../../../dialect/scope.js'
import { ident, join, type Sql, sql } from '../../../postgres/sql.js'
import { type Slot, slot } from '../../../postgres/statement.js'
import {
  PROPOSED_POSITION,
  type StatementTable,
  type TableKey,
  type WrittenKey,
} from '../branch-tables.js'
import type { ConflictPlan } from '../statement-plan.js'
import { writeAssignments } from './assignments.js'
import { type PlanContext, plainColumns } from './plan-context.js'

/** Plans an ON CONFLICT. Returns undefined if the statement has none. */
export function planConflict(
  context: PlanContext,
  { onConflictClause: clause, relation, withClause }: NodeOf<'InsertStmt'>,
  table: StatementTable,
): ConflictPlan | undefined {
  if (clause === undefined || relation === undefined) return undefined
  requireKnown(clause, 'ON CONFLICT', CONFLICT_PARTS)
  const keys = conflictKeys(clause, table)
  context.writer.reads.add(table.name)
  const records = slot(context.valueCount)
  const textsOf = (position: number) => slot(context.valueCount + 1 + position)
  if (clause.action !== 'ONCONFLICT_UPDATE') {
    let first = 0
    const found = keys.map((key) => {
      const start = first
      first += key.columns.length
      return findOthers(table, { key, records, textsOf: (column) => textsOf(start + column) })
    })
    return { keys: plainKeys(keys), rows: join(found, ' union all '), update: undefined }
  }
  const [key] = keys
  if (clause.infer === undefined || key === undefined) {
    throw invalidSql('ON CONFLICT DO UPDATE needs the column in which records are in conflict')
  }
  const scope = context.newScope()
  const named = context.writer.writeWith(withClause, scope)
  const target = context.writer.target(relation, scope)
  const proposed = context.writer.introduce(scope, {
    name: 'excluded',
    columns: table.columns,
    types: table.types,
  })
  const given = clause.targetList
  const { columns, values, sources } = writeAssignments(context, { given, table, scope })
  const isWanted =
    clause.whereClause === undefined
      ? sql`true`
      : sql`coalesce(${createWriter(context.writer, scope).write(clause.whereClause)}, false)`
  const texts = [
    sql`to_json(${proposed}.${PROPOSED_POSITION})`,
    sql`to_json(${target.alias}.id)`,
    sql`to_json(${isWanted})`,
    ...values,
  ]
  return {
    keys: plainKeys(keys),
    update: plainColumns(columns),
    rows: sql`
      ${context.with(scope, named)}select to_json(array[${join(texts, ', ')}]::json[])::text as row
      from (${table.proposed(records)}) as ${proposed}
      join ${target.text} on ${isInTheWay(target.alias, { key, proposed, textsOf })}${sources}`,
  }
}

const CONFLICT_PARTS = ['action', 'infer', 'targetList', 'whereClause', 'location']

/** Returns the key of an ON CONFLICT clause, or all unique keys if it names none. */
function conflictKeys(
  { infer }: NonNullable<NodeOf<'InsertStmt'>['onConflictClause']>,
  table: StatementTable,
): readonly TableKey[] {
  if (infer === undefined) return table.keys
  if (infer.conname !== undefined) {
    const named = table.keys.find(({ name }) => cutName(name) === infer.conname)
    if (named !== undefined) return [named]
    throw invalidSql(
      `ON CONFLICT ON CONSTRAINT: [${infer.conname}] is not a unique constraint of table [${table.fullName}]`,
    )
  }
  requireKnown(infer, 'ON CONFLICT', ['indexElems', 'location'])
  const names = (infer.indexElems ?? []).map((node) => {
    const element = contentOf(node, 'IndexElem') ?? {}
    requireKnown(element, 'ON CONFLICT', ['name', 'ordering', 'nulls_ordering'])
    return element.name ?? ''
  })
  // As in PostgreSQL, the order of the columns does not matter.
  const key = table.keys.find(
    ({ columns }) =>
      columns.length === new Set(names).size &&
      names.every((name) => findName(columns, name, (column) => column.name) !== undefined),
  )
  if (key !== undefined) return [key]
  throw invalidSql(
    `ON CONFLICT: [${names.join(', ')}] is not the id, nor a unique column, nor the columns of a unique constraint`,
  )
}

/** Writes a query for existing records that have the unique value of a record to insert. */
function findOthers(
  table: StatementTable,
  { key, records, textsOf }: { key: TableKey; records: Slot; textsOf(column: number): Slot },
): Sql {
  const proposed = sql`p`
  return sql`
    select to_json(array[to_json(p.${PROPOSED_POSITION}), to_json(t.id)]::json[])::text as row
    from (${table.proposed(records)}) as ${proposed}
    join (${table.rows}) as t on ${isInTheWay(sql`t`, { key, proposed, textsOf })}`
}

/**
 * Returns the condition that a record has the unique value of another. For inherited rows of a fork, PostgreSQL
 * uses an index only if the values are also given as a separate array, besides the join.
 */
function isInTheWay(
  record: Sql,
  { key, proposed, textsOf }: { key: TableKey; proposed: Sql; textsOf(column: number): Slot },
): Sql {
  const conditions = key.columns.map(({ name, valuesOf }, position) => {
    const value = sql`${record}.${ident(name)}`
    return sql`${value} = ${proposed}.${ident(name)} and ${value} = any(${valuesOf(textsOf(position))})`
  })
  return join(conditions, ' and ')
}

const plainKeys = (keys: readonly TableKey[]): WrittenKey[] =>
  keys.map(({ columns }) => ({ columns: columns.map(({ name, index }) => ({ name, index })) }))
