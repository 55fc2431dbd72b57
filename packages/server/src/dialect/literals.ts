import type { Node } from 'libpg-query'
import { contentOf, type NodeOf, namesOf, visit } from './nodes.js'

/*
 * Many clients write values into the text of a query, which is then another one each time. Such texts have the same pattern:
 * what is left of them without their literals. Literals that are only compared with columns can be parameters instead, so
 * that the query of a pattern is parsed and planned once.
 */

/** The types that PostgreSQL gives to literals. undefined: it finds the type of a quoted text by its context. */
type LiteralType = 'int4' | 'int8' | 'numeric' | undefined

interface Literal {
  /** Where it is in the text, in characters. */
  readonly start: number
  readonly end: number
  readonly type: LiteralType
  readonly value: string
}

export interface TextPattern {
  /** The text, with a mark of its type in the place of each literal. */
  readonly key: string
  readonly literals: readonly Literal[]
}

/** Texts with more literals hardly ever repeat. */
export const LITERALS_MAX = 50
/** A text that has this character itself has no pattern. */
const MARK = '\u0001'
const MARKS = { int4: `${MARK}i`, int8: `${MARK}I`, numeric: `${MARK}n`, text: `${MARK}t` }

/**
 * Quoted texts and names, words, parameters, numbers, and whatever else can be part of a query. Comments, escapes and quotes
 * of other kinds are left out: a text that has them has no pattern.
 */
const TOKEN =
  /'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*|\$\d+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|\s+|[-+*/<>=~!@#%^&|?:;,.()[\]{}]/y
