import { ident, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import { selectVisible } from '../reading/arms.js'
import type { StatementParts } from './statement-parts.js'

/*
 * Statements that look for values of unique columns. The rows that a branch wrote have a unique index.
 * Inherited rows are in other tables, so they must be searched.
 */

/** Finds one of the given values (slot 0, an array) among the inherited rows. */
export function inheritedValuesStatement(parts: StatementParts, index: number): Statement {
  return compileStatement(sql`${matchingValues(parts, index, { isInherited: true })} limit 1`)
}

/** Finds the given values (slot 0, an array) that already exist on the branch. */
export function visibleValuesStatement(parts: StatementParts, index: number): Statement {
  return compileStatement(matchingValues(parts, index))
}

/** Finds the rows that have the given values (slot 0, an array): the positions of the values, and the ids. */
export function holdersStatement(parts: StatementParts, index: number): Statement {
  const { layout, codec } = parts
  const column = parts.column(index)
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    sql`${expressionOf(column)} = g.value::${raw(column.sqlType)}`
  return compileStatement(sql`
    select g.ordinal - 1, r.id
    from unnest(${slot(0)}::text[]) with ordinality as g (value, ordinal)
    cross join lateral (${selectVisible(layout, codec, { where })}) r`)
}

function matchingValues(
  parts: StatementParts,
  index: number,
  options: { isInherited?: boolean } = {},
): Sql {
  const { layout, codec } = parts
  const column = parts.column(index)
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    sql`${expressionOf(column)} = g.value::${raw(column.sqlType)}`
  return sql`
    select g.value
    from unnest(${slot(0)}::text[]) as g (value)
    where exists (${selectVisible(layout, codec, { ...options, where })})`
}

/** Returns the id (slot 0) of an own row if an inherited row has the same value in the column. */
export function inheritedTwinStatement(parts: StatementParts, index: number): Statement {
  return compileStatement(twins(parts, index, sql`mine.id = ${slot(0)}::text`))
}

/** Returns the id of an own row that the transaction has written, if an inherited row has the same value. */
export function inheritedTwinsStatement(parts: StatementParts, index: number): Statement {
  const isWritten = sql`not mine.deleted and mine.updated_at = now()::timestamptz(3)`
  return compileStatement(sql`${twins(parts, index, isWritten)} limit 1`)
}

function twins(parts: StatementParts, index: number, isMine: Sql): Sql {
  const { layout, codec, own } = parts
  const column = parts.column(index)
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    sql`${expressionOf(column)} = mine.${ident(column.physicalName)}`
  return sql`
    select mine.id
    from ${own} mine
    where ${isMine}
      and exists (${selectVisible(layout, codec, { isInherited: true, where })})`
}

/** Finds the positions of values (slot 0, an array) that equal an earlier one, and the position of the first of those. */
export function repeatedValuesStatement(parts: StatementParts, index: number): Statement {
  const type = raw(parts.column(index).sqlType)
  return compileStatement(sql`
    select g.ordinal - 1, g.first - 1
    from (
      select ordinal, min(ordinal) over (partition by value::${type}) as first
      from unnest(${slot(0)}::text[]) with ordinality as u (value, ordinal)
      where value is not null
    ) g
    where g.ordinal > g.first`)
}
