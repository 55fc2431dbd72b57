import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { exactItems, exactMembers, RoundedNumber } from '../../common/exact-json.js'
import { nearest } from '../../common/nearest.js'
import type { Field, FieldResolver } from './field.js'
import { invalidQuery } from './invalid-query.js'

/** A comparison operator. */
export type Operator =
  | '$is'
  | '$isNot'
  | '$gt'
  | '$ge'
  | '$lt'
  | '$le'
  | '$contains'
  | '$startsWith'
  | '$endsWith'
  | '$pattern'
  | '$iContains'
  | '$iPattern'

/** A condition on one value. */
export type Predicate =
  | { readonly kind: 'compare'; readonly operator: Operator; readonly value: unknown }
  | {
      readonly kind: 'includes'
      readonly mode: 'any' | 'all' | 'none'
      readonly element: Predicate
    }
  | { readonly kind: 'and' | 'or'; readonly items: readonly Predicate[] }
  | { readonly kind: 'not'; readonly item: Predicate }

/** A condition on a record. */
export type Filter =
  | { readonly kind: 'field'; readonly field: Field; readonly predicate: Predicate }
  | { readonly kind: 'exists'; readonly field: Field; readonly isNegated: boolean }
  | { readonly kind: 'and' | 'or'; readonly items: readonly Filter[] }
  | { readonly kind: 'not'; readonly item: Filter }

const COMPARISONS: ReadonlySet<string> = new Set<Operator>([
  '$is',
  '$isNot',
  '$gt',
  '$ge',
  '$lt',
  '$le',
  '$contains',
  '$startsWith',
  '$endsWith',
  '$pattern',
  '$iContains',
  '$iPattern',
])

// A Map, because keys come from requests, and `constructor` would be found in a plain object.
const INCLUDES: ReadonlyMap<string, 'any' | 'all' | 'none'> = new Map([
  ['$includes', 'any'],
  ['$includesAny', 'any'],
  ['$includesAll', 'all'],
  ['$includesNone', 'none'],
])

/** Maps the operator to whether it is negated. */
const EXISTS: ReadonlyMap<string, boolean> = new Map([
  ['$exists', false],
  ['$notExists', true],
  ['$existsNot', true],
])

const CONTROLS: ReadonlySet<string> = new Set(['$all', '$any', '$not', '$none'])

const { conditionDepthMax: DEPTH_MAX, conditionsMax: CONDITIONS_MAX } = QUERY_LIMITS

/** Operators of other query languages, and their names here, for error messages. */
const OTHER_NAMES: ReadonlyMap<string, string> = new Map([
  ['$eq', '$is'],
  ['$ne', '$isNot'],
  ['$neq', '$isNot'],
  ['$gte', '$ge'],
  ['$lte', '$le'],
  ['$in', '$any'],
  ['$nin', '$none'],
  ['$notIn', '$none'],
  ['$and', '$all'],
  ['$or', '$any'],
  ['$nor', '$none'],
  ['$like', '$pattern'],
  ['$ilike', '$iPattern'],
  ['$regex', '$pattern'],
])

function unknownOperator(key: string): string {
  const known = [...COMPARISONS, ...INCLUDES.keys(), ...EXISTS.keys(), ...CONTROLS]
  const meant = OTHER_NAMES.get(key) ?? nearest(key, known)
  const hint = meant === undefined ? '' : `; did you mean [${meant}]?`
  return `operator [${key}] is not known${hint}`
}

type Shape = Readonly<Record<string, unknown>>

