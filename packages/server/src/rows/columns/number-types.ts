import {
  type ColumnTypeEntry,
  decodeItself,
  selectArray,
  selectItself,
  type ValueCodec,
} from './column-type.js'
import { Fault } from './fault.js'
import { isInRange, rangeWords, type WholeRange, wholeRange } from './whole-numbers.js'

const WHOLE_NUMBER = /^-?(?:0|[1-9][0-9]*)$/
const DECIMAL_NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/
const NON_ZERO_DIGIT = /^[^eE]*[1-9]/

/** Returns the shortest text that parses as this number. Unlike `String`, keeps the sign of -0. */
function floatText(value: number): string {
  return value === 0 && 1 / value < 0 ? '-0' : String(value)
}

const boolCodec: ValueCodec = {
  encode: (value) =>
    value === true ? 't' : value === false ? 'f' : Fault.expected('a boolean', value),
  // PostgreSQL writes a boolean as `t`, and a boolean cast to text as `true`.
  decode: (text) => (text.startsWith('t') ? 'true' : 'false'),
}

export const boolType: ColumnTypeEntry = {
  sqlType: 'boolean',
  allows: { unique: false, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: () => boolCodec,
  parseDefault(text) {
    if (text === 'true') return 't'
    return text === 'false' ? 'f' : new Fault('expected true or false')
  },
}

export const NOT_WHOLE = new Fault('expected a whole number, got a fraction')

function refuseInteger(value: unknown, range: WholeRange): Fault {
  if (typeof value !== 'number') return Fault.expected('a whole number', value)
  return Number.isInteger(value) || !Number.isFinite(value)
    ? new Fault(`is not ${rangeWords(range)}`)
    : NOT_WHOLE
}

function compileInt(range: WholeRange): ValueCodec {
  return {
    encode: (value) =>
      typeof value === 'number' && isInRange(value, range)
        ? String(value)
        : refuseInteger(value, range),
    decode: decodeItself,
  }
}

const intCodec = compileInt(wholeRange(undefined))

/** Returns the text of a whole number, whatever the size of its column. */
export function encodeInt(value: unknown): string | Fault {
  return intCodec.encode(value)
}

/**
 * A whole number. Its size is checked here and is no part of the type in PostgreSQL, so that it can be widened without a
 * new column.
 */
export const intType: ColumnTypeEntry = {
  sqlType: 'bigint',
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: ({ bits }) => (bits === undefined ? intCodec : compileInt(wholeRange(bits))),
  parseDefault(text, column, options) {
    return WHOLE_NUMBER.test(text)
      ? intType.compile(column, options).encode(Number(text))
      : new Fault('expected a whole number')
  },
}

/** As PostgreSQL writes them as JSON. */
export const NOT_FINITE: ReadonlySet<unknown> = new Set(['NaN', 'Infinity', '-Infinity'])
export const BEYOND_RANGE = 'NaN and infinity are out of range and not supported'
const NO_NUMBER = new Fault(`expected a number: ${BEYOND_RANGE}`)

const floatCodec: ValueCodec = {
  encode(value) {
    if (typeof value !== 'number') {
      return NOT_FINITE.has(value) ? NO_NUMBER : Fault.expected('a number', value)
    }
    return Number.isFinite(value) ? floatText(value) : new Fault('is out of range')
  },
  decode: decodeItself,
}

export const floatType: ColumnTypeEntry = {
  sqlType: 'double precision',
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: () => floatCodec,
  parseDefault(text) {
    if (!DECIMAL_NUMBER.test(text)) return new Fault('expected a decimal number')
    const value = Number(text)
    if (value === 0 && NON_ZERO_DIGIT.test(text)) return new Fault('is out of range')
    return floatCodec.encode(value)
  },
}

/**
 * Returns a text that PostgreSQL parses as `single`, which is `Math.fround(value)`. The shortest text of the
 * double is one, unless the double is exactly halfway between two singles: then PostgreSQL may round to
 * the other single.
 */
function singleText(value: number, single: number): string {
  const mirrored = 2 * value - single
  return floatText(Math.fround(mirrored) === mirrored ? single : value)
}

export const vectorType: ColumnTypeEntry = {
  sqlType: 'real[]',
  allows: { unique: false, index: true, notNull: false, defaultValue: false },
  select: selectArray,
  compile(column) {
    const dimension = column.vector?.dimension
    return {
      encode(value) {
        if (!Array.isArray(value)) return Fault.expected('an array of numbers', value)
        if (value.length !== dimension) {
          return new Fault(`expected ${dimension} numbers, got ${value.length}`)
        }
        let literal = '{'
        for (let index = 0; index < value.length; index++) {
          const component: unknown = value[index]
          if (typeof component !== 'number') {
            return new Fault(`element [${index}]: ${Fault.expected('a number', component).message}`)
          }
          const single = Math.fround(component)
          if (!Number.isFinite(single) || (single === 0 && component !== 0)) {
            return new Fault(`element [${index}]: is out of the range of single precision`)
          }
          if (index > 0) literal += ','
          literal += singleText(component, single)
        }
        return `${literal}}`
      },
      decode: decodeItself,
    }
  },
  parseDefault: () => new Fault('is not possible for a vector'),
}
