/*
 * The schema of a database as a TypeScript type, and the types of records that follow from it.
 *
 *   interface Shop {
 *     teams: { name: string }
 *     users: { email: string; name: string | null; team: Link<'teams'> | null; joined: DateTime }
 *   }
 *
 * A column that may be empty has `| null`. Plain types stand for themselves: string, number, boolean,
 * string[] (`multiple`), number[] (`vector`), and an object type for an `object` column. Dates, times and UUIDs are
 * strings, and an enum is a union of its values. The markers
 * below stand for the other column types. They exist only as types.
 */

declare const marker: unique symbol

interface Marker<Kind extends string> {
  readonly [marker]: Kind
}

/** A column that links to a record of a table. */
export interface Link<Table extends string> extends Marker<'link'> {
  readonly table: Table
}

/** A point in time. Records have it as text in the format of RFC 3339. */
export interface DateTime extends Marker<'datetime'> {}

/** A number with decimal digits. Records have it as text, so that no digit is lost. */
export interface Decimal extends Marker<'decimal'> {}

/** A JSON value. */
export interface Json<Value = unknown> extends Marker<'json'> {
  readonly value: Value
}

/** A column with one file. */
export interface File extends Marker<'file'> {}

/** A column with a list of files. */
export interface Files extends Marker<'files'> {}

/** A column that must have a value, but has a default. Inserts may leave it out. */
export interface WithDefault<Column> extends Marker<'default'> {
  readonly column: Column
}

/** A column whose value is computed of others. It is read, and never written. */
export interface Computed<Column> extends Marker<'computed'> {
  readonly column: Column
}

/** Any schema: for code that does not know the tables. */
// biome-ignore lint/suspicious/noExplicitAny: columns of an unknown schema can have any type
export type AnySchema = Record<string, Record<string, any>>

/** The names of the tables of a schema. */
export type TableName<Schema> = keyof Schema & string

/** The names of the columns of a table. */
export type ColumnName<Schema, Table extends keyof Schema> = keyof Schema[Table] & string

/** The metadata of a record. */
export interface RecordMetadata {
  /** Starts at 0, and grows with every change. Send it as `ifVersion` to detect changes of others. */
  readonly version: number
  readonly createdAt: string
  readonly updatedAt: string
}

/** The fields that every record has. */
export interface BaseRecord {
  readonly id: string
  readonly service: RecordMetadata
}

/** A file of a record. */
export interface FileInfo {
  /** Only in a list of files. */
  readonly id?: string
  readonly name: string
  readonly mediaType: string
  readonly size: number
  readonly version: number
  readonly url: string
  readonly enablePublicUrl: boolean
  readonly signedUrlTimeout: number
  readonly uploadUrlTimeout: number
  readonly attributes: { readonly width?: number; readonly height?: number }
}

/** A file to store with a record. */
export interface FileInput {
  readonly id?: string
  readonly name?: string
  readonly mediaType?: string
  readonly base64Content?: string
  readonly enablePublicUrl?: boolean
  readonly signedUrlTimeout?: number
  readonly uploadUrlTimeout?: number
}

type Simplify<Type> = { [Key in keyof Type]: Type[Key] }

/** Columns that may be empty. */
type OptionalKeys<Columns> = {
  [Key in keyof Columns]-?: null extends Columns[Key] ? Key : never
}[keyof Columns]

/** The value of a column in a record that was read. */
export type ReadValue<Column> =
  Column extends Link<string>
    ? { readonly id: string }
    : Column extends DateTime | Decimal
      ? string
      : Column extends Json<infer Value>
        ? Value
        : Column extends File
          ? FileInfo
          : Column extends Files
            ? readonly FileInfo[]
            : Column extends WithDefault<infer Inner> | Computed<infer Inner>
              ? ReadValue<Inner>
              : Column extends readonly unknown[]
                ? Column
                : Column extends object
                  ? ReadColumns<Column>
                  : Column

/** The columns of a record that was read. A column without a value is left out. */
type ReadColumns<Columns> = Simplify<
  { readonly [Key in Exclude<keyof Columns, OptionalKeys<Columns>>]: ReadValue<Columns[Key]> } & {
    readonly [Key in OptionalKeys<Columns>]?: ReadValue<NonNullable<Columns[Key]>>
  }
>

/** The value of a column in a record to write. */
type WriteValue<Column> =
  Column extends Link<string>
    ? string | { readonly id: string }
    : Column extends DateTime
      ? string | Date
      : Column extends Decimal
        ? string | number
        : Column extends Json<infer Value>
          ? Value
          : Column extends File
            ? FileInput
            : Column extends Files
              ? readonly FileInput[]
              : Column extends WithDefault<infer Inner>
                ? WriteValue<Inner>
                : Column extends readonly unknown[]
                  ? Readonly<Column>
                  : Column extends object
                    ? WriteColumns<Column>
                    : Column

/** Columns that an insert may leave out. */
type OmissibleKeys<Columns> = {
  [Key in keyof Columns]-?: null extends Columns[Key]
    ? Key
    : Columns[Key] extends WithDefault<unknown> | Files
      ? Key
      : never
}[keyof Columns]

/** Columns that nobody writes. */
type ComputedKeys<Columns> = {
  [Key in keyof Columns]-?: IsAny<Columns[Key]> extends true
    ? never
    : NonNullable<Columns[Key]> extends Computed<unknown>
      ? Key
      : never
}[keyof Columns]

type IsAny<Column> = 0 extends 1 & Column ? true : false

type WriteColumns<Columns> = Simplify<
  {
    readonly [Key in Exclude<
      keyof Columns,
      OmissibleKeys<Columns> | ComputedKeys<Columns>
    >]: WriteValue<Columns[Key]>
  } & {
    readonly [Key in Exclude<OmissibleKeys<Columns>, ComputedKeys<Columns>>]?:
      | WriteValue<NonNullable<Columns[Key]>>
      | (null extends Columns[Key] ? null : never)
  }
>

/** A record to insert. Without an id, the service generates one. */
export type InsertRecord<Schema, Table extends keyof Schema> = {
  readonly id?: string
} & WriteColumns<Schema[Table]>

/** Arithmetic on a number that the service does, so that concurrent changes are not lost. */
export type Arithmetic<Operand = number> =
  | { readonly $increment: Operand }
  | { readonly $decrement: Operand }
  | { readonly $multiply: Operand }
  | { readonly $divide: Operand }

type Unwrapped<Column> = Column extends WithDefault<infer Inner> ? Inner : Column

/** Columns to change. Null empties a column. */
export type UpdateFields<Schema, Table extends keyof Schema> = {
  readonly [Key in Exclude<keyof Schema[Table], ComputedKeys<Schema[Table]>>]?:
    | WriteValue<NonNullable<Schema[Table][Key]>>
    | (null extends Schema[Table][Key] ? null : never)
    | (NonNullable<Unwrapped<Schema[Table][Key]>> extends number ? Arithmetic : never)
    | (NonNullable<Unwrapped<Schema[Table][Key]>> extends Decimal
        ? Arithmetic<number | string>
        : never)
}

/** A record with all its columns. Links have the id of the linked record. */
export type FullRecord<Schema, Table extends keyof Schema> = Simplify<
  BaseRecord & ReadColumns<Schema[Table]>
>
