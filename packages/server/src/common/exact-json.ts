import { randomUUID } from 'node:crypto'

/*
 * `JSON.parse` rounds a number with more digits than a double has. An object that such a number is a member of remembers
 * its digits, so that columns which must be exact can refuse it. Lists remember those of their elements only if that is
 * asked for: vectors of records are long, and rounded in any case.
 */

/** A double keeps any number of this many digits. */
const DIGITS_KEPT = 15
/** A text that is looked at in this distance shows each run of more digits, at one of its first characters. */
const DISTANCE = DIGITS_KEPT + 1

const ROUNDED = Symbol('rounded numbers')

type Rounded = Map<string, string>

/** The numbers whose digits are remembered: members of objects, or elements of lists, too. */
export type ExactNumbers = 'members' | 'elements'

interface Marked {
  [ROUNDED]?: Rounded
}

/**
 * Returns the texts of the members of an object that have been rounded, by their names, or those of the elements of a
 * list, by their indexes. undefined: there are none.
 */
export function roundedIn(value: object): ReadonlyMap<string, string> | undefined {
  return (value as Marked)[ROUNDED]
}

/** Adds what is known of the members of one object to another one, which has the same members. */
export function keepRounded(from: object, to: object): void {
  const rounded = roundedIn(from)
  for (const [name, text] of rounded ?? []) addMark(to, name, text)
}

/** Adds what is known of the elements of one list to another one, which has them from a position on. */
export function keepRoundedItems(from: object, to: object, start: number): void {
  const rounded = roundedIn(from)
  for (const [index, text] of rounded ?? []) addMark(to, String(start + Number(index)), text)
}

/** Adds to what is known. A copy of it for each part of a long list would take time with the square of its length. */
function addMark(value: Marked, name: string, text: string): void {
  const known = value[ROUNDED] ?? new Map()
  known.set(name, text)
  value[ROUNDED] = known
}

/** A number that JSON.parse has rounded. */
export class RoundedNumber {
  constructor(
    readonly value: number,
    /** The number as it was written. */
    readonly digits: string,
  ) {}
}

/** Lists the members of an object. Numbers that have been rounded are known by their digits. */
export function exactMembers(value: Readonly<Record<string, unknown>>): [string, unknown][] {
  const members = Object.entries(value)
  const rounded = roundedIn(value)
  if (rounded === undefined) return members
  return members.map(([name, member]) => [name, exact(member, rounded.get(name))])
}

/** Lists the elements of a list. Numbers that have been rounded are known by their digits. */
export function exactItems(list: readonly unknown[]): readonly unknown[] {
  const rounded = roundedIn(list)
  return rounded === undefined
    ? list
    : list.map((item, index) => exact(item, rounded.get(String(index))))
}

function exact(value: unknown, digits: string | undefined): unknown {
  return digits === undefined ? value : new RoundedNumber(Number(value), digits)
}

/** Parses JSON. Throws the error of `JSON.parse`. */
export function parseExactly(text: string, exact: ExactNumbers = 'members'): unknown {
  const parsed: unknown = JSON.parse(text)
  if (!mayBeRounded(text, exact)) return parsed
  const prefix = `${randomUUID()} `
  const quoted = quoteRounded(text, prefix, exact)
  return quoted === undefined ? parsed : unquote(JSON.parse(quoted), prefix)
}

/** Returns whether there may be such a number that is rounded. Texts that contain long numbers can look like one. */
function mayBeRounded(text: string, exact: ExactNumbers): boolean {
  for (let at = DISTANCE - 1; at < text.length; at += DISTANCE) {
    if (!isDigitOrPoint(text.charCodeAt(at))) continue
    let start = at
    while (at - start < DISTANCE && isDigitOrPoint(text.charCodeAt(start - 1))) start--
    if (!isRemembered(text, start, exact)) continue
    const end = numberEnd(text, start)
    if (isRounded(text.slice(start, end))) return true
    at = Math.max(at, end - 1)
  }
  return false
}

/** Whether the number that starts here is one whose digits are remembered. */
function isRemembered(text: string, start: number, exact: ExactNumbers): boolean {
  let at = start - 1
  if (text.charCodeAt(at) === MINUS) at--
  while (isSpace(text.charCodeAt(at))) at--
  const before = text.charCodeAt(at)
  return before === COLON || (exact === 'elements' && (before === COMMA || before === OPEN_BRACKET))
}

/** Writes numbers that are rounded as texts that start with a prefix. `text` is valid JSON. undefined: there are none. */
function quoteRounded(text: string, prefix: string, exact: ExactNumbers): string | undefined {
  const parts: string[] = []
  let last = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) at = textEnd(text, at)
    else if (code === MINUS || isDigitOrPoint(code)) {
      const end = numberEnd(text, at)
      const number = text.slice(at, end)
      if (isRemembered(text, at, exact) && isRounded(number)) {
        parts.push(text.slice(last, at), JSON.stringify(prefix + number))
        last = end
      }
      at = end - 1
    }
  }
  if (parts.length === 0) return undefined
  parts.push(text.slice(last))
  return parts.join('')
}

/** Returns the position of the quote that ends a text. */
function textEnd(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    at = text.indexOf('"', at)
    let backslashes = 0
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return at
  }
}

function numberEnd(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    const code = text.charCodeAt(at)
    const isPart =
      isDigitOrPoint(code) || code === MINUS || code === PLUS || (code | 32) === LETTER_E
    if (!isPart) return at
  }
}

/** Whether a number is not the one that its double is written as. */
function isRounded(number: string): boolean {
  if (number.length <= DIGITS_KEPT) return false
  const kept = String(Number(number))
  return kept !== number && usualForm(kept) !== usualForm(number)
}

/** Returns the digits of a number without zeros at either end, and the exponent of a fraction `0.digits`. */
function usualForm(number: string): string {
  const [mantissa = '', exponent = '0'] = number.toLowerCase().split('e')
  const [whole = '', fraction = ''] = mantissa.replace(/^-/, '').split('.')
  const digits = whole + fraction
  const first = digits.search(/[1-9]/)
  if (first < 0) return '0'
  let end = digits.length
  while (digits.charCodeAt(end - 1) === ZERO) end--
  return `${digits.slice(first, end)}e${Number(exponent) + whole.length - first}`
}

/** Turns quoted numbers into numbers, and marks the objects and lists that they are in. */
function unquote(value: unknown, prefix: string): unknown {
  if (typeof value === 'string') {
    return value.startsWith(prefix) ? Number(value.slice(prefix.length)) : value
  }
  if (typeof value !== 'object' || value === null) return value
  // The names of a list are its indexes.
  const members = value as Record<string, unknown>
  for (const name of Object.keys(members)) {
    const member = members[name]
    const next = unquote(member, prefix)
    if (next === member) continue
    members[name] = next
    if (typeof member === 'string') addMark(members, name, member.slice(prefix.length))
  }
  return members
}

const QUOTE = 0x22
const COLON = 0x3a
const COMMA = 0x2c
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const PLUS = 0x2b
const MINUS = 0x2d
const POINT = 0x2e
const ZERO = 0x30
const NINE = 0x39
const LETTER_E = 0x65

function isDigitOrPoint(code: number): boolean {
  return (code >= ZERO && code <= NINE) || code === POINT
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09
}
