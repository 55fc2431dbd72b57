import { join, type Sql, sql } from '../../postgres/sql.js'
import { arrayLiteral } from '../../rows/columns/carriers.js'
import { encodeDatetime } from '../../rows/columns/datetime-type.js'
import { Fault } from '../../rows/columns/fault.js'
import type { FieldType } from './field.js'
import type { FieldExpressions } from './field-sql.js'
import type { Filter, Operator, Predicate } from './filter.js'
import type { Parameters } from './parameters.js'
import { queryFault } from './query-fault.js'

/** SQL of a filter. Null is unknown throughout, so a negation does not match what has no value. */
export function filterSql(filter: Filter, fields: FieldExpressions, parameters: Parameters): Sql {
  switch (filter.kind) {
    case 'field': {
      const { field, predicate } = filter
      const value = { expression: fields.expression(field), type: field.type, path: field.path }
      return predicateSql(predicate, value, parameters)
    }
    case 'exists': {
      const expression = fields.expression(filter.field)
      return filter.isNegated ? sql`${expression} is null` : sql`${expression} is not null`
    }
    case 'not':
      return sql`not (${filterSql(filter.item, fields, parameters)})`
    default:
      return combine(
        filter.kind,
        filter.items.map((item) => filterSql(item, fields, parameters)),
      )
  }
}

/** Nothing to meet is met by all; nothing to choose from is met by none. */
function combine(kind: 'and' | 'or', items: readonly Sql[]): Sql {
  if (items.length === 0) return kind === 'and' ? sql`true` : sql`false`
  return sql`(${join(items, kind === 'and' ? ' and ' : ' or ')})`
}

interface Value {
  readonly expression: Sql
  readonly type: FieldType
  readonly path: string
}

function predicateSql(predicate: Predicate, value: Value, parameters: Parameters): Sql {
  switch (predicate.kind) {
    case 'compare':
      return compareSql(predicate.operator, predicate.value, { value, parameters })
    case 'includes':
      return includesSql(predicate, value, parameters)
    case 'not':
      return sql`not (${predicateSql(predicate.item, value, parameters)})`
    default: {
      const list = predicate.kind === 'or' ? listOfTexts(predicate.items, value) : undefined
      if (list !== undefined) {
        return sql`${value.expression} = any(${parameters.add(arrayLiteral(list))}::text[])`
      }
      return combine(
        predicate.kind,
        predicate.items.map((item) => predicateSql(item, value, parameters)),
      )
    }
  }
}

/** Being one of many texts is one comparison, not thousands. */
function listOfTexts(items: readonly Predicate[], value: Value): string[] | undefined {
  if (value.type !== 'text' || items.length < 2) return undefined
  const texts = items.flatMap((item) =>
    item.kind === 'compare' && item.operator === '$is' && typeof item.value === 'string'
      ? [textOf(item.value, value)]
      : [],
  )
  return texts.length === items.length ? texts : undefined
}

function includesSql(
  { mode, element }: Extract<Predicate, { kind: 'includes' }>,
  value: Value,
  parameters: Parameters,
): Sql {
  if (value.type !== 'list') {
    throw queryFault(`filter: column [${value.path}]: only a multiple column includes values`)
  }
  const inner = { expression: sql`e.value`, type: 'text' as const, path: value.path }
  const matches = predicateSql(element, inner, parameters)
  const elements = sql`from unnest(${value.expression}) as e (value)`
  switch (mode) {
    case 'any':
      return sql`exists (select ${elements} where ${matches})`
    case 'none':
      return sql`(${value.expression} is not null and not exists (select ${elements} where ${matches}))`
    case 'all':
      return sql`(${value.expression} is not null and not exists (select ${elements} where not (${matches})))`
  }
}

const SIGNS: Readonly<Partial<Record<Operator, Sql>>> = {
  $is: sql`=`,
  $isNot: sql`<>`,
  $gt: sql`>`,
  $ge: sql`>=`,
  $lt: sql`<`,
  $le: sql`<=`,
}

interface Comparison {
  readonly value: Value
  readonly parameters: Parameters
}

