import { arithmeticFault } from './arithmetic.js'
import { compileColumns, type PhysicalColumn } from './column-tree.js'
import type { CodecOptions } from './column-type.js'
import { isFileType } from './column-types.js'
import { Fault } from './fault.js'
import { type IdCodec, idCodec } from './id-types.js'
import { compileProjection, decodeFields, type Projection } from './projection.js'
import {
  compileRecordEncoder,
  type EncodedUpdate,
  type FileEncoder,
  type InputRecord,
  type Origin,
} from './record-encoder.js'
import type { StoredTable } from './stored-schema.js'
import {
  type CheckRule,
  type LinkRule,
  listChecks,
  listKeys,
  listRequiredLinks,
  type UniqueKey,
} from './table-rules.js'
import { isFollowed, wholeRange } from './whole-numbers.js'

export interface TableCodecOptions extends CodecOptions {
  /** Used for calls that pass no encoder. Without any encoder, files are rejected. */
  readonly file?: FileEncoder
}

export interface TableCodec {
  readonly table: StoredTable
  /**
   * Leaf columns and the presence columns of objects, in schema order. An object precedes its nested columns.
   * Computed columns are the last ones.
   */
  readonly physical: readonly PhysicalColumn[]
  /** Indexes of all physical columns, in schema order. */
  readonly inOrder: readonly number[]
  /** The same table without computed columns, for statements that write rows or compare stored values. */
  readonly stored: TableCodec
  /** Maps the dotted path of a column to its index in `physical`. */
  readonly indexes: ReadonlyMap<string, number>
  readonly uniqueKeys: readonly UniqueKey[]
  readonly checks: readonly CheckRule[]
  /** The columns that get numbers of their own, up to the greatest that they can have. */
  readonly sequences: readonly NumberedColumn[]
  /** The columns whose linked records must exist. */
  readonly links: readonly LinkRule[]
  /** The file columns among `physical`. */
  readonly fileColumns: readonly { readonly index: number; readonly column: PhysicalColumn }[]
  /**
   * Encodes a whole record, for insert or replace. Returns a text or null for each physical column, with
   * defaults applied, or all faults of the record; `isFaults` tells which. `origin` is what generated values
   * depend on. The keys `id`, `xata` and `service` are skipped.
   */
  encodeRecord(record: InputRecord, origin: Origin, file?: FileEncoder): (string | null)[] | Fault[]
  /**
   * Encodes a partial update. Only the given columns change; null clears a column. An object is replaced as
   * a whole: nested columns that are not given become null.
   */
  encodeUpdate(fields: InputRecord, origin: Origin, file?: FileEncoder): EncodedUpdate | Fault[]
  /** Encodes the value of one column, which can be nested. Files and arithmetic are rejected. */
  encodeColumn(path: string, value: unknown): Omit<EncodedUpdate, 'arithmetic'> | Fault[]
  /** `paths` are dotted paths of the table's columns, without links; `*` selects all columns. */
  project(paths: readonly string[]): Projection | Fault[]
  /**
   * Returns the members of a record's JSON object, without braces: `"name":"Ada","age":36`. Nulls are left
   * out. `texts` are in the order of `projection.columns`, or of `physical` without a projection.
   */
  decodeRow(texts: readonly (string | null)[], projection?: Projection): string
  /** Returns the indexes of the objects that enclose a physical column, outermost first. */
  enclosingObjects(index: number): number[]
  /** The number of rows that are converted in one step, so that it takes a few milliseconds. */
  readonly rowsPerStep: number
  readonly ids: IdCodec
  /** Returns an id as it is stored, or a fault that names the column. */
  encodeId(id: unknown): string | Fault
  /** Says why arithmetic has no effect on a row. `textOf` returns the present values of the calculated columns. */
  arithmeticFault(
    update: Pick<EncodedUpdate, 'arithmetic'>,
    textOf: (column: number) => string | null,
  ): Fault
}

