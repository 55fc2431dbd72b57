import type { Node } from 'libpg-query'
import { type Sql, sql } from '../postgres/sql.js'
import { invalidSql } from './invalid-sql.js'
import { contentOf, kindOf, type NodeOf, namesOf } from './nodes.js'

/*
 * Types of expressions that PostgreSQL does not know, because it sees values as they are stored: an enum as a text, whole
 * numbers of all sizes as int8, and times with their zone. They follow the columns through subqueries and through expressions
 * that keep a type.
 */

export type DeclaredType = EnumType | IntegerType | TimestampType

export interface EnumType {
  readonly kind: 'enum'
  readonly name: string
  /** The values, in their order. */
  readonly values: readonly string[]
}

/** A time without its zone. It is stored with it. */
interface TimestampType {
  readonly kind: 'timestamp'
}

interface IntegerType {
  readonly kind: 'integer'
  readonly bits: 16 | 32
  /** PostgreSQL knows the type, too: it has calculated the value, and has not read it. */
  readonly isKnown: boolean
}

/** Knows the types of columns, of named types and of subqueries. */
interface TypeSource {
  /** Returns the type that a column is declared with. The names are those of its table, if given, and of the column. */
  columnType(names: readonly string[]): DeclaredType | undefined
  /** Returns the enum that the name of a type stands for. */
  enumNamed(names: readonly Node[] | undefined): EnumType | undefined
  /** Returns the type that a caller declares for a parameter, as a name of PostgreSQL. undefined: none. */
  parameterType(number: number): string | undefined
  /** Returns the type of the only column of a subquery. */
  queryType(link: NodeOf<'SubLink'>): DeclaredType | undefined
}

/** A constant or parameter that takes the type of what is beside it. */
const ANY = 'any'
/** The declared type of a parameter that is a text where nothing else tells its type. */
export const TEXT = 'text'
type Found = DeclaredType | typeof ANY | undefined

/** The types of the expressions of one scope. */
export class DeclaredTypes {
  readonly #source: TypeSource
  /** Expressions that are nested in each other are asked for one after the other. */
  readonly #known = new Map<Node, Found>()

  constructor(source: TypeSource) {
    this.#source = source
  }

  /** Returns the declared type of an expression, if it has one. */
  of(node: Node | undefined): DeclaredType | undefined {
    return this.ofAll([node])
  }

