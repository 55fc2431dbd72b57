import type { AppError } from '@offshoot/contract/errors'
import { RoundedNumber } from '../../common/exact-json.js'
import { writeExactly } from '../../common/write-json.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import { join, type Sql, sql } from '../../postgres/sql.js'
import { encodeOperand } from '../../rows/columns/column-types.js'
import { Fault } from '../../rows/columns/fault.js'
import { checkJsonText } from '../../rows/columns/json-text.js'
import { checkText } from '../../rows/columns/text-types.js'
import { orderOf } from './enum-order.js'
import { type Field, type FieldType, SQL_TYPES } from './field.js'
import type { Filter, Operator, Predicate } from './filter.js'
import { invalidQuery } from './invalid-query.js'
import type { Parameters } from './parameters.js'

/** Converts fields to expressions of a statement. */
export interface Expressions {
  expression(field: Field): Sql
}

/**
 * Converts a filter to SQL. Comparisons with null are unknown, so a negation does not match missing values.
 */
export function filterSql(filter: Filter, fields: Expressions, parameters: Parameters): Sql {
  switch (filter.kind) {
    case 'field': {
      const { field, predicate } = filter
      const { path, type, source, values, ids } = field
      const isDocument = type === 'json' && source.kind === 'column'
      const value = { expression: fields.expression(field), type, path, isDocument, values, ids }
      return predicateSql(predicate, value, parameters)
    }
    case 'exists': {
      parameters.countComparison()
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

/** An empty conjunction is true, and an empty disjunction is false. */
function combine(kind: 'and' | 'or', items: readonly Sql[]): Sql {
  if (items.length === 0) return kind === 'and' ? sql`true` : sql`false`
  return sql`(${join(items, kind === 'and' ? ' and ' : ' or ')})`
}

interface Value {
  readonly expression: Sql
  readonly type: FieldType
  readonly path: string
  /** The value is a whole JSON document, not a value inside one. */
  readonly isDocument: boolean
  /** The values of an enum, in their order. */
  readonly values?: readonly string[] | undefined
  readonly ids?: Field['ids']
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
      const list =
        predicate.kind === 'or' ? listSql(predicate.items, { value, parameters }) : undefined
      if (list !== undefined) return list
      return combine(
        predicate.kind,
        predicate.items.map((item) => predicateSql(item, value, parameters)),
      )
    }
  }
}

/** Converts a list of alternatives to a single comparison with an array. */
function listSql(items: readonly Predicate[], { value, parameters }: Comparison): Sql | undefined {
  const type = SQL_TYPES[value.type]
  const list = listOfValues(items, value)
  if (list !== undefined && type !== undefined) {
    parameters.countComparison()
    return sql`${value.expression} = any(${parameters.add(arrayLiteral(list))}::${type}[])`
  }
  return value.type === 'json' && !value.isDocument
    ? listInDocument(items, { value, parameters })
    : undefined
}

/**
 * Converts a list of alternatives for values inside JSON documents, if all are numbers or all are plain
 * texts.
 */
function listInDocument(
  items: readonly Predicate[],
  { value, parameters }: Comparison,
): Sql | undefined {
  const given = items.map((item) =>
    item.kind === 'compare' && item.operator === '$is' ? item.value : undefined,
  )
  if (given.length < 2) return undefined
  const { expression } = value
  const list = () => {
    parameters.countComparison()
    return parameters.add(arrayLiteral(given.map((item) => numberText(item, value))))
  }
  if (given.every((item) => typeof item === 'number' || item instanceof RoundedNumber)) {
    return sql`case when jsonb_typeof(${expression}) = 'number'
      then (${expression})::text::numeric = any(${list()}::numeric[]) end`
  }
  const isText = (item: unknown) =>
    typeof item === 'string' && checkText(item) === undefined && !isListOrObject(item)
  if (!given.every(isText)) return undefined
  return sql`case jsonb_typeof(${expression})
    when 'string' then ((${expression} #>> '{}') collate "C") = any(${list()}::text[]) end`
}

function listOfValues(items: readonly Predicate[], value: Value): string[] | undefined {
  if (items.length < 2) return undefined
  const texts: string[] = []
  for (const item of items) {
    if (item.kind !== 'compare' || item.operator !== '$is' || item.value === null) return undefined
    const { type } = value
    if (item.value instanceof RoundedNumber) return undefined
    // Fractions are compared separately, without conversion to an integer.
    const isId = value.ids !== undefined
    if (type === 'int' && !isId && !Number.isSafeInteger(item.value)) return undefined
    if (type === 'bool' || SQL_TYPES[type] === undefined) return undefined
    texts.push(operandText(item.value, value))
  }
  return texts
}

function includesSql(
  { mode, element }: Extract<Predicate, { kind: 'includes' }>,
  value: Value,
  parameters: Parameters,
): Sql {
  if (value.type !== 'list') {
    throw invalidQuery(
      `filter: column [${value.path}]: $includes needs a column of type [multiple]`,
    )
  }
  const inner: Value = {
    expression: sql`(e.value collate "C")`,
    type: 'text',
    path: value.path,
    isDocument: false,
  }
  const matches = predicateSql(element, inner, parameters)
  const elements = sql`select from unnest(${value.expression}) as e (value)`
  const outcome =
    mode === 'any'
      ? sql`exists (${elements} where ${matches})`
      : mode === 'none'
        ? sql`not exists (${elements} where ${matches})`
        : sql`not exists (${elements} where not (${matches}))`
  // For a missing list, the result is unknown.
  return sql`case when ${value.expression} is not null then ${outcome} end`
}

/** No stored document can be larger. */
const DOCUMENT_BYTES_MAX = 64 * 1024 * 1024

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
  if (given instanceof RoundedNumber) return compareRounded(operator, given, context)
  parameters.countComparison()
  const { expression, type, path } = value
  if (typeof given === 'object' && given !== null && !value.isDocument) {
    throw invalidQuery(`filter: column [${path}]: operator [${operator}]: expected a value`)
  }
  if (given === null) {
    if (operator === '$is') return sql`${expression} is null`
    if (operator === '$isNot') return sql`${expression} is not null`
    throw invalidQuery(`filter: column [${path}]: operator [${operator}]: cannot compare with null`)
  }
  const sign = SIGNS[operator]
  if (sign === undefined) parameters.countPattern()
  switch (type) {
    case 'text': {
      if (sign === undefined) return matchSql(operator, textOf(given, value), context)
      return sql`${expression} ${sign} ${parameters.add(operandText(given, value))}::text`
    }
    case 'int':
    case 'float': {
      if (sign === undefined) throw notAllowed(operator, value)
      const parameter = parameters.add(operandText(given, value))
      const isWhole = type === 'int' && (value.ids !== undefined || Number.isSafeInteger(given))
      return sql`${expression} ${sign} ${parameter}::${isWhole ? sql`bigint` : sql`double precision`}`
    }
    case 'bool':
      if (operator !== '$is' && operator !== '$isNot') throw notAllowed(operator, value)
      return sql`${expression} ${sign} ${parameters.add(operandText(given, value))}::boolean`
    case 'datetime':
    case 'decimal':
    case 'date':
    case 'time':
    case 'uuid':
      if (sign === undefined) throw notAllowed(operator, value)
      return sql`${expression} ${sign} ${parameters.add(operandText(given, value))}::${SQL_TYPES[type]}`
    case 'enum': {
      if (sign === undefined) throw notAllowed(operator, value)
      const operand = sql`${parameters.add(operandText(given, value))}::text`
      if (operator === '$is' || operator === '$isNot') return sql`${expression} ${sign} ${operand}`
      return sql`${orderOf(value, expression, parameters)} ${sign} ${orderOf(value, operand, parameters)}`
    }
    case 'json':
      return compareJson(operator, given, context)
    case 'list': {
      // A list matches if one of its elements does; for `$isNot`, none may be equal.
      const isNegated = operator === '$isNot'
      const element = {
        kind: 'compare' as const,
        operator: isNegated ? '$is' : operator,
        value: given,
      }
      const mode = isNegated ? 'none' : 'any'
      return includesSql({ kind: 'includes', mode, element }, value, parameters)
    }
    default:
      throw notAllowed(operator, value)
  }
}

