import type { Limits } from '@offshoot/contract/limits'
import { type Sql, sql } from '../../postgres/sql.js'
import type { Fault } from './fault.js'
import type { StoredColumn } from './stored-schema.js'

export interface CodecOptions {
  readonly limits: Limits
  /** Reads `json` columns as strings that contain the JSON document, as Xata clients expect. */
  readonly jsonAsText: boolean
}

/** Bytes that are left of the size limit of a record. A negative number means that the record is too large. */
export interface Room {
  left: number
}

export interface ValueCodec {
  /**
   * Returns the PostgreSQL text form of a JSON value, or a fault. The text is not escaped; see carriers.ts.
   * The caller handles null. A codec of lists or documents takes their size from `room` while it checks them, and
   * stops when nothing is left, because checking more would block other requests. The caller does so for strings.
   */
  encode(value: unknown, room?: Room): string | Fault
  /** Converts a text selected by `ColumnTypeEntry.select` to JSON text. */
  decode(text: string): string
}

/** The default value `now`: the time of the insert. */
export const NOW = Symbol('now')

export interface ColumnTypeEntry {
  /** The PostgreSQL type, for column definitions and casts. */
  readonly sqlType: string
  /** The options that a schema may set on columns of the type. */
  readonly allows: {
    readonly unique: boolean
    readonly index: boolean
    readonly notNull: boolean
    readonly defaultValue: boolean
    readonly computed?: boolean
  }
  /** Returns SQL for the text that `decode` reads. */
  select(value: Sql): Sql
  compile(column: StoredColumn, options: CodecOptions): ValueCodec
  /** Returns the text of the value for a moment: a day in UTC, or a time of day in UTC. undefined: the moment itself. */
  atMoment?(now: string): string
  /** Returns the PostgreSQL text form of a `defaultValue`, or a fault. */
  parseDefault(
    text: string,
    column: StoredColumn,
    options: CodecOptions,
  ): string | typeof NOW | Fault
}

export function selectItself(value: Sql): Sql {
  return value
}

export function selectText(value: Sql): Sql {
  return sql`${value}::text`
}

/** Arrays are read as JSON, so that no parser for PostgreSQL array literals is needed. */
export function selectArray(value: Sql): Sql {
  return sql`to_json(${value})::text`
}

export function decodeItself(text: string): string {
  return text
}
