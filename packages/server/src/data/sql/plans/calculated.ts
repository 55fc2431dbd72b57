import type { Node } from 'libpg-query'
import { contentOf, kindOf, type NodeKind, type NodeOf } from '../../../dialect/nodes.js'

/*
 * A decimal that a statement calculates is rounded to the digits of its column, as in PostgreSQL and by `$multiply`. One that
 * is given is stored as it is, or refused.
 */

const CALCULATIONS: ReadonlySet<NodeKind> = new Set([
  'A_Expr',
  'CaseExpr',
  'CoalesceExpr',
  'FuncCall',
  'MinMaxExpr',
  'SubLink',
])

/** Returns whether an expression calculates its value: it is no constant, parameter or column. */
export function isCalculated(node: Node | undefined): boolean {
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) return isCalculated(cast.arg)
  return node !== undefined && CALCULATIONS.has(kindOf(node))
}

/** Returns whether a query calculates all values of a column of its result. */
export function calculatesColumn(query: NodeOf<'SelectStmt'> | undefined, index: number): boolean {
  const { valuesLists, targetList = [] } = query ?? {}
  if (valuesLists !== undefined) {
    return valuesLists.every((row) => isCalculated(contentOf(row, 'List')?.items?.[index]))
  }
  const values = targetList.map((target) => contentOf(target, 'ResTarget')?.val)
  // The columns behind a star have other positions.
  const isPlain = !values.some((value) => hasStar(value))
  return isPlain && isCalculated(values[index])
}

const hasStar = (node: Node | undefined): boolean =>
  (contentOf(node, 'ColumnRef')?.fields ?? []).some((field) => kindOf(field) === 'A_Star')
