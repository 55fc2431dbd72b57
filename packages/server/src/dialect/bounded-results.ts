import type { Node } from 'libpg-query'
import { contentOf, namesOf } from './nodes.js'

/*
 * The largest sizes of values that an expression over typed columns calculates. A value of known size needs no check when
 * the expression is evaluated.
 */

/** The size of a number, time or UUID that is not a `numeric`. */
const FIXED_BYTES = 16
/** What an operation adds to the size of a number: digits of a sum, or of a fraction. */
const ADDED_BYTES = 32

const FIXED_TYPES: ReadonlySet<string | undefined> = new Set(
  `bool int2 int4 int8 float4 float8 date time timetz timestamp timestamptz interval uuid`.split(
    ' ',
  ),
)
/** Functions whose results are small, whatever their arguments are. */
const FIXED_FUNCTIONS: ReadonlySet<string | undefined> = new Set(
  `age array_length array_position ascii bit_length cardinality char_length character_length date_part date_trunc extract
  length make_date make_interval make_time make_timestamp octet_length position sign strpos to_date`.split(
    /\s+/,
  ),
)
/** Functions whose result is no larger than their arguments together. */
const KEEPING_FUNCTIONS: ReadonlySet<string | undefined> = new Set(
  `abs ceil ceiling div floor gcd greatest lcm least ln log log10 mod nullif sqrt`.split(' '),
)
/** Functions whose result has as many digits after the point as the second argument says, up to a number. */
const SCALING_FUNCTIONS: ReadonlySet<string | undefined> = new Set(['round', 'trunc'])
const SCALE_MAX = 2000
/** Larger powers have results of unknown size. */
const EXPONENT_MAX = 100
const ARITHMETIC: ReadonlySet<string | undefined> = new Set(['+', '-', '*', '/', '%', '||'])

/** Returns the size of the values of an expression, or undefined. `sizeOf` knows those of columns and constants. */
export function boundOfResult(
  node: Node | undefined,
  sizeOf: (node: Node) => number | undefined,
): number | undefined {
  if (node === undefined) return 0
  const known = sizeOf(node)
  if (known !== undefined) return known
  const inner = (each: Node | undefined) => boundOfResult(each, sizeOf)
  const all = (nodes: readonly (Node | undefined)[]) => {
    let size = 0
    for (const each of nodes) {
      const own = inner(each)
      if (own === undefined) return undefined
      size += own
    }
    return size
  }
  const operation = contentOf(node, 'A_Expr')
  if (operation !== undefined) {
    const { kind, name, lexpr, rexpr } = operation
    if (kind === 'AEXPR_NULLIF') return inner(lexpr)
    const operator = namesOf(name).at(-1)
    if (kind !== 'AEXPR_OP') return undefined
    if (operator === '^') return boundOfPower([lexpr, rexpr], inner)
    if (!ARITHMETIC.has(operator)) return undefined
    const [left, right] = [inner(lexpr), inner(rexpr)]
    if (left === undefined || right === undefined) return undefined
    const isSum = operator === '+' || operator === '-'
    return (isSum ? Math.max(left, right) : left + right) + ADDED_BYTES
  }
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) {
    const isFixed = FIXED_TYPES.has(namesOf(cast.typeName?.names).at(-1))
    return isFixed && cast.typeName?.arrayBounds === undefined ? FIXED_BYTES : inner(cast.arg)
  }
  const call = contentOf(node, 'FuncCall')
  if (call !== undefined) {
    const name = namesOf(call.funcname).at(-1)
    if (FIXED_FUNCTIONS.has(name)) return FIXED_BYTES
    if (name === 'power') return boundOfPower(call.args ?? [], inner)
    if (SCALING_FUNCTIONS.has(name)) return boundOfScaled(call.args ?? [], inner)
    const size = KEEPING_FUNCTIONS.has(name) ? all(call.args ?? []) : undefined
    return size === undefined ? undefined : size + ADDED_BYTES
  }
  const choice = contentOf(node, 'CoalesceExpr') ?? contentOf(node, 'MinMaxExpr')
  if (choice !== undefined) return all(choice.args ?? [])
  const branches = contentOf(node, 'CaseExpr')
  if (branches === undefined) return undefined
  const results = (branches.args ?? []).map((each) => contentOf(each, 'CaseWhen')?.result)
  return all([...results, branches.defresult])
}

/** Functions whose result is a text of letters of their first argument. */
const LETTER_FUNCTIONS: ReadonlySet<string | undefined> = new Set(
  // Other letters of the same text are at most three times as large, however often the case changes.
  `btrim initcap left lower ltrim reverse right rtrim split_part substr substring upper`.split(' '),
)
const TEXT_TYPES: ReadonlySet<string | undefined> = new Set(['text', 'varchar', 'bpchar'])
/** The size of a number, time or UUID as a text, apart from digits of a `numeric`. */
const FIXED_TEXT_BYTES = 64

/** How large values are that a text is made of. */
interface TextSizes {
  /** Returns the largest size of a column or constant that is a text, or undefined. */
  ofText(node: Node): number | undefined
  /** Returns the largest size of the value of an expression that is a number, time or UUID, or undefined. */
  ofOther(node: Node): number | undefined
}

