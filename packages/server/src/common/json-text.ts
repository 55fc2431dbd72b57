import { isUtf8 } from 'node:buffer'
import { AppError } from '@offshoot/contract/errors'
import { type ExactNumbers, keepRounded, keepRoundedItems, parseExactly } from './exact-json.js'

/*
 * Parses JSON of clients within limits. Text of up to SLICE_BYTES is parsed at once. Longer text is
 * scanned for its structure and then parsed in slices, so that the caller can yield to the event loop
 * between two slices.
 */

/** Limits of one JSON text. */
export interface JsonLimits {
  readonly jsonDepthMax: number
  readonly jsonValuesMax: number
  readonly jsonStringBytesMax: number
}

/**
 * Large enough that the overhead per slice is small, small enough that parsing one does not
 * noticeably block the event loop.
 */
export const SLICE_BYTES = 64 * 1024
/** Bytes that are scanned between two pauses. Before V8 has compiled the scan, each takes about 0.1 µs. */
export const SCAN_BYTES = SLICE_BYTES
/** Quotes that are scanned between two pauses; each costs more than another byte. */
export const SCAN_QUOTES = 16 * 1024

export const QUOTE = 0x22
export const BACKSLASH = 0x5c
export const OPEN_BRACE = 0x7b
export const CLOSE_BRACE = 0x7d
export const OPEN_BRACKET = 0x5b
export const CLOSE_BRACKET = 0x5d
export const COMMA = 0x2c
export const COLON = 0x3a
const LETTER_U_ESCAPE_BYTES = 6

/**
 * Members of one object; more than any record has. Growing larger hash tables blocks the event
 * loop.
 */
const MEMBERS_MAX = 50_000

/** A string that is longer than a slice. */
interface LongText {
  readonly kind: 'text'
  readonly openAt: number
  readonly closeAt: number
}

/** An object or array that is longer than a slice, divided between its members. */
interface Container {
  readonly kind: 'object' | 'array'
  readonly openAt: number
  readonly closeAt: number
  readonly parts: readonly Part[]
}

/** Some short members of a container, or a single one with a long value. */
interface Part {
  readonly start: number
  readonly end: number
  readonly long: Container | LongText | undefined
}

/** An object or array whose end has not been reached by the scan. */
class OpenContainer {
  openAt = 0
  isArray = false
  #cutAt = 0
  #commaAt = 0
  #long: Container | LongText | undefined
  #parts: Part[] = []

