import { AppError } from '@offshoot/contract/errors'
import {
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  isEscaped,
  isSpace,
  type JsonLimits,
  OPEN_BRACE,
  OPEN_BRACKET,
  parseJsonSteps,
  parseShortJson,
  parseText,
  QUOTE,
  requireUtf8,
  SCAN_BYTES,
  SCAN_QUOTES,
  SLICE_BYTES,
  textTooLong,
  tooDeep,
} from '../../common/json-text.js'

/*
 * A bulk body can have 64 MiB. Parsing it at once would block all other requests, and PostgreSQL would be idle
 * until it is done. So the body is cut between records, and each slice is parsed while PostgreSQL processes
 * the one before.
 */

/** The number of parser steps between two pauses. */
const STEPS_PER_PAUSE = 8
/** Texts with fewer escaped quotes are short work. */
const FEW_QUOTES = 64
/** The depth of records: inside the list, which is inside the object. */
const OUTER_DEPTH = 2

/**
 * Yields the records of `{"records": [...]}` slice by slice, in order. An error further back is found only when
 * it is reached, so the caller must not commit before the end. An empty slice is a pause, in which the caller
 * lets other requests run.
 */
export function* sliceRecords(body: Buffer, limits: JsonLimits): Generator<unknown[]> {
  if (body.length <= SLICE_BYTES) {
    yield recordsOf(parseShortJson(body, limits))
    return
  }
  const listStart = findListStart(body)
  if (listStart === undefined) {
    // The body is malformed, or not in the usual form. Parse it as a whole.
    yield recordsOf(yield* pausing(parseJsonSteps(body, limits)))
    return
  }
  let start = listStart
  for (;;) {
    const end = yield* findSliceEnd(body, start, limits)
    const slice =
      end - start <= 2 * SLICE_BYTES
        ? parseSlice(body.subarray(start, end))
        : yield* parseLongSlice(body.subarray(start, end), limits)
    const isLast = body[end] !== COMMA
    // Only an empty list may have an empty slice. Elsewhere it means a superfluous comma.
    if (slice.length === 0 && !(isLast && start === listStart)) {
      throw new AppError('invalid_json', 'body: is not valid JSON: a comma stands alone')
    }
    if (isLast) requireEnd(body, end)
    yield slice
    if (isLast) return
    start = end + 1
  }
}

function parseSlice(slice: Buffer): unknown[] {
  requireUtf8(slice)
  return parseText(`[${slice.toString()}]`) as unknown[]
}

/** Parses a slice with a record that is much longer than a usual slice, with pauses. */
function* parseLongSlice(slice: Buffer, limits: JsonLimits): Generator<unknown[], unknown[]> {
  const list = Buffer.concat([Buffer.from('['), slice, Buffer.from(']')])
  return (yield* pausing(parseJsonSteps(list, limits))) as unknown[]
}

function* pausing<Result>(steps: Generator<unknown, Result>): Generator<unknown[], Result> {
  for (let count = 0; ; count++) {
    const step = steps.next()
    if (step.done) return step.value
    if (count % STEPS_PER_PAUSE === 0) yield []
  }
}

/** Checks that the text after the list is the rest of a valid body. */
function requireEnd(body: Buffer, listEnd: number): void {
  if (body.length - listEnd > SLICE_BYTES) {
    throw new AppError('invalid_request', 'body: too much follows the list of records')
  }
  const end = body.subarray(listEnd)
  requireUtf8(end)
  const rest = recordsOf(parseText(`{"records":["the list"${end.toString()}`))
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

/**
 * Finds the position of the comma that ends a slice of sufficient size, or the end of the list. Only scans the
 * structure; the parser validates the parts.
 */
function* findSliceEnd(
  body: Buffer,
  start: number,
  limits: JsonLimits,
): Generator<unknown[], number> {
  const depthMax = limits.jsonDepthMax - OUTER_DEPTH
  const textBytesMax = limits.jsonStringBytesMax
  let depth = 0
  let pauseAt = start + SCAN_BYTES
  for (let at = start; at < body.length; at++) {
    if (at >= pauseAt) {
      pauseAt = at + SCAN_BYTES
      yield []
    }
    switch (body[at]) {
      case QUOTE:
        // A generator for each text would cost more than most texts do.
        at = findQuote(body, at) ?? (yield* findTextEnd(body, at, textBytesMax))
        break
      case OPEN_BRACE:
      case OPEN_BRACKET:
        if (++depth > depthMax) throw tooDeep(depthMax + OUTER_DEPTH)
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

const LIST_NAME = '"records"'

/** Returns the position after the bracket that opens the list, or undefined if it is not where expected. */
function findListStart(body: Buffer): number | undefined {
  let at = skipSpace(body, 0)
  if (body[at] !== OPEN_BRACE) return undefined
  at = skipSpace(body, at + 1)
  if (body.toString('latin1', at, at + LIST_NAME.length) !== LIST_NAME) return undefined
  at = skipSpace(body, at + LIST_NAME.length)
  if (body[at] !== COLON) return undefined
  at = skipSpace(body, at + 1)
  return body[at] === OPEN_BRACKET ? at + 1 : undefined
}

function skipSpace(body: Buffer, from: number): number {
  let at = from
  // More of it is refused by the parser of unusual bodies.
  const end = from + SLICE_BYTES
  while (at < end && isSpace(body[at])) at++
  return at
}

/** The position of the quote that ends a text with few escaped quotes; undefined for others. */
function findQuote(body: Buffer, start: number): number | undefined {
  let at = start
  for (let quotes = 0; quotes < FEW_QUOTES; quotes++) {
    at = body.indexOf(QUOTE, at + 1)
    if (at === -1 || at - start > SLICE_BYTES) return undefined
    if (!isEscaped(body, at)) return at
  }
  return undefined
}

/** Returns the position of the quote that ends a string. An escaped quote takes longer than other bytes. */
function* findTextEnd(body: Buffer, start: number, bytesMax: number): Generator<unknown[], number> {
  let at = start
  for (let quotes = 1; ; quotes++) {
    at = body.indexOf(QUOTE, at + 1)
    if (at === -1) return body.length
    if (at - start - 1 > bytesMax) throw textTooLong(bytesMax)
    if (quotes % SCAN_QUOTES === 0) yield []
    if (!isEscaped(body, at)) return at
  }
}
