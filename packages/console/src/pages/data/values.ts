import type { ColumnDefinition, TableDefinition } from '@offshoot/client'

/** Characters of a value that a cell of the grid shows. */
const SHOWN_LENGTH_MAX = 200
const VECTOR_SHOWN = 3

export type Parsed = { readonly value: unknown } | { readonly fault: string }

/** The metadata of a record, as columns. They cannot be edited. */
export const METADATA: readonly ColumnDefinition[] = [
  { name: 'service.version', type: 'int' },
  { name: 'service.createdAt', type: 'datetime' },
  { name: 'service.updatedAt', type: 'datetime' },
]

/** The ids of a table, as a column. */
export const idColumn = ({
  idType = 'string',
}: Partial<TableDefinition> = {}): ColumnDefinition => ({
  name: 'id',
  type: idType,
  unique: true,
})

export type Row = Readonly<Record<string, unknown>> & {
  readonly id: string
  readonly service: {
    readonly version: number
    readonly createdAt: string
    readonly updatedAt: string
  }
}

/** Returns the value of a column, also of the metadata. Columns can have the names of inherited fields, as `constructor`. */
export function columnValue(row: Readonly<Record<string, unknown>>, name: string): unknown {
  if (!name.startsWith('service.')) return Object.hasOwn(row, name) ? row[name] : undefined
  return (row.service as Record<string, unknown> | undefined)?.[name.slice('service.'.length)]
}

/** Returns a value as a short text for a cell. */
export function shortText(column: ColumnDefinition, value: unknown): string {
  if (value === null || value === undefined) return ''
  const text = shorten(column, value)
  return text.length > SHOWN_LENGTH_MAX ? `${text.slice(0, SHOWN_LENGTH_MAX)}…` : text
}

function shorten(column: ColumnDefinition, value: unknown): string {
  switch (column.type) {
    case 'vector': {
      const numbers = value as readonly number[]
      const first = numbers.slice(0, VECTOR_SHOWN).map((number) => Number(number.toPrecision(3)))
      return `[${first.join(', ')}${numbers.length > VECTOR_SHOWN ? ', …' : ''}] ${numbers.length}`
    }
    case 'multiple':
      return (value as readonly string[]).join(', ')
    case 'file':
      return fileName(value)
    case 'file[]':
      return (value as readonly unknown[]).map(fileName).join(', ')
    case 'text':
    case 'string':
      // Line breaks would be invisible in a cell of one line.
      return String(value)
        .slice(0, SHOWN_LENGTH_MAX + 1)
        .replace(/\r?\n/g, ' ↵ ')
    default:
      return longText(column, value)
  }
}

function fileName(file: unknown): string {
  const { name, mediaType } = file as { name?: string; mediaType?: string }
  return name || mediaType || 'file'
}

/** Returns a value as text from which `parseText` makes the same value. */
export function longText(column: ColumnDefinition, value: unknown): string {
  if (value === null || value === undefined) return ''
  switch (column.type) {
    case 'json':
    case 'object':
    case 'multiple':
    case 'vector':
    case 'file':
    case 'file[]':
      return JSON.stringify(value)
    case 'link':
      return (value as { id?: string }).id ?? String(value)
    default:
      return String(value)
  }
}

/** Reads a text as a value of a column. An empty text is no value. */
export function parseText(column: ColumnDefinition, text: string): Parsed {
  if (text === '') {
    return column.notNull === true &&
      column.defaultValue === undefined &&
      column.generate === undefined
      ? { fault: 'a value is required' }
      : { value: null }
  }
  switch (column.type) {
    case 'int':
      return /^[+-]?\d+$/.test(text.trim()) && Number.isSafeInteger(Number(text))
        ? { value: Number(text) }
        : { fault: 'expected a whole number' }
    case 'float':
      return Number.isFinite(Number(text.trim()))
        ? { value: Number(text) }
        : { fault: 'expected a number' }
    case 'bool':
      return parseBool(text)
    case 'email':
      return /^[^\s@]+@[^\s@]+$/.test(text.trim())
        ? { value: text.trim() }
        : { fault: 'expected an e-mail address' }
    case 'datetime':
      return parseTime(text)
    case 'decimal':
      return /^[+-]?\d+(\.\d+)?$/.test(text.trim())
        ? { value: text.trim() }
        : { fault: 'expected a decimal number such as 12.50' }
    case 'date':
      return isDay(text.trim())
        ? { value: text.trim() }
        : { fault: 'expected a day such as 2026-11-30' }
    case 'time':
      return TIME_OF_DAY.test(text.trim())
        ? { value: text.trim() }
        : { fault: 'expected a time such as 08:15' }
    case 'uuid':
      return UUID.test(text.trim())
        ? { value: text.trim().toLowerCase() }
        : { fault: 'expected a UUID' }
    case 'enum':
      return column.enum?.values.includes(text) === false
        ? { fault: `is not one of ${column.enum.values.join(', ')}` }
        : { value: text }
    case 'multiple':
      return parseList(text)
    case 'vector':
      return parseVector(column, text)
    case 'json':
      return parseJson(text)
    case 'object':
      return parseObject(text)
    case 'file':
    case 'file[]':
      return { fault: 'files are uploaded in the cell' }
    case 'string':
      return text.length > 2048 ? { fault: 'longer than 2048 characters' } : { value: text }
    default:
      return { value: text }
  }
}

