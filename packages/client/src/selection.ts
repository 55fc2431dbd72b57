import type { BaseRecord, Computed, FullRecord, Link, ReadValue, WithDefault } from './schema.js'

/**
 * Columns to return: a list of columns of the table, or an object that also reaches into links and
 * objects.
 *
 *   ['email', 'name']
 *   { email: true, team: { name: true }, address: { city: true } }
 */
export type Selection<Schema, Table extends keyof Schema> =
  | readonly (keyof Schema[Table] & string)[]
  | SelectionObject<Schema, Schema[Table]>

type SelectionObject<Schema, Columns> = {
  readonly [Key in keyof Columns]?: true | SelectionOf<Schema, Plain<Columns[Key]>>
}

/** A column without `| null` and without the marker of a default or a computed column. */
type Plain<Column> =
  NonNullable<Column> extends WithDefault<infer Inner> | Computed<infer Inner>
    ? NonNullable<Inner>
    : NonNullable<Column>

type SelectionOf<Schema, Column> =
  Column extends Link<infer Table>
    ? Table extends keyof Schema
      ? SelectionObject<Schema, Schema[Table]>
      : never
    : Column extends readonly unknown[]
      ? never
      : Column extends object
        ? SelectionObject<Schema, Column>
        : never

/** A record with the selected columns; without a selection, with all. */
export type Selected<
  Schema,
  Table extends keyof Schema,
  Chosen,
> = Chosen extends readonly (infer Key)[]
  ? SelectedRecord<
      SelectedColumns<Schema, Schema[Table], { [Name in Key & keyof Schema[Table]]: true }>
    >
  : Chosen extends object
    ? SelectedRecord<SelectedColumns<Schema, Schema[Table], Chosen>>
    : FullRecord<Schema, Table>

type SelectedRecord<Columns> = {
  [Key in keyof (BaseRecord & Columns)]: (BaseRecord & Columns)[Key]
}

type SelectedColumns<Schema, Columns, Chosen> = {
  readonly [Key in keyof Chosen & keyof Columns as IsOptional<Columns[Key]> extends true
    ? never
    : Key]: SelectedValue<Schema, Plain<Columns[Key]>, Chosen[Key]>
} & {
  readonly [Key in keyof Chosen & keyof Columns as IsOptional<Columns[Key]> extends true
    ? Key
    : never]?: SelectedValue<Schema, Plain<Columns[Key]>, Chosen[Key]>
}

/** A selected link is missing if its record does not exist, even if the column must have a value. */
type IsOptional<Column> = null extends Column
  ? true
  : Plain<Column> extends Link<string>
    ? true
    : false

type SelectedValue<Schema, Column, Chosen> =
  Column extends Link<infer Table>
    ? Table extends keyof Schema
      ? Chosen extends true
        ? FullRecord<Schema, Table>
        : SelectedRecord<SelectedColumns<Schema, Schema[Table], Chosen>>
      : never
    : Chosen extends true
      ? ReadValue<Column>
      : SelectedColumns<Schema, Column, Chosen>

/** Returns the paths of a selection, as the service takes them: `team.name`. */
export function pathsOf(selection: unknown): string[] | undefined {
  if (selection === undefined) return undefined
  if (Array.isArray(selection)) return selection as string[]
  const paths: string[] = []
  addPaths(selection as object, '', paths)
  return paths
}

function addPaths(selection: object, prefix: string, paths: string[]): void {
  for (const [name, value] of Object.entries(selection)) {
    if (value === true) paths.push(`${prefix}${name}`)
    else if (typeof value === 'object' && value !== null)
      addPaths(value, `${prefix}${name}.`, paths)
  }
}
