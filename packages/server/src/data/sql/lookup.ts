import type { Node, SelectStmt } from 'libpg-query'
import { contentOf, namesOf } from '../../dialect/nodes.js'

/** The clauses of a lookup. */
const CLAUSES: ReadonlySet<string> = new Set([
  'targetList',
  'fromClause',
  'whereClause',
  'sortClause',
  'limitCount',
  'limitOffset',
  'limitOption',
  'op',
])

/**
 * Returns whether a query finds at most one record by its id, and only selects and compares columns. Object-relational
 * mappers send such queries most. No function and no other row can make one slow.
 */
export function isLookup(query: SelectStmt): boolean {
  const { targetList = [], fromClause = [], whereClause, sortClause = [] } = query
  const clauses = Object.entries(query).filter(
    ([, value]) => value !== undefined && value !== false,
  )
  const conditions = conditionsOf(whereClause)
  return (
    clauses.every(([name]) => CLAUSES.has(name)) &&
    (query.op === undefined || query.op === 'SETOP_NONE') &&
    fromClause.length === 1 &&
    contentOf(fromClause[0], 'RangeVar') !== undefined &&
    targetList.every((node) => isColumn(contentOf(node, 'ResTarget')?.val)) &&
    sortClause.every((node) => isColumn(contentOf(node, 'SortBy')?.node)) &&
    [query.limitCount, query.limitOffset].every((node) => node === undefined || isValue(node)) &&
    conditions.every((node) => comparedBy(node) !== undefined) &&
    conditions.some(isOfId)
  )
}

/** Returns the conditions that are joined by AND. */
function conditionsOf(node: Node | undefined): readonly Node[] {
  if (node === undefined) return []
  const joined = contentOf(node, 'BoolExpr')
  return joined?.boolop === 'AND_EXPR' ? (joined.args ?? []).flatMap(conditionsOf) : [node]
}

/** Returns the parts of an equation of columns and values. */
function comparedBy(node: Node): readonly Node[] | undefined {
  const { kind, name, lexpr, rexpr } = contentOf(node, 'A_Expr') ?? {}
  if (kind !== 'AEXPR_OP' || namesOf(name).join('.') !== '=') return undefined
  if (lexpr === undefined || rexpr === undefined) return undefined
  const sides = [lexpr, rexpr]
  return sides.every((side) => isColumn(side) || isValue(side)) ? sides : undefined
}

function isOfId(node: Node): boolean {
  const sides = comparedBy(node) ?? []
  return sides.some(isId) && sides.some(isValue)
}

function isId(node: Node): boolean {
  return namesOf(contentOf(node, 'ColumnRef')?.fields).at(-1) === 'id'
}

function isColumn(node: Node | undefined): boolean {
  return contentOf(node, 'ColumnRef') !== undefined
}

function isValue(node: Node): boolean {
  const value = contentOf(node, 'TypeCast')?.arg ?? node
  return contentOf(value, 'ParamRef') !== undefined || contentOf(value, 'A_Const') !== undefined
}
