import type { ColumnType } from '@offshoot/contract/schema'

/**
 * The schema of a branch as it is stored: immutable, shared by every branch that has not edited it.
 * Names are what users see and may change; ids are forever, also across branches, and name what is
 * physical: `c<column id>` in the heaps of the table.
 */
export interface StoredSchema {
  readonly tables: readonly StoredTable[]
  readonly tablesOrder?: readonly string[]
  /**
   * Ids of tables and columns that the branch had once. They never come back, because heaps may still
   * hold what was in them.
   */
  readonly removedIds?: readonly number[]
}

export interface StoredTable {
  /** Never reused, not even for a table of the same name. */
  readonly id: number
  readonly name: string
  readonly columns: readonly StoredColumn[]
  /** Whether the columns with words, those to come too, have an index of them. */
  readonly searchIndex?: boolean
}

export interface StoredColumn {
  readonly id: number
  readonly name: string
  readonly type: ColumnType
  /** The linked table by id, so that a link survives a rename. */
  readonly link?: { readonly tableId: number }
  readonly vector?: { readonly dimension: number }
  /** Of `file` and `file[]` columns. */
  readonly defaultPublicAccess?: boolean
  readonly notNull?: boolean
  readonly defaultValue?: string
  readonly unique?: boolean
  /** Whether an index was asked for, or asked away; otherwise the type of the column decides. */
  readonly index?: boolean
  /**
   * Of `object` columns. Each nested column is a physical column of its own; the object itself is a
   * boolean one that tells an empty object from none.
   */
  readonly columns?: readonly StoredColumn[]
  /**
   * Set on a column added to a table that had rows: rows written before it read this value (the
   * default of a `notNull` column), in PostgreSQL's text form.
   */
  readonly fill?: string
}

export const EMPTY_SCHEMA: StoredSchema = { tables: [] }

/** Columns with those nested in them, each before its nested ones. */
export function listAllColumns(columns: readonly StoredColumn[]): StoredColumn[] {
  return columns.flatMap((column) => [column, ...listAllColumns(column.columns ?? [])])
}
