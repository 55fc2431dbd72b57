import type { Computed, DateTime, Decimal, Json, Link, WithDefault } from './schema.js'

type Text = string

interface Comparison<Value> {
  readonly $is?: Value | readonly Value[]
  readonly $isNot?: Value | readonly Value[]
  readonly $gt?: Value
  readonly $ge?: Value
  readonly $lt?: Value
  readonly $le?: Value
  readonly $any?: readonly Condition<Value>[] | Condition<Value>
  readonly $all?: readonly Condition<Value>[] | Condition<Value>
  readonly $none?: readonly Condition<Value>[] | Condition<Value>
  readonly $not?: readonly Condition<Value>[] | Condition<Value>
}

interface TextComparison extends Comparison<Text> {
  readonly $contains?: string
  readonly $iContains?: string
  readonly $startsWith?: string
  readonly $endsWith?: string
  /** `*` matches any characters, `?` one. */
  readonly $pattern?: string
  readonly $iPattern?: string
}

type Condition<Value> = Value | Comparison<Value>

interface ListComparison {
  readonly $includes?: string | TextComparison | readonly (string | TextComparison)[]
  readonly $includesAll?: string | TextComparison | readonly (string | TextComparison)[]
  readonly $includesNone?: string | TextComparison | readonly (string | TextComparison)[]
}

type ColumnFilter<Schema, Column> = Column extends WithDefault<infer Inner> | Computed<infer Inner>
  ? ColumnFilter<Schema, Inner>
  : Column extends Link<infer Table>
    ? string | LinkFilter<Schema, Table>
    : Column extends DateTime
      ? string | Date | Comparison<string | Date>
      : Column extends Decimal
        ? string | number | Comparison<string | number> | readonly (string | number)[]
        : Column extends Json
          ? unknown
          : Column extends readonly string[]
            ? ListComparison
            : Column extends string
              ? Column | TextComparison | readonly Column[]
              : Column extends number | boolean
                ? Column | Comparison<Column> | readonly Column[]
                : Column extends readonly unknown[]
                  ? never
                  : Column extends object
                    ? ColumnFilters<Schema, Column>
                    : never

type LinkFilter<Schema, Table> = Table extends keyof Schema
  ? ColumnFilters<Schema, Schema[Table]> & Comparison<string> & { readonly id?: Condition<string> }
  : never

type ColumnFilters<Schema, Columns> = {
  readonly [Key in keyof Columns]?: ColumnFilter<Schema, NonNullable<Columns[Key]>>
}

type OneOrMore<Type> = Type | readonly Type[]

interface Combinations<Schema, Table extends keyof Schema> {
  readonly $all?: OneOrMore<Filter<Schema, Table>>
  readonly $any?: OneOrMore<Filter<Schema, Table>>
  readonly $none?: OneOrMore<Filter<Schema, Table>>
  readonly $not?: OneOrMore<Filter<Schema, Table>>
  /** The column has a value. */
  readonly $exists?: (keyof Schema[Table] & string) | Path
  /** The column has no value. */
  readonly $notExists?: (keyof Schema[Table] & string) | Path
  readonly id?: OneOrMore<string> | TextComparison
}

/** A path through links, objects or JSON: `team.name`, `settings->theme`. */
export type Path = `${string}.${string}` | `${string}->${string}`

/**
 * Selects records. Several keys of an object must all match.
 *
 *   { age: { $ge: 18 }, team: { name: 'core' }, $any: [{ active: true }, { name: { $startsWith: 'A' } }] }
 */
export type Filter<Schema, Table extends keyof Schema> = ColumnFilters<Schema, Schema[Table]> &
  Combinations<Schema, Table> & { readonly [path in Path]?: unknown }

type Direction = 'asc' | 'desc'

type SortKey<Schema, Table extends keyof Schema> = (keyof Schema[Table] & string) | 'id' | Path

/** The order of records. Records without a value come last. */
export type Sort<Schema, Table extends keyof Schema> =
  | SortTerm<Schema, Table>
  | readonly (SortTerm<Schema, Table> | SortKey<Schema, Table>)[]

type SortTerm<Schema, Table extends keyof Schema> = {
  readonly [Key in SortKey<Schema, Table>]?: Direction
} & { readonly '*'?: 'random' }
