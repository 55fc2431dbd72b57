import { exactMembers } from '../../common/exact-json.js'
import { raw, type Sql, sql } from '../../postgres/sql.js'
import { encodeOperand } from '../../rows/columns/column-types.js'
import { Fault } from '../../rows/columns/fault.js'
import { type Field, type FieldResolver, type FieldType, NUMBERS } from '../query/field.js'
import { type Filter, parseFilter } from '../query/filter.js'
import { type Expressions, filterSql } from '../query/filter-sql.js'
import { invalidQuery } from '../query/invalid-query.js'
import type { Parameters } from '../query/parameters.js'

/** A rule that adds to the score of a record depending on one of its values. */
export type Booster = { readonly ifMatches: Filter | undefined } & (
  | { readonly kind: 'value'; readonly isValue: Filter; readonly factor: number }
  | {
      readonly kind: 'numeric'
      readonly field: Field
      readonly factor: number
      readonly modifier: Modifier
    }
  | {
      readonly kind: 'date'
      readonly field: Field
      /** A timestamp. undefined: now. */
      readonly origin: string | undefined
      readonly scaleSeconds: number
      readonly decay: number
      readonly factor: number
    }
)

const MODIFIERS = ['none', 'log', 'log1p', 'ln', 'ln1p', 'square', 'sqrt', 'reciprocal'] as const
type Modifier = (typeof MODIFIERS)[number]

/** A booster of a request. The request schema has validated its shape. */
export interface BoosterRequest {
  readonly valueBooster?: {
    readonly column: string
    readonly value: string | number | boolean
    readonly factor: number
    readonly modifier?: Modifier
    readonly ifMatchesFilter?: unknown
  }
  readonly numericBooster?: {
    readonly column: string
    readonly factor: number
    readonly modifier?: Modifier
    readonly ifMatchesFilter?: unknown
  }
  readonly dateBooster?: {
    readonly column: string
    readonly origin?: string
    readonly scale: string
    readonly decay: number
    readonly factor?: number
    readonly ifMatchesFilter?: unknown
  }
}

const DATES: ReadonlySet<FieldType> = new Set(['datetime', 'date'])
/** The required JSON type of values, by field type. */
const VALUES: ReadonlyMap<FieldType, string> = new Map([
  ['text', 'string'],
  ['list', 'string'],
  ['int', 'number'],
  ['float', 'number'],
  ['bool', 'boolean'],
  ['enum', 'string'],
  ['uuid', 'string'],
])
const UNIT_SECONDS: Readonly<Record<string, number>> = {
  d: 86_400,
  h: 3600,
  m: 60,
  s: 1,
  ms: 0.001,
}

export function parseBooster(resolve: FieldResolver, request: BoosterRequest): Booster {
  const { valueBooster, numericBooster, dateBooster } = request
  if (valueBooster !== undefined) return parseValue(resolve, valueBooster)
  if (numericBooster !== undefined) {
    const { column, factor, modifier = 'none' } = numericBooster
    const field = typed(resolve, column, NUMBERS)
    return {
      kind: 'numeric',
      field,
      factor,
      modifier,
      ifMatches: condition(resolve, numericBooster),
    }
  }
  if (dateBooster !== undefined) return parseDate(resolve, dateBooster)
  throw invalidQuery('boosters: expected one of valueBooster, numericBooster, dateBooster')
}

function parseValue(
  resolve: FieldResolver,
  request: NonNullable<BoosterRequest['valueBooster']>,
): Booster {
  const { column, value, factor } = request
  const field = typed(resolve, column, new Set(VALUES.keys()))
  const expected = VALUES.get(field.type)
  if (typeof value !== expected) {
    throw invalidQuery(`boosters: column [${column}]: [value] must be of type ${expected}`)
  }
  const exactValue = new Map(exactMembers(request)).get('value')
  const isValue = parseFilter(resolve, { [column]: { $is: exactValue } })
  return { kind: 'value', isValue, factor, ifMatches: condition(resolve, request) }
}

