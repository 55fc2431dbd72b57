import type { Node } from 'libpg-query'
import type { DeclaredType } from '../../../dialect/declared-types.js'
import { createWriter } from '../../../dialect/expressions/writers.js'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf } from '../../../dialect/nodes.js'
import type { Scope } from '../../../dialect/scope.js'
import { empty, ident, integer, join, type Sql, sql } from '../../../postgres/sql.js'
import type { StatementTable, TargetColumn } from '../branch-tables.js'
import { typesByName } from '../written-query.js'
import { calculatesColumn, isCalculated } from './calculated.js'
import { type PlanContext, SOURCE } from './plan-context.js'

interface Assignments {
  readonly columns: readonly TargetColumn[]
  readonly values: readonly Sql[]
  /** Relations that the values need, each after a comma. */
  readonly sources: Sql
}

/** Writes the columns and expressions of a SET clause, and the relations that they need. */
export function writeAssignments(
  context: PlanContext,
  options: { given: readonly Node[] | undefined; table: StatementTable; scope: Scope },
): Assignments {
  const { given, table, scope } = options
  const writer = createWriter(context.writer, scope)
  // A computed column has its default anyway.
  const nodes = given?.filter((node) => {
    const isDefault = contentOf(contentOf(node, 'ResTarget')?.val, 'SetToDefault') !== undefined
    return !(isDefault && targetOf(node, table).isComputed)
  })
  const columns = (nodes ?? []).map((node) => settable(node, table))
  requireDistinct(columns, 'set')
  const types = typesByName(table.columns, table.types)
  const sources: Sql[] = []
  const values = columns.map((column, index) => {
    const value = contentOf(nodes?.[index], 'ResTarget')?.val
    const { source, colno = 1, ncolumns = 1 } = contentOf(value, 'MultiAssignRef') ?? {}
    const write = (node: Node | undefined) => {
      if (contentOf(node, 'SetToDefault') !== undefined) return defaultOf(column)
      // As in PostgreSQL, a value that an enum does not have is refused even if no record matches.
      const type = types?.get(column.name)
      if (type?.kind === 'enum') writer.requireValues(type, [node])
      requireBoolean(column, writer.declaredType(node))
      return writer.write(node)
    }
    const encode = (node: Node | undefined) =>
      column.valueOf(write(node), { isCalculated: isCalculated(node) })
    if (source === undefined) return encode(value)
    const row = contentOf(source, 'RowExpr')
    if (row !== undefined) {
      if (row.args?.length !== ncolumns) throw unequalColumns()
      return encode(row.args[colno - 1])
    }
    if (colno === 1) {
      sources.push(rowSource(context, source, columns.slice(index, index + ncolumns), scope))
    }
    const last = sources.length - 1
    return sql`${ident(`set row ${last}`)}.row -> ${integer(colno - 1)}`
  })
  const beside = sources.map((source, index) => sql`, ${source} as ${ident(`set row ${index}`)}`)
  return { columns, values, sources: beside.length === 0 ? empty : join(beside, '') }
}

/** Throws if a whole number is the value of a boolean. Values are cast, and PostgreSQL casts them only if it is told to. */
export function requireBoolean(column: TargetColumn, type: DeclaredType | undefined): void {
  if (column.type !== 'bool' || type?.kind !== 'integer') return
  const shown = type.bits === 16 ? 'smallint' : 'integer'
  throw invalidSql(`column "${column.name}" is of type boolean but expression is of type ${shown}`)
}

/** Returns the column that an assignment or a list of columns names. */
export function targetOf(node: Node, table: StatementTable): TargetColumn {
  const { name = '', indirection } = contentOf(node, 'ResTarget') ?? {}
  if (indirection !== undefined)
    throw invalidSql(`column [${name}]: only a whole column can be set`)
  return table.target(name)
}

function settable(node: Node, table: StatementTable): TargetColumn {
  const column = targetOf(node, table)
  if (column.isComputed) throw computedError(table, column)
  if (column.path.length > 1) {
    throw invalidSql(`column [${column.name}]: is part of an object and cannot be set alone`)
  }
  return column
}

/** Writes the query of `set (a, b) = (select ...)`. It runs once for each record, and has one row. */
function rowSource(
  context: PlanContext,
  node: Node,
  columns: readonly TargetColumn[],
  scope: Scope,
): Sql {
  const link = contentOf(node, 'SubLink')
  if (link?.subLinkType !== 'EXPR_SUBLINK') {
    throw invalidSql('SET: several columns can be set to a list of values or to a query')
  }
  const query = context.writer.subquery(link.subselect, scope)
  if (query.columns.length !== columns.length) throw unequalColumns()
  const names = columns.map((_, index) => ident(`value ${index}`))
  const select = contentOf(link.subselect, 'SelectStmt')
  const values = columns.map((column, index) => {
    requireBoolean(column, query.types?.[index])
    return column.valueOf(sql`${SOURCE}.${names[index] ?? empty}`, {
      isCalculated: calculatesColumn(select, index),
    })
  })
  return sql`lateral (
    select (
      select json_build_array(${join(values, ', ')})
      from (${query.text}) as ${SOURCE}(${join(names, ', ')})
    ) as row
  )`
}

export const computedError = (table: StatementTable, { name }: TargetColumn) =>
  invalidSql(`table [${table.name}]: column [${name}]: is computed and cannot be written`)

function defaultOf({ name, defaultValue }: TargetColumn): Sql {
  if (defaultValue !== undefined) return defaultValue
  throw invalidSql(
    `SET: column [${name}]: DEFAULT is not possible, because the service generates it`,
  )
}

const unequalColumns = () => invalidSql('SET: number of columns does not match number of values')

/** `verb` is what a statement does with the columns. */
export function requireDistinct(columns: readonly TargetColumn[], verb: 'set' | 'named'): void {
  const names = columns.map(({ name }) => name)
  const repeated = names.find((name, index) => names.indexOf(name) !== index)
  if (repeated !== undefined) throw invalidSql(`column [${repeated}] is ${verb} more than once`)
}
