import type { Node } from 'libpg-query'
import { type Sql, sql } from '../postgres/sql.js'
import { contentOf, kindOf, type NodeOf, namesOf } from './nodes.js'

/*
 * Types of expressions that PostgreSQL does not know, because it sees values as they are stored: an enum as a text, whole
 * numbers of all sizes as int8, and times with their zone. They follow the columns through subqueries and through expressions
 * that keep a type.
 */

export type DeclaredType = EnumType | IntegerType | TimestampType

export interface EnumType {
  readonly kind: 'enum'
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

/** Returns the type that a column is declared with. The names are those of its table, if given, and of the column. */
type FindType = (names: readonly string[]) => DeclaredType | undefined

/** A constant or parameter that takes the type of what is beside it. */
const ANY = 'any'
type Found = DeclaredType | typeof ANY | undefined

/** The types of the expressions of one scope. */
export class DeclaredTypes {
  readonly #find: FindType
  /** Expressions that are nested in each other are asked for one after the other. */
  readonly #known = new Map<Node, Found>()

  constructor(find: FindType) {
    this.#find = find
  }

  /** Returns the declared type of an expression, if it has one. */
  of(node: Node | undefined): DeclaredType | undefined {
    const found = this.#read(node)
    return found === ANY ? undefined : found
  }

  #read(node: Node | undefined): Found {
    if (node === undefined) return undefined
    if (this.#known.has(node)) return this.#known.get(node)
    const kind = kindOf(node)
    const read = READERS[kind] as
      | ((content: unknown, read: Read, find: FindType) => Found)
      | undefined
    const found = read?.(contentOf(node, kind), (inner) => this.#read(inner), this.#find)
    this.#known.set(node, found)
    return found
  }
}

type Read = (node: Node | undefined) => Found
type Readers = {
  readonly [Kind in
    | 'A_Const'
    | 'A_Expr'
    | 'CaseExpr'
    | 'CoalesceExpr'
    | 'ColumnRef'
    | 'FuncCall'
    | 'MinMaxExpr'
    | 'ParamRef'
    | 'TypeCast']: (content: NodeOf<Kind>, read: Read, find: FindType) => Found
}

const READERS: Partial<Record<string, unknown>> = {
  A_Const: ({ ival, isnull, sval }) => {
    if (ival !== undefined) return { kind: 'integer', bits: 32, isKnown: true }
    return isnull || sval !== undefined ? ANY : undefined
  },
  ParamRef: () => ANY,
  ColumnRef: ({ fields }, _read, find) => {
    const names = namesOf(fields)
    return names.includes(undefined) ? undefined : find(names as readonly string[])
  },
  TypeCast: ({ typeName }) => {
    const name = namesOf(typeName?.names).at(-1)
    const bits = (typeName?.arrayBounds ?? []).length === 0 ? INTEGERS.get(name ?? '') : undefined
    return bits && { kind: 'integer', bits, isKnown: true }
  },
  A_Expr: ({ kind, name, lexpr, rexpr }, read) => {
    if (kind === 'AEXPR_NULLIF') return read(lexpr)
    if (kind !== 'AEXPR_OP' || !ARITHMETIC.has(namesOf(name).at(-1) ?? '')) return undefined
    if (isInterval(rexpr)) return timestampOnly(read(lexpr))
    if (isInterval(lexpr)) return timestampOnly(read(rexpr))
    const type = common(lexpr === undefined ? [read(rexpr)] : [read(lexpr), read(rexpr)])
    // What is added to a time is an interval.
    if (namesOf(name).at(-1) === '+' && timestampOnly(type) !== undefined) return type
    return type === ANY || type?.kind === 'integer' ? type : undefined
  },
  CaseExpr: ({ args = [], defresult }, read) =>
    common([
      ...args.map((branch) => read(contentOf(branch, 'CaseWhen')?.result)),
      defresult === undefined ? ANY : read(defresult),
    ]),
  CoalesceExpr: ({ args = [] }, read) => common(args.map(read)),
  MinMaxExpr: ({ args = [] }, read) => common(args.map(read)),
  FuncCall({ funcname, args = [] }, read) {
    const name = namesOf(funcname).at(-1) ?? ''
    // The unit comes first.
    if (name === 'date_trunc') return args.length === 2 ? timestampOnly(read(args[1])) : undefined
    return keepsType(name) ? read(args[0]) : undefined
  },
} satisfies Readers

const timestampOnly = (type: Found): Found =>
  type !== ANY && type?.kind === 'timestamp' ? type : undefined

function isInterval(node: Node | undefined): boolean {
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) return namesOf(cast.typeName?.names).at(-1) === 'interval'
  return namesOf(contentOf(node, 'FuncCall')?.funcname).at(-1) === 'make_interval'
}

const INTEGERS: ReadonlyMap<string, 16 | 32> = new Map([
  ['int2', 16],
  ['int4', 32],
])
const ARITHMETIC: ReadonlySet<string> = new Set(['+', '-', '*', '/', '%'])
/** Functions whose result has the type of their first argument. */
const KEEPING_FUNCTIONS: ReadonlySet<string> = new Set([
  ...['min', 'max', 'abs', 'mod'],
  ...['lag', 'lead', 'first_value', 'last_value', 'nth_value'],
])

/** Returns whether the result of a function has the type of its first argument. */
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

/** Returns the type that the result of a query shows, unless PostgreSQL has it from the query itself. */
export function shownType(type: DeclaredType | undefined): Sql | undefined {
  if (type?.kind === 'timestamp') return sql`pg_catalog.timestamp`
  if (type?.kind !== 'integer' || type.isKnown) return undefined
  return type.bits === 16 ? sql`pg_catalog.int2` : sql`pg_catalog.int4`
}
