/*
 * JSON documents can have numbers with more digits than JavaScript keeps. These functions read answers without rounding
 * them, and write documents such that the service stores the same ones again.
 */

/** A text or a number of JSON. */
const TEXT_OR_NUMBER = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/gs
/** JavaScript keeps any number that is no longer. */
const SAFE_LENGTH = 15
/** Texts of the service never contain this character. */
const MARK = '\u0000'
const MARKED = /"\\u0000([^"]*)"/g

/** Parses JSON. Long numbers become marked texts, which `documentOf` and `numbersOf` understand. */
export function parseMarked(text: string): unknown {
  const marked = text.replace(TEXT_OR_NUMBER, (found) =>
    found.startsWith('"') || found.length <= SAFE_LENGTH ? found : JSON.stringify(MARK + found),
  )
  return JSON.parse(marked)
}

/** A number that may be too long. Texts contain what looks like one, too. */
const LONG_NUMBER = /-?\d[\d.eE+-]{15,}/g

/**
 * Parses JSON, with marked texts as `parseMarked` has them if JavaScript rounds a number, and else none. A text that contains
 * the character of the marks is parsed without marks: the service refuses it.
 */
export function parseRounded(text: string): { value: unknown; isMarked: boolean } {
  const value: unknown = JSON.parse(text)
  const numbers = text.match(LONG_NUMBER) ?? []
  const isMarked =
    numbers.some((number) => String(Number(number)) !== number) && !text.includes('\\u0000')
  return { value: isMarked ? parseMarked(text) : value, isMarked }
}

/** Returns the digits of a number that is marked. undefined: the value is another one. */
export function markedNumber(value: unknown): string | undefined {
  return typeof value === 'string' && value.startsWith(MARK) ? value.slice(1) : undefined
}

/** Returns the JSON text of a document, with all digits of its numbers. */
export function documentOf(value: unknown): string {
  return JSON.stringify(value).replace(MARKED, '$1')
}

/** Whether a document is stored as it is. The service reads a text as a JSON text, and null as no document. */
export function isPlain(value: unknown): boolean {
  if (value === null || typeof value === 'string') return false
  return typeof value !== 'object' || !JSON.stringify(value).includes('"\\u0000')
}

/** Returns a value that is no document, with its numbers. */
export function numbersOf(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(numbersOf)
  const number = markedNumber(value)
  return number === undefined ? value : Number(number)
}
