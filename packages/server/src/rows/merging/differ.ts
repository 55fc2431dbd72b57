import { type Sql, sql } from '../../postgres/sql.js'
import type { StoredColumn } from '../columns/stored-schema.js'

/*
 * When two values of a column differ. They are compared as texts, because values that are equal in PostgreSQL may have
 * different texts: 1.0 and 1.00. The two zeros of a float, 0 and -0, are one number.
 */

type ColumnType = StoredColumn['type']

/** Returns the condition that two values of a column differ. */
export function differ(one: Sql, other: Sql, type: ColumnType | undefined): Sql {
  return type === 'float'
    ? sql`${one}::text::double precision is distinct from ${other}::text::double precision`
    : sql`${one}::text is distinct from ${other}::text`
}

/** Returns whether the texts of two values of a column differ. */
export function doTextsDiffer(
  one: string | null | undefined,
  other: string | null | undefined,
  type: ColumnType | undefined,
): boolean {
  const textOf = (text: typeof one) => (type === 'float' && text === '-0' ? '0' : text)
  return textOf(one) !== textOf(other)
}
