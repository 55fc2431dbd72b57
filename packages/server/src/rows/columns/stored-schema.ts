import type {
  ColumnGenerator,
  ColumnType,
  IdType,
  IntBits,
  LinkAction,
} from '@offshoot/contract/schema'
import type { RowExpression } from '../../dialect/row-expression.js'

/**
 * The schema of a branch as stored. It is immutable, and shared by all branches that have not edited it.
 * Names may change; ids never do, also across branches. A column is stored as `c<column id>` in the heaps.
 */
export interface StoredSchema {
  readonly tables: readonly StoredTable[]
  readonly tablesOrder?: readonly string[]
  /**
   * Ids of removed tables and columns. They are never used again, because heaps may still contain their
   * values.
   */
  readonly removedIds?: readonly number[]
  /**
   * Ids that stand for one table or column, which branches have added separately. The branch uses one of them, or
   * none if the table or column was removed. They are kept, because other branches use the others.
   */
  readonly sameIds?: readonly (readonly number[])[]
}

export interface StoredTable {
  /** Never used again, not even for a table of the same name. */
  readonly id: number
  readonly name: string
  /** Never changes. undefined: ids are any texts. */
  readonly idType?: Exclude<IdType, 'string'>
  /** The size of ids of type `int`. undefined: all whole numbers that JSON represents exactly. */
  readonly idBits?: IntBits
  /** SQL statements without a list of columns have no id, because SQL has created the table without it. Never changes. */
  readonly hiddenId?: true
  readonly columns: readonly StoredColumn[]
  /** Whether text columns have a search index, including columns added later. */
  readonly searchIndex?: boolean
  readonly constraints?: readonly StoredConstraint[]
  /** How long versions of records are kept. undefined: they are not. */
  readonly history?: { readonly keep: string }
}

/** A rule that the rows of a table keep. Its id is unique among those of tables and columns, too. */
export type StoredConstraint = {
  readonly id: number
  readonly name: string
} & (
  | {
      /** The ids of columns whose values together belong to one row only. */
      readonly unique: readonly number[]
      /** Clients of PostgreSQL see an index instead of a constraint. */
      readonly index?: true
    }
  | { /** A condition that no row fails. */ readonly check: RowExpression }
)

export interface StoredColumn {
  readonly id: number
  readonly name: string
  readonly type: ColumnType
  /** The linked table, by id so that it may be renamed, and the type and size of its ids. */
  readonly link?: {
    readonly tableId: number
    readonly idType?: StoredTable['idType']
    readonly idBits?: IntBits
  }
  /** For `link` columns only: linked records must exist. undefined: they need not. */
  readonly onDelete?: Exclude<LinkAction, 'none'>
  /** The name of the rule that linked records exist. undefined: the usual one. */
  readonly rule?: string
  readonly vector?: { readonly dimension: number }
  /** Digits in all, and after the decimal point. */
  readonly decimal?: { readonly precision: number; readonly scale: number }
  /** The size of an `int`. undefined: all whole numbers that JSON represents exactly. */
  readonly bits?: IntBits
  /** The largest number of characters of a `string` or `text`. undefined: that of the type. */
  readonly maxLength?: number
  /** For `datetime` columns only: SQL shows them as `timestamp`. */
  readonly withoutZone?: boolean
  /** The possible values, in their order. */
  readonly enum?: { readonly values: readonly string[]; readonly type?: string }
  /** For `file` and `file[]` columns only. */
  readonly defaultPublicAccess?: boolean
  readonly notNull?: boolean
  readonly defaultValue?: string
  readonly unique?: boolean
  readonly generate?: ColumnGenerator
  /** What the value is calculated of. It is not stored, so heaps do not have the column. */
  readonly computed?: RowExpression
  readonly description?: string
  /** Set if the user asked for an index or for none. By default, link columns have an index. */
  readonly index?: boolean
  /**
   * For `object` columns only. Each nested column is a separate physical column. The object itself is a
   * boolean column, which tells an empty object from none.
   */
  readonly columns?: readonly StoredColumn[]
  /**
   * Set on a column that was added to a table with rows and gives them a value, in PostgreSQL's text form. Rows written
   * before the column was added read this value.
   */
  readonly fill?: string
  /**
   * The column that this one was made of by a change of its type. Rows without the new column read the converted value
   * of the old one, or `fill` if it has none.
   */
  readonly from?: StoredColumn
  /** The ids of columns whose place this one has taken, with values that an expression has made of theirs. */
  readonly replaced?: readonly number[]
}

export const EMPTY_SCHEMA: StoredSchema = { tables: [] }

/** Returns the columns of each unique key, by the id of the unique column or of the constraint. */
export function listKeyColumns(
  table: Pick<StoredTable, 'columns' | 'constraints'>,
): ReadonlyMap<number, readonly number[]> {
  const columns = listAllColumns(table.columns).filter(({ unique }) => unique === true)
  const constraints = (table.constraints ?? []).filter((each) => 'unique' in each)
  return new Map([
    ...columns.map(({ id }) => [id, [id]] as const),
    ...constraints.map(({ id, unique }) => [id, unique] as const),
  ])
}

/** Returns whether rows that were written before a column was added have values of it. */
export function isFilled({ fill, from }: StoredColumn): boolean {
  return fill !== undefined || from !== undefined
}

/** Lists the columns that a column was made of, the latest first. */
export function listOrigins({ from }: StoredColumn): StoredColumn[] {
  return from === undefined ? [] : [from, ...listOrigins(from)]
}

/** Lists columns and their nested columns. A column precedes those nested in it. */
export function listAllColumns(columns: readonly StoredColumn[]): StoredColumn[] {
  return columns.flatMap((column) => [column, ...listAllColumns(column.columns ?? [])])
}

/** Returns the ids of the columns of a table, and of those that they were made of. */
export function storedIdsOf({ columns }: Pick<StoredTable, 'columns'>): ReadonlySet<number> {
  const stored = listAllColumns(columns).flatMap((column) => [column, ...listOrigins(column)])
  return new Set(stored.map(({ id }) => id))
}
