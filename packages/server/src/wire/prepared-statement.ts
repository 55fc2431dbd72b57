import type { Node } from 'libpg-query'
import { contentOf, namesOf } from '../dialect/nodes.js'
import { readParentheses, readRest } from '../dialect/source-text.js'
import { typeIdOf } from './values.js'
import { WireError } from './wire-error.js'

/** What a PREPARE or EXECUTE does. */
export type PreparedPlan =
  | {
      readonly kind: 'prepare'
      readonly name: string
      readonly text: string
      /** The oids of the types that the statement declares; 0 if PostgreSQL infers them. */
      readonly declaredIds: readonly number[]
    }
  | {
      readonly kind: 'execute'
      readonly name: string
      /** A query for the values. undefined: there are none. */
      readonly values: string | undefined
    }

/** Returns what a PREPARE or EXECUTE does. `text` is the statement. */
export function planPrepared(node: Node, text: string): PreparedPlan {
  const execute = contentOf(node, 'ExecuteStmt')
  if (execute !== undefined) {
    const given = readParentheses(text, { from: 0, after: 'execute' })
    const values = execute.params === undefined ? undefined : `select ${given}`
    return { kind: 'execute', name: execute.name ?? '', values }
  }
  const { name = '', argtypes = [] } = contentOf(node, 'PrepareStmt') ?? {}
  const inner = readRest(text, { from: 0, after: 'as' })
  if (inner === undefined) throw new WireError('42601', 'syntax error in PREPARE')
  return { kind: 'prepare', name, text: inner, declaredIds: argtypes.map(idOf) }
}

function idOf(node: Node): number {
  const { names, arrayBounds } = contentOf(node, 'TypeName') ?? {}
  return typeIdOf(namesOf(names).at(-1) ?? '', { isArray: arrayBounds !== undefined })
}
