import { RoundedNumber } from '../../common/exact-json.js'
import type { ColumnTypeEntry, ValueCodec } from './column-type.js'
import { selectItself } from './column-type.js'
import { Fault } from './fault.js'
import { BEYOND_RANGE, NOT_FINITE } from './number-types.js'

/** Sign, whole digits, fraction digits and exponent. */
const DECIMAL = /^([+-]?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,5}))?$/

const ZERO = 48

/** A JSON number keeps this many digits in any language. Those beyond may have been rounded before they arrived. */
const NUMBER_DIGITS_MAX = 15

/** Digits of the longest decimal that PostgreSQL stores, on either side of the point. */
const DIGITS_MAX = 1000

const NOT_A_DECIMAL = new Fault('is not a decimal number, such as "12.50"')
const TOO_LONG = new Fault(`has more than ${DIGITS_MAX} digits`)
const NO_NUMBER = new Fault(`is not a decimal number: ${BEYOND_RANGE}`)
/** A JSON number that is not kept exactly. */
export const ROUNDED = new Fault(
  `has more than ${NUMBER_DIGITS_MAX} digits, which a JSON number does not keep; send it as a string`,
)

/** A decimal number as its digits: `whole` without leading zeros, `fraction` without trailing ones. */
interface Digits {
  readonly isNegative: boolean
  readonly whole: string
  readonly fraction: string
}

function readDigits(value: unknown): Digits | Fault {
  if (value instanceof RoundedNumber) return ROUNDED
  if (typeof value !== 'string' && typeof value !== 'number') {
    return Fault.expected('a decimal number, as a string or a number', value)
  }
  const [matched, sign, whole = '', fraction = '', exponent] = DECIMAL.exec(String(value)) ?? []
  if (matched === undefined) return NOT_FINITE.has(value) ? NO_NUMBER : NOT_A_DECIMAL
  const shift = Number(exponent ?? 0)
  if (whole.length + fraction.length + Math.abs(shift) > 2 * DIGITS_MAX) return TOO_LONG
  // Moves the decimal point by the exponent.
  const digits = `${'0'.repeat(Math.max(0, -shift))}${whole}${fraction}${'0'.repeat(Math.max(0, shift))}`
  const point = Math.max(0, -shift) + whole.length + shift
  const read: Digits = {
    isNegative: sign === '-',
    whole: digits.slice(0, point).replace(/^0+/, ''),
    fraction: withoutZeros(digits.slice(point)),
  }
  if (read.whole.length > DIGITS_MAX || read.fraction.length > DIGITS_MAX) return TOO_LONG
  if (typeof value === 'number') {
    const significant = `${read.whole}${read.fraction}`.replace(/^0+|0+$/g, '')
    if (significant.length > NUMBER_DIGITS_MAX) return ROUNDED
  }
  return read
}

/** Removes zeros at the end. An expression would look at each run of zeros from each of its positions. */
function withoutZeros(digits: string): string {
  let end = digits.length
  while (end > 0 && digits.charCodeAt(end - 1) === ZERO) end--
  return digits.slice(0, end)
}

function writeDigits({ isNegative, whole, fraction }: Digits, scale: number): string {
  const isZero = whole === '' && fraction === ''
  const digits = scale === 0 ? '' : `.${fraction.padEnd(scale, '0')}`
  return `${isNegative && !isZero ? '-' : ''}${whole === '' ? '0' : whole}${digits}`
}

/** Returns the text of a decimal number to compare with, with any number of digits. */
export function encodeDecimal(value: unknown): string | Fault {
  const digits = readDigits(value)
  return digits instanceof Fault ? digits : writeDigits(digits, digits.fraction.length)
}

function compileDecimal({ precision, scale }: { precision: number; scale: number }): ValueCodec {
  const wholeMax = precision - scale
  const tooFine = new Fault(
    scale === 0
      ? 'has digits after the decimal point, and the column has none'
      : `has more than ${scale} digits after the decimal point`,
  )
  const tooLarge = new Fault(
    wholeMax === 0
      ? 'is not between -1 and 1'
      : `has more than ${wholeMax} digits before the decimal point`,
  )
  return {
    encode(value) {
      const digits = readDigits(value)
      if (digits instanceof Fault) return digits
      if (digits.fraction.length > scale) return tooFine
      return digits.whole.length > wholeMax ? tooLarge : writeDigits(digits, scale)
    },
    decode: (text) => `"${text}"`,
  }
}

/**
 * A number with a fixed number of decimal digits. Precision and scale are checked here and are no part of the type in
 * PostgreSQL, so that they can be widened without a new column. Values are always written with all digits of the scale,
 * so equal values have equal texts.
 */
export const decimalType: ColumnTypeEntry = {
  sqlType: 'numeric',
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: ({ decimal }) => compileDecimal(decimal ?? { precision: DIGITS_MAX, scale: 0 }),
  parseDefault(text, column, options) {
    return decimalType.compile(column, options).encode(text)
  },
}
