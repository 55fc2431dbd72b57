import { EMAIL_PATTERN } from '@offshoot/contract/names'
import { isWellFormed } from '../../common/is-well-formed.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import {
  type CodecOptions,
  type ColumnTypeEntry,
  decodeItself,
  type Room,
  selectArray,
  selectItself,
  type ValueCodec,
} from './column-type.js'
import { Fault } from './fault.js'
import type { StoredColumn } from './stored-schema.js'

export const TEXT_SQL_TYPE = 'text collate "C"'
const EMAIL = new RegExp(EMAIL_PATTERN)
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON strings must escape control characters.
const NEEDS_JSON_ESCAPE = /["\\\u0000-\u001f]/

/** UTF-8 needs at most this many bytes for one UTF-16 code unit. */
const BYTES_PER_LENGTH_MAX = 3

/** Returns a fault if PostgreSQL cannot store the text unchanged. */
export function checkText(text: string): Fault | undefined {
  if (text.includes('\0')) return new Fault('contains a NUL character, which cannot be stored')
  if (!isWellFormed(text)) {
    return new Fault('contains half of a surrogate pair, which cannot be stored')
  }
  return undefined
}

/** Same result as `JSON.stringify` for a stored text, three times as fast if nothing needs escaping. */
export function quoteJson(text: string): string {
  return NEEDS_JSON_ESCAPE.test(text) ? JSON.stringify(text) : `"${text}"`
}

/** Limits count Unicode characters, whereas `length` counts UTF-16 code units. */
function isLongerThan(text: string, charactersMax: number): boolean {
  if (text.length <= charactersMax) return false
  if (text.length > 2 * charactersMax) return true
  let characters = 0
  for (const _ of text) characters++
  return characters > charactersMax
}

/** A B-tree entry is limited to a third of a page: 2704 bytes including headers. */
export const UNIQUE_BYTES_MAX = 2600
/** Entries of other indexes also contain the record id. */
const INDEXED_BYTES_MAX = 2400

/** The length limit of unique and indexed columns. */
interface BytesLimit {
  readonly bytesMax: number
  /** The kind of column, for the error message. */
  readonly of: string
}

function bytesLimit({ unique, index }: StoredColumn): BytesLimit | undefined {
  if (unique) return { bytesMax: UNIQUE_BYTES_MAX, of: 'a unique' }
  return index ? { bytesMax: INDEXED_BYTES_MAX, of: 'an indexed' } : undefined
}

/** The largest number of characters of a column, whose type has its own limit, too. */
function lengthOf({ maxLength }: StoredColumn, typeMax: number): number {
  return maxLength === undefined ? typeMax : Math.min(maxLength, typeMax)
}

function compileText(charactersMax: number, limit?: BytesLimit): ValueCodec {
  const bytesMax = limit?.bytesMax ?? Number.POSITIVE_INFINITY
  return {
    encode(value) {
      if (typeof value !== 'string') return Fault.expected('a string', value)
      if (isLongerThan(value, charactersMax)) {
        const characters = charactersMax === 1 ? '1 character' : `${charactersMax} characters`
        return new Fault(`is longer than ${characters}`)
      }
      if (value.length * BYTES_PER_LENGTH_MAX > bytesMax && Buffer.byteLength(value) > bytesMax) {
        return new Fault(`is longer than ${bytesMax} bytes, the limit of ${limit?.of} column`)
      }
      return checkText(value) ?? value
    },
    decode: quoteJson,
  }
}

export const stringType: ColumnTypeEntry = {
  sqlType: TEXT_SQL_TYPE,
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: (column, options) =>
    compileText(lengthOf(column, options.limits.stringLengthMax), bytesLimit(column)),
  parseDefault(text, column, options) {
    return stringType.compile(column, options).encode(text)
  },
}

export const textType: ColumnTypeEntry = {
  sqlType: TEXT_SQL_TYPE,
  // Not indexable: a value longer than a third of a page would make the write fail.
  allows: { unique: false, index: false, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: (column) => compileText(lengthOf(column, Number.POSITIVE_INFINITY)),
  parseDefault(text, column, options) {
    return textType.compile(column, options).encode(text)
  },
}

export const emailType: ColumnTypeEntry = {
  sqlType: TEXT_SQL_TYPE,
  allows: { unique: true, index: true, notNull: true, defaultValue: true },
  select: selectItself,
  compile(_column, options) {
    const lengthMax = options.limits.emailLengthMax
    return {
      encode(value) {
        if (typeof value !== 'string') return Fault.expected('a string', value)
        // The pattern allows ASCII only, so `length` counts characters.
        if (value.length > lengthMax) return new Fault(`is longer than ${lengthMax} characters`)
        return EMAIL.test(value) ? value : new Fault('is not an email address')
      },
      decode: quoteJson,
    }
  },
  parseDefault(text, column, options) {
    return emailType.compile(column, options).encode(text)
  },
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i
const NOT_A_UUID = new Fault('is not a UUID, such as 0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f')

/** Returns the lower-case text of a UUID, as PostgreSQL writes it. */
export function encodeUuid(value: unknown): string | Fault {
  if (typeof value !== 'string') return Fault.expected('a string', value)
  return UUID.test(value) ? value.toLowerCase() : NOT_A_UUID
}

export const uuidType: ColumnTypeEntry = {
  sqlType: 'uuid',
  allows: { unique: true, index: true, notNull: true, defaultValue: true, computed: true },
  select: selectItself,
  compile: () => ({ encode: encodeUuid, decode: (text) => `"${text}"` }),
  parseDefault: encodeUuid,
}

/** Values that the message about an unknown one lists. */
const LISTED_MAX = 20

/** Stored as texts. The order of the values is that of the schema, so that adding one changes no row. */
export const enumType: ColumnTypeEntry = {
  sqlType: TEXT_SQL_TYPE,
  allows: { unique: true, index: true, notNull: true, defaultValue: true },
  select: selectItself,
  compile({ enum: definition }) {
    const values = definition?.values ?? []
    const known = new Set(values)
    const more = values.length > LISTED_MAX ? ', …' : ''
    const unknown = new Fault(`is not one of ${values.slice(0, LISTED_MAX).join(', ')}${more}`)
    return {
      encode(value) {
        if (typeof value !== 'string') return Fault.expected('a string', value)
        return known.has(value) ? value : unknown
      },
      decode: quoteJson,
    }
  },
  parseDefault(text, column, options) {
    return enumType.compile(column, options).encode(text)
  },
}

function encodeTexts(
  value: unknown,
  { limits: { recordBytesMax } }: CodecOptions,
  room: Room = { left: recordBytesMax },
): string | Fault {
  if (!Array.isArray(value)) return Fault.expected('an array of strings', value)
  // Every element takes two quotes and a comma.
  room.left -= 3 * value.length
  for (let index = 0; index < value.length; index++) {
    const element: unknown = value[index]
    if (typeof element === 'string') room.left -= element.length
    if (room.left < 0) return new Fault(`is larger than the limit of ${recordBytesMax} bytes`)
    const fault =
      typeof element === 'string' ? checkText(element) : Fault.expected('a string', element)
    if (fault !== undefined) return new Fault(`element [${index}]: ${fault.message}`)
  }
  return arrayLiteral(value)
}

export const multipleType: ColumnTypeEntry = {
  sqlType: 'text[]',
  allows: { unique: false, index: false, notNull: true, defaultValue: true },
  select: selectArray,
  compile: (_column, options) => ({
    encode: (value, room) => encodeTexts(value, options, room),
    decode: decodeItself,
  }),
  parseDefault(text, _column, options) {
    const values = parseList(text)
    return values === undefined
      ? new Fault('expected a list as JSON text')
      : encodeTexts(values, options)
  },
}

/** Returns the list that a JSON text has, or undefined. */
function parseList(text: string): readonly unknown[] | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return Array.isArray(value) ? value : undefined
  } catch {
    return undefined
  }
}
