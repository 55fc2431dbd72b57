import type { Node } from 'libpg-query'
import { type Sql, sql } from '../../postgres/sql.js'
import { contentOf, type NodeOf } from '../nodes.js'
import type { ExpressionWriter } from './expression-writer.js'

/*
 * Columns of texts have the collation "C", which knows the letters of ASCII only. What depends on letters, such as UPPER and ILIKE,
 * looks at texts with the collation of the database instead. A text that it returns has "C" again: it is compared and sorted
 * like a column, by its index if there is one.
 */

/** Functions that depend on letters, with the number of their arguments that are texts. */
const FUNCTIONS: ReadonlyMap<string, number> = new Map([
  ['upper', 1],
  ['lower', 1],
  ['initcap', 1],
  ['regexp_count', 2],
  ['regexp_instr', 2],
  ['regexp_like', 2],
  ['regexp_match', 2],
  ['regexp_matches', 2],
  ['regexp_replace', 3],
  ['regexp_split_to_array', 2],
  ['regexp_split_to_table', 2],
  ['regexp_substr', 2],
  ['substring', 2],
])

/** Those of them that return texts. */
const RETURNS_TEXT: ReadonlySet<string> = new Set([
  ...['upper', 'lower', 'initcap', 'substring'],
  ...['regexp_replace', 'regexp_substr', 'regexp_match', 'regexp_matches'],
  ...['regexp_split_to_array', 'regexp_split_to_table'],
])

/** Operators that depend on letters. */
const OPERATORS: ReadonlySet<string> = new Set(['~', '!~', '~*', '!~*', '~~*', '!~~*'])

/** Functions that return the bounds of ranges, too. */
const BOUNDS: ReadonlySet<string> = new Set(['upper', 'lower'])

/** Writes a text in the collation of the database. */
type WriteLetters = (value: Sql, index: number) => Sql

/** Returns how the arguments of a call are written, if it depends on letters that "C" does not know. */
export function lettersOfCall(
  writer: ExpressionWriter,
  name: string,
  { args = [] }: NodeOf<'FuncCall'>,
): WriteLetters | undefined {
  const count = FUNCTIONS.get(name)
  if (count === undefined || (BOUNDS.has(name) && writer.context.hasRanges)) return undefined
  // Of bytes, or of a text from a position on.
  if (name === 'substring' && !isPattern(args[1])) return undefined
  return lettersOf(writer, args.slice(0, count))
}

/** Returns how the operands of an operator are written, if it depends on letters that "C" does not know. */
export function lettersOfOperator(
  writer: ExpressionWriter,
  operator: string,
  operands: readonly (Node | undefined)[],
): WriteLetters | undefined {
  if (!OPERATORS.has(operator)) return undefined
  const pattern = contentOf(operands[1], 'A_Const')?.sval?.sval
  // Such a pattern finds the same in all collations, and can use the index of a column.
  const isPlain = !operator.endsWith('*') && pattern !== undefined && /^[^\\[(*]*$/.test(pattern)
  return isPlain ? undefined : lettersOf(writer, operands)
}

/** Writes the result of a call with the collation of columns. */
export function inColumnCollation(name: string, value: Sql): Sql {
  return RETURNS_TEXT.has(name) ? sql`(${value} collate pg_catalog."C")` : value
}

function lettersOf(
  writer: ExpressionWriter,
  nodes: readonly (Node | undefined)[],
): WriteLetters | undefined {
  const isChosen = nodes.some((node) => contentOf(node, 'CollateClause') !== undefined)
  if (isChosen || nodes.every(isConstant)) return undefined
  // PostgreSQL refuses other types by their names.
  const isOther = (node: Node | undefined) => {
    const kind = writer.declaredType(node)?.kind
    return !isConstant(node) && kind !== undefined && kind !== 'enum'
  }
  if (nodes.some(isOther)) return undefined
  return (value, index) => {
    const node = nodes[index]
    const isText = index < nodes.length && !isConstant(node)
    const isNamed = contentOf(node, 'NamedArgExpr') !== undefined
    return isText && !isNamed ? sql`(${value} collate pg_catalog."default")` : value
  }
}

function isConstant(node: Node | undefined): boolean {
  const value = contentOf(node, 'TypeCast')?.arg ?? node
  return contentOf(value, 'A_Const') !== undefined || contentOf(value, 'ParamRef') !== undefined
}

/** Returns whether the second argument of SUBSTRING is a pattern. */
function isPattern(node: Node | undefined): boolean {
  const { sval } = contentOf(node, 'A_Const') ?? {}
  const escaped = contentOf(node, 'FuncCall') !== undefined
  return sval !== undefined || contentOf(node, 'ParamRef') !== undefined || escaped
}
