import { createHmac, timingSafeEqual } from 'node:crypto'
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { QUERY_LIMITS } from '@offshoot/contract/limits'
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

/** Where a cursor is of use, and the secret that tells it from one that somebody else has made. */
export interface CursorScope {
  readonly secret: Buffer
  readonly branchId: string
  readonly tableId: number
}

/** Compressing takes longer than most queries, so only what would be long is compressed. */
const PLAIN_LENGTH_MAX = 1024

/** The first character tells how the content is written. */
const PLAIN = 'p'
const COMPRESSED = 'c'
/** 24 characters of base64url leave no bit unused, so that no two texts stand for the same code. */
const CODE_BYTES = 18
const CODE_LENGTH = 24

/** The form, the authentication code, and the content. */
export function writeCursor(scope: CursorScope, cursor: Cursor): string {
  const json = Buffer.from(JSON.stringify(cursor))
  if (json.length > QUERY_LIMITS.cursorLengthMax) throw tooLong()
  const form = json.length <= PLAIN_LENGTH_MAX ? PLAIN : COMPRESSED
  const bytes = form === PLAIN ? json : deflateRawSync(json)
  const content = bytes.toString('base64url')
  if (1 + CODE_LENGTH + content.length > QUERY_LIMITS.cursorLengthMax) throw tooLong()
  return `${form}${codeOf(scope, form, content)}${content}`
}

/** Cursors come from clients. Nothing of one is decoded before it is known to be from here. */
export function readCursor(scope: CursorScope, text: string): Cursor {
  if (text.length > QUERY_LIMITS.cursorLengthMax) {
    throw queryFault(
      `page: a cursor must not have more than ${QUERY_LIMITS.cursorLengthMax} characters`,
    )
  }
  const form = text.slice(0, 1)
  const code = Buffer.from(text.slice(1, 1 + CODE_LENGTH))
  const content = text.slice(1 + CODE_LENGTH)
  const expected = Buffer.from(codeOf(scope, form, content))
  if (code.length !== expected.length || !timingSafeEqual(code, expected)) throw invalidCursor()
  const bytes = Buffer.from(content, 'base64url')
  const json =
    form === PLAIN
      ? bytes
      : inflateRawSync(bytes, { maxOutputLength: QUERY_LIMITS.cursorLengthMax })
  return JSON.parse(json.toString()) as Cursor
}

function codeOf({ secret, branchId, tableId }: CursorScope, form: string, content: string): string {
  const code = createHmac('sha256', secret).update(`${form}\n${branchId}\n${tableId}\n`)
  return code.update(content).digest().subarray(0, CODE_BYTES).toString('base64url')
}

/** The query itself is bounded, so it must be the values. */
function tooLong() {
  return queryFault('sort: the values of these records are too long to go on from in a cursor')
}

export function invalidCursor() {
  return queryFault('page: invalid cursor')
}

/** The same boundary, seen from its other side. */
export function otherSide({ keys, id, isInclusive = false }: Position): Position {
  return { keys, id, isInclusive: !isInclusive }
}
