import type { ColumnType } from '@offshoot/contract/schema'
import { type ColumnTypeEntry, selectItself } from './column-type.js'
import { datetimeType } from './datetime-type.js'
import { expected, Fault } from './fault.js'
import { fileArrayType, fileType, jsonType } from './json-types.js'
import { boolType, floatType, intType, vectorType } from './number-types.js'
import { emailType, linkType, multipleType, stringType, textType } from './text-types.js'

/**
 * The physical column of an object only tells whether there is one; its nested columns are physical
 * columns of their own, which the table codec fills and assembles.
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

/** Everything that differs from one column type to the other. A new type is a new entry. */
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
  vector: vectorType,
  file: fileType,
  'file[]': fileArrayType,
  json: jsonType,
}

export function isFileType(type: ColumnType): type is 'file' | 'file[]' {
  return type === 'file' || type === 'file[]'
}
