import { empty, join, type Sql, sql } from '../../postgres/sql.js'
import type { Position } from './cursor.js'
import { SQL_TYPES } from './field.js'
import type { Parameters } from './parameters.js'
import type { QueryPlan } from './query-plan.js'
import { type KeyExpression, type Part, ROOT } from './sort-sql.js'

/*
 * Nulls come last in both directions. An index cannot provide this for descending order, and the condition
 * "after this value, or null" is not a range of an index. So if an index could be used, rows with a value of
 * the first key and rows without are selected separately, each in an order and range that an index has.
 */

export function listParts({ sort, after, before, isBackward }: QueryPlan): Part[] {
  const [first] = sort.keys
  if (first === undefined) return ['all']
  const { field, direction } = first
  if (field.isNeverNull) return ['values']
  if (field.index === undefined) return ['all']
  const isWhole = direction === 'asc' && after === undefined && before === undefined
  // A backward page starts with the nulls, which must be in the order of ids.
  if (isWhole && (field.index === 'valuesAndIds' || !isBackward)) return ['all']
  const parts: readonly Part[] = ['values', 'nulls']
  return parts.filter(
    (part) =>
      !isBeyond(part, { at: after, isAfter: true }) &&
      !isBeyond(part, { at: before, isAfter: false }),
  )
}

/** Returns whether the whole part is on the other side of a position. */
function isBeyond(
  part: Part,
  { at, isAfter }: { at: Position | undefined; isAfter: boolean },
): boolean {
  if (at === undefined) return false
  const isNull = (at.keys[0] ?? null) === null
  return isAfter ? isNull && part === 'values' : !isNull && part === 'nulls'
}

/** Returns the condition for rows of a part. */
export function partSql(part: Part, [first]: readonly KeyExpression[]): Sql[] {
  if (part === 'all' || first === undefined || !first.isNullable) return []
  const { expression } = first
  return [part === 'values' ? sql`${expression} is not null` : sql`${expression} is null`]
}

/**
 * Returns the condition for rows after or before a position, by the first key that differs. Nulls are last.
 */
export function beyondSql(
  keys: readonly KeyExpression[],
  context: { at: Position; isAfter: boolean; part: Part; parameters: Parameters },
): Sql[] {
  const { at, isAfter, part } = context
  const isFirstNull = (at.keys[0] ?? null) === null
  if (part === 'nulls' && !isFirstNull) return []
  if (part === 'values' && isFirstNull) return []
  if (part === 'values' && keys.length === 1 && keys[0]?.direction === 'asc') {
    return [beyondPair(keys[0], context)]
  }
  const alternatives: Sql[] = []
  const equal: Sql[] = []
  for (const [index, key] of keys.entries()) {
    const { expression, isNullable } = key
    const text = at.keys[index] ?? null
    const isKnown = index === 0 && part !== 'all'
    if (text === null) {
      if (isKnown) continue
      if (!isAfter) alternatives.push(every([...equal, sql`${expression} is not null`]))
      equal.push(sql`${expression} is null`)
      continue
    }
    const sign = signOf(key, isAfter)
    const isBeyond = sql`${expression} ${sign} ${valueSql(key, text, context)}`
    const withNulls = isAfter && isNullable && !isKnown
    const beyond = withNulls ? sql`(${isBeyond} or ${expression} is null)` : isBeyond
    alternatives.push(every([...equal, beyond]))
    equal.push(sql`${expression} = ${valueSql(key, text, context)}`)
  }
  alternatives.push(every([...equal, beyondId(context)]))
  return [...rangeSql(keys, context), sql`(${join(alternatives, ' or ')})`]
}

/** Returns a range condition that all alternatives share, so that an index can be used. */
function rangeSql(
  [first]: readonly KeyExpression[],
  context: { at: Position; isAfter: boolean; part: Part; parameters: Parameters },
): Sql[] {
  const text = context.at.keys[0] ?? null
  if (first === undefined || text === null || context.part !== 'values') return []
  const sign = signOf(first, context.isAfter)
  return [sql`${first.expression} ${sign}= ${valueSql(first, text, context)}`]
}

/** Compares value and id as a pair, for an index on both. */
function beyondPair(
  key: KeyExpression,
  context: { at: Position; isAfter: boolean; parameters: Parameters },
): Sql {
  const { at, isAfter, parameters } = context
  const value = valueSql(key, at.keys[0] ?? '', context)
  const id = sql`${parameters.add(at.id)}::text`
  const orItself = at.isInclusive ? sql`=` : empty
  return sql`(${key.expression}, ${ROOT}.id) ${signOf(key, isAfter)}${orItself} (${value}, ${id})`
}

function beyondId({
  at,
  isAfter,
  parameters,
}: {
  at: Position
  isAfter: boolean
  parameters: Parameters
}): Sql {
  const sign = isAfter ? sql`>` : sql`<`
  const orItself = at.isInclusive ? sql`=` : empty
  return sql`${ROOT}.id ${sign}${orItself} ${parameters.add(at.id)}::text`
}

function valueSql(
  { type }: KeyExpression,
  text: string,
  { parameters }: { parameters: Parameters },
): Sql {
  return sql`${parameters.add(text)}::${SQL_TYPES[type] ?? sql`text`}`
}

function signOf({ direction }: KeyExpression, isAfter: boolean): Sql {
  return (direction === 'asc') === isAfter ? sql`>` : sql`<`
}

function every(conditions: readonly Sql[]): Sql {
  return sql`(${join([...conditions], ' and ')})`
}