/** Parses a filter and resolves its paths. */
export function parseFilter(resolve: FieldResolver, filter: unknown): Filter {
  let conditions = 0

  function enter(depth: number): void {
    if (depth > DEPTH_MAX)
      throw invalidQuery(`filter: is nested more than ${DEPTH_MAX} levels deep`)
    if (++conditions > CONDITIONS_MAX) {
      throw invalidQuery(`filter: has more than ${CONDITIONS_MAX} conditions`)
    }
  }

  /** Parses an object of which every key is a condition. */
  function conditionsOf(value: unknown, prefix: string, depth: number): Filter[] {
    if (!isObject(value)) throw invalidQuery('filter: expected an object')
    return exactMembers(value).map(([key, inner]) => condition(key, inner, prefix, depth))
  }

  function condition(key: string, value: unknown, prefix: string, depth: number): Filter {
    enter(depth)
    switch (key) {
      case '$all':
        return { kind: 'and', items: list(value, prefix, depth + 1) }
      case '$any':
        return anyOf(list(value, prefix, depth + 1))
      case '$not':
        return { kind: 'not', item: { kind: 'and', items: list(value, prefix, depth + 1) } }
      case '$none':
        return { kind: 'not', item: anyOf(list(value, prefix, depth + 1)) }
    }
    const isNegated = EXISTS.get(key)
    if (isNegated !== undefined) return exists(key, value, { isNegated, prefix })
    if (key.startsWith('$')) throw invalidQuery(`filter: ${unknownOperator(key)}`)
    return onPath(`${prefix}${key}`, value, depth + 1)
  }

  /** Parses an object of conditions, or a list of such objects. */
  function list(value: unknown, prefix: string, depth: number): Filter[] {
    if (!Array.isArray(value)) return conditionsOf(value, prefix, depth)
    return value.map((item) => {
      enter(depth)
      return { kind: 'and', items: conditionsOf(item, prefix, depth + 1) }
    })
  }

  function exists(
    key: string,
    value: unknown,
    { isNegated, prefix }: { isNegated: boolean; prefix: string },
  ): Filter {
    if (typeof value !== 'string') {
      throw invalidQuery(`filter: operator [${key}]: expected the name of a column`)
    }
    return { kind: 'exists', field: resolve(`${prefix}${value}`), isNegated }
  }

  /** Parses the conditions of a path. Some keys continue the path, the others are operators on its value. */
  function onPath(path: string, value: unknown, depth: number): Filter {
    if (!isObject(value)) return fieldFilter(path, value, depth)
    const items: Filter[] = []
    const operators: [string, unknown][] = []
    for (const [key, inner] of exactMembers(value)) {
      if (leadsOn(key, inner, depth)) items.push(condition(key, inner, `${path}.`, depth + 1))
      else operators.push([key, inner])
    }
    if (operators.length > 0 || items.length === 0) {
      items.push(fieldFilter(path, Object.fromEntries(operators), depth))
    }
    return items.length === 1 && items[0] !== undefined ? items[0] : { kind: 'and', items }
  }

  function fieldFilter(path: string, value: unknown, depth: number): Filter {
    const field = resolve(path)
    return { kind: 'field', field, predicate: predicate(value, path, depth) }
  }

  function predicate(value: unknown, path: string, depth: number): Predicate {
    enter(depth)
    if (Array.isArray(value)) {
      const items = exactItems(value).map((item) => predicate(item, path, depth + 1))
      return { kind: 'or', items }
    }
    if (!isObject(value)) return { kind: 'compare', operator: '$is', value }
    const items = exactMembers(value).map(([key, inner]) => operation(key, inner, path, depth + 1))
    if (items.length === 0) throw invalidQuery(`filter: column [${path}]: expected an operator`)
    return items.length === 1 && items[0] !== undefined ? items[0] : { kind: 'and', items }
  }

  function operation(key: string, value: unknown, path: string, depth: number): Predicate {
    const items = () => {
      const given = Array.isArray(value) ? exactItems(value) : [value]
      return given.map((item) => predicate(item, path, depth + 1))
    }
    switch (key) {
      case '$all':
        return { kind: 'and', items: items() }
      case '$any':
        return { kind: 'or', items: items() }
      case '$not':
        return { kind: 'not', item: { kind: 'and', items: items() } }
      case '$none':
        return { kind: 'not', item: { kind: 'or', items: items() } }
    }
    const mode = INCLUDES.get(key)
    if (mode !== undefined) {
      return { kind: 'includes', mode, element: predicate(value, path, depth + 1) }
    }
    if (!COMPARISONS.has(key)) {
      throw invalidQuery(`filter: column [${path}]: ${unknownOperator(key)}`)
    }
    const operator = key as Operator
    if (!Array.isArray(value)) return { kind: 'compare', operator, value }
    const each = exactItems(value).map((item) => {
      return { kind: 'compare' as const, operator, value: item }
    })
    // `$isNot` of a list means different from each of its values.
    return { kind: operator === '$isNot' ? 'and' : 'or', items: each }
  }

  return { kind: 'and', items: conditionsOf(filter, '', 0) }
}

/**
 * Merges alternatives on the same column into one condition, which PostgreSQL evaluates as one array
 * comparison.
 */
function anyOf(items: readonly Filter[]): Filter {
  const others: Filter[] = []
  const byPath = new Map<string, { field: Field; values: Predicate[] }>()
  for (const item of items.map(unwrap)) {
    if (item.kind !== 'field' || !isOneValue(item.predicate)) {
      others.push(item)
      continue
    }
    const { field, predicate } = item
    const known = byPath.get(field.path)
    if (known === undefined) byPath.set(field.path, { field, values: [predicate] })
    else known.values.push(predicate)
  }
  const grouped = [...byPath.values()].map(({ field, values }): Filter => {
    const [only] = values
    const isOne = values.length === 1 && only !== undefined
    return { kind: 'field', field, predicate: isOne ? only : { kind: 'or', items: values } }
  })
  return { kind: 'or', items: [...grouped, ...others] }
}

function unwrap(filter: Filter): Filter {
  const isCombined = filter.kind === 'and' || filter.kind === 'or'
  const [only] = isCombined ? filter.items : []
  return isCombined && filter.items.length === 1 && only !== undefined ? unwrap(only) : filter
}

function isOneValue(predicate: Predicate): boolean {
  return predicate.kind === 'compare' && predicate.operator === '$is' && predicate.value !== null
}

/** Returns whether a key continues the path: it is a name, or combines conditions that contain a name. */
function leadsOn(key: string, value: unknown, depth: number): boolean {
  if (!key.startsWith('$') || EXISTS.has(key)) return true
  if (!CONTROLS.has(key) || depth > DEPTH_MAX) return false
  const items = Array.isArray(value) ? value : [value]
  return items.some(
    (item) =>
      isObject(item) &&
      Object.entries(item).some(([inner, operand]) => leadsOn(inner, operand, depth + 1)),
  )
}

function isObject(value: unknown): value is Shape {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof RoundedNumber)
  )
}