const TIME_OF_DAY = /^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?$/
const UUID = /^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$/i

const YES = new Set(['true', 't', 'yes', 'y', '1'])
const NO = new Set(['false', 'f', 'no', 'n', '0'])

function parseBool(text: string): Parsed {
  const word = text.trim().toLowerCase()
  if (YES.has(word)) return { value: true }
  if (NO.has(word)) return { value: false }
  return { fault: 'expected true or false' }
}

/** RFC 3339. A date without a time, and a time without a zone, are in UTC. */
const TIME = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,6})?)?\s*(Z|[+-]\d\d:?\d\d)?)?$/i

function parseTime(text: string): Parsed {
  const [, date, time = '00:00', seconds = ':00', zone = 'Z'] = TIME.exec(text.trim()) ?? []
  if (date === undefined) return { fault: 'expected a time such as 2026-11-30T08:15:00Z' }
  const offset = zone.length === 5 ? `${zone.slice(0, 3)}:${zone.slice(3)}` : zone.toUpperCase()
  const value = `${date}T${time}${seconds}${offset}`
  const isReal = isDay(date) && !Number.isNaN(Date.parse(value))
  return isReal ? { value } : { fault: 'there is no such time' }
}

/** Whether a text is a day that exists. The parser of dates takes February 31 for a day of March. */
function isDay(text: string): boolean {
  if (!/^\d{4}-\d\d-\d\d$/.test(text)) return false
  const midnight = new Date(`${text}T00:00:00Z`)
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(text)
}

function parseList(text: string): Parsed {
  if (text.trim().startsWith('[')) {
    const parsed = tryJson(text)
    if (Array.isArray(parsed) && parsed.every((item) => typeof item === 'string')) {
      return { value: parsed }
    }
  }
  return { value: text.split(',').map((item) => item.trim()) }
}

function parseVector(column: ColumnDefinition, text: string): Parsed {
  const numbers = text
    .replace(/^\s*\[|\]\s*$/g, '')
    .split(/[\s,;]+/)
    .filter((part) => part !== '')
    .map(Number)
  const dimension = column.vector?.dimension ?? numbers.length
  if (!numbers.every(Number.isFinite)) return { fault: 'expected numbers' }
  if (numbers.length !== dimension) {
    return { fault: `expected ${dimension} numbers, got ${numbers.length}` }
  }
  return { value: numbers }
}

function parseJson(text: string): Parsed {
  const value = tryJson(text)
  return value === undefined ? { fault: 'is not valid JSON' } : { value }
}

/** Returns a value as the service takes it, which reads a string in a JSON column as JSON text. */
export function toWire(column: ColumnDefinition | undefined, value: unknown): unknown {
  return column?.type === 'json' && typeof value === 'string' ? JSON.stringify(value) : value
}

function parseObject(text: string): Parsed {
  const value = tryJson(text)
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? { value }
    : { fault: 'expected a JSON object' }
}

function tryJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Returns whether two values of a column are equal. */
export function isEqual(column: ColumnDefinition, left: unknown, right: unknown): boolean {
  return longText(column, left) === longText(column, right)
}

const NUMERIC = new Set(['int', 'float', 'decimal'])
export const isNumeric = ({ type }: ColumnDefinition): boolean => NUMERIC.has(type)

const WIDTHS: Partial<Record<ColumnDefinition['type'], number>> = {
  bool: 90,
  int: 110,
  float: 120,
  datetime: 200,
  decimal: 120,
  date: 120,
  time: 110,
  uuid: 300,
  text: 280,
  json: 240,
  object: 240,
  vector: 190,
  email: 210,
}

export function defaultWidth(column: ColumnDefinition): number {
  const forName = 92 + column.name.length * 8
  return Math.min(360, Math.max(WIDTHS[column.type] ?? 170, forName))
}
