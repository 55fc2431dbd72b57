import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { rangeWords, wholeRange } from '../../rows/columns/whole-numbers.js'

type Arithmetic = EncodedUpdate['arithmetic'][number]

/** Returns the paths of the columns that an update calculates. */
export function calculatedPaths(
  codec: TableCodec,
  { arithmetic }: Pick<EncodedUpdate, 'arithmetic'>,
): string[] {
  return arithmetic.map(({ column }) => pathOf(codec, column))
}

function pathOf({ physical }: TableCodec, column: number): string {
  return physical[column]?.path.join('.') ?? ''
}

/** Why the arithmetic of an update has no effect on a record. */
export interface ArithmeticFault {
  readonly column: string
  readonly message: string
}

/** Says why the arithmetic of an update has no effect. `textOf` returns the present values of the calculated columns. */
export function arithmeticFault(
  codec: TableCodec,
  { arithmetic }: Pick<EncodedUpdate, 'arithmetic'>,
  textOf: (column: number) => string | null,
): ArithmeticFault {
  const empty = arithmetic.find(({ column }) => textOf(column) === null)
  if (empty !== undefined) {
    const column = pathOf(codec, empty.column)
    return { column, message: `column [${column}]: has no value to calculate with` }
  }
  const limited = arithmetic.filter((term) => limitOf(codec, term) !== undefined)
  const unfit = limited.find((term) => !fits(codec, term, textOf(term.column) ?? '')) ?? limited[0]
  const column = unfit === undefined ? '' : pathOf(codec, unfit.column)
  const limit = unfit && limitOf(codec, unfit)
  const message = `column [${column}]: the result of the arithmetic cannot be stored exactly; expected ${limit}`
  return { column, message }
}

/** Returns the numbers that a column can have. undefined: it has floats. */
function limitOf(codec: TableCodec, { column }: Arithmetic): string | undefined {
  const { type, bits, decimal } = codec.physical[column]?.column ?? {}
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

/** Returns whether a column can have the result. PostgreSQL has decided that one cannot; this tells which. */
function fits(codec: TableCodec, { column, operator, operand }: Arithmetic, text: string): boolean {
  const { bits, decimal } = codec.physical[column]?.column ?? {}
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