/** Compares with a number that a double does not keep, by all of its digits. */
function compareRounded(operator: Operator, given: RoundedNumber, context: Comparison): Sql {
  const { value, parameters } = context
  const { expression, type } = value
  if (type === 'decimal') checked(encodeOperand(type, given), value)
  // No id is such a number.
  if (value.ids !== undefined) {
    for (const id of [given.value, given.digits]) checked(value.ids.encode(id), value)
  }
  if (type !== 'int' && type !== 'json') return compareSql(operator, given.value, context)
  parameters.countComparison()
  const sign = SIGNS[operator]
  if (sign === undefined) throw notAllowed(operator, value)
  const text = numberText(given, value)
  if (type === 'int') return sql`${expression} ${sign} ${parameters.add(text)}::numeric`
  return value.isDocument
    ? compareDocument(operator, text, context)
    : compareNumber(sign, text, context)
}

/** More digits, or zeros that an exponent stands for, are not compared. */
const DIGITS_MAX = 1000

/** Returns the text of a number with all of its digits. */
function numberText(given: unknown, value: Value): string {
  if (!(given instanceof RoundedNumber)) return String(given)
  const [digits = '', exponent = '0'] = given.digits.toLowerCase().split('e')
  if (digits.length + Math.abs(Number(exponent)) <= DIGITS_MAX) return given.digits
  throw refused(new Fault(`a number has more than ${DIGITS_MAX} digits`), value)
}

