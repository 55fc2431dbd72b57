import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { queryFault } from './query-fault.js'

/** Where a record stands in the order of its query. */
export interface Position {
  readonly keys: readonly (string | null)[]
  readonly id: string
}

/** A query and a place in it. Whoever holds the cursor can go on from there, and back. */
export interface Cursor {
  readonly filter: unknown
  readonly sort: unknown
  readonly columns: unknown
  readonly size: number
  readonly offset: number
  /** Of the page that the cursor came with; undefined when it was empty. */
  readonly first?: Position
  readonly last?: Position
}

/** More than the largest request could make of it. */
const TEXT_LENGTH_MAX = 64 * 1024 * 1024

export function writeCursor(cursor: Cursor): string {
  return deflateRawSync(JSON.stringify(cursor)).toString('base64url')
}

/** Cursors come from clients; one that is not ours is refused like any other bad input. */
export function readCursor(text: string): Cursor {
  try {
    const json = inflateRawSync(Buffer.from(text, 'base64url'), {
      maxOutputLength: TEXT_LENGTH_MAX,
    })
    const cursor = JSON.parse(json.toString()) as Cursor
    if (isCursor(cursor)) return cursor
  } catch {
    // Told below.
  }
  throw queryFault('page: invalid cursor')
}

function isCursor(value: Cursor): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    Number.isSafeInteger(value.size) &&
    Number.isSafeInteger(value.offset) &&
    [value.first, value.last].every((position) => position === undefined || isPosition(position))
  )
}

function isPosition(value: Position): boolean {
  return (
    typeof value === 'object' &&
    value !== null &&
    typeof value.id === 'string' &&
    Array.isArray(value.keys) &&
    value.keys.every((key) => key === null || typeof key === 'string')
  )
}
