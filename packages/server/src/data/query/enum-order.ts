import { arrayLiteral } from '../../postgres/carriers.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { Field } from './field.js'
import type { Parameters } from './parameters.js'

/*
 * Values of an enum are stored as texts. Their order is that of the list in the schema.
 */

/** Returns the expression by which values of a field are ordered: the position of an enum, or the value itself. */
export function orderOf(
  { values }: Pick<Field, 'values'>,
  expression: Sql,
  parameters: Parameters,
): Sql {
  if (values === undefined) return expression
  return sql`array_position(${listSql(values, parameters)}, ${expression})::bigint`
}

/** Returns the least or the greatest value of an enum. */
export function extremeOf(
  values: readonly string[],
  expression: Sql,
  { parameters, extreme }: { parameters: Parameters; extreme: 'min' | 'max' },
): Sql {
  const positions = sql`array_position(${listSql(values, parameters)}, ${expression})`
  const position = extreme === 'min' ? sql`min(${positions})` : sql`max(${positions})`
  return sql`(${listSql(values, parameters)})[${position}]`
}

function listSql(values: readonly string[], parameters: Parameters): Sql {
  return sql`${parameters.share(arrayLiteral(values))}::text[]`
}
