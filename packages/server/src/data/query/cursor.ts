import { hash, timingSafeEqual } from 'node:crypto'
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { parseExactly } from '../../common/exact-json.js'
import { writeExactly } from '../../common/write-json.js'
import { invalidQuery } from './invalid-query.js'

/** A boundary in the order of a query: just before or after a record. */
export interface Position {
  /** The sort keys of the record, as texts of PostgreSQL. */
  readonly keys: readonly (string | null)[]
  readonly id: string
  /** Whether the record itself is included. */
  readonly isInclusive?: boolean
}

/** A query and a position in its result, from which paging can continue in both directions. */
export interface Cursor {
  readonly filter: unknown
  readonly sort: unknown
  readonly columns: unknown
  readonly size: number
  /** Keeps a random order stable from page to page. */
  readonly seed: number
  /** The start of the page, where the previous page ends. undefined: there is no previous page. */
  readonly first?: Position
  /** The end of the page, where the next page starts. undefined: the next page starts at the beginning. */
  readonly last?: Position
}

/** The branch and table that a cursor is valid for, and the secret that authenticates it. */
export interface CursorScope {
  readonly secret: Buffer
  readonly branchId: string
  readonly tableId: number
}

/** Compression takes longer than most queries, so only longer cursors are compressed. */
const PLAIN_LENGTH_MAX = 1024

/** The first character of a cursor tells its encoding. */
const PLAIN = 'p'
const COMPRESSED = 'c'
/** 24 characters of base64url are 18 bytes exactly, so that each code has a single encoding. */
const CODE_LENGTH = 24

/** Returns a cursor: encoding, authentication code and content. */
export function writeCursor(scope: CursorScope, cursor: Cursor): string {
  const json = Buffer.from(writeExactly(cursor))
  if (json.length > QUERY_LIMITS.cursorLengthMax) throw tooLong()
  const form = json.length <= PLAIN_LENGTH_MAX ? PLAIN : COMPRESSED
  const bytes = form === PLAIN ? json : deflateRawSync(json)
  const content = bytes.toString('base64url')
  if (1 + CODE_LENGTH + content.length > QUERY_LIMITS.cursorLengthMax) throw tooLong()
  return `${form}${codeOf(scope, form, content)}${content}`
}

/** Parses a cursor. Cursors are untrusted input, so the authentication code is verified before decoding. */
export function readCursor(scope: CursorScope, text: string): Cursor {
  if (text.length > QUERY_LIMITS.cursorLengthMax) {
    throw invalidQuery(
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
  return parseExactly(json.toString(), 'elements') as Cursor
}

/**
 * Returns the keyed hash of a cursor. The state of SHA-512/256 is longer than its result, so a message cannot be
 * extended without the secret, and HMAC, which takes three times as long, is not needed.
 */
function codeOf({ secret, branchId, tableId }: CursorScope, form: string, content: string): string {
  const message = `${secret.toString('hex')}\n${form}\n${branchId}\n${tableId}\n${content}`
  return hash('sha512-256', message, 'base64url').slice(0, CODE_LENGTH)
}

/** The length of the query is limited, so only the sort values can make a cursor too long. */
function tooLong() {
  return invalidQuery('sort: the values of these records are too long for a cursor')
}

export function invalidCursor() {
  return invalidQuery('page: invalid cursor')
}

/** Returns the same boundary for the opposite direction. */
export function otherSide({ keys, id, isInclusive = false }: Position): Position {
  return { keys, id, isInclusive: !isInclusive }
}
