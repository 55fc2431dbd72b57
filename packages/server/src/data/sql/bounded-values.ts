import type { Node } from 'libpg-query'
import { raw, type Sql, sql } from '../../postgres/sql.js'
import { COLLECTED_BYTES_MAX, MADE_BYTES_MAX, VALUE_BYTES_MAX, VALUE_BYTES_MIN } from './allowed.js'
import { contentOf } from './nodes.js'
import { tooCostly } from './sql-fault.js'

/*
 * How values of a statement are kept within limits. The size of what stands in the statement, or is a
 * parameter, is known here; everything else goes through a function of ours in PostgreSQL.
 */

/** Calls after which a statement looks for a cancellation; large statements do so more often. */
const PAUSE_EVERY = 16
const PAUSE_EVERY_IN_LARGE = 2
const LARGE_NODES_MIN = 400

/** The value, or a failure when it is larger. */
export function within(value: Sql, bytesMax: number): Sql {
  return sql`offshoot_sql.within(${value}, ${raw(String(bytesMax))})`
}

/** The value, which the statement keeps. */
export function collected(value: Sql): Sql {
  return sql`offshoot_sql.collected(${value}, ${raw(String(COLLECTED_BYTES_MAX))}::pg_catalog.int8)`
}

/** Bytes of a value that is known before the statement runs. */
export function knownSize(
  node: Node | undefined,
  parameterSize: (number: number) => number,
): number | undefined {
  const constant = contentOf(node, 'A_Const')
  if (constant !== undefined) {
    return Buffer.byteLength(constant.sval?.sval ?? constant.fval?.fval ?? '') || 8
  }
  const parameter = contentOf(node, 'ParamRef')
  if (parameter !== undefined) return parameterSize(parameter.number ?? 0)
  const cast = contentOf(node, 'TypeCast')
  if (cast !== undefined) return knownSize(cast.arg, parameterSize)
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

export function valueTooLarge(what: string, bytesMax: number) {
  return tooCostly(`${what}: a value of more than ${bytesMax} bytes is not possible here`)
}

/**
 * Counts calls of one expression, so that those of many look for a cancellation in between. What is
 * counted depends on the expression alone: the same one in GROUP BY must be written alike.
 */
export class Effort {
  readonly #pauseEvery: number
  /** Bytes of one value that the statement makes: the more calls it has, the less. */
  readonly valueBytesMax: number
  #depth = 0
  #weight = 0

  constructor({ nodeCount, callCount }: { nodeCount: number; callCount: number }) {
    const share = Math.floor(MADE_BYTES_MAX / Math.max(1, callCount))
    this.valueBytesMax = Math.max(VALUE_BYTES_MIN, Math.min(VALUE_BYTES_MAX, share))
    this.#pauseEvery = nodeCount < LARGE_NODES_MIN ? PAUSE_EVERY : PAUSE_EVERY_IN_LARGE
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

  /** Writes a query inside of an expression, whose expressions are their own. */
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

  /** A call; a heavy one is as many as it takes for a pause. */
  count(call: Sql, { isHeavy }: { isHeavy: boolean }): Sql {
    this.#weight += isHeavy ? this.#pauseEvery : 1
    if (this.#weight < this.#pauseEvery) return call
    this.#weight = 0
    return within(call, this.valueBytesMax)
  }
}
