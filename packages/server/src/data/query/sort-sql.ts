import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { FieldType } from './field.js'
import type { FieldExpressions } from './field-sql.js'
import type { Parameters } from './parameters.js'
import type { Direction, Sort, SortKey } from './sort.js'

/** The records that are looked for; a name that no joined part uses inside. */
export const ROOT = ident('found')

/** Columns of the result by which it is ordered, after those of the records. */
export const keyName = (index: number): Sql => ident(`key_${index}`)
export const KEY_ID = ident('key_id')

/** Which rows of the order: all, those with a value of the first key, or those without. */
export type Part = 'all' | 'values' | 'nulls'

export interface KeyExpression {
  readonly expression: Sql
  readonly type: FieldType
  readonly direction: Direction
  readonly isNullable: boolean
}

/** Chance is a number made of id and seed, so that the pages of one query share one order. */
export function sortKeys(
  { sort, seed }: { sort: Sort; seed: number },
  { fields, parameters }: { fields: FieldExpressions; parameters: Parameters },
): KeyExpression[] {
  const keys = sort.keys.map(({ field, direction }): KeyExpression => {
    const { type, isNeverNull } = field
    return { expression: fields.expression(field), type, direction, isNullable: !isNeverNull }
  })
  if (!sort.isRandom) return keys
  const chance = sql`hashtextextended(${ROOT}.id, ${parameters.add(String(seed))}::bigint)`
  return [...keys, { expression: chance, type: 'int', direction: 'asc', isNullable: false }]
}

/** The types of what `sortKeys` selects. */
export function sortTypes({ keys, isRandom }: Sort): FieldType[] {
  return [...keys.map(({ field }) => field.type), ...(isRandom ? ['int' as const] : [])]
}

/** By the names of the key columns. */
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
  // Among nulls only the id decides; but an index of values and ids must be named as a whole.
  if (isFirst && part === 'nulls') {
    return field.index === 'valuesAndIds' ? ordered(!isBackward, !isBackward) : []
  }
  // Where there are no nulls, their place is where an index has it.
  const hasNulls = !field.isNeverNull && !(isFirst && part === 'values')
  return ordered(isAscending, hasNulls ? !isBackward : isAscending)
}
