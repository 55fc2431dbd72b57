import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../../common/json-text.js'
import { Fault } from './fault.js'

/** Maximum nesting depth of a `json` value. */
export const JSON_DEPTH_MAX = 256

/** Limits of PostgreSQL's type numeric, in which jsonb stores numbers. */
const DIGITS_BEFORE_POINT_MAX = 131_072
const DIGITS_AFTER_POINT_MAX = 16_383

const PLUS = 43
const MINUS = 45
const POINT = 46
const ZERO = 48
const NINE = 57
const LETTER_E = 101
const LETTER_U = 117
const LOWER_CASE = 32

const NUL = new Fault('contains a NUL character, which cannot be stored')
const LONE_SURROGATE = new Fault('contains half of a surrogate pair, which cannot be stored')
const NUMBER_TOO_LONG = new Fault('contains a number with more digits than can be stored')
export const TOO_DEEP = new Fault(`is nested deeper than ${JSON_DEPTH_MAX} levels`)

function isDigit(code: number): boolean {
  return code >= ZERO && code <= NINE
}

/** Finds values in valid JSON text that PostgreSQL cannot store as jsonb. */
class JsonTextChecker {
  private at = 0
  /**
   * The number of characters by which numbers grow when read back: PostgreSQL writes them without an
   * exponent. Unlimited, a small document could become too large to be read.
   */
  gained = 0

  constructor(private readonly text: string) {}

  check(): Fault | undefined {
    let depth = 0
    while (this.at < this.text.length) {
      const code = this.text.charCodeAt(this.at)
      if (code === QUOTE) {
        const fault = this.string()
        if (fault !== undefined) return fault
      } else if (code === MINUS || isDigit(code)) {
        const fault = this.number()
        if (fault !== undefined) return fault
      } else {
        if (code === OPEN_BRACKET || code === OPEN_BRACE) {
          if (++depth > JSON_DEPTH_MAX) return TOO_DEEP
        } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) {
          depth--
        }
        this.at++
      }
    }
    return undefined
  }

  private string(): Fault | undefined {
    for (this.at++; ; this.at++) {
      const code = this.text.charCodeAt(this.at)
      if (code === QUOTE) break
      if (code !== BACKSLASH) continue
      this.at++
      if (this.text.charCodeAt(this.at) !== LETTER_U) continue
      const unit = this.codeUnit()
      if (unit === 0) return NUL
      if (unit >= 0xdc00 && unit <= 0xdfff) return LONE_SURROGATE
      if (unit >= 0xd800 && unit <= 0xdbff) {
        if (!this.text.startsWith('\\u', this.at + 1)) return LONE_SURROGATE
        this.at += 2
        const low = this.codeUnit()
        if (low < 0xdc00 || low > 0xdfff) return LONE_SURROGATE
      }
    }
    this.at++
    return undefined
  }

  /** Parses the four digits after `\u`. Leaves the position on the last digit. */
  private codeUnit(): number {
    const start = this.at + 1
    this.at += 4
    return Number.parseInt(this.text.slice(start, start + 4), 16)
  }

  private number(): Fault | undefined {
    const start = this.at
    if (this.text.charCodeAt(this.at) === MINUS) this.at++
    let leading = true
    let leadingZeros = 0
    let before = 0
    let after = 0
    let inFraction = false
    for (; ; this.at++) {
      const code = this.text.charCodeAt(this.at)
      if (code === POINT) {
        inFraction = true
        continue
      }
      if (!isDigit(code)) break
      if (inFraction) after++
      else before++
      leading &&= code === ZERO
      if (leading) leadingZeros++
    }
    const exponent = this.exponent()
    const digitsAfter = Math.max(0, after - exponent)
    const digitsBefore = Math.max(0, before - leadingZeros + exponent)
    if (digitsAfter > DIGITS_AFTER_POINT_MAX || digitsBefore > DIGITS_BEFORE_POINT_MAX) {
      return NUMBER_TOO_LONG
    }
    this.gained += Math.max(0, digitsBefore + digitsAfter - (this.at - start))
    return undefined
  }

  private exponent(): number {
    if ((this.text.charCodeAt(this.at) | LOWER_CASE) !== LETTER_E) return 0
    this.at++
    const sign = this.text.charCodeAt(this.at)
    if (sign === PLUS || sign === MINUS) this.at++
    const start = this.at
    while (isDigit(this.text.charCodeAt(this.at))) this.at++
    const size = Number(this.text.slice(start, this.at))
    return sign === MINUS ? -size : size
  }
}

/**
 * Checks valid JSON text. Returns a fault if PostgreSQL cannot store it as jsonb, or if the text read back
 * would exceed `bytesMax`.
 */
export function checkJsonText(text: string, bytesMax: number): Fault | undefined {
  const checker = new JsonTextChecker(text)
  const fault = checker.check()
  if (fault !== undefined) return fault
  // A text that exceeds the limit by itself is reported by the size check of the whole record.
  if (checker.gained === 0 || text.length + checker.gained <= bytesMax) return undefined
  return new Fault(`is larger than ${bytesMax} bytes with its numbers written out`)
}
