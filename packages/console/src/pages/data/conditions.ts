import type { ColumnDefinition } from '@offshoot/client'
import { parseText } from './values.js'
import type { AnyFilter } from './view.js'

/** One line of the filter that is built by hand. */
export interface Condition {
  readonly column: string
  readonly operator: string
  readonly text: string
}

export interface Conditions {
  readonly match: 'all' | 'any'
  readonly conditions: readonly Condition[]
}

const COMPARE = ['$is', '$isNot', '$gt', '$ge', '$lt', '$le']
const TEXT = ['$iContains', '$is', '$isNot', '$startsWith', '$endsWith', '$contains', '$pattern']
const PRESENCE = ['$exists', '$notExists']

export const OPERATOR_WORDS: Readonly<Record<string, string>> = {
  $is: 'is',
  $isNot: 'is not',
  $gt: '>',
  $ge: '≥',
  $lt: '<',
  $le: '≤',
  $contains: 'contains (same case)',
  $iContains: 'contains',
  $startsWith: 'starts with',
  $endsWith: 'ends with',
  $pattern: 'matches * and ?',
  $includes: 'includes',
  $includesNone: 'does not include',
  $exists: 'has a value',
  $notExists: 'is empty',
}

/** The operators that make sense for a column, the most useful first. */
export function operatorsOf({ type }: Pick<ColumnDefinition, 'type'>): readonly string[] {
  switch (type) {
    case 'int':
    case 'float':
    case 'datetime':
    case 'decimal':
    case 'date':
    case 'time':
    case 'enum':
      return [...COMPARE, ...PRESENCE]
    case 'bool':
    case 'link':
    case 'uuid':
      return ['$is', '$isNot', ...PRESENCE]
    case 'multiple':
      return ['$includes', '$includesNone', ...PRESENCE]
    case 'string':
    case 'text':
    case 'email':
      return [...TEXT, '$gt', '$lt', ...PRESENCE]
    default:
      return PRESENCE
  }
}

export const needsValue = (operator: string): boolean => !PRESENCE.includes(operator)

/** Returns the filter of the conditions; undefined if there is none. Throws if a value does not fit. */
export function filterOf(
  { match, conditions }: Conditions,
  columns: readonly ColumnDefinition[],
): AnyFilter | undefined {
  const parts = conditions.map(({ column: name, operator, text }) => {
    if (!needsValue(operator)) return { [operator]: name }
    const column = columns.find((one) => one.name === name)
    if (column === undefined) throw new Error(`there is no column ${name}`)
    const isPlain = column.type === 'multiple' || column.type === 'link'
    const parsed = isPlain ? { value: text } : parseText({ ...column, notNull: false }, text)
    if ('fault' in parsed) throw new Error(`${name}: ${parsed.fault}`)
    return { [name]: { [operator]: parsed.value ?? '' } }
  })
  if (parts.length === 0) return undefined
  return (parts.length === 1 ? parts[0] : { [`$${match}`]: parts }) as AnyFilter
}

/** Reads a filter back into conditions; undefined if it was not built by hand. */
export function conditionsOf(filter: AnyFilter | undefined): Conditions | undefined {
  if (filter === undefined) return { match: 'all', conditions: [] }
  const [key, value] = Object.entries(filter)[0] ?? []
  const isList = (key === '$all' || key === '$any') && Array.isArray(value)
  if (Object.keys(filter).length !== 1) return undefined
  const conditions = (isList ? (value as object[]) : [filter]).map(conditionOf)
  if (conditions.some((condition) => condition === undefined)) return undefined
  return {
    match: key === '$any' ? 'any' : 'all',
    conditions: conditions as Condition[],
  }
}

function conditionOf(part: unknown): Condition | undefined {
  if (typeof part !== 'object' || part === null || Object.keys(part).length !== 1) return undefined
  const [key, value] = Object.entries(part)[0] ?? []
  if (key === undefined) return undefined
  if (PRESENCE.includes(key)) {
    return typeof value === 'string' ? { column: value, operator: key, text: '' } : undefined
  }
  if (key.startsWith('$')) return undefined
  if (typeof value !== 'object') return { column: key, operator: '$is', text: String(value) }
  if (value === null || Object.keys(value).length !== 1) return undefined
  const [operator, compared] = Object.entries(value)[0] ?? []
  if (operator === undefined || !(operator in OPERATOR_WORDS) || typeof compared === 'object') {
    return undefined
  }
  return { column: key, operator, text: String(compared) }
}

/** Describes a filter in words. One that cannot be built by hand is shown as it is. */
export function inWords(filter: AnyFilter): string {
  const built = conditionsOf(filter)
  if (built === undefined) return JSON.stringify(filter)
  return built.conditions
    .map(({ column, operator, text }) => `${column} ${OPERATOR_WORDS[operator]} ${text}`.trim())
    .join(built.match === 'all' ? ' and ' : ' or ')
}
