/*
 * Columns and their values: the stored schema, the column types, validation, and the conversion of values
 * between JSON and PostgreSQL.
 */

export { arrayLiteral } from './columns/carriers.js'
export type { PhysicalColumn } from './columns/column-tree.js'
export { NOW } from './columns/column-type.js'
export { COLUMN_TYPE_ENTRIES, isFileType } from './columns/column-types.js'
export { decodeDatetime, encodeDatetime } from './columns/datetime-type.js'
export { expected, Fault } from './columns/fault.js'
export { checkJsonText } from './columns/json-text.js'
export type { EncodedUpdate, FileEncoder, InputRecord } from './columns/record-encoder.js'
export { compileTable, enclosingObjects, isFaults, type TableCodec } from './columns/table-codec.js'
export { checkText, quoteJson } from './columns/text-types.js'
export {
  EMPTY_SCHEMA,
  listAllColumns,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from './layout/stored-schema.js'
