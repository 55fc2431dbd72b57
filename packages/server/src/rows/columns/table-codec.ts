import type { StoredTable } from '../layout/stored-schema.js'
import { compileColumns, type PhysicalColumn } from './column-tree.js'
import type { CodecOptions } from './column-type.js'
import { isFileType } from './column-types.js'
import { Fault } from './fault.js'
import { compileProjection, decodeFields, type Projection } from './projection.js'
import {
  compileRecordEncoder,
  type EncodedUpdate,
  type FileEncoder,
  type InputRecord,
} from './record-encoder.js'
import { checkRecordId } from './text-types.js'

export type { InputRecord }

export interface TableCodecOptions extends CodecOptions {
  /** Used where a call brings none of its own. Without either, files are refused. */
  readonly file?: FileEncoder
}

export interface TableCodec {
  readonly table: StoredTable
  /** Leaves and presences of objects, in schema order, an object before its nested columns. */
  readonly physical: readonly PhysicalColumn[]
  /** From the dotted path of a column to its index in `physical`. */
  readonly indexes: ReadonlyMap<string, number>
  /** Indexes into `physical` of the columns whose values must be unique. */
  readonly uniqueColumns: readonly number[]
  /** Those of `physical` that hold files. */
  readonly fileColumns: readonly { readonly index: number; readonly column: PhysicalColumn }[]
  /**
   * A whole record for insert or replace: one text or null for each physical column, with defaults
   * applied; or all its faults, which `isFaults` tells from it. `now` is the text of the time that a
   * default of `now` stands for. The keys `id`, `xata` and `service` are skipped.
   */
  encodeRecord(record: InputRecord, now: string, file?: FileEncoder): (string | null)[] | Fault[]
  /**
   * A partial update: only the columns named; null clears one. An object is replaced as a whole, so
   * nested columns that it does not list become null.
   */
  encodeUpdate(fields: InputRecord, file?: FileEncoder): EncodedUpdate | Fault[]
  /** `paths` are own columns by dotted path; `*` stands for all of them. */
  project(paths: readonly string[]): Projection | Fault[]
  /**
   * The members of a record's JSON object, without braces: `"name":"Ada","age":36`. Nulls are left
   * out. `texts` are in the order of `projection.columns`; without one, in that of `physical`.
   */
  decodeRow(texts: readonly (string | null)[], projection?: Projection): string
  checkId(id: unknown): Fault | undefined
}

/** Faults always are a list of at least one. */
export function isFaults(result: unknown): result is Fault[] {
  return Array.isArray(result) && result[0] instanceof Fault
}

/** Indexes of the objects that a physical column is in, the outermost first. */
export function enclosingObjects({ physical, indexes }: TableCodec, index: number): number[] {
  const path = physical[index]?.path ?? []
  return path.slice(1).flatMap((_, depth) => {
    return indexes.get(path.slice(0, depth + 1).join('.')) ?? []
  })
}

/** Compiles what reading and writing a table takes, once for each version of its schema. */
export function compileTable(table: StoredTable, options: TableCodecOptions): TableCodec {
  const tree = compileColumns(table, options)
  const encoder = compileRecordEncoder(tree, options.limits)
  const everything = compileProjection(tree, ['*'])
  if (isFaults(everything)) throw new Error('a table has all of its columns')
  const allFields = everything.fields
  return {
    table,
    physical: tree.physical,
    indexes: new Map(tree.physical.map((column, index) => [column.path.join('.'), index])),
    uniqueColumns: tree.physical.flatMap(({ column }, index) => (column.unique ? [index] : [])),
    fileColumns: tree.physical.flatMap((column, index) =>
      isFileType(column.column.type) ? [{ index, column }] : [],
    ),
    encodeRecord: (record, now, file = options.file) => encoder.encodeRecord(record, { now, file }),
    encodeUpdate: (fields, file = options.file) => encoder.encodeUpdate(fields, { file }),
    project: (paths) => compileProjection(tree, paths),
    decodeRow: (texts, projection) => decodeFields(projection?.fields ?? allFields, texts),
    checkId(id) {
      const fault = checkRecordId(id, options.limits.nameLengthMax)
      return fault && new Fault(`column [id]: ${fault.message}`)
    },
  }
}
