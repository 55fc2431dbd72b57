import type { Node } from 'libpg-query'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { contentOf, namesOf } from '../../dialect/nodes.js'

/** A call of `setval`, as the only column of a query. */
export interface SetvalCall {
  /** The name of the sequence. */
  readonly sequence: string
  /** The number, and whether it is taken. */
  readonly targets: readonly [Node, Node]
}

/** Returns the call of a query that sets a sequence, as dumps and the tools of Django and Rails do. */
export function readSetval(node: Node): SetvalCall | undefined {
  const [target, ...others] = contentOf(node, 'SelectStmt')?.targetList ?? []
  const call = contentOf(contentOf(target, 'ResTarget')?.val, 'FuncCall')
  const names = namesOf(call?.funcname)
  const isCall = names.at(-1) === 'setval' && (names.length === 1 || names[0] === 'pg_catalog')
  if (!isCall) return undefined
  const [sequence, number, taken = { A_Const: { boolval: { boolval: true } } }, ...more] =
    call?.args ?? []
  if (number === undefined || more.length > 0 || others.length > 0) {
    throw invalidSql('setval: expected the only column of a query, with a sequence and a number')
  }
  return { sequence: sequenceOf(sequence), targets: [number, taken] }
}

/** Returns the name of a sequence: that of a constant, or the one that `pg_get_serial_sequence` would find. */
function sequenceOf(node: Node | undefined): string {
  const call = contentOf(node, 'FuncCall')
  if (namesOf(call?.funcname).at(-1) === 'pg_get_serial_sequence') {
    const [table, column] = (call?.args ?? []).map(textOf)
    if (table !== undefined && column !== undefined) return `${plainName(table)}_${column}_seq`
  }
  const name = textOf(node)
  if (name === undefined) throw invalidSql('the name of the sequence must be a constant')
  return plainName(name)
}

/** Returns the sequence of a call of `nextval`. */
export function readNextval(node: Node | undefined): string | undefined {
  const call = contentOf(node, 'FuncCall')
  const names = namesOf(call?.funcname)
  const isCall = names.at(-1) === 'nextval' && (names.length === 1 || names[0] === 'pg_catalog')
  return isCall && call?.args?.length === 1 ? sequenceOf(call.args[0]) : undefined
}

/** Returns the sequence of a query that does nothing but to take its next number, and the name of its column. */
export function readNextNumber(
  node: Node,
): { readonly sequence: string; readonly name: string } | undefined {
  const { targetList = [], limitOption: _, op: __, ...rest } = contentOf(node, 'SelectStmt') ?? {}
  const [target, ...others] = targetList
  if (others.length > 0 || Object.values(rest).some((each) => each !== undefined)) return undefined
  const { name = 'nextval', val } = contentOf(target, 'ResTarget') ?? {}
  const sequence = readNextval(val)
  return sequence === undefined ? undefined : { sequence, name }
}

function textOf(node: Node | undefined): string | undefined {
  const constant = contentOf(node, 'TypeCast')?.arg ?? node
  return contentOf(constant, 'A_Const')?.sval?.sval
}

const NAME = /^\s*(?:(?:"?public"?)\s*\.\s*)?(?:"((?:[^"]|"")+)"|([^".\s]+))\s*$/i

/** Returns a name as the parser reads it, without its schema. */
function plainName(text: string): string {
  const [found, quoted, plain] = NAME.exec(text) ?? []
  if (found === undefined) throw invalidSql(`sequence [${text}] not found`)
  return quoted?.replaceAll('""', '"') ?? plain?.toLowerCase() ?? text
}