function parseDate(
  resolve: FieldResolver,
  request: NonNullable<BoosterRequest['dateBooster']>,
): Booster {
  const { column, origin, scale, decay, factor = 1 } = request
  const field = typed(resolve, column, DATES)
  const invalid = (message: string) => invalidQuery(`boosters: column [${column}]: ${message}`)
  const [, digits = '', unit = ''] = /^(\d{1,9})(ms|[smhd])$/.exec(scale) ?? []
  const scaleSeconds = Number(digits) * (UNIT_SECONDS[unit] ?? 0)
  if (scaleSeconds === 0) {
    throw invalid('[scale] must be a number above 0 with d, h, m, s or ms, such as 5d')
  }
  if (!(decay > 0 && decay < 1)) throw invalid('[decay] must be between 0 and 1')
  const time =
    origin === undefined || origin === 'now' ? undefined : encodeOperand('datetime', origin)
  if (time instanceof Fault) throw invalid(`[origin]: ${time.message}`)
  const ifMatches = condition(resolve, request)
  return { kind: 'date', field, origin: time, scaleSeconds, decay, factor, ifMatches }
}

function condition(
  resolve: FieldResolver,
  { ifMatchesFilter }: { readonly ifMatchesFilter?: unknown },
): Filter | undefined {
  return ifMatchesFilter === undefined ? undefined : parseFilter(resolve, ifMatchesFilter)
}

function typed(resolve: FieldResolver, column: string, types: ReadonlySet<FieldType>): Field {
  const field = resolve(column)
  if (types.has(field.type)) return field
  throw invalidQuery(`boosters: column [${column}]: cannot be of type [${field.type}]`)
}

/** `exp` of smaller numbers underflows, which PostgreSQL reports as an error. */
const EXPONENT_MIN = -700

/** Returns the number that a booster adds: 0 if there is no value, or if the modifier is undefined for it. */
export function boosterSql(booster: Booster, fields: Expressions, parameters: Parameters): Sql {
  const added = addedSql(booster, fields, parameters)
  const { ifMatches } = booster
  if (ifMatches === undefined) return sql`coalesce(${added}, 0)`
  const isMet = filterSql(ifMatches, fields, parameters)
  return sql`coalesce(case when ${isMet} then ${added} end, 0)`
}

function addedSql(booster: Booster, fields: Expressions, parameters: Parameters): Sql {
  switch (booster.kind) {
    case 'value': {
      const isValue = filterSql(booster.isValue, fields, parameters)
      return sql`case when ${isValue} then ${number(booster.factor, parameters)} end`
    }
    case 'numeric': {
      const value = sql`(${fields.expression(booster.field)} * ${number(booster.factor, parameters)})`
      return modified(booster.modifier, value)
    }
    case 'date': {
      const { origin, scaleSeconds, decay, factor } = booster
      const time = origin === undefined ? sql`now()` : sql`${parameters.add(origin)}::timestamptz`
      const distance = sql`abs(extract(epoch from ${fields.expression(booster.field)} - ${time}))`
      const rate = number(Math.log(decay) / scaleSeconds, parameters)
      const least = raw(String(EXPONENT_MIN))
      return sql`${number(factor, parameters)} * exp(greatest(${least}, ${distance}::double precision * ${rate}))`
    }
  }
}

function modified(modifier: Modifier, value: Sql): Sql {
  switch (modifier) {
    case 'none':
      return value
    case 'log':
      return sql`case when ${value} > 0 then log(${value}) end`
    case 'log1p':
      return sql`case when ${value} > -1 then log(1 + ${value}) end`
    case 'ln':
      return sql`case when ${value} > 0 then ln(${value}) end`
    case 'ln1p':
      return sql`case when ${value} > -1 then ln(1 + ${value}) end`
    case 'square':
      return sql`${value} * ${value}`
    case 'sqrt':
      return sql`case when ${value} >= 0 then sqrt(${value}) end`
    case 'reciprocal':
      return sql`case when ${value} <> 0 then 1 / ${value} end`
  }
}

function number(value: number, parameters: Parameters): Sql {
  return sql`${parameters.share(String(value))}::double precision`
}
