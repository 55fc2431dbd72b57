import type { Node } from 'libpg-query'
import { contentOf, hasStar, kindOf, type NodeKind, type NodeOf } from '../../../dialect/nodes.js'

/*
 * A decimal that a statement calculates is rounded to the digits of its column, as in PostgreSQL and by `$multiply`. One that
 * is given is stored as it is, or refused.
 */

const CALCULATIONS: ReadonlySet<NodeKind> = new Set(['A_Expr', 'FuncCall', 'SubLink'])

/** Returns whether an expression calculates its value: it is no constant, parameter or column, and does not choose a parameter. */
export function isCalculated(node: Node | undefined): boolean {
  if (node === undefined) return false
  const values = choicesOf(node)
  if (values === undefined) return CALCULATIONS.has(kindOf(node))
  return values.some(isCalculated) && !values.some((value) => kindOf(value) === 'ParamRef')
}

/** Returns the expressions of which one is the value of an expression. undefined: it has a value of its own. */
function choicesOf(node: Node): readonly Node[] | undefined {
  const cast = contentOf(node, 'TypeCast')?.arg
  if (cast !== undefined) return [cast]
  const { args: branches, defresult } = contentOf(node, 'CaseExpr') ?? {}
  if (branches === undefined) {
    return (contentOf(node, 'CoalesceExpr') ?? contentOf(node, 'MinMaxExpr'))?.args
  }
  const results = branches.map((branch) => contentOf(branch, 'CaseWhen')?.result)
  return [...results, defresult].filter((result) => result !== undefined)
}

/** Returns whether a query calculates all values of a column of its result. */
export function calculatesColumn(query: NodeOf<'SelectStmt'> | undefined, index: number): boolean {
  const { valuesLists, targetList = [] } = query ?? {}
  if (valuesLists !== undefined) {
    return valuesLists.every((row) => isCalculated(contentOf(row, 'List')?.items?.[index]))
  }
  const values = targetList.map((target) => contentOf(target, 'ResTarget')?.val)
  // The columns behind a star have other positions.
  const isPlain = !values.some(hasStar)
  return isPlain && isCalculated(values[index])
}
