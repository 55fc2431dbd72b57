import { EMAIL_PATTERN, RECORD_ID_PATTERN } from '@offshoot/contract/names'
import type { ColumnType } from '@offshoot/contract/schema'
import { join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { COLUMN_TYPE_ENTRIES } from './column-types.js'
import { listOrigins, type StoredColumn } from './stored-schema.js'
import { UNIQUE_BYTES_MAX } from './text-types.js'
import { idInRangeSql, inRangeSql, isFewerBits, wholeRange } from './whole-numbers.js'

/*
 * Conversions of values between the types of columns. A value that does not convert becomes null; no conversion ever
 * fails. Rows that a branch inherits are converted when they are read, also in conditions that PostgreSQL evaluates for
 * rows that the branch does not see, so a failure would make statements fail that have nothing to do with the value.
 *
 * A conversion keeps the whole value or does not convert it: nothing is rounded or cut off. A text converts if it can mean
 * nothing else. Zeros or signs in front of digits can: they may be a postal code or a telephone number.
 */

/** A definition of a column, as far as conversions depend on it. */
type Typed = Pick<StoredColumn, 'type' | 'decimal' | 'enum' | 'vector'>

const TEXT_TYPES: readonly ColumnType[] = ['string', 'text', 'email', 'enum', 'link']

/** Types whose values are texts, and texts that can be read as a value of the type. */
const FROM_TEXT: readonly ColumnType[] = [
  ...['string', 'text', 'email', 'enum', 'int', 'float', 'decimal'],
  ...['bool', 'datetime', 'date', 'time', 'uuid', 'multiple'],
] as ColumnType[]

/** The types that a type converts to. Other types have no values that could be the same. */
const TARGETS: Readonly<Record<ColumnType, readonly ColumnType[]>> = {
  string: [...FROM_TEXT, 'link'],
  text: [...FROM_TEXT, 'link'],
  email: FROM_TEXT,
  enum: FROM_TEXT,
  link: ['string', 'text', 'int', 'uuid'],
  int: ['int', 'float', 'decimal', 'string', 'text', 'bool', 'enum', 'json', 'link'],
  float: ['int', 'float', 'decimal', 'string', 'text', 'json'],
  decimal: ['int', 'float', 'decimal', 'string', 'text'],
  bool: ['bool', 'int', 'string', 'text', 'enum', 'json'],
  datetime: ['datetime', 'date', 'string', 'text'],
  date: ['date', 'datetime', 'string', 'text'],
  time: ['time', 'string', 'text'],
  uuid: ['uuid', 'string', 'text', 'link'],
  json: ['text', 'json'],
  multiple: ['multiple', 'json'],
  vector: ['vector'],
  object: [],
  file: [],
  'file[]': [],
}

/** Changes of the form of its values that a column can have had. Each makes reading inherited rows a little slower. */
const CONVERSIONS_MAX = 10

/** Returns why a column cannot be made of the one that it is made of. undefined: it can. */
export function conversionFault(column: StoredColumn): string | undefined {
  const origins = listOrigins(column)
  for (const [index, origin] of origins.entries()) {
    const { type } = origins[index - 1] ?? column
    if (!TARGETS[origin.type].includes(type)) {
      return `cannot be changed from type [${origin.type}] to [${type}]; add a column instead`
    }
  }
  return origins.length > CONVERSIONS_MAX
    ? `its values were changed ${CONVERSIONS_MAX} times; add a column instead`
    : undefined
}

/** Returns whether two columns store a value in the same form, so that it needs no conversion. */
export function haveSameForm(one: Typed, other: Typed): boolean {
  return (
    one.type === other.type &&
    one.decimal?.scale === other.decimal?.scale &&
    one.vector?.dimension === other.vector?.dimension
  )
}

/** Returns SQL for a value that is converted, or null. */
export function convertedSql(value: Sql, from: Typed, to: Typed): Sql {
  const type = raw(COLUMN_TYPE_ENTRIES[to.type].sqlType)
  if (haveSameForm(from, to)) return value
  if (!TARGETS[from.type].includes(to.type)) return sql`null::${type}`
  return sql`(${conversion(value, from, to)})::${type}`
}

function conversion(value: Sql, from: Typed, to: Typed): Sql {
  switch (to.type) {
    case 'int':
    case 'float':
    case 'decimal':
      return numberFrom(value, from, to)
    case 'bool':
      if (from.type === 'int') return sql`case ${value} when 1 then true when 0 then false end`
      return TEXT_TYPES.includes(from.type)
        ? sql`case ${value} when 'true' then true when 'false' then false end`
        : value
    case 'json':
      return from.type === 'json' ? value : sql`to_jsonb(${value})`
    case 'multiple':
      return from.type === 'multiple'
        ? value
        : sql`case when ${value} is not null then array[${value}]::text[] end`
    case 'vector':
      return sql`case when cardinality(${value}) = ${number(to.vector?.dimension ?? 0)} then ${value} end`
    case 'datetime':
      return from.type === 'date'
        ? sql`(${value})::timestamp at time zone 'UTC'`
        : TEXT_TYPES.includes(from.type)
          ? datetimeFrom(value)
          : value
    case 'date':
      // A datetime at midnight is a date; any other one has a time that would be lost.
      if (from.type === 'datetime') {
        const local = sql`(${value} at time zone 'UTC')`
        return sql`case when ${local} = date_trunc('day', ${local}) then ${local}::date end`
      }
      return TEXT_TYPES.includes(from.type) ? dateFrom(value) : value
    case 'time':
      return TEXT_TYPES.includes(from.type)
        ? sql`case when ${value} ~ ${literal(TIME)} then (${value})::time end`
        : value
    case 'uuid':
      return TEXT_TYPES.includes(from.type)
        ? sql`case when ${value} ~ ${literal(UUID)} then (${value})::uuid end`
        : value
    case 'link':
      return TEXT_TYPES.includes(from.type)
        ? sql`case when ${value} ~ ${literal(RECORD_ID_PATTERN)} then ${value} end`
        : textOf(value, from)
    case 'email':
      return sql`case when ${value} ~ ${literal(EMAIL_PATTERN)} then ${value} end`
    case 'enum': {
      const text = textOf(value, from)
      return sql`case when ${isValueOf(text, to)} then ${text} end`
    }
    default:
      return textOf(value, from)
  }
}

const UUID = '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$'
const TIME = '^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,6})?)?$'
const DATE = '^(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$'
const DATETIME =
  '^[0-9-]{10}[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,6})?)?(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$'
const INT = '^(0|-?[1-9][0-9]*)$'
const DECIMAL = '^(?!-[0.]*$)-?(0|[1-9][0-9]*)(\\.[0-9]+)?$'
const FLOAT = '^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$'
/** With this length, a number has no more digits than PostgreSQL stores. */
const NUMBER_LENGTH_MAX = 400

const number = (value: number): Sql => raw(String(value))

/** Returns the condition that a text is a value of an enum, which has at least one. */
export function isValueOf(text: Sql, { enum: { values } = { values: [] } }: Typed): Sql {
  return values.length === 0 ? sql`false` : sql`${text} in (${join(values.map(literal), ', ')})`
}

/** The text of a value, as JSON shows it without quotes. */
export function textOf(value: Sql, { type }: Typed): Sql {
  if (type !== 'datetime') return TEXT_TYPES.includes(type) ? value : sql`(${value})::text`
  const format = 'YYYY-MM-DD"T"HH24:MI:SS.'
  const fraction = sql`to_char(${value} at time zone 'UTC', 'US')`
  // Milliseconds, or microseconds if there are any.
  return sql`to_char(${value} at time zone 'UTC', ${literal(format)}) || case
    when ${fraction} like '%000' then left(${fraction}, 3) else ${fraction} end || 'Z'`
}

function numberFrom(value: Sql, from: Typed, to: Typed): Sql {
  if (from.type === 'bool') return sql`case when ${value} then 1 when not ${value} then 0 end`
  if (TEXT_TYPES.includes(from.type)) return numberFromText(value, to)
  // A float is read by its shortest text, which has the digits that its owner wrote.
  return from.type === 'float' ? ifNumber(sql`(${value})::text`, FLOAT, to) : ifFits(value, to)
}

function numberFromText(text: Sql, to: Typed): Sql {
  if (to.type !== 'float') return ifNumber(text, to.type === 'int' ? INT : DECIMAL, to)
  const float = sql`(${text})::double precision`
  // Its shortest text has all of its digits.
  const isExact = sql`(${float})::text::numeric = (${text})::numeric`
  const converted = sql`case when ${isExact} then ${float} end`
  return ifNumber(text, FLOAT, to, converted)
}

/** Returns the number of a text that has a pattern, or null. */
function ifNumber(text: Sql, pattern: string, to: Typed, converted?: Sql): Sql {
  const isNumber = sql`${text} ~ ${literal(pattern)} and char_length(${text}) <= ${number(NUMBER_LENGTH_MAX)}`
  return sql`case when ${isNumber} then ${ifFits(text, to, converted)} end`
}

/** Returns a number if its column can have it, or null. */
function ifFits(value: Sql, to: Typed, converted?: Sql): Sql {
  const numeric = sql`(${value})::numeric`
  const fitting = to.type === 'decimal' ? sql`round(${numeric}, ${scaleOf(to)})` : numeric
  return sql`case when ${rangeOf(numeric, to)} then ${converted ?? fitting} end`
}

const scaleOf = ({ decimal }: Typed): Sql => number(decimal?.scale ?? 0)

/** The smallest number above zero, and the largest one, that are far from the limits of a float. */
const FLOAT_MIN = sql`1e-300`
const FLOAT_MAX = sql`1e300`

function rangeOf(numeric: Sql, to: Typed): Sql {
  if (to.type === 'int') {
    const max = number(Number.MAX_SAFE_INTEGER)
    return sql`${numeric} = trunc(${numeric}) and abs(${numeric}) <= ${max}`
  }
  if (to.type === 'float') {
    return sql`${numeric} = 0 or abs(${numeric}) between ${FLOAT_MIN} and ${FLOAT_MAX}`
  }
  return sql`${fitsPrecision(numeric, to)} and scale(trim_scale(${numeric})) <= ${scaleOf(to)}`
}

/** Returns the condition that a number has no more digits than its column can have. */
export function fitsPrecision(numeric: Sql, { decimal }: Typed): Sql {
  const whole = (decimal?.precision ?? 0) - (decimal?.scale ?? 0)
  return sql`abs(${numeric}) < ${raw(`1e${whole}`)}::numeric`
}

/** A date that the calendar has. The conditions are nested, because PostgreSQL may reorder those of one `and`. */
function dateFrom(text: Sql): Sql {
  return sql`case when ${text} ~ ${literal(DATE)} then
    case when substr(${text}, 9, 2)::integer <= extract(day from
      make_date(substr(${text}, 1, 4)::integer, substr(${text}, 6, 2)::integer, 1)
        + interval '1 month' - interval '1 day')
    then (${text})::date end end`
}

/** A moment with an offset from UTC, or a date, which stands for its midnight in UTC. */
function datetimeFrom(text: Sql): Sql {
  const date = dateFrom(sql`left(${text}, 10)`)
  return sql`case
    when ${text} ~ ${literal(DATE)} then (${dateFrom(text)})::timestamp at time zone 'UTC'
    when ${text} ~ ${literal(DATETIME)} then case
      -- An offset moves no moment out of the years that can be stored.
      when left(${text}, 4) in ('0001', '9999') and right(${text}, 1) <> 'Z' then null
      when (${date}) is not null then (${text})::timestamptz
    end
  end`
}

/** The lengths that a column may have. */
interface Lengths {
  readonly stringLengthMax: number
  readonly emailLengthMax: number
  readonly nameLengthMax: number
}

/** Returns the condition that a value is one of those that its column can have. undefined: all are. */
export function fitsSql(value: Sql, column: StoredColumn, limits: Lengths): Sql | undefined {
  const conditions: Sql[] = []
  const { type, unique, link, bits, maxLength = Number.POSITIVE_INFINITY } = column
  const lengthMax = type === 'string' ? Math.min(maxLength, limits.stringLengthMax) : maxLength
  if (Number.isFinite(lengthMax)) {
    conditions.push(sql`char_length(${value}) <= ${number(lengthMax)}`)
  }
  if (bits !== undefined) conditions.push(inRangeSql(value, wholeRange(bits)))
  if (type === 'link')
    conditions.push(sql`char_length(${value}) <= ${number(limits.nameLengthMax)}`)
  if (link?.idBits !== undefined) conditions.push(idInRangeSql(value, link.idBits))
  if (type === 'email')
    conditions.push(sql`char_length(${value}) <= ${number(limits.emailLengthMax)}`)
  if (type === 'enum') {
    conditions.push(isValueOf(value, column))
  }
  if (type === 'decimal') conditions.push(fitsPrecision(value, column))
  if (unique && TEXT_TYPES.includes(type)) {
    conditions.push(sql`octet_length(${value}) <= ${number(UNIQUE_BYTES_MAX)}`)
  }
  if (conditions.length === 0) return undefined
  return conditions.reduce((all, each) => sql`${all} and ${each}`, sql`true`)
}

/** Whether a changed definition allows fewer values of the same form than the one before. */
export function narrows(before: StoredColumn, after: StoredColumn): boolean {
  const kept = new Set(after.enum?.values)
  return (
    (before.enum?.values ?? []).some((value) => !kept.has(value)) ||
    (before.decimal?.precision ?? 0) > (after.decimal?.precision ?? 0) ||
    isFewerBits(before.bits, after.bits) ||
    isFewerBits(before.link?.idBits, after.link?.idBits) ||
    (before.maxLength ?? Number.POSITIVE_INFINITY) >
      (after.maxLength ?? Number.POSITIVE_INFINITY) ||
    (after.unique === true && before.unique !== true)
  )
}
