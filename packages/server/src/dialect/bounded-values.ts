import type { Node } from 'libpg-query'
import { raw, type Sql, sql } from '../postgres/sql.js'
import { COLLECTED_BYTES_MAX, MADE_BYTES_MAX, VALUE_BYTES_MAX, VALUE_BYTES_MIN } from './allowed.js'
import { tooCostly } from './invalid-sql.js'
import { contentOf, namesOf } from './nodes.js'

/*
 * Limits the sizes of values in a statement. The sizes of constants and parameters are known here. All other
 * values pass through a function in the schema offshoot_sql, which checks them at run time.
 */

/** The number of calls between checks for cancellation. Large statements check more often. */
const PAUSE_EVERY = 16
const PAUSE_EVERY_IN_LARGE = 2
const LARGE_NODES_MIN = 400

/** Returns SQL for the value that fails if it is larger than `bytesMax`. */
export function within(value: Sql, bytesMax: number): Sql {
  return sql`offshoot_sql.within(${value}, ${raw(String(bytesMax))})`
}

/** Returns SQL for the value that counts it towards the values collected by the statement. */
export function collected(value: Sql, bytesMax = COLLECTED_BYTES_MAX): Sql {
  return sql`offshoot_sql.collected(${value}, ${raw(String(bytesMax))}::pg_catalog.int8)`
}

/** Returns the size of a constant or parameter in bytes, or undefined for other values. */
export function knownSize(
  node: Node | undefined,
  parameterSize: (number: number) => number,
): number | undefined {
  const constant = contentOf(node, 'A_Const')
  if (constant !== undefined) {
    const text = constant.sval?.sval ?? constant.fval?.fval ?? ''
    return Buffer.byteLength(text) + zerosOf(text) || 8
  }
  const parameter = contentOf(node, 'ParamRef')
  if (parameter !== undefined) return parameterSize(parameter.number ?? 0)
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) return knownSize(cast.arg, parameterSize)
  const call = contentOf(node, 'FuncCall')
  if (call !== undefined) return escapedSize(namesOf(call.funcname).at(-1), call.args)
  const array = contentOf(node, 'A_ArrayExpr')
  if (array !== undefined) {
    let size = 0
    for (const element of array.elements ?? []) {
      const own = knownSize(element, parameterSize)
      if (own === undefined) return undefined
      size += own + 8
    }
    return size
  }
  return contentOf(node, 'SQLValueFunction') === undefined ? undefined : 8
}

/** Returns the size of the zeros that the exponent of a number stands for. Two digits take a byte. */
function zerosOf(text: string): number {
  const [, exponent = 0] = /^\s*[+-]?[\d._]+e([+-]?[\d_]+)\s*$/i.exec(text) ?? []
  return Math.ceil(Math.abs(Number(String(exponent).replaceAll('_', ''))) / 2)
}

/** Bytes that SIMILAR TO adds around a pattern. */
const ENCLOSING_BYTES = 6

/** Returns the largest size of a pattern of LIKE or SIMILAR TO that is written as a constant, as it is searched. */
function escapedSize(
  name: string | undefined,
  [pattern]: readonly Node[] = [],
): number | undefined {
  const text = contentOf(pattern, 'A_Const')?.sval?.sval
  if (text === undefined) return undefined
  if (name === 'like_escape') return 2 * Buffer.byteLength(text)
  if (name !== 'similar_to_escape') return undefined
  const added = (letters: RegExp, each: number) => (text.match(letters)?.length ?? 0) * each
  return (
    Buffer.byteLength(text) +
    ENCLOSING_BYTES +
    added(/[%.^$\\]/g, 1) +
    added(/\(/g, 2) +
    added(/"/g, 8)
  )
}

export function valueTooLarge(what: string, bytesMax: number) {
  return tooCostly(`${what}: a value of more than ${bytesMax} bytes is not possible here`)
}

/**
 * Counts the calls of an expression, and adds checks for cancellation to expressions with many calls. The count
 * depends on the expression only, because an equal expression in GROUP BY must result in equal SQL.
 */
export class Effort {
  readonly #pauseEvery: number
  /** Maximum size of one value that the statement creates. It is smaller for statements with more calls. */
  readonly valueBytesMax: number
  #depth = 0
  #weight = 0

  constructor(
    { nodeCount, callCount }: { nodeCount: number; callCount: number },
    /** Without pauses, only heavy calls are checked. */
    { pauses = true } = {},
  ) {
    const share = Math.floor(MADE_BYTES_MAX / Math.max(1, callCount))
    this.valueBytesMax = Math.max(VALUE_BYTES_MIN, Math.min(VALUE_BYTES_MAX, share))
    const pauseEvery = nodeCount < LARGE_NODES_MIN ? PAUSE_EVERY : PAUSE_EVERY_IN_LARGE
    this.#pauseEvery = pauses ? pauseEvery : Number.POSITIVE_INFINITY
  }

  /** Writes an expression, or a part of one. */
  inside<Result>(write: () => Result): Result {
    if (this.#depth === 0) this.#weight = 0
    this.#depth++
    try {
      return write()
    } finally {
      this.#depth--
    }
  }

  /** Writes a subquery, whose expressions are counted separately. */
  apart<Result>(write: () => Result): Result {
    const [depth, weight] = [this.#depth, this.#weight]
    this.#depth = 0
    try {
      return write()
    } finally {
      this.#depth = depth
      this.#weight = weight
    }
  }

  /** Counts a call. A heavy call always adds a check for cancellation. */
  count(call: Sql, { isHeavy }: { isHeavy: boolean }): Sql {
    this.#weight += isHeavy ? this.#pauseEvery : 1
    if (this.#weight < this.#pauseEvery) return call
    this.#weight = 0
    return within(call, this.valueBytesMax)
  }
}
