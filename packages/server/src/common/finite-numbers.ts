import { AppError } from '@offshoot/contract/errors'
import { COLON, COMMA, isSpace, OPEN_BRACKET, SLICE_BYTES } from './json-text.js'

/*
 * `JSON.parse` reads a number beyond the range of a double, such as 1e400, as Infinity, which has no JSON
 * form: it would become null. Such numbers are refused.
 */

/** A number without an exponent of three digits must have more digits than this to be that large. */
const DIGITS_MIN = 200
/** The part of an exponent that follows a digit. A pattern that starts with a digit would be slower. */
const EXPONENT = /[eE]\+?\d{3}/g
/** Texts such as ids in hexadecimal contain what looks like an exponent. This many bytes are looked at to tell. */
const NUMBER_BYTES_MAX = 64
/** Bytes that two slices have in common, so that no match is cut in two. */
const OVERLAP_BYTES = 8
const POINT = 0x2e
const MINUS = 0x2d
/** The number of values visited between two pauses. */
const VALUES_PER_PAUSE = 10_000

/** Refuses a parsed JSON text with a number that is not finite, and names it. With pauses. */
export function* requireFiniteNumbers(
  text: Buffer,
  value: unknown,
): Generator<undefined, void, undefined> {
  for (let start = 0; start < text.length; start += SLICE_BYTES) {
    const end = Math.min(start + SLICE_BYTES, text.length)
    if (hasManyDigits(text, start, end) || hasLargeExponent(text, start, end)) {
      yield* visit(value, { path: [], count: 0 })
      return
    }
    yield
  }
}

/** Looks at every 200th byte: a run of that many digits has one of them. */
function hasManyDigits(text: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += DIGITS_MIN) {
    if (!isDigit(text[at])) continue
    let first = at
    while (at - first < DIGITS_MIN && isDigit(text[first - 1])) first--
    let last = at
    while (last - first < DIGITS_MIN && isDigit(text[last + 1])) last++
    if (last - first + 1 >= DIGITS_MIN) return true
  }
  return false
}

function hasLargeExponent(text: Buffer, start: number, end: number): boolean {
  const slice = text.toString('latin1', start, end + OVERLAP_BYTES)
  EXPONENT.lastIndex = 0
  for (let match = EXPONENT.exec(slice); match !== null; match = EXPONENT.exec(slice)) {
    if (mayEndNumber(text, start + match.index - 1)) return true
  }
  return false
}

/** Returns whether the digits that end here may be a number: outside of texts, no other characters precede one. */
function mayEndNumber(text: Buffer, end: number): boolean {
  if (!isDigit(text[end])) return false
  let at = end
  while (end - at < NUMBER_BYTES_MAX && isInNumber(text[at])) at--
  const before = text[at]
  return (
    end - at >= NUMBER_BYTES_MAX ||
    before === undefined ||
    before === COLON ||
    before === COMMA ||
    before === OPEN_BRACKET ||
    isSpace(before)
  )
}

function isInNumber(byte: number | undefined): boolean {
  return isDigit(byte) || byte === POINT || byte === MINUS
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39
}

interface Visit {
  readonly path: string[]
  count: number
}

function* visit(value: unknown, at: Visit): Generator<undefined, void, undefined> {
  if (typeof value === 'number' && !Number.isFinite(value)) throw tooLarge(at.path)
  if (typeof value !== 'object' || value === null) return
  for (const [name, item] of Object.entries(value)) {
    if (++at.count % VALUES_PER_PAUSE === 0) yield
    if (typeof item === 'string') continue
    at.path.push(name)
    yield* visit(item, at)
    at.path.pop()
  }
}

function tooLarge(path: readonly string[]): AppError {
  const place = path.length === 0 ? 'body' : `body: field [${path.join('.').slice(0, 255)}]`
  return new AppError(
    'invalid_request',
    `${place}: the number is beyond the range of 64-bit floating point`,
  )
}