function compareSql(operator: Operator, given: unknown, context: Comparison): Sql {
  const { value, parameters } = context
  const { expression, type, path } = value
  if (given === null) {
    if (operator === '$is') return sql`${expression} is null`
    if (operator === '$isNot') return sql`${expression} is not null`
    throw queryFault(`filter: column [${path}]: operator [${operator}]: cannot compare with null`)
  }
  const sign = SIGNS[operator]
  switch (type) {
    case 'text': {
      const text = textOf(given, value)
      if (sign === undefined) return matchSql(operator, text, context)
      return sql`${expression} ${sign} ${parameters.add(text)}::text`
    }
    case 'int':
    case 'float': {
      if (sign === undefined) throw notAllowed(operator, value)
      if (typeof given !== 'number') throw wrongType('a number', value)
      const isWhole = type === 'int' && Number.isSafeInteger(given)
      const parameter = parameters.add(String(given))
      return isWhole
        ? sql`${expression} ${sign} ${parameter}::bigint`
        : sql`${expression} ${sign} ${parameter}::double precision`
    }
    case 'bool': {
      if (operator !== '$is' && operator !== '$isNot') throw notAllowed(operator, value)
      if (typeof given !== 'boolean') throw wrongType('a boolean', value)
      return sql`${expression} ${sign} ${parameters.add(given ? 't' : 'f')}::boolean`
    }
    case 'datetime': {
      if (sign === undefined) throw notAllowed(operator, value)
      if (typeof given !== 'string') throw wrongType('a time', value)
      const text = encodeDatetime(given)
      if (text instanceof Fault) throw queryFault(`filter: column [${path}]: ${text.message}`)
      return sql`${expression} ${sign} ${parameters.add(text)}::timestamptz`
    }
    case 'json':
      return compareJson(operator, given, context)
    default:
      throw notAllowed(operator, value)
  }
}

/** A value inside a JSON document has the type it has there; of another type it does not match. */
function compareJson(operator: Operator, given: unknown, context: Comparison): Sql {
  const { value, parameters } = context
  const { expression, path } = value
  const sign = SIGNS[operator]
  const isPath = path.includes('->') || path.includes('.')
  if (!isPath) {
    if (operator !== '$is' && operator !== '$isNot') throw notAllowed(operator, value)
    return sql`${expression} ${sign} ${parameters.add(documentOf(given, value))}::jsonb`
  }
  if (typeof given === 'number') {
    if (sign === undefined) throw notAllowed(operator, value)
    const parameter = parameters.add(String(given))
    return sql`case when jsonb_typeof(${expression}) = 'number' then (${expression})::text::numeric ${sign} ${parameter}::numeric end`
  }
  if (typeof given === 'boolean') {
    if (operator !== '$is' && operator !== '$isNot') throw notAllowed(operator, value)
    return sql`case when jsonb_typeof(${expression}) = 'boolean' then (${expression})::text::boolean ${sign} ${parameters.add(String(given))}::boolean end`
  }
  const text = textOf(given, value)
  const inner = { ...value, type: 'text' as const, expression: sql`(${expression} #>> '{}')` }
  const matches =
    sign === undefined
      ? matchSql(operator, text, { value: inner, parameters })
      : sql`(${inner.expression} collate "C") ${sign} ${parameters.add(text)}::text`
  return sql`case when jsonb_typeof(${expression}) = 'string' then ${matches} end`
}

/** A whole document is given as JSON text, or as the document itself. */
function documentOf(given: unknown, value: Value): string {
  if (typeof given !== 'string') return JSON.stringify(given) ?? 'null'
  try {
    JSON.parse(given)
    return given
  } catch {
    throw queryFault(`filter: column [${value.path}]: expected JSON text`)
  }
}

function matchSql(operator: Operator, text: string, { value, parameters }: Comparison): Sql {
  const { expression } = value
  const parameter = () => sql`${parameters.add(text)}::text`
  switch (operator) {
    case '$contains':
      return sql`position(${parameter()} in ${expression}) > 0`
    case '$startsWith':
      return sql`starts_with(${expression}, ${parameter()})`
    case '$endsWith':
      return sql`right(${expression}, length(${parameter()})) = ${parameter()}`
    case '$iContains':
      return sql`position(lower(${parameter()}) in lower(${expression})) > 0`
    case '$pattern':
      return sql`${expression} like ${parameters.add(likePattern(text))}::text`
    case '$iPattern':
      return sql`${expression} ilike ${parameters.add(likePattern(text))}::text`
    default:
      throw notAllowed(operator, value)
  }
}

/** `*` is any run, `?` one character, a backslash takes the meaning away. */
export function likePattern(pattern: string): string {
  let like = ''
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern.charAt(at)
    if (character === '*') like += '%'
    else if (character === '?') like += '_'
    else {
      const plain = character === '\\' && at + 1 < pattern.length ? pattern.charAt(++at) : character
      like += /[%_\\]/.test(plain) ? `\\${plain}` : plain
    }
  }
  return like
}

function textOf(given: unknown, value: Value): string {
  if (typeof given !== 'string') throw wrongType('a string', value)
  if (given.includes('\0') || !isWellFormed(given)) {
    throw queryFault(
      `filter: column [${value.path}]: the text has a character that cannot be stored`,
    )
  }
  return given
}

function isWellFormed(text: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text)
}

function wrongType(expected: string, { path }: Value) {
  return queryFault(`filter: column [${path}]: expected ${expected}`)
}

function notAllowed(operator: Operator, { path, type }: Value) {
  return queryFault(
    `filter: column [${path}]: operator [${operator}] cannot be used with type [${type}]`,
  )
}
