import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import { orderOf } from './enum-order.js'
import type { Field, FieldType } from './field.js'
import type { FieldExpressions } from './field-sql.js'
import type { Parameters } from './parameters.js'
import type { Direction, Sort, SortKey } from './sort.js'

/** The alias of the queried records. Joined parts do not use this name. */
export const ROOT = ident('found')

/** Names of the sort keys in the result, which follow the columns of the records. */
export const keyName = (index: number): Sql => ident(`key_${index}`)
export const KEY_ID = ident('key_id')

/** A part of the rows: all, those with a value of the first sort key, or those without. */
export type Part = 'all' | 'values' | 'nulls'

export interface KeyExpression {
  readonly expression: Sql
  readonly type: FieldType
  readonly direction: Direction
  readonly isNullable: boolean
}

/** Returns the sort keys. A random order uses a hash of id and seed, so that it is stable across pages. */
export function sortKeys(
  { sort, seed }: { sort: Sort; seed: number },
  { fields, parameters }: { fields: FieldExpressions; parameters: Parameters },
): KeyExpression[] {
  const keys = sort.keys.map(({ field, direction }): KeyExpression => {
    const type = keyType(field)
    const expression = orderOf(field, fields.expression(field), parameters)
    return { expression, type, direction, isNullable: !field.isNeverNull }
  })
  if (!sort.isRandom) return keys
  const chance = sql`hashtextextended(${ROOT}.id, ${parameters.add(String(seed))}::bigint)`
  return [...keys, { expression: chance, type: 'int', direction: 'asc', isNullable: false }]
}

/** An enum is sorted by the positions of its values. */
function keyType({ type }: Field): FieldType {
  return type === 'enum' ? 'int' : type
}

/** Returns the types of the sort keys. */
export function sortTypes({ keys, isRandom }: Sort): FieldType[] {
  return [...keys.map(({ field }) => keyType(field)), ...(isRandom ? ['int' as const] : [])]
}

/** Returns the ORDER BY list, by the names of the sort keys. */
export function orderSql({ keys, isRandom }: Sort, isBackward: boolean, part: Part = 'all'): Sql {
  const direction = isBackward ? sql`desc` : sql`asc`
  const parts = keys.flatMap((key, index) => orderByKey(key, { index, isBackward, part }))
  const chance = isRandom ? [sql`${keyName(keys.length)} ${direction}`] : []
  return join([...parts, ...chance, sql`${KEY_ID} ${direction}`], ', ')
}

function orderByKey(
  { field, direction }: SortKey,
  { index, isBackward, part }: { index: number; isBackward: boolean; part: Part },
): Sql[] {
  const name = keyName(index)
  const ordered = (isAscending: boolean, isNullsLast: boolean) => [
    sql`${name} ${isAscending ? sql`asc` : sql`desc`} nulls ${isNullsLast ? sql`last` : sql`first`}`,
  ]
  const isAscending = (direction === 'asc') !== isBackward
  const isFirst = index === 0
  // All keys are null, so only the id matters. An index of values and ids still needs both columns.
  if (isFirst && part === 'nulls') {
    return field.index === 'valuesAndIds' ? ordered(!isBackward, !isBackward) : []
  }
  // Without nulls, their position is chosen to match the index.
  const hasNulls = !field.isNeverNull && !(isFirst && part === 'values')
  return ordered(isAscending, hasNulls ? !isBackward : isAscending)
}
