import type { Node } from 'libpg-query'
import { DEFINED_ROW_FUNCTIONS, ROW_FUNCTIONS } from '../../../dialect/allowed.js'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { catalogueName, contentOf, type NodeOf } from '../../../dialect/nodes.js'

/*
 * SET and RETURNING have one value for each record. Their expressions are written into queries, which could return other
 * numbers of rows.
 */

type PositionOf = (location: number | undefined) => number | undefined

/** Throws if an expression of a statement that writes could return no row, or several of them. */
export function requireSingleRows(node: Node, positionOf: PositionOf): void {
  const insert = contentOf(node, 'InsertStmt')
  const update = contentOf(node, 'UpdateStmt')
  const conflict = insert?.onConflictClause
  const written = insert ?? update ?? contentOf(node, 'DeleteStmt')
  const set = [...(update?.targetList ?? []), ...(conflict?.targetList ?? [])]
  const returned = written?.returningClause?.exprs ?? []
  for (const [clause, nodes] of [
    ['UPDATE', set],
    ['RETURNING', returned],
  ] as const) {
    for (const { over, funcname, location } of listCalls(nodes)) {
      const name = catalogueName(funcname) ?? ''
      const returnsRows = ROW_FUNCTIONS.has(name) || DEFINED_ROW_FUNCTIONS.has(name)
      if (over === undefined && !returnsRows) continue
      const kind = over === undefined ? 'set-returning' : 'window'
      throw invalidSql(`${kind} functions are not allowed in ${clause}`, positionOf(location))
    }
  }
}

/** Lists the calls of expressions, but for those of their subqueries. */
function listCalls(root: unknown): NodeOf<'FuncCall'>[] {
  const found: NodeOf<'FuncCall'>[] = []
  const waiting: unknown[] = [root]
  while (waiting.length > 0) {
    const value = waiting.pop()
    if (typeof value !== 'object' || value === null) continue
    const call = contentOf(value as Node, 'FuncCall')
    if (call !== undefined) found.push(call)
    if (contentOf(value as Node, 'SelectStmt') === undefined) waiting.push(...Object.values(value))
  }
  return found
}
