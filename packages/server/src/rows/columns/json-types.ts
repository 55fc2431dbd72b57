import { roundedIn } from '../../common/exact-json.js'
import { writeExactly } from '../../common/write-json.js'
import {
  type CodecOptions,
  type ColumnTypeEntry,
  decodeItself,
  type Room,
  selectText,
  type ValueCodec,
} from './column-type.js'
import { Fault } from './fault.js'
import { writeFiles } from './file-value.js'
import { checkJsonText, JSON_DEPTH_MAX, TOO_DEEP } from './json-text.js'
import type { StoredColumn } from './stored-schema.js'
import { checkText, quoteJson } from './text-types.js'

const NOT_JSON = new Fault('is not JSON: a string is read as JSON text')
const NUMBER_OUT_OF_RANGE = new Fault(
  'contains a number out of range; send the document as JSON text to keep it',
)
const NUMBER_INEXACT = new Fault(
  'contains a whole number beyond 2^53-1 in size; send the document as JSON text to keep it exactly',
)

/** Ends the check of a document that is too large. */
const STOPPED = new Fault('is too large')

function tooLarge(bytesMax: number): Fault {
  return new Fault(`is larger than the limit of ${bytesMax} bytes`)
}

/** Passes JSON text on unchanged, so that numbers keep digits beyond double precision. */
function encodeJsonText(text: string, bytesMax: number): string | Fault {
  if (text.length > bytesMax) return tooLarge(bytesMax)
  try {
    JSON.parse(text)
  } catch {
    return NOT_JSON
  }
  return checkText(text) ?? checkJsonText(text, bytesMax) ?? text
}

/** The check of a document. */
interface JsonCheck {
  readonly room: Room
  /** Whether the digits of a fraction are remembered, because a double does not keep them. */
  hasRounded: boolean
}

/** Returns a fault if jsonb cannot store the value exactly. The value must come from a JSON parser. */
function checkJsonValue(value: unknown, depth: number, check: JsonCheck): Fault | undefined {
  const { room } = check
  // Every value takes a character and a comma at the least.
  room.left -= typeof value === 'string' ? value.length + 3 : 2
  if (room.left < 0) return STOPPED
  if (typeof value === 'string') return checkText(value)
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) return NUMBER_OUT_OF_RANGE
    // The JSON parser has rounded these numbers; the original value is lost.
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? NUMBER_INEXACT : undefined
  }
  if (value === null || typeof value === 'boolean') return undefined
  if (typeof value !== 'object') return Fault.expected('a JSON value', value)
  if (depth === JSON_DEPTH_MAX) return TOO_DEEP
  if (roundedIn(value) !== undefined) check.hasRounded = true
  if (Array.isArray(value)) {
    for (const element of value) {
      const fault = checkJsonValue(element, depth + 1, check)
      if (fault !== undefined) return fault
    }
    return undefined
  }
  for (const key of Object.keys(value)) {
    room.left -= key.length + 3
    const fault =
      checkText(key) ?? checkJsonValue((value as Record<string, unknown>)[key], depth + 1, check)
    if (fault !== undefined) return fault
  }
  return undefined
}

function encodeJsonValue(
  value: unknown,
  bytesMax: number,
  room: Room = { left: bytesMax },
): string | Fault {
  // The outermost value has no comma.
  room.left++
  const check: JsonCheck = { room, hasRounded: false }
  const fault = checkJsonValue(value, 0, check)
  if (room.left < 0) return tooLarge(bytesMax)
  if (fault !== undefined) return fault
  if (check.hasRounded) return encodeJsonText(writeExactly(value), bytesMax)
  const text = JSON.stringify(value)
  // JSON.stringify writes an exponent for numbers near zero only; larger ones were rejected above.
  return (text.includes('e-') ? checkJsonText(text, bytesMax) : undefined) ?? text
}

function compileJson(options: CodecOptions): ValueCodec {
  const bytesMax = options.limits.recordBytesMax
  return {
    encode: (value, room) =>
      typeof value === 'string'
        ? encodeJsonText(value, bytesMax)
        : encodeJsonValue(value, bytesMax, room),
    decode: options.jsonAsText ? quoteJson : decodeItself,
  }
}

export const jsonType: ColumnTypeEntry = {
  sqlType: 'jsonb',
  allows: { unique: false, index: false, notNull: true, defaultValue: true },
  select: selectText,
  compile: (_column, options) => compileJson(options),
  parseDefault: (text, _column, options) => encodeJsonText(text, options.limits.recordBytesMax),
}

/** Decodes files without links, because the record is not known here. */
function decodeFiles(column: StoredColumn): (text: string) => string {
  const isList = column.type === 'file[]'
  const selection = { columnId: column.id, isList }
  return (text) => writeFiles(text, selection, undefined)
}

/** Encodes the metadata of a file. The file encoder of data/files stores the content. */
export const fileType: ColumnTypeEntry = {
  sqlType: 'jsonb',
  allows: { unique: false, index: false, notNull: false, defaultValue: false },
  select: selectText,
  compile: (column, { limits }) => ({
    encode: (value) =>
      typeof value === 'object' && !Array.isArray(value)
        ? encodeJsonValue(value, limits.recordBytesMax)
        : Fault.expected('an object', value),
    decode: decodeFiles(column),
  }),
  parseDefault: () => new Fault('is not possible for a file'),
}

export const fileArrayType: ColumnTypeEntry = {
  ...fileType,
  compile: (column, { limits }) => ({
    encode: (value) =>
      Array.isArray(value)
        ? encodeJsonValue(value, limits.recordBytesMax)
        : Fault.expected('an array', value),
    decode: decodeFiles(column),
  }),
  parseDefault: () => new Fault('is not possible for files'),
}
