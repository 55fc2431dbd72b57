import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, hasStar, type NodeOf, requireKnown } from '../../../dialect/nodes.js'
import { empty, ident, join, sql } from '../../../postgres/sql.js'
import type { StatementTable, TargetColumn } from '../branch-tables.js'
import { readNextval } from '../setval-call.js'
import { defaultKey, type InsertValues } from '../statement-plan.js'
import type { WrittenQuery } from '../written-query.js'
import { computedError, requireBoolean, requireDistinct, targetOf } from './assignments.js'
import { calculatesColumn } from './calculated.js'
import { planConflict } from './conflict-plan.js'
import { type PlanContext, type PlannedWrite, plainColumns, SOURCE } from './plan-context.js'
import { writeReturning } from './returning.js'

export function planInsert(context: PlanContext, statement: NodeOf<'InsertStmt'>): PlannedWrite {
  requireKnown(statement, 'INSERT', [
    'relation',
    'cols',
    'selectStmt',
    'onConflictClause',
    'returningClause',
    'withClause',
    'override',
  ])
  const { override = 'OVERRIDING_NOT_SET' } = statement
  // Values that are given are those of the record, also for columns that are `generated always as identity`.
  if (override === 'OVERRIDING_USER_VALUE') {
    throw invalidSql('OVERRIDING USER VALUE is not supported')
  }
  const table = context.tableOf(statement.relation)
  const values = planValues(context, statement, table)
  const conflict = planConflict(context, statement, table)
  const returned = writeReturning(context, statement)
  const returning = returned?.text
  const plan = { kind: 'insert', table: table.fullName, values, conflict, returning } as const
  return { plan, returned }
}

function planValues(
  context: PlanContext,
  statement: NodeOf<'InsertStmt'>,
  table: StatementTable,
): InsertValues {
  const given = insertColumns(statement, table) ?? table.targets
  const source = contentOf(statement.selectStmt, 'SelectStmt')
  if (source === undefined) {
    return { columns: [], rows: undefined, defaults: new Set(), documents: [] }
  }
  const scope = context.newScope()
  const named = context.writer.writeWith(statement.withClause, scope)
  const defaults = new Set<string>()
  const isDefault = (item: Node, index: number) =>
    contentOf(item, 'SetToDefault') !== undefined ||
    isOwnNumber(item, { table, column: given[index] })
  const isOmitted = (item: Node, index: number) => {
    const column = given[index]
    if (!column?.isComputed) return false
    if (contentOf(item, 'SetToDefault') !== undefined) return true
    throw computedError(table, column)
  }
  const rows = withoutDefaults(source, { defaults, isDefault, isOmitted })
  const query = context.writer.select(rows, scope)
  if (source.valuesLists === undefined) {
    const computed = given.slice(0, query.columns.length).find((each) => each.isComputed)
    if (computed !== undefined) throw computedError(table, computed)
  }
  const stored = given.filter((each) => !each.isComputed)
  const columns = statement.cols === undefined ? stored.slice(0, query.columns.length) : stored
  const hidesId = statement.cols === undefined && table.hidesId
  if (hidesId) requireNoIds(source, query, table)
  requireSameLength(columns, query, hidesId)
  const names = columns.map((_, index) => ident(`value ${index}`))
  const texts = columns.map((column, index) => {
    requireBoolean(column, query.types?.[index])
    return column.valueOf(sql`${SOURCE}.${names[index] ?? empty}`, {
      isCalculated: calculatesColumn(rows, index),
    })
  })
  return {
    columns: plainColumns(columns),
    rows: sql`
      ${context.with(scope, named)}select to_json(array[${join(texts, ', ')}]::json[])::text as row
      from (${query.text}) as ${SOURCE}(${join(names, ', ')})`,
    defaults,
    documents: listDocuments(rows, columns),
  }
}

/** Returns the numbers of parameters that are whole values of columns with documents. */
function listDocuments(
  { valuesLists, targetList = [] }: NodeOf<'SelectStmt'>,
  columns: readonly TargetColumn[],
): number[] {
  const selected = targetList.map((node) => contentOf(node, 'ResTarget')?.val)
  const rows = valuesLists?.map((node) => contentOf(node, 'List')?.items ?? []) ?? [selected]
  return rows.flatMap((items) =>
    items.flatMap((item, index) => {
      const { number } = contentOf(item, 'ParamRef') ?? {}
      return number !== undefined && columns[index]?.type === 'json' ? [number] : []
    }),
  )
}

function insertColumns(
  { cols }: NodeOf<'InsertStmt'>,
  table: StatementTable,
): readonly TargetColumn[] | undefined {
  if (cols === undefined) return undefined
  const columns = cols.map((node) => targetOf(node, table))
  requireDistinct(columns, 'named')
  return columns
}

/** Returns whether a value is the next number of the sequence that the column has anyway. */
function isOwnNumber(
  node: Node,
  { table, column }: { table: StatementTable; column: TargetColumn | undefined },
): boolean {
  const sequence = readNextval(node)
  if (sequence === undefined) return false
  return column !== undefined && sequence === `${table.name}_${column.name}_seq`
}

/** Replaces DEFAULT by null, and adds its position to `defaults`. Leaves out values that are omitted. */
function withoutDefaults(
  query: NodeOf<'SelectStmt'>,
  options: {
    defaults: Set<string>
    isDefault: (item: Node, column: number) => boolean
    isOmitted: (item: Node, column: number) => boolean
  },
): NodeOf<'SelectStmt'> {
  const { defaults, isDefault, isOmitted } = options
  if (query.valuesLists === undefined) return query
  const valuesLists = query.valuesLists.map((node, row): Node => {
    const items: Node[] = []
    for (const [column, item] of (contentOf(node, 'List')?.items ?? []).entries()) {
      if (isOmitted(item, column)) continue
      if (isDefault(item, column)) {
        defaults.add(defaultKey(row, items.length))
        items.push({ A_Const: { isnull: true } })
      } else items.push(item)
    }
    return { List: { items } }
  })
  return { ...query, valuesLists }
}

/** `hidesId`: the id is not among the target columns, because the statement has no list of them. */
function requireSameLength(
  columns: readonly TargetColumn[],
  query: WrittenQuery,
  hidesId: boolean,
): void {
  const [targets, expressions] = [columns.length, query.columns.length]
  if (targets === expressions) return
  if (targets > expressions) throw invalidSql('INSERT has more target columns than expressions')
  const reason = hidesId ? '; without a list of columns, the column [id] is not among them' : ''
  throw invalidSql(`INSERT has more expressions than target columns${reason}`)
}

/** Throws if `*` has ids among the values of a table that hides its own: they would go to another column. */
function requireNoIds(
  source: NodeOf<'SelectStmt'>,
  query: WrittenQuery,
  { name }: StatementTable,
): void {
  if (!listsStar(source) || !query.columns.includes('id')) return
  throw invalidSql(
    `INSERT into [${name}] without a list of columns: its id is not among them, but * has a column [id]; list the columns`,
  )
}

/** Whether the columns of a query, or of one of those that it is the union of, are those of its tables. */
function listsStar({ targetList = [], larg, rarg }: NodeOf<'SelectStmt'>): boolean {
  const isListed = targetList.some((target) => hasStar(contentOf(target, 'ResTarget')?.val))
  return isListed || [larg, rarg].some((part) => part !== undefined && listsStar(part))
}
