import type { ColumnType } from '@offshoot/contract/schema'
import { type ColumnTypeEntry, selectItself } from './column-type.js'
import { dateType, encodeDate, encodeTime, timeType } from './date-types.js'
import { datetimeType, encodeDatetime } from './datetime-type.js'
import { decimalType, encodeDecimal } from './decimal-type.js'
import { Fault } from './fault.js'
import { linkType } from './id-types.js'
import { fileArrayType, fileType, jsonType } from './json-types.js'
import { boolType, floatType, intType, vectorType } from './number-types.js'
import {
  emailType,
  encodeUuid,
  enumType,
  multipleType,
  stringType,
  textType,
  uuidType,
} from './text-types.js'

/**
 * The physical column of an object is a boolean that is true if the record has the object. Its nested
 * columns are separate physical columns, which the table codec encodes and decodes.
 */
const objectType: ColumnTypeEntry = {
  sqlType: 'boolean',
  allows: { unique: false, index: false, notNull: false, defaultValue: false },
  select: selectItself,
  compile: () => ({
    encode: (value) =>
      typeof value === 'object' && value !== null && !Array.isArray(value)
        ? 't'
        : Fault.expected('an object', value),
    decode: () => '{}',
  }),
  parseDefault: () => new Fault('is not possible for an object'),
}

/** One entry per column type, with everything that is specific to the type. */
export const COLUMN_TYPE_ENTRIES: Readonly<Record<ColumnType, ColumnTypeEntry>> = {
  bool: boolType,
  int: intType,
  float: floatType,
  string: stringType,
  text: textType,
  email: emailType,
  multiple: multipleType,
  link: linkType,
  object: objectType,
  datetime: datetimeType,
  decimal: decimalType,
  date: dateType,
  time: timeType,
  uuid: uuidType,
  enum: enumType,
  vector: vectorType,
  file: fileType,
  'file[]': fileArrayType,
  json: jsonType,
}

const OPERANDS = {
  datetime: encodeDatetime,
  decimal: encodeDecimal,
  date: encodeDate,
  time: encodeTime,
  uuid: encodeUuid,
}

/** Returns the text of a value that values of a type are compared with, whatever the options of their columns. */
export function encodeOperand(type: keyof typeof OPERANDS, value: unknown): string | Fault {
  return OPERANDS[type](value)
}

export function isFileType(type: ColumnType): type is 'file' | 'file[]' {
  return type === 'file' || type === 'file[]'
}