const COMMENT_OR_ESCAPE = /--|\/\*|[uU]&['"]/
/** Characters that cannot follow a number or a parameter. */
const WORD_CHARACTER = /[\w$.\u0080-\uffff]/

/** Returns the pattern of a text. undefined: it has no literals, or what it has is not known to be one. */
export function patternOf(text: string): TextPattern | undefined {
  if (COMMENT_OR_ESCAPE.test(text) || text.includes(MARK)) return undefined
  const literals: Literal[] = []
  let key = ''
  let keptTo = 0
  let isBehindWord = false
  let isBehindText = false
  for (let at = 0; at < text.length; ) {
    TOKEN.lastIndex = at
    const token = TOKEN.exec(text)?.[0]
    if (token === undefined) return undefined
    const end = at + token.length
    const first = token[0] ?? ''
    const isText = first === "'"
    // A word before a quote changes what the quoted text means, and quoted texts can be parts of one.
    if (isText && (isBehindWord || isBehindText)) return undefined
    const isNumber = !isText && isNumeric(token)
    const isParameter = first === '$'
    if ((isNumber || isParameter) && WORD_CHARACTER.test(text[end] ?? '')) return undefined
    if (isText || isNumber) {
      if (literals.length === LITERALS_MAX) return undefined
      const literal = isText ? textLiteral(token) : numberLiteral(token)
      literals.push({ ...literal, start: at, end })
      key += text.slice(keptTo, at) + MARKS[literal.type ?? 'text']
      keptTo = end
    }
    isBehindWord = !isText && !isNumber && !isParameter && WORD_CHARACTER.test(first)
    isBehindText = isText || (isBehindText && /\s/.test(first))
    at = end
  }
  if (literals.length === 0) return undefined
  return { key: key + text.slice(keptTo), literals }
}

const isNumeric = (token: string): boolean => /^\.?\d/.test(token)

function textLiteral(token: string): Pick<Literal, 'type' | 'value'> {
  const value = token.slice(1, -1)
  return { type: undefined, value: value.includes("'") ? value.replaceAll("''", "'") : value }
}

/** Integers of so many digits are no larger than the type allows. */
const [INT4_DIGITS, INT8_DIGITS] = [9, 18]
const [INT4_MAX, INT8_MAX] = [2n ** 31n - 1n, 2n ** 63n - 1n]

function numberLiteral(value: string): Pick<Literal, 'type' | 'value'> {
  if (!/^\d+$/.test(value)) return { type: 'numeric', value }
  const isUpTo = (digits: number, max: bigint) =>
    value.length <= digits || (value.length <= digits + 1 && BigInt(value) <= max)
  if (isUpTo(INT4_DIGITS, INT4_MAX)) return { type: 'int4', value }
  return { type: isUpTo(INT8_DIGITS, INT8_MAX) ? 'int8' : 'numeric', value }
}

/**
 * Returns the positions of the literals that can be parameters: those that a condition of WHERE compares with a column. Others
 * may have to be equal in several places, or name a column by its number.
 */
export function findParameters(node: Node, text: string, { literals }: TextPattern): number[] {
  const compared = new Map<number, NodeOf<'A_Const'>>()
  visit(node, (name, content) => {
    if (name !== 'whereClause') return
    for (const constant of constantsIn(content as Node)) {
      compared.set(constant.location ?? 0, constant)
    }
  })
  const bytesBefore = (end: number) => Buffer.byteLength(text.slice(0, end))
  return literals.flatMap((literal, position) => {
    const constant = compared.get(bytesBefore(literal.start))
    return constant !== undefined && isSame(constant, literal) ? [position] : []
  })
}

/** Writes a text with parameters in the place of some of its literals. `from` is the number of the first one. */
export function withParameters(
  text: string,
  { literals }: TextPattern,
  { positions, from }: { positions: readonly number[]; from: number },
): string {
  let written = ''
  let keptTo = 0
  for (const [index, position] of positions.entries()) {
    const { start = 0, end = 0 } = literals[position] ?? {}
    written += `${text.slice(keptTo, start)}$${from + index} `
    keptTo = end
  }
  return written + text.slice(keptTo)
}

const COMPARISONS = new Set(['=', '<>', '!=', '<', '<=', '>', '>='])

/** Returns the constants that conditions compare with columns. */
function constantsIn(condition: Node | undefined): NodeOf<'A_Const'>[] {
  const joined = contentOf(condition, 'BoolExpr')
  if (joined !== undefined) return (joined.args ?? []).flatMap(constantsIn)
  const { kind, name, lexpr, rexpr } = contentOf(condition, 'A_Expr') ?? {}
  const isComparison = COMPARISONS.has(namesOf(name).join('.'))
  if (kind === 'AEXPR_OP' && isComparison) {
    if (isColumn(lexpr)) return constantOf(rexpr)
    return isColumn(rexpr) ? constantOf(lexpr) : []
  }
  const isList = (kind === 'AEXPR_IN' && isComparison) || kind === 'AEXPR_BETWEEN'
  if (!isList || !isColumn(lexpr)) return []
  return (contentOf(rexpr, 'List')?.items ?? []).flatMap(constantOf)
}

const isColumn = (node: Node | undefined) => contentOf(node, 'ColumnRef') !== undefined

/** Returns a constant, also one with a cast behind it. */
function constantOf(node: Node | undefined): NodeOf<'A_Const'>[] {
  const cast = contentOf(node, 'TypeCast')
  if (cast === undefined) return [contentOf(node, 'A_Const')].filter((each) => each !== undefined)
  const constant = contentOf(cast.arg, 'A_Const')
  // A type that comes first can only have a constant.
  if ((cast.typeName?.location ?? 0) < (constant?.location ?? 0)) return []
  return constant === undefined ? [] : [constant]
}

/** Returns whether a constant of the parser is a literal that was found in the text. */
function isSame(constant: NodeOf<'A_Const'>, { type, value }: Literal): boolean {
  const { sval, ival, fval } = constant
  if (type === undefined) return sval !== undefined && (sval.sval ?? '') === value
  if (type === 'int4') return ival !== undefined && (ival.ival ?? 0) === Number(value)
  return fval !== undefined && fval.fval === value
}
