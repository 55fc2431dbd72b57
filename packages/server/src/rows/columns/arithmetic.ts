import type { PhysicalColumn } from './column-tree.js'
import { Fault } from './fault.js'
import type { Arithmetic } from './record-encoder.js'
import { rangeWords, wholeRange } from './whole-numbers.js'

type Columns = readonly Pick<PhysicalColumn, 'path' | 'column'>[]

/**
 * Says why arithmetic has no effect on a row. PostgreSQL calculates the results; this tells which of them cannot be stored.
 * `textOf` returns the present values of the calculated columns.
 */
export function arithmeticFault(
  columns: Columns,
  arithmetic: readonly Arithmetic[],
  textOf: (column: number) => string | null,
): Fault {
  const faultOf = (term: Arithmetic | undefined, message: string) => {
    const path = (term && columns[term.column]?.path.join('.')) ?? ''
    return new Fault(`column [${path}]: ${message}`, undefined, path)
  }
  const empty = arithmetic.find(({ column }) => textOf(column) === null)
  if (empty !== undefined) return faultOf(empty, 'has no value to calculate with')
  const limited = arithmetic.filter((term) => limitOf(columns, term) !== undefined)
  const unfit =
    limited.find((term) => !fits(columns, term, textOf(term.column) ?? '')) ?? limited[0]
  const limit = unfit && limitOf(columns, unfit)
  return faultOf(unfit, `the result of the arithmetic cannot be stored exactly; expected ${limit}`)
}

/** Returns the numbers that a column can have. undefined: it has floats. */
function limitOf(columns: Columns, { column }: Arithmetic): string | undefined {
  const { type, bits, decimal } = columns[column]?.column ?? {}
  if (type === 'int') return `a whole number ${rangeWords(wholeRange(bits))}`
  if (decimal === undefined) return undefined
  const digits = decimal.precision - decimal.scale
  return digits === 0
    ? 'no digits before the decimal point'
    : `at most ${digits} ${digits === 1 ? 'digit' : 'digits'} before the decimal point`
}

/** A number as a fraction of whole numbers. */
interface Fraction {
  readonly over: bigint
  readonly under: bigint
}

function toFraction(text: string): Fraction {
  const [, sign, whole = '', fraction = '', power = '0'] =
    /^(-?)([0-9]*)\.?([0-9]*)(?:e([+-]?[0-9]+))?$/i.exec(text) ?? []
  const shift = Number(power) - fraction.length
  const digits = BigInt(`${sign}${whole}${fraction}`)
  const scale = 10n ** BigInt(Math.abs(shift))
  return shift < 0 ? { over: digits, under: scale } : { over: digits * scale, under: 1n }
}

const CALCULATE: Readonly<
  Record<Arithmetic['operator'], (left: Fraction, right: Fraction) => Fraction>
> = {
  '+': (a, b) => ({ over: a.over * b.under + b.over * a.under, under: a.under * b.under }),
  '-': (a, b) => ({ over: a.over * b.under - b.over * a.under, under: a.under * b.under }),
  '*': (a, b) => ({ over: a.over * b.over, under: a.under * b.under }),
  '/': (a, b) => ({ over: a.over * b.under, under: a.under * b.over }),
}

function fits(columns: Columns, { column, operator, operand }: Arithmetic, text: string): boolean {
  const { bits, decimal } = columns[column]?.column ?? {}
  const { over, under } = CALCULATE[operator](toFraction(text), toFraction(operand))
  if (decimal === undefined) {
    const { min, max } = wholeRange(bits)
    const whole = over / under
    return over % under === 0n && whole >= BigInt(min) && whole <= BigInt(max)
  }
  const [above, below] = [abs(over), abs(under)]
  // Half of the last digit is rounded away from zero.
  const rounded = (2n * above * 10n ** BigInt(decimal.scale) + below) / (2n * below)
  return rounded < 10n ** BigInt(decimal.precision)
}

const abs = (number: bigint): bigint => (number < 0n ? -number : number)
