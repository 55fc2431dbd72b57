import { empty, join, type Sql, sql } from '../../postgres/sql.js'
import { invalidSql } from '../invalid-sql.js'

/** The tables of a branch are in this schema. */
export const BRANCH_SCHEMA = 'public'

export const list = (expressions: readonly Sql[]): Sql =>
  expressions.length === 0 ? empty : join(expressions, ', ')

export const withoutZone = (value: Sql): Sql => sql`cast(${value} as pg_catalog.timestamp)`

export function pick(choices: Readonly<Record<string, Sql>>, name: string | undefined): Sql {
  const found = name === undefined ? empty : choices[name]
  if (found === undefined) throw invalidSql(`[${name}] is not supported`)
  return found
}

/** Returns whether a function or a type is one of ranges. No column has one. */
export const isOfRanges = (name: string): boolean => /^range_|range$/.test(name)
