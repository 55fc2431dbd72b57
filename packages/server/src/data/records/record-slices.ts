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

/**
 * The records of `{"records": [...]}`, slice by slice, in order. What is wrong further back is found
 * when it is reached; until then nothing that was given out may be final.
 */
export function* sliceRecords(body: Buffer): Generator<unknown[]> {
  if (!isUtf8(body)) throw new AppError('invalid_json', 'body: is not valid UTF-8')
  const listStart = body.length <= SLICE_BYTES ? undefined : findListStart(body)
  if (listStart === undefined) {
    // Small, malformed, or not in the usual form: parsing all of it finds out.
    yield recordsOf(parse(body.toString()))
    return
  }
  let start = listStart
  for (;;) {
    const end = findSliceEnd(body, start)
    const slice = parse(`[${body.toString('utf8', start, end)}]`) as unknown[]
    const isLast = body[end] !== COMMA
    // Only a list without records has a slice without; elsewhere a comma stands for nothing.
    if (slice.length === 0 && !(isLast && start === listStart)) {
      throw new AppError('invalid_json', 'body: is not valid JSON: a comma stands alone')
    }
    if (isLast) requireEnd(body, end)
    yield slice
    if (isLast) return
    start = end + 1
  }
}

/** What follows the list must be the rest of a valid body. */
function requireEnd(body: Buffer, listEnd: number): void {
  const rest = recordsOf(parse(`{"records":["the list"${body.toString('utf8', listEnd)}`))
  if (rest[0] !== 'the list') {
    throw new AppError('invalid_request', 'body: field [records]: is given twice')
  }
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

/**
 * The position of a comma between records, when the slice is large enough, or of what ends the list.
 * Looks only at the structure; whether the parts are valid is left to the parser.
 */
function findSliceEnd(body: Buffer, start: number): number {
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
        if (depth === 0) return at
        depth--
        break
      case COMMA:
        if (depth === 0 && at - start >= SLICE_BYTES) return at
        break
    }
  }
  return body.length
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