/** Returns the largest size of the texts that an expression calculates, or undefined. */
export function boundOfText(node: Node | undefined, sizes: TextSizes): number | undefined {
  if (node === undefined) return undefined
  const known = sizes.ofText(node)
  if (known !== undefined) return known
  const inner = (each: Node | undefined) => boundOfText(each, sizes)
  const collation = contentOf(node, 'CollateClause')
  if (collation !== undefined) return inner(collation.arg)
  const call = contentOf(node, 'FuncCall')
  if (call !== undefined) return boundOfTextCall(namesOf(call.funcname).at(-1), call.args, inner)
  const { kind, name, lexpr, rexpr } = contentOf(node, 'A_Expr') ?? {}
  if (kind === 'AEXPR_NULLIF') return inner(lexpr)
  if (kind === 'AEXPR_OP' && namesOf(name).at(-1) === '||') return sumOf([lexpr, rexpr].map(inner))
  const choice = contentOf(node, 'CoalesceExpr') ?? contentOf(node, 'MinMaxExpr')
  if (choice !== undefined) return largestOf((choice.args ?? []).map(inner))
  const branches = contentOf(node, 'CaseExpr')
  if (branches !== undefined) {
    const results = (branches.args ?? []).map((each) => contentOf(each, 'CaseWhen')?.result)
    const { defresult } = branches
    return largestOf([...results, ...(defresult === undefined ? [] : [defresult])].map(inner))
  }
  const { typeName, arg } = contentOf(node, 'TypeCast') ?? {}
  const isText = TEXT_TYPES.has(namesOf(typeName?.names).at(-1))
  if (arg === undefined || !isText || typeName?.arrayBounds !== undefined) return undefined
  const size = sizes.ofOther(arg)
  // Two digits of a number take a byte.
  return size === undefined ? inner(arg) : 2 * size + FIXED_TEXT_BYTES
}

/** Returns the largest size of the text that a function returns, or undefined. */
function boundOfTextCall(
  name: string | undefined,
  args: readonly Node[] = [],
  boundOf: (node: Node | undefined) => number | undefined,
): number | undefined {
  const [text, second, third] = args
  if (LETTER_FUNCTIONS.has(name)) return boundOf(text)
  if (name === 'concat' || name === 'concat_ws') {
    const size = sumOf(args.map(boundOf))
    const separators = name === 'concat' ? 0 : args.length * (boundOf(text) ?? 0)
    return size === undefined ? undefined : size + separators
  }
  const size = boundOf(text)
  const [found, made] = [second, third].map(textOfConstant)
  if (size === undefined || made === undefined) return undefined
  const bytes = Buffer.byteLength(made)
  if (name === 'replace') {
    // Each part of the text that is replaced is as long as the constant.
    const each = Math.max(1, Buffer.byteLength(found ?? ''))
    return Math.ceil(size * Math.max(1, bytes / each))
  }
  // A pattern can match at each place, also nothing there. A backslash would repeat what it has matched.
  const isRepeated = made.includes('\\')
  if (name === 'regexp_replace' && !isRepeated) return size + (size + 1) * bytes
  // Another letter takes up to four bytes.
  return name === 'translate' ? size * (/^[\0-\x7f]*$/.test(made) ? 1 : 4) : undefined
}

function sumOf(sizes: readonly (number | undefined)[]): number | undefined {
  return sizes.reduce<number | undefined>(
    (sum, size) => (sum === undefined || size === undefined ? undefined : sum + size),
    0,
  )
}

function largestOf(sizes: readonly (number | undefined)[]): number | undefined {
  return sizes.reduce<number | undefined>(
    (largest, size) =>
      largest === undefined || size === undefined ? undefined : Math.max(largest, size),
    0,
  )
}

/** Returns the text that is written as a constant. */
function textOfConstant(node: Node | undefined): string | undefined {
  const { sval } = contentOf(node, 'A_Const') ?? {}
  return sval === undefined ? undefined : (sval.sval ?? '')
}

function boundOfScaled(
  [value, ...scales]: readonly (Node | undefined)[],
  boundOf: (node: Node | undefined) => number | undefined,
): number | undefined {
  const size = boundOf(value)
  const digits = scales.map((scale) => {
    const count = Math.abs(numberOf(scale))
    return count <= SCALE_MAX ? count : SCALE_MAX
  })
  // Two digits take a byte.
  return size === undefined ? undefined : size + (digits[0] ?? 0) / 2 + ADDED_BYTES
}

/** A power has as many digits as its base, times the exponent. */
function boundOfPower(
  [base, exponent]: readonly (Node | undefined)[],
  boundOf: (node: Node | undefined) => number | undefined,
): number | undefined {
  const size = boundOf(base)
  const times = Math.ceil(Math.abs(numberOf(exponent)))
  return size === undefined || !(times <= EXPONENT_MAX)
    ? undefined
    : size * (times + 1) + ADDED_BYTES
}

/** Returns the number that is written as a constant. */
function numberOf(node: Node | undefined): number {
  const { name, lexpr, rexpr } = contentOf(node, 'A_Expr') ?? {}
  if (lexpr === undefined && namesOf(name).at(-1) === '-') return -numberOf(rexpr)
  const { ival, fval } = contentOf(node, 'A_Const') ?? {}
  if (ival !== undefined) return ival.ival ?? 0
  return fval === undefined ? Number.NaN : Number(fval.fval)
}
