import type { ColumnDefinition, ColumnType } from '@offshoot/client'

/*
 * CSV has only texts. An empty cell is an empty column. Lists, vectors and JSON are JSON texts. A column
 * inside an object has a dotted name.
 */

/** Longer values need a `text` column. */
const STRING_LENGTH_MAX = 2048

const INTEGER = /^-?(?:0|[1-9]\d*)$/
/** A number with as many digits after the point as amounts of money have, or more. */
const DECIMAL = /^-?(?:0|[1-9]\d{0,11})\.(\d{2,6})$/
/** Room for twelve digits before the point, and six after it. */
const DECIMAL_PRECISION = 18
const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/
const TIME = /^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?$/
const DATE = /^\d{4}-\d{2}-\d{2}$/
const TIME_OF_DAY = /^(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d{1,6})?)?$/
const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i
const EMAIL = /^[^\s@]+@[^\s@]+\.[^\s@]+$/

/** The types that a column of a CSV file can have, from the narrowest. */
const CANDIDATES: readonly { type: ColumnType; fits(text: string): boolean }[] = [
  { type: 'bool', fits: (text) => text === 'true' || text === 'false' },
  { type: 'int', fits: (text) => INTEGER.test(text) && Number.isSafeInteger(Number(text)) },
  { type: 'decimal', fits: (text) => DECIMAL.test(text) },
  { type: 'float', fits: isFloat },
  { type: 'datetime', fits: (text) => TIME.test(text) && !Number.isNaN(Date.parse(text)) },
  { type: 'date', fits: (text) => DATE.test(text) && !Number.isNaN(Date.parse(text)) },
  { type: 'time', fits: (text) => TIME_OF_DAY.test(text) },
  { type: 'uuid', fits: (text) => UUID.test(text) },
  { type: 'email', fits: (text) => EMAIL.test(text) },
  { type: 'multiple', fits: isListOfTexts },
  { type: 'string', fits: (text) => text.length <= STRING_LENGTH_MAX },
]

/** Whole numbers that a float would round are texts, such as the ids of other systems. */
function isFloat(text: string): boolean {
  return NUMBER.test(text) && (!INTEGER.test(text) || Number.isSafeInteger(Number(text)))
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
  #candidates = CANDIDATES
  #values = 0
  #scale = 0

  add(text: string): void {
    if (text === '') return
    const scale = DECIMAL.exec(text)?.[1]?.length ?? 0
    if (this.#values === 0) this.#scale = scale
    const isFixed = scale === this.#scale
    this.#values++
    this.#candidates = this.#candidates.filter(
      ({ type, fits }) => fits(text) && (isFixed || type !== 'decimal'),
    )
  }

  /** The definition of a column of the type. Numbers are exact if all of them have equally many digits after the point. */
  get definition(): Pick<ColumnDefinition, 'type' | 'decimal'> {
    const { type } = this
    if (type !== 'decimal') return { type }
    return { type, decimal: { precision: DECIMAL_PRECISION, scale: this.#scale } }
  }

  get type(): ColumnType {
    if (this.#values === 0) return 'string'
    return this.#candidates[0]?.type ?? 'text'
  }
}

/** Converts a cell to the value of a column. A cell that does not fit is sent as text, and refused. */
export function readCell(text: string, type: ColumnType): unknown {
  if (text === '') return undefined
  switch (type) {
    case 'bool':
      return text === 'true' ? true : text === 'false' ? false : text
    case 'int':
    case 'float':
      return NUMBER.test(text) ? Number(text) : text
    case 'datetime':
      return TIME.test(text) ? text.replace(' ', 'T') : text
    case 'multiple':
    case 'vector':
    case 'json':
    case 'file':
    case 'file[]':
      return parseJson(text)
    default:
      return text
  }
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

/** Reads the value at a dotted name. A link is read as the id of its record. */
export function valueAt(
  record: Readonly<Record<string, unknown>>,
  { name, type }: { name: string; type: ColumnType },
): unknown {
  let value: unknown = record
  for (const part of name.split('.')) value = (value as Record<string, unknown> | undefined)?.[part]
  return type === 'link' ? (value as { id: string } | undefined)?.id : value
}

/** Converts a value to a cell. */
export function writeCell(value: unknown, type: ColumnType): string {
  if (value === undefined || value === null) return ''
  return type === 'json' || typeof value === 'object' ? JSON.stringify(value) : String(value)
}
