import type { IntBits } from '@offshoot/contract/schema'
import { raw, type Sql, sql } from '../../postgres/sql.js'

/** The whole numbers that a column, or the ids of a table, can have. */
export interface WholeRange {
  readonly min: number
  readonly max: number
}

/** Beyond this range, JSON parsers round whole numbers. */
const EXACT: WholeRange = { min: -Number.MAX_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER }
const OF_BITS: Readonly<Record<IntBits, WholeRange>> = {
  16: { min: -(2 ** 15), max: 2 ** 15 - 1 },
  32: { min: -(2 ** 31), max: 2 ** 31 - 1 },
}

export function wholeRange(bits: IntBits | undefined): WholeRange {
  return bits === undefined ? EXACT : OF_BITS[bits]
}

/**
 * Returns the greatest number after which a sequence goes on, of those that it may give: the lower half. It never comes near
 * greater ones, and one of them would use up all others.
 */
export const followedMax = (max: number): number => (max + 1) / 2

/** Returns whether a sequence goes on after a number that is given. */
export function isFollowed(number: unknown, max: number): number is number {
  return Number.isSafeInteger(number) && (number as number) <= followedMax(max)
}

export function rangeWords({ min, max }: WholeRange): string {
  return `between ${min} and ${max}`
}

export function isInRange(value: number, { min, max }: WholeRange): boolean {
  return Number.isSafeInteger(value) && value >= min && value <= max
}

/** Returns the condition that a number is in a range. */
export function inRangeSql(value: Sql, { min, max }: WholeRange): Sql {
  return sql`${value} between ${raw(String(min))} and ${raw(String(max))}`
}

const STORED_NUMBER = sql`'^-?[0-9]{1,16}$'`

/** Returns the condition that an id, which is stored as a text, is in a range. It has no result for null. */
export function idInRangeSql(id: Sql, bits: IntBits): Sql {
  // PostgreSQL may reorder the conditions of one `and`.
  return sql`case when ${id} ~ ${STORED_NUMBER} then ${inRangeSql(sql`(${id})::bigint`, wholeRange(bits))}
    when ${id} is not null then false end`
}

/** Whether a size allows fewer numbers than another one. */
export function isFewerBits(before: IntBits | undefined, after: IntBits | undefined): boolean {
  return wholeRange(after).max < wholeRange(before).max
}