/** A column that gets numbers of its own. */
interface NumberedColumn {
  readonly id: number
  readonly name: string
  readonly max: number
  /** Returns whether the sequence goes on after a number that is given. */
  follows(number: unknown): number is number
}

/** Returns whether a result is a list of faults. Such a list is never empty. */
export function isFaults(result: unknown): result is readonly Fault[] {
  return Array.isArray(result) && result[0] instanceof Fault
}

/** Values that are converted in one step. */
const STEP_VALUES = 20_000
const STEP_ROWS_MAX = 1000

/** Compiles the codec of a table. Done once for each version of the schema. */
export function compileTable(table: StoredTable, options: TableCodecOptions): TableCodec {
  const tree = compileColumns(table, options)
  const encoder = compileRecordEncoder(tree, options.limits)
  const everything = compileProjection(tree, ['*'])
  if (isFaults(everything)) throw new Error('a projection of all columns must be valid')
  const allFields = everything.fields
  const ids = idCodec(table, options.limits)
  const stored = tree.physical.slice(0, tree.storedCount)
  const places = placesOf(tree.physical)
  const rowsPerStep = Math.floor(STEP_VALUES / (tree.physical.length + 1))
  const codec = {
    table,
    ...places,
    inOrder: tree.nodes.flatMap(({ index, end }) =>
      Array.from({ length: end - index }, (_, position) => index + position),
    ),
    uniqueKeys: listKeys(table, tree.physical),
    checks: listChecks(table, tree.physical),
    sequences: table.columns
      .filter(({ generate }) => generate === 'sequence')
      .map(({ id, name, bits }): NumberedColumn => {
        const { max } = wholeRange(bits)
        return { id, name, max, follows: (number) => isFollowed(number, max) }
      }),
    links: listRequiredLinks(tree.physical),
    fileColumns: tree.physical.flatMap((column, index) =>
      isFileType(column.column.type) ? [{ index, column }] : [],
    ),
    encodeRecord: (record: InputRecord, origin: Origin, file = options.file) =>
      encoder.encodeRecord(record, { origin, file }),
    encodeUpdate: (fields: InputRecord, origin: Origin, file = options.file) =>
      encoder.encodeUpdate(fields, { origin, file }),
    encodeColumn: encoder.encodeColumn,
    project: (paths: readonly string[]) => compileProjection(tree, paths),
    decodeRow: (texts: readonly (string | null)[], projection?: Projection) =>
      decodeFields(projection?.fields ?? allFields, texts),
    enclosingObjects(index: number) {
      const path = tree.physical[index]?.path ?? []
      return path
        .slice(1)
        .flatMap((_, depth) => places.indexes.get(path.slice(0, depth + 1).join('.')) ?? [])
    },
    rowsPerStep: Math.max(1, Math.min(rowsPerStep, STEP_ROWS_MAX)),
    ids,
    encodeId(id: unknown) {
      const text = ids.encode(id)
      return text instanceof Fault
        ? new Fault(`column [id]: ${text.message}`, undefined, 'id')
        : text
    },
    arithmeticFault: (
      { arithmetic }: Pick<EncodedUpdate, 'arithmetic'>,
      textOf: (column: number) => string | null,
    ) => arithmeticFault(tree.physical, arithmetic, textOf),
  } satisfies Omit<TableCodec, 'stored'>
  const inOrder = codec.inOrder.filter((index) => index < stored.length)
  const withoutComputed: TableCodec = {
    ...codec,
    ...placesOf(stored),
    inOrder,
    get stored() {
      return withoutComputed
    },
  }
  return { ...codec, stored: withoutComputed }
}

function placesOf(physical: readonly PhysicalColumn[]): Pick<TableCodec, 'physical' | 'indexes'> {
  return {
    physical,
    indexes: new Map(physical.map((column, index) => [column.path.join('.'), index])),
  }
}
