import { isUtf8 } from 'node:buffer'
import { AppError } from '@offshoot/contract/errors'

/*
 * A bulk body can be 64 MiB. Parsed in one go it would stop every other request for as long, and
 * nothing would reach PostgreSQL before all of it is parsed. So the body is cut between records, and
 * each slice is parsed on its own while the one before it is on its way.
 */

/** Large enough that parsing a slice costs more than cutting it, small enough not to be noticed. */
const SLICE_BYTES = 64 * 1024

const QUOTE = 0x22
const BACKSLASH = 0x5c
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const COMMA = 0x2c
const COLON = 0x3a

/** The records of `{"records": [...]}`, slice by slice, in order. */
export function* sliceRecords(body: Buffer): Generator<unknown[]> {
  if (!isUtf8(body)) throw new AppError('invalid_json', 'body: is not valid UTF-8')
  if (body.length <= SLICE_BYTES) {
    yield recordsOf(parse(body.toString()))
    return
  }
  const list = findRecords(body)
  if (list === undefined) {
    // Malformed, or not in the usual form: parsing all of it finds out what to say.
    yield recordsOf(parse(body.toString()))
    return
  }
  let start = list.start
  for (const cut of [...list.cuts, list.end]) {
    const slice = parse(`[${body.toString('utf8', start, cut)}]`) as unknown[]
    // A slice without a record stands before or after a comma, unless it is the only one.
    if (slice.length === 0 && list.cuts.length > 0) throw emptySlot()
    yield slice
    start = cut + 1
  }
}

function emptySlot(): AppError {
  return new AppError('invalid_json', 'body: is not valid JSON: a comma stands without a record')
}

function recordsOf(body: unknown): unknown[] {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new AppError('invalid_request', 'body: must be of type object')
  }
  for (const key of Object.keys(body)) {
    if (key !== 'records')
      throw new AppError('invalid_request', `body: field [${key}]: is not known`)
  }
  const { records } = body as { records?: unknown }
  if (records === undefined) {
    throw new AppError('invalid_request', 'body: field [records]: is required')
  }
  if (!Array.isArray(records)) {
    throw new AppError('invalid_request', 'body: field [records]: must be of type array')
  }
  return records
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new AppError('invalid_json', `body: is not valid JSON: ${(error as Error).message}`)
  }
}

interface RecordList {
  /** Right after the opening bracket, and at the closing one. */
  readonly start: number
  readonly end: number
  /** Commas between records, about one for each slice. */
  readonly cuts: readonly number[]
}

/** Looks only at the structure; whether the parts are valid is left to the parser. */
function findRecords(body: Buffer): RecordList | undefined {
  const start = findListStart(body)
  if (start === undefined) return undefined
  const cuts: number[] = []
  let lastCut = start
  let depth = 0
  for (let at = start; at < body.length; at++) {
    switch (body[at]) {
      case QUOTE:
        at = endOfString(body, at)
        break
      case OPEN_BRACE:
      case OPEN_BRACKET:
        depth++
        break
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        if (depth === 0) return isBodyEnd(body, at) ? { start, end: at, cuts } : undefined
        depth--
        break
      case COMMA:
        if (depth === 0 && at - lastCut >= SLICE_BYTES) {
          cuts.push(at)
          lastCut = at
        }
        break
    }
  }
  return undefined
}

/** Whether a bracket closes the list and nothing but the end of the body follows. */
function isBodyEnd(body: Buffer, at: number): boolean {
  if (body[at] !== CLOSE_BRACKET) return false
  const brace = skipSpace(body, at + 1)
  return body[brace] === CLOSE_BRACE && skipSpace(body, brace + 1) === body.length
}

/** The position after the bracket that opens the list, when it is where it is expected. */
function findListStart(body: Buffer): number | undefined {
  let at = skipSpace(body, 0)
  if (body[at] !== OPEN_BRACE) return undefined
  at = skipSpace(body, at + 1)
  const end = endOfString(body, at)
  if (body.toString('utf8', at, end + 1) !== '"records"') return undefined
  at = skipSpace(body, end + 1)
  if (body[at] !== COLON) return undefined
  at = skipSpace(body, at + 1)
  return body[at] === OPEN_BRACKET ? at + 1 : undefined
}

function skipSpace(body: Buffer, from: number): number {
  let at = from
  while (body[at] === 0x20 || body[at] === 0x0a || body[at] === 0x0d || body[at] === 0x09) at++
  return at
}

/** The position of the quote that ends the string which starts here. */
function endOfString(body: Buffer, start: number): number {
  let at = start
  for (;;) {
    at = body.indexOf(QUOTE, at + 1)
    if (at === -1) return body.length
    let backslashes = 0
    while (body[at - 1 - backslashes] === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return at
  }
}