/** Returns the text form of a value to compare with. Throws if it has the wrong type. */
function operandText(given: unknown, value: Value): string {
  if (value.ids !== undefined) return checked(value.ids.encode(given), value)
  switch (value.type) {
    case 'int':
    case 'float':
      if (typeof given !== 'number') throw wrongType('a number', value)
      return String(given)
    case 'bool':
      if (typeof given !== 'boolean') throw wrongType('a boolean', value)
      return given ? 't' : 'f'
    case 'datetime':
      if (typeof given !== 'string') throw wrongType('a time', value)
      return checked(encodeOperand(value.type, given), value)
    case 'decimal':
    case 'date':
    case 'time':
    case 'uuid':
      return checked(encodeOperand(value.type, given), value)
    case 'enum': {
      const text = textOf(given, value)
      if (value.values?.includes(text) !== false) return text
      throw invalidQuery(`filter: column [${value.path}]: [${text}] is not a value of the enum`)
    }
    default:
      return textOf(given, value)
  }
}

function checked(text: string | Fault, value: Value): string {
  if (text instanceof Fault) throw refused(text, value)
  return text
}

function refused({ message }: Fault, { path }: Value): AppError {
  return invalidQuery(`filter: column [${path}]: ${message}`)
}

/** Compares a whole document. */
function compareDocument(operator: Operator, text: string, context: Comparison): Sql {
  const { value, parameters } = context
  if (operator !== '$is' && operator !== '$isNot') throw notAllowed(operator, value)
  return sql`${value.expression} ${SIGNS[operator]} ${parameters.add(text)}::jsonb`
}

/** Compares a number inside a document. */
function compareNumber(sign: Sql, text: string, { value, parameters }: Comparison): Sql {
  const { expression } = value
  return sql`case when jsonb_typeof(${expression}) = 'number'
    then (${expression})::text::numeric ${sign} ${parameters.add(text)}::numeric end`
}

/** Compares a value inside a JSON document. It does not match values of another type. */
function compareJson(operator: Operator, given: unknown, context: Comparison): Sql {
  const { value, parameters } = context
  const { expression } = value
  const sign = SIGNS[operator]
  if (value.isDocument) return compareDocument(operator, documentOf(given, value), context)
  if (typeof given === 'number') {
    if (sign === undefined) throw notAllowed(operator, value)
    return compareNumber(sign, String(given), context)
  }
  if (typeof given === 'boolean') {
    if (operator !== '$is' && operator !== '$isNot') throw notAllowed(operator, value)
    return sql`case when jsonb_typeof(${expression}) = 'boolean' then (${expression})::text::boolean ${sign} ${parameters.add(String(given))}::boolean end`
  }
  const text = textOf(given, value)
  const inner = { ...value, type: 'text' as const, expression: sql`(${expression} #>> '{}')` }
  if (sign === undefined) {
    // Lists and objects are matched as JSON text.
    const matches = matchSql(operator, text, { value: inner, parameters })
    return sql`case when jsonb_typeof(${expression}) in ('string', 'array', 'object') then ${matches} end`
  }
  const compares = sql`(${inner.expression} collate "C") ${sign} ${parameters.add(text)}::text`
  const ofText = sql`when 'string' then ${compares}`
  if ((operator !== '$is' && operator !== '$isNot') || !isListOrObject(text)) {
    return sql`case jsonb_typeof(${expression}) ${ofText} end`
  }
  const ofOthers = sql`${expression} ${sign} ${parameters.add(documentOf(text, value))}::jsonb`
  return sql`case jsonb_typeof(${expression}) ${ofText} when 'array' then ${ofOthers} when 'object' then ${ofOthers} end`
}

function isListOrObject(text: string): boolean {
  if (!/^\s*[[{]/.test(text)) return false
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

/** Returns the JSON text of a document to compare with, which may be given as text or as JSON. */
function documentOf(given: unknown, value: Value): string {
  const text = typeof given === 'string' ? given : writeExactly(given)
  try {
    JSON.parse(text)
  } catch {
    throw invalidQuery(`filter: column [${value.path}]: expected JSON text`)
  }
  const fault = checkText(text) ?? checkJsonText(text, DOCUMENT_BYTES_MAX)
  if (fault !== undefined) throw invalidQuery(`filter: column [${value.path}]: ${fault.message}`)
  return text
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
      return sql`position(lower(${parameter()}) in lower(${inLocale(expression)})) > 0`
    case '$pattern':
      return sql`${expression} like ${parameters.add(likePattern(text))}::text`
    case '$iPattern':
      return sql`${inLocale(expression)} ilike ${parameters.add(likePattern(text))}::text`
    default:
      throw notAllowed(operator, value)
  }
}

/** Columns have collation "C", which folds the case of ASCII letters only. */
function inLocale(expression: Sql): Sql {
  return sql`(${expression} collate "default")`
}

/** Converts a pattern to LIKE: `*` matches any text, `?` one character, and a backslash escapes. */
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
  const fault = checkText(given)
  if (fault !== undefined) throw invalidQuery(`filter: column [${value.path}]: ${fault.message}`)
  return given
}

function wrongType(expected: string, { path }: Value) {
  return invalidQuery(`filter: column [${path}]: expected ${expected}`)
}

function notAllowed(operator: Operator, { path, type }: Value) {
  return invalidQuery(
    `filter: column [${path}]: operator [${operator}] cannot be used with type [${type}]`,
  )
}
