import type { Limits } from '@offshoot/contract/limits'
import type { StoredColumn } from '../layout/stored-schema.js'
import type { Fault } from './fault.js'

export interface CodecOptions {
  readonly limits: Limits
  /** Reads `json` columns as strings that contain the JSON document, as Xata clients expect. */
  readonly jsonAsText: boolean
}

export interface ValueCodec {
  /**
   * The PostgreSQL text form of a JSON value, or a fault. It is not yet escaped for its carrier. The
   * caller handles null.
   */
  encode(value: unknown): string | Fault
  /** The JSON text of what `ColumnTypeEntry.select` selects. */
  decode(text: string): string
}

/** A default that is the time of the insert. */
export const NOW = Symbol('now')

export interface ColumnTypeEntry {
  /** Stands in a column definition and, after `::`, in a cast. */
  readonly sqlType: string
  /** What may be said about a column of the type in a schema. */
  readonly allows: {
    readonly unique: boolean
    readonly index: boolean
    readonly notNull: boolean
    readonly defaultValue: boolean
  }
  /** SQL for the text that `decode` reads. Takes a column reference that is already quoted. */
  select(reference: string): string
  compile(column: StoredColumn, options: CodecOptions): ValueCodec
  /** The PostgreSQL text form of a `defaultValue`, or a fault. */
  parseDefault(
    text: string,
    column: StoredColumn,
    options: CodecOptions,
  ): string | typeof NOW | Fault
}

export function selectItself(reference: string): string {
  return reference
}

export function selectText(reference: string): string {
  return `${reference}::text`
}

/** Arrays are read as JSON, which spares us a parser of PostgreSQL's array literals. */
export function selectArray(reference: string): string {
  return `to_json(${reference})::text`
}

export function decodeItself(text: string): string {
  return text
}
