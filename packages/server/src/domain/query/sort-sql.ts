import { ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { FieldType } from './field.js'
import type { FieldExpressions } from './field-sql.js'
import type { Direction, Sort } from './sort.js'

/** The records that are looked for; a name that no joined part uses inside. */
export const ROOT = ident('found')

/** Columns of the result by which it is ordered, after those of the records. */
export const keyName = (index: number): Sql => ident(`key_${index}`)
export const KEY_ID = ident('key_id')

export interface KeyExpression {
  readonly expression: Sql
  readonly type: FieldType
  readonly direction: Direction
}

/** Chance is a number made of id and seed, so that the pages of one query share one order. */
export function sortKeys(sort: Sort, seed: number, fields: FieldExpressions): KeyExpression[] {
  const keys = sort.keys.map(({ field, direction }): KeyExpression => {
    return { expression: fields.expression(field), type: field.type, direction }
  })
  if (!sort.isRandom) return keys
  const chance = sql`hashtextextended(${ROOT}.id, ${raw(String(seed))})`
  return [...keys, { expression: chance, type: 'int', direction: 'asc' }]
}

/** The types of what `sortKeys` selects. */
export function sortTypes({ keys, isRandom }: Sort): FieldType[] {
  return [...keys.map(({ field }) => field.type), ...(isRandom ? ['int' as const] : [])]
}

/** By the names of the key columns. */
export function orderSql({ keys, isRandom }: Sort, isBackward: boolean): Sql {
  const directions = [...keys.map(({ direction }) => direction), ...(isRandom ? ['asc'] : [])]
  const parts = directions.map((direction, index) => {
    const isAscending = (direction === 'asc') !== isBackward
    const nulls = isBackward ? sql`nulls first` : sql`nulls last`
    return sql`${keyName(index)} ${isAscending ? sql`asc` : sql`desc`} ${nulls}`
  })
  return join([...parts, sql`${KEY_ID} ${isBackward ? sql`desc` : sql`asc`}`], ', ')
}
