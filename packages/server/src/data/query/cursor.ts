import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { queryFault } from './query-fault.js'

/** A boundary in the order of a query, next to a record. */
export interface Position {
  /** What the record is sorted by, as PostgreSQL writes it. */
  readonly keys: readonly (string | null)[]
  readonly id: string
  /** The record itself is on the side that is asked for. */
  readonly isInclusive?: boolean
}

/** A query and a place in it. Whoever holds the cursor can go on from there, and back. */
export interface Cursor {
  readonly filter: unknown
  readonly sort: unknown
  readonly columns: unknown
  readonly size: number
  /** Keeps an order by chance the same from page to page. */
  readonly seed: number
  /** What comes before the page that the cursor came with ends here; undefined: nowhere. */
  readonly first?: Position
  /** What comes after it starts here; undefined: from the beginning. */
  readonly last?: Position
}

/** More than the largest request could make of it. */
const TEXT_LENGTH_MAX = 64 * 1024 * 1024

/** Compressing takes longer than most queries, so only what would be long is compressed. */
const PLAIN_LENGTH_MAX = 1024

/** What the text starts with tells how it goes on. */
const PLAIN = 'p'
const COMPRESSED = 'c'

export function writeCursor(cursor: Cursor): string {
  const json = JSON.stringify(cursor)
  return json.length <= PLAIN_LENGTH_MAX
    ? `${PLAIN}${Buffer.from(json).toString('base64url')}`
    : `${COMPRESSED}${deflateRawSync(json).toString('base64url')}`
}

/** Cursors come from clients; one that is not ours is refused like any other bad input. */
export function readCursor(text: string): Cursor {
  try {
    const cursor: unknown = JSON.parse(readText(text))
    if (isCursor(cursor)) return cursor
  } catch {
    // Told below.
  }
  throw invalidCursor()
}

function readText(text: string): string {
  const bytes = Buffer.from(text.slice(1), 'base64url')
  if (text.startsWith(PLAIN)) return bytes.toString()
  if (!text.startsWith(COMPRESSED)) return ''
  return inflateRawSync(bytes, { maxOutputLength: TEXT_LENGTH_MAX }).toString()
}

export function invalidCursor() {
  return queryFault('page: invalid cursor')
}

/** The same boundary, seen from its other side. */
export function otherSide({ keys, id, isInclusive = false }: Position): Position {
  return { keys, id, isInclusive: !isInclusive }
}

function isCursor(value: unknown): value is Cursor {
  if (typeof value !== 'object' || value === null) return false
  const { size, seed, first, last } = value as Partial<Cursor>
  return (
    Number.isSafeInteger(size) &&
    Number(size) > 0 &&
    Number.isSafeInteger(seed) &&
    [first, last].every((position) => position === undefined || isPosition(position))
  )
}

function isPosition(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  const { keys, id, isInclusive = false } = value as Partial<Position>
  return (
    typeof id === 'string' &&
    typeof isInclusive === 'boolean' &&
    Array.isArray(keys) &&
    keys.every((key) => key === null || typeof key === 'string')
  )
}
