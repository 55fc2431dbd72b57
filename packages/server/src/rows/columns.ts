/*
 * Columns and their values: the schema as it is stored, the types, the checks of values, and the forms
 * that values have in JSON and in PostgreSQL.
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
