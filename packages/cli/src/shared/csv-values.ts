import type { ColumnDefinition, ColumnType } from '@offshoot/client'

/*
 * CSV has only texts. As in PostgreSQL, an empty cell is an empty column, and an empty text is in quotes. Lists, vectors
 * and JSON are JSON texts. A column inside an object has a dotted name.
 */

/** Longer values need a `text` column. */
const STRING_LENGTH_MAX = 2048

const INTEGER = /^-?(?:0|[1-9]\d*)$/
/** A number with as many digits after the point as amounts of money have, or more. */
const DECIMAL = /^-?(?:0|[1-9]\d{0,11})\.(\d{2,6})$/
/** Room for twelve digits before the point, and six after it. */
const DECIMAL_PRECISION = 18
const WHOLE_DIGITS = 12
/** Digits of the longest decimal that a column can have. */
const DECIMAL_DIGITS_MAX = 1000
/** A number of any length: its digits before and after the point, and its exponent. */
const NUMBER = /^-?(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/
/** A float keeps any number of this many digits. */
const FLOAT_DIGITS = 15
const TIME =
  /^(\d{4}-\d{2}-\d{2})[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6}0*)?(?:Z|[+-](?:0\d|1[0-5]):[0-5]\d)$/i
const DATE = /^\d{4}-\d{2}-\d{2}$/
const TIME_OF_DAY = /^(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?$/
const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i
const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/

interface Candidate {
  readonly type: ColumnType
  /** All numbers have equally many digits after the point. */
  readonly isFixed?: boolean
  fits(text: string): boolean
}

/** The types that a column of a CSV file can have, from the narrowest. */
const CANDIDATES: readonly Candidate[] = [
  { type: 'bool', fits: (text) => text === 'true' || text === 'false' },
  { type: 'int', fits: (text) => INTEGER.test(text) && Number.isSafeInteger(Number(text)) },
  { type: 'decimal', isFixed: true, fits: (text) => DECIMAL.test(text) },
  { type: 'float', fits: isFloat },
  { type: 'decimal', fits: (text) => NUMBER.test(text) },
  { type: 'datetime', fits: (text) => isDay(TIME.exec(text)?.[1] ?? '') },
  { type: 'date', fits: isDay },
  { type: 'time', fits: (text) => TIME_OF_DAY.test(text) },
  { type: 'uuid', fits: (text) => UUID.test(text) },
  { type: 'email', fits: (text) => EMAIL.test(text) },
  { type: 'multiple', fits: isListOfTexts },
  { type: 'string', fits: (text) => text.length <= STRING_LENGTH_MAX },
]

/** The types that numbers of JSON can have. Their zeros at the end say nothing. */
const NUMBERS = CANDIDATES.filter(
  ({ type, isFixed }) => ['int', 'float', 'decimal'].includes(type) && isFixed !== true,
)

/** Numbers that a float would round are decimals. */
function isFloat(text: string): boolean {
  if (!NUMBER.test(text) || !Number.isFinite(Number(text))) return false
  if (INTEGER.test(text)) return Number.isSafeInteger(Number(text))
  const [mantissa = ''] = text.toLowerCase().split('e')
  const digits = mantissa.replace(/[-.]/g, '').replace(/^0+|0+$/g, '')
  return digits.length <= FLOAT_DIGITS || String(Number(text)) === text
}

/** Whether a text is a day that exists. */
function isDay(text: string): boolean {
  if (!DATE.test(text) || text.startsWith('0000')) return false
  const midnight = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(text)
}

function isListOfTexts(text: string): boolean {
  if (!text.startsWith('[')) return false
  try {
    const value: unknown = JSON.parse(text)
    return Array.isArray(value) && value.every((item) => typeof item === 'string')
  } catch {
    return false
  }
}

/** Finds the narrowest type that fits all values of a column. */
export class TypeInference {
  #candidates: readonly Candidate[]
  #values = 0
  #scale = 0
  /** The most digits before the point, and after it. */
  #wholeMax = WHOLE_DIGITS
  #scaleMax = 0

  /** Of a CSV file, or only of numbers of JSON. */
  constructor(kind: 'cells' | 'numbers' = 'cells') {
    this.#candidates = kind === 'cells' ? CANDIDATES : NUMBERS
  }

  add(text: string | null): void {
    if (text === '' || text === null) return
    const scale = DECIMAL.exec(text)?.[1]?.length ?? 0
    if (this.#values === 0) this.#scale = scale
    const hasScale = scale === this.#scale
    this.#values++
    const [, whole = '', fraction = '', exponent = '0'] = NUMBER.exec(text) ?? []
    this.#wholeMax = Math.max(this.#wholeMax, whole.length + Number(exponent))
    this.#scaleMax = Math.max(this.#scaleMax, fraction.length - Number(exponent))
    this.#candidates = this.#candidates.filter(
      ({ fits, isFixed = false }) => fits(text) && (hasScale || !isFixed),
    )
  }

  /** The definition of a column of the type. Numbers are exact if all of them have equally many digits after the point. */
  get definition(): Pick<ColumnDefinition, 'type' | 'decimal'> {
    const { type, isFixed = false } = this.#found
    if (type !== 'decimal') return { type }
    if (isFixed) return { type, decimal: { precision: DECIMAL_PRECISION, scale: this.#scale } }
    return { type, decimal: { precision: this.#wholeMax + this.#scaleMax, scale: this.#scaleMax } }
  }

  get type(): ColumnType {
    return this.#found.type
  }

  get #found(): Pick<Candidate, 'type' | 'isFixed'> {
    if (this.#values === 0) return { type: 'string' }
    const isLong = this.#wholeMax + this.#scaleMax > DECIMAL_DIGITS_MAX
    return this.#candidates.find(({ type }) => type !== 'decimal' || !isLong) ?? { type: 'text' }
  }
}

/** Types that have the empty text. */
const TEXTS: ReadonlySet<ColumnType> = new Set(['string', 'text'])

/** Whether a cell has no value. Many programs put all cells in quotes, also those without a value. */
export function isEmptyCell(text: string | null, type: ColumnType): text is '' | null {
  return text === null || (text === '' && !TEXTS.has(type))
}

/** Converts a cell to the value of a column. A cell that does not fit is sent as text, and refused. */
export function readCell(text: string, type: ColumnType): unknown {
  switch (type) {
    case 'bool':
      return text === 'true' ? true : text === 'false' ? false : text
    case 'int':
      return NUMBER.test(text) && Number.isFinite(Number(text)) && !isRoundedWhole(text)
        ? Number(text)
        : text
    case 'float':
      return NUMBER.test(text) && Number.isFinite(Number(text)) ? Number(text) : text
    case 'datetime':
      return TIME.test(text) ? text.replace(' ', 'T') : text
    case 'multiple':
    case 'vector':
    case 'file':
    case 'file[]':
      return parseJson(text)
    default:
      return text
  }
}

/** Whether a fraction is so long that its float is a whole number. */
function isRoundedWhole(text: string): boolean {
  return /^-?\d+\.\d*[1-9]/.test(text) && !/e/i.test(text) && Number.isInteger(Number(text))
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Lists the columns of a table with dotted names, without the objects themselves. */
export function flatColumns(
  columns: readonly ColumnDefinition[],
  prefix = '',
): { name: string; type: ColumnType }[] {
  return columns.flatMap(({ name, type, columns: inner }) =>
    type === 'object'
      ? flatColumns(inner ?? [], `${prefix}${name}.`)
      : [{ name: `${prefix}${name}`, type }],
  )
}

/** Returns an empty record. It has no prototype, so that no name of a column can reach one. */
export function emptyRecord(): Record<string, unknown> {
  return Object.create(null) as Record<string, unknown>
}

/** Sets a value at a dotted name. */
export function setAt(record: Record<string, unknown>, name: string, value: unknown): void {
  const parts = name.split('.')
  const last = parts.pop() ?? name
  let place = record
  for (const part of parts) {
    place[part] ??= emptyRecord()
    place = place[part] as Record<string, unknown>
  }
  place[last] = value
}

/** Reads a field. Every object inherits some, such as `constructor`, and columns can have their names. */
export function ownValue(record: unknown, name: string): unknown {
  if (typeof record !== 'object' || record === null || !Object.hasOwn(record, name))
    return undefined
  return (record as Record<string, unknown>)[name]
}

/** Reads the value at a dotted name. A link is read as the id of its record. */
export function valueAt(
  record: Readonly<Record<string, unknown>>,
  { name, type }: { name: string; type: ColumnType },
): unknown {
  let value: unknown = record
  for (const part of name.split('.')) value = ownValue(value, part)
  return type === 'link' ? (value as { id: string } | undefined)?.id : value
}

/** Converts a value to a cell. */
export function writeCell(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}