  /** Returns the type that the values of all of these expressions have. */
  ofAll(nodes: readonly (Node | undefined)[]): DeclaredType | undefined {
    const found = common(nodes.map((node) => this.#read(node)))
    return found === ANY ? undefined : found
  }

  #read(node: Node | undefined): Found {
    if (node === undefined) return undefined
    if (this.#known.has(node)) return this.#known.get(node)
    const kind = kindOf(node)
    const read = READERS[kind] as
      | ((content: unknown, read: Read, source: TypeSource) => Found)
      | undefined
    const found = read?.(contentOf(node, kind), (inner) => this.#read(inner), this.#source)
    this.#known.set(node, found)
    return found
  }
}

type Read = (node: Node | undefined) => Found
type Readers = {
  readonly [Kind in
    | 'A_Const'
    | 'A_Expr'
    | 'A_Indirection'
    | 'CaseExpr'
    | 'CoalesceExpr'
    | 'ColumnRef'
    | 'FuncCall'
    | 'MinMaxExpr'
    | 'ParamRef'
    | 'SubLink'
    | 'TypeCast']?: (content: NodeOf<Kind>, read: Read, source: TypeSource) => Found
}

const READERS: Partial<Record<string, unknown>> = {
  A_Const: ({ ival, isnull, sval }) => {
    if (ival !== undefined) return { kind: 'integer', bits: 32, isKnown: true }
    return isnull || sval !== undefined ? ANY : undefined
  },
  ParamRef({ number = 0 }, _read, source) {
    const name = source.parameterType(number)
    if (name === undefined || name === TEXT) return ANY
    if (name === 'timestamp') return { kind: 'timestamp' }
    const bits = INTEGERS.get(name)
    return bits && { kind: 'integer', bits, isKnown: true }
  },
  ColumnRef: ({ fields }, _read, source) => {
    const names = namesOf(fields)
    return names.includes(undefined) ? undefined : source.columnType(names as readonly string[])
  },
  TypeCast: ({ typeName }, _read, source) => {
    if ((typeName?.arrayBounds ?? []).length > 0) return undefined
    const bits = INTEGERS.get(namesOf(typeName?.names).at(-1) ?? '')
    return bits ? { kind: 'integer', bits, isKnown: true } : source.enumNamed(typeName?.names)
  },
  A_Expr: ({ kind, name, lexpr, rexpr }, read) => {
    if (kind === 'AEXPR_NULLIF') {
      const [left, right] = [read(lexpr), read(rexpr)]
      // Beside a value of a type that is not known here, PostgreSQL finds the type.
      const isFound = left === ANY || left?.kind === 'enum' || right !== undefined
      return isFound ? left : undefined
    }
    if (kind !== 'AEXPR_OP' || !CALCULATIONS.has(namesOf(name).at(-1) ?? '')) return undefined
    const type = common(lexpr === undefined ? [read(rexpr)] : [read(lexpr), read(rexpr)])
    return type === ANY || type?.kind === 'integer' ? type : undefined
  },
  // An element of an array that is made here.
  A_Indirection({ arg, indirection = [] }, read) {
    const isElement = indirection.every((node) => !contentOf(node, 'A_Indices')?.is_slice)
    const call = contentOf(arg, 'FuncCall')
    if (!isElement || namesOf(call?.funcname).at(-1) !== 'array_agg') return undefined
    return read(call?.args?.[0])
  },
  CaseExpr: ({ args = [], defresult }, read) =>
    common([
      ...args.map((branch) => read(contentOf(branch, 'CaseWhen')?.result)),
      defresult === undefined ? ANY : read(defresult),
    ]),
  CoalesceExpr: ({ args = [] }, read) => common(args.map(read)),
  MinMaxExpr: ({ args = [] }, read) => common(args.map(read)),
  SubLink: (link, _read, source) =>
    link.subLinkType === 'EXPR_SUBLINK' ? source.queryType(link) : undefined,
  FuncCall({ funcname, args = [], agg_order = [] }, read) {
    const name = namesOf(funcname).at(-1) ?? ''
    const isNumber = contentOf(args[0], 'A_Const') !== undefined
    if (name === 'mode' || (name === 'percentile_disc' && isNumber)) {
      return read(contentOf(agg_order[0], 'SortBy')?.node)
    }
    if (!keepsType(name)) return undefined
    // The third argument of LAG and LEAD is their result if there is no such row.
    return HAVING_DEFAULT.has(name) && args.length > 2
      ? common([args[0], args[2]].map(read))
      : read(args[0])
  },
} satisfies Readers

const INTEGERS: ReadonlyMap<string, 16 | 32> = new Map([
  ['int2', 16],
  ['int4', 32],
])
/** Operators whose result is a number of the larger size of both. */
const CALCULATIONS: ReadonlySet<string> = new Set(['+', '-', '*', '/', '%', '&', '|', '#', '~'])
/** Functions whose result is one of the values of their first argument. */
const KEEPING_FUNCTIONS: ReadonlySet<string> = new Set([
  ...['min', 'max', 'any_value'],
  ...['lag', 'lead', 'first_value', 'last_value', 'nth_value'],
])

const HAVING_DEFAULT: ReadonlySet<string> = new Set(['lag', 'lead'])

/** Returns whether the result of a function is one of the values of its first argument. */
export const keepsType = (name: string): boolean => KEEPING_FUNCTIONS.has(name)

/** Returns the type that values of all of these types have. */
function common(types: readonly Found[]): Found {
  let found: Found = ANY
  for (const type of types) {
    if (type === ANY) continue
    found = found === ANY ? type : commonOf(found, type)
    if (found === undefined) return undefined
  }
  return found
}

/** Returns the type that values of both types have, such as those of the two queries of a UNION. */
export function commonOf(
  one: DeclaredType | undefined,
  other: DeclaredType | undefined,
): DeclaredType | undefined {
  if (one?.kind === 'integer' && other?.kind === 'integer') {
    return {
      kind: 'integer',
      bits: one.bits > other.bits ? one.bits : other.bits,
      isKnown: one.isKnown && other.isKnown,
    }
  }
  if (one?.kind === 'timestamp' && other?.kind === 'timestamp') return one
  if (one?.kind !== 'enum' || other?.kind !== 'enum') return undefined
  const isSame = one.values.length === other.values.length
  return isSame && one.values.every((value, index) => value === other.values[index])
    ? one
    : undefined
}

const LABELS = new WeakMap<readonly string[], ReadonlySet<string>>()
/** Values that the message about an unknown one lists. */
const LISTED_MAX = 20
/** Characters of the unknown one that it shows. */
const SHOWN_MAX = 100

/** Throws if a text is no value of an enum. */
export function requireValueOf(
  { name, values }: EnumType,
  text: string,
  position?: () => number | undefined,
): void {
  let labels = LABELS.get(values)
  if (labels === undefined) {
    labels = new Set(values)
    LABELS.set(values, labels)
  }
  if (labels.has(text)) return
  const listed = values.slice(0, LISTED_MAX).join(', ')
  const more = values.length > LISTED_MAX ? ', …' : ''
  const shown = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text
  throw invalidSql(
    `invalid input value for enum ${name}: "${shown}"; it has ${listed}${more}`,
    position?.(),
  )
}

/** Returns what is not known to PostgreSQL of a type that the result of a query has shown. */
export function typeOnceShown(type: DeclaredType | undefined): DeclaredType | undefined {
  if (type?.kind === 'integer') return { ...type, isKnown: true }
  return type?.kind === 'timestamp' ? undefined : type
}

/** Returns the type that the result of a query shows, unless PostgreSQL has it from the query itself. */
export function shownType(type: DeclaredType | undefined): Sql | undefined {
  if (type?.kind === 'timestamp') return sql`pg_catalog.timestamp`
  if (type?.kind !== 'integer' || type.isKnown) return undefined
  return type.bits === 16 ? sql`pg_catalog.int2` : sql`pg_catalog.int4`
}
