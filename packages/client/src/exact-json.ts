/*
 * PostgreSQL has numbers that JavaScript would round: a bigint beyond 2^53, or a numeric with many digits. JSON has them
 * with all digits, and `JSON.parse` loses some.
 */

/** A text without this has no such number: each has few digits and a small exponent. */
const SUSPICIOUS = /[\d.]{16}|[eE][+-]?\d{3}/
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g
/** Every number with fewer significant digits survives. */
const SAFE_LENGTH = 15
/** PostgreSQL writes floating-point numbers with at most this many digits, and reads them back exactly. */
const FLOAT_DIGITS_MAX = 17

/** Parses JSON. A number that JavaScript cannot represent becomes a text with all of its digits. */
export function parseExactly(text: string): unknown {
  return JSON.parse(SUSPICIOUS.test(text) ? quoteInexact(text) : text)
}

/** Puts such numbers between quotes. Texts are left as they are. */
function quoteInexact(text: string): string {
  let result = ''
  let at = 0
  for (;;) {
    const quote = text.indexOf('"', at)
    const outside = quote === -1 ? text.slice(at) : text.slice(at, quote)
    result += outside.replace(NUMBER, (number) => (isExact(number) ? number : `"${number}"`))
    if (quote === -1) return result
    at = findTextEnd(text, quote)
    result += text.slice(quote, at)
  }
}

/** Returns the position after the text that begins with a quote. */
function findTextEnd(text: string, start: number): number {
  for (let quote = start; ; ) {
    quote = text.indexOf('"', quote + 1)
    if (quote === -1) return text.length
    let escapes = quote
    while (text[escapes - 1] === '\\') escapes--
    if ((quote - escapes) % 2 === 0) return quote + 1
  }
}

function isExact(number: string): boolean {
  const hasExponent = /[eE]/.test(number)
  if (number.length <= SAFE_LENGTH && !hasExponent) return true
  const value = Number(number)
  const given = decimalOf(number)
  if (!Number.isFinite(value) || (value === 0 && given.digits !== '')) return false
  // Of a number in the middle between two others, PostgreSQL and JavaScript write different digits.
  if (hasExponent && given.digits.length <= FLOAT_DIGITS_MAX) return true
  const kept = decimalOf(String(value))
  return kept.digits === given.digits && kept.exponent === given.exponent
}

/** Returns the digits without zeros at their ends, and the power of ten of the last digit. */
function decimalOf(number: string): { digits: string; exponent: number } {
  const [, whole = '', fraction = '', power = '0'] =
    /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(number) ?? []
  const all = `${whole}${fraction}`.replace(/^0+/, '')
  const digits = all.replace(/0+$/, '')
  if (digits === '') return { digits, exponent: 0 }
  return { digits, exponent: Number(power) - fraction.length + all.length - digits.length }
}
