import type { ColumnType } from '@offshoot/contract/schema'
import { type ColumnTypeEntry, selectItself } from './column-type.js'
import { dateType, timeType } from './date-types.js'
import { datetimeType } from './datetime-type.js'
import { decimalType } from './decimal-type.js'
import { expected, Fault } from './fault.js'
import { linkType } from './id-types.js'
import { fileArrayType, fileType, jsonType } from './json-types.js'
import { boolType, floatType, intType, vectorType } from './number-types.js'
import { emailType, enumType, multipleType, stringType, textType, uuidType } from './text-types.js'

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
        : expected('an object', value),
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

export function isFileType(type: ColumnType): type is 'file' | 'file[]' {
  return type === 'file' || type === 'file[]'
}