  start(at: number, isArray: boolean): void {
    this.openAt = at
    this.isArray = isArray
    this.#cutAt = at
    this.#commaAt = at
    this.#long = undefined
    if (this.#parts.length > 0) this.#parts = []
  }

  comma(at: number): void {
    if (at - this.#cutAt > SLICE_BYTES) this.#cut(at)
    this.#commaAt = at
  }

  /** The current member has a long value, and gets a part of its own. */
  addLong(value: Container | LongText): void {
    if (this.#commaAt > this.#cutAt) this.#cut(this.#commaAt)
    this.#long = value
  }

  /** Returns undefined if it is short enough to be parsed with its surroundings. */
  close(at: number): Container | undefined {
    if (at - this.openAt <= SLICE_BYTES) return undefined
    this.#cut(at)
    const kind = this.isArray ? 'array' : 'object'
    return { kind, openAt: this.openAt, closeAt: at, parts: this.#parts }
  }

  #cut(at: number): void {
    this.#parts.push({ start: this.#cutAt + 1, end: at, long: this.#long })
    this.#cutAt = at
    this.#long = undefined
  }
}

interface ScannedJson {
  readonly root: Container | undefined
  /** Number of values: objects, arrays and everything in them. */
  readonly values: number
}

/** Scans a JSON text, and refuses it before parsing if it exceeds a limit. */
export function* scanJson(
  text: Buffer,
  limits: JsonLimits,
): Generator<undefined, ScannedJson, undefined> {
  const { jsonDepthMax, jsonValuesMax, jsonStringBytesMax } = limits
  const open: OpenContainer[] = []
  let depth = 0
  let values = 1
  let root: Container | undefined
  let isRootOver = false
  let pauseAt = SCAN_BYTES
  let quotes = 0
  let tokenAt = 0
  let current = new OpenContainer()
  for (let at = 0; at < text.length; at++) {
    if (at >= pauseAt) {
      pauseAt = at + SCAN_BYTES
      requireToken(tokenAt, at)
      yield
    }
    switch (text[at]) {
      case QUOTE: {
        const start = at
        do {
          at = text.indexOf(QUOTE, at + 1)
          if (++quotes % SCAN_QUOTES === 0) yield
          if (at === -1) throw invalidJson('a string does not end')
          if (at - start - 1 > jsonStringBytesMax) {
            throw textTooLong(jsonStringBytesMax)
          }
        } while (isEscaped(text, at))
        requireToken(tokenAt, start)
        tokenAt = at
        if (at - start <= SLICE_BYTES || depth === 0) break
        if (!current.isArray && isName(text, at)) throw tooLong('a name')
        current.addLong({ kind: 'text', openAt: start, closeAt: at })
        break
      }
      case OPEN_BRACE:
      case OPEN_BRACKET: {
        requireToken(tokenAt, at)
        tokenAt = at
        if (depth === 0 && isRootOver) throw invalidJson('there is text after its end')
        if (depth === jsonDepthMax) {
          throw tooDeep(jsonDepthMax)
        }
        current = open[depth] ??= new OpenContainer()
        current.start(at, text[at] === OPEN_BRACKET)
        depth++
        break
      }
      case CLOSE_BRACE:
      case CLOSE_BRACKET: {
        if (depth === 0 || current.isArray !== (text[at] === CLOSE_BRACKET)) {
          throw invalidJson('a bracket does not match')
        }
        requireToken(tokenAt, at)
        tokenAt = at
        if (!isEmpty(text, current.openAt, at)) values++
        if (values > jsonValuesMax) throw tooManyValues(jsonValuesMax)
        const long = current.close(at)
        depth--
        if (depth === 0) {
          root = long
          isRootOver = true
        } else {
          current = open[depth - 1] as OpenContainer
          if (long !== undefined) current.addLong(long)
        }
        break
      }
      case COMMA:
        if (depth === 0) throw invalidJson('a comma stands alone')
        requireToken(tokenAt, at)
        tokenAt = at
        if (++values > jsonValuesMax) throw tooManyValues(jsonValuesMax)
        current.comma(at)
        break
    }
  }
  requireToken(tokenAt, text.length)
  if (depth > 0) throw invalidJson('it is incomplete')
  return { root, values }
}

export function tooDeep(depthMax: number): AppError {
  return new AppError('invalid_request', `body: is nested too deeply: jsonDepthMax is ${depthMax}`)
}

export function textTooLong(bytesMax: number): AppError {
  return new AppError(
    'invalid_request',
    `body: a string is longer than jsonStringBytesMax, ${bytesMax} bytes`,
  )
}

function tooManyValues(valuesMax: number): AppError {
  return new AppError('invalid_request', `body: has more values than jsonValuesMax, ${valuesMax}`)
}

function tooLong(what: string): AppError {
  return new AppError('invalid_request', `body: ${what} is longer than ${SLICE_BYTES} bytes`)
}

/** Numbers and white space cannot be divided, so they must be short. */
function requireToken(start: number, end: number): void {
  if (end - start - 1 > SLICE_BYTES) throw tooLong('a number or a run of white space')
}

/** Returns whether the string that ends here is the name of a member: a colon follows. */
function isName(text: Buffer, closeAt: number): boolean {
  let at = closeAt + 1
  while (isSpace(text[at])) at++
  return text[at] === COLON
}

/** Parses a scanned text slice by slice. */
export function* buildJson(
  text: Buffer,
  { root }: ScannedJson,
  exact?: ExactNumbers,
): Generator<undefined, unknown, undefined> {
  if (root === undefined) return parseText(text.toString(), exact)
  // Only white space may surround the root value.
  const before = text.toString('utf8', 0, root.openAt)
  parseText(`${before}""${text.toString('utf8', root.closeAt + 1)}`)
  return yield* buildContainer(text, root, exact)
}

/** Parses a JSON text within limits, with pauses. */
export function* parseJsonSteps(
  text: Buffer,
  limits: JsonLimits,
): Generator<undefined, unknown, undefined> {
  yield* requireLongUtf8(text)
  return yield* buildJson(text, yield* scanJson(text, limits))
}

/** Parses a short JSON text within limits. */
export function parseShortJson(text: Buffer, limits: JsonLimits, exact?: ExactNumbers): unknown {
  requireUtf8(text)
  // A shorter text cannot exceed a limit.
  if (text.length > Math.min(limits.jsonDepthMax, limits.jsonValuesMax)) {
    const steps = scanJson(text, limits)
    while (!steps.next().done);
  }
  return parseText(text.toString(), exact)
}

/** Checks a text in steps. Each ends before a character, so that no character is divided. */
export function* requireLongUtf8(text: Buffer): Generator<undefined, void, undefined> {
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + SCAN_BYTES, text.length)
    const last = end
    while (end < text.length && end > last - UTF8_BYTES_MAX && isContinuation(text[end])) end--
    requireUtf8(text.subarray(start, end))
    start = end
    yield
  }
}

const UTF8_BYTES_MAX = 4

/** Returns whether a byte is the second or a later one of a UTF-8 character. */
function isContinuation(byte: number | undefined): boolean {
  return ((byte ?? 0) & 0xc0) === 0x80
}

export function requireUtf8(text: Buffer): void {
  if (!isUtf8(text)) throw new AppError('invalid_json', 'body: is not valid UTF-8')
}

export function parseText(text: string, exact?: ExactNumbers): unknown {
  try {
    return parseExactly(text, exact)
  } catch (error) {
    throw invalidJson((error as Error).message)
  }
}

function invalidJson(reason: string): AppError {
  return new AppError('invalid_json', `body: is not valid JSON: ${reason}`)
}

function* buildContainer(
  text: Buffer,
  { kind, parts }: Container,
  exact: ExactNumbers | undefined,
): Generator<undefined, unknown, undefined> {
  const isArray = kind === 'array'
  const items: unknown[] = []
  const members: Record<string, unknown> = {}
  let memberCount = 0
  for (const { start, end, long } of parts) {
    // A long value is parsed separately. An empty string is its placeholder here, which keeps the
    // surrounding syntax valid.
    const around =
      long === undefined
        ? text.toString('utf8', start, end)
        : `${text.toString('utf8', start, long.openAt)}""${text.toString('utf8', long.closeAt + 1, end)}`
    const value = long === undefined ? undefined : yield* buildLong(text, long, exact)
    const added = parseText(isArray ? `[${around}]` : `{${around}}`, exact) as object
    const count = isArray
      ? addItems(items, added as unknown[], long && { value })
      : addMembers(members, added as Record<string, unknown>, long && { value })
    if (count === 0) throw invalidJson('a comma stands alone')
    if (!isArray) memberCount += count
    if (memberCount > MEMBERS_MAX) {
      throw new AppError('invalid_request', `body: an object has more than ${MEMBERS_MAX} members`)
    }
    yield
  }
  return isArray ? items : members
}

function* buildLong(
  text: Buffer,
  long: Container | LongText,
  exact: ExactNumbers | undefined,
): Generator<undefined, unknown, undefined> {
  if (long.kind !== 'text') return yield* buildContainer(text, long, exact)
  const pieces: string[] = []
  for (let start = long.openAt + 1; start < long.closeAt; ) {
    const end = textCut(text, { start, end: long.closeAt })
    pieces.push(parseText(`"${text.toString('utf8', start, end)}"`) as string)
    start = end
    yield
  }
  return pieces.join('')
}

/**
 * Returns a position at which a string can be divided: not inside a character or an escape
 * sequence.
 */
function textCut(text: Buffer, { start, end }: { start: number; end: number }): number {
  if (end - start <= SLICE_BYTES) return end
  let cut = start + SLICE_BYTES
  // Go back to the first byte of a UTF-8 character.
  while (isContinuation(text[cut])) cut--
  const escapeAt = text.lastIndexOf(BACKSLASH, cut - 1)
  if (escapeAt < start || cut - escapeAt >= LETTER_U_ESCAPE_BYTES) return cut
  // In a run of backslashes, every second one starts an escape sequence; the string does not start
  // inside one.
  let runStart = escapeAt
  while (runStart > start && text[runStart - 1] === BACKSLASH) runStart--
  const isStart = (escapeAt - runStart) % 2 === 0
  return isStart ? escapeAt : escapeAt - 1
}

function addItems(
  items: unknown[],
  added: readonly unknown[],
  long: { value: unknown } | undefined,
): number {
  keepRoundedItems(added, items, items.length)
  if (long === undefined) for (const item of added) items.push(item)
  else items.push(long.value)
  return added.length
}

function addMembers(
  members: Record<string, unknown>,
  added: Readonly<Record<string, unknown>>,
  long: { value: unknown } | undefined,
): number {
  const names = Object.keys(added)
  keepRounded(added, members)
  for (const name of names) {
    const value = long === undefined ? added[name] : long.value
    // Assigning `__proto__` would set the prototype.
    if (name === '__proto__') {
      const own = { value, writable: true, enumerable: true, configurable: true }
      Object.defineProperty(members, name, own)
    } else {
      members[name] = value
    }
  }
  return names.length
}

/** Returns whether a quote belongs to the string: an odd number of backslashes precedes it. */
export function isEscaped(text: Buffer, quoteAt: number): boolean {
  let backslashes = 0
  while (text[quoteAt - 1 - backslashes] === BACKSLASH) backslashes++
  return backslashes % 2 === 1
}

function isEmpty(text: Buffer, openAt: number, closeAt: number): boolean {
  let at = closeAt - 1
  while (isSpace(text[at])) at--
  return at === openAt
}

export function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09
}
