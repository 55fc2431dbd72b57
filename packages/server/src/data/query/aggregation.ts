import { type Field, type FieldResolver, type FieldType, NUMBERS, SQL_TYPES } from './field.js'
import { type Filter, parseFilter } from './filter.js'
import { invalidQuery } from './invalid-query.js'

/** An aggregation that results in one number, or in a list of percentiles. */
export type Measure =
  | { readonly kind: 'count'; readonly filter: Filter | undefined }
  | { readonly kind: 'sum' | 'max' | 'min' | 'average' | 'uniqueCount'; readonly field: Field }
  | { readonly kind: 'percentiles'; readonly field: Field; readonly percents: readonly number[] }

/** An aggregation that distributes rows to buckets. */
export type Bucketing =
  | { readonly kind: 'topValues'; readonly field: Field; readonly size: number }
  | {
      readonly kind: 'dateHistogram'
      readonly field: Field
      /** A calendar unit, or a fixed duration. */
      readonly interval: CalendarUnit | { readonly ms: number }
      readonly offsetMinutes: number
    }
  | {
      readonly kind: 'numericHistogram'
      readonly field: Field
      readonly interval: number
      readonly offset: number
    }

export interface Buckets {
  readonly kind: 'buckets'
  readonly bucketing: Bucketing
  readonly aggregations: Aggregations
}

type Aggregation = Measure | Buckets
export type Aggregations = readonly { readonly name: string; readonly what: Aggregation }[]

const CALENDAR_UNITS = ['minute', 'hour', 'day', 'week', 'month', 'quarter', 'year'] as const
type CalendarUnit = (typeof CALENDAR_UNITS)[number]

const UNIT_MS: ReadonlyMap<string, number> = new Map([
  ['ms', 1],
  ['s', 1000],
  ['m', 60_000],
  ['h', 3_600_000],
  ['d', 86_400_000],
])

const DEPTH_MAX = 5
const AGGREGATIONS_MAX = 100
const TOP_SIZE = 10
const TOP_SIZE_MAX = 1000
const PERCENTILES_MAX = 100
const INTERVAL_MS_MAX = 100 * 366 * 86_400_000

const TIMES: ReadonlySet<FieldType> = new Set(['datetime', 'date'])
/** Types whose values have a smallest and a largest one. */
const MEASURED: ReadonlySet<FieldType> = new Set([...NUMBERS, ...TIMES, 'time', 'enum'])
const SINGLE: ReadonlySet<FieldType> = new Set(Object.keys(SQL_TYPES) as FieldType[])

type Shape = Readonly<Record<string, unknown>>

/** Resolves the fields of a table, and tells which of them are links. */
export interface AggregationContext {
  readonly resolve: FieldResolver
  isLink(field: Field): boolean
}

/** Parses `aggs`, an object of aggregations by name. */
export function parseAggregations(context: AggregationContext, given: unknown): Aggregations {
  let count = 0

  function list(value: unknown, path: string, depth: number): Aggregations {
    if (!isObject(value)) throw invalidQuery(`${path}: expected an object`)
    if (depth > DEPTH_MAX)
      throw invalidQuery(`${path}: is nested more than ${DEPTH_MAX} levels deep`)
    return Object.entries(value).map(([name, inner]) => {
      if (++count > AGGREGATIONS_MAX)
        throw invalidQuery(`aggs: there are more than ${AGGREGATIONS_MAX}`)
      const at = `${path}: [${name}]`
      if (name === '' || name.startsWith('$')) throw invalidQuery(`${at}: is not a name`)
      return { name, what: aggregation(inner, at, depth) }
    })
  }

  function aggregation(value: unknown, at: string, depth: number): Aggregation {
    // Nested aggregations may be given inside the bucket aggregation or beside it.
    const { aggs: beside, ...types }: Shape = isObject(value) ? value : {}
    const entries = Object.entries(types)
    const [entry] = entries
    if (entry === undefined || entries.length > 1)
      throw invalidQuery(`${at}: expected one aggregation`)
    const [type, options] = entry
    const read = READERS.get(type)
    if (beside !== undefined && read?.known.includes('aggs') !== true) {
      throw invalidQuery(`${at}: expected one aggregation`)
    }
    if (type === 'count') return countOf(options, at)
    if (read === undefined) throw invalidQuery(`${at}: [${type}] is not an aggregation`)
    if (!isObject(options)) throw invalidQuery(`${at}: [${type}]: expected an object`)
    const unknown = Object.keys(options).find((key) => !read.known.includes(key))
    if (unknown !== undefined) throw invalidQuery(`${at}: [${type}]: [${unknown}] is not known`)
    const invalid = (message: string) => invalidQuery(`${at}: [${type}]: ${message}`)
    const field = fieldOf(options.column, read.types, invalid)
    const result = read.read(options, field, invalid)
    if ('kind' in result && isBucketing(result)) {
      if (options.aggs !== undefined && beside !== undefined) throw invalid('[aggs] is given twice')
      const given = options.aggs ?? beside
      const inner = given === undefined ? [] : list(given, at, depth + 1)
      return { kind: 'buckets', bucketing: result, aggregations: inner }
    }
    return result as Measure
  }

  function countOf(options: unknown, at: string): Measure {
    if (options === '*') return { kind: 'count', filter: undefined }
    if (!isObject(options) || Object.keys(options).some((key) => key !== 'filter')) {
      throw invalidQuery(`${at}: [count]: expected [*] or a filter`)
    }
    return { kind: 'count', filter: parseFilter(context.resolve, options.filter ?? {}) }
  }

  function fieldOf(column: unknown, types: ReadonlySet<FieldType>, invalid: Invalid): Field {
    if (typeof column !== 'string') throw invalid('[column] must be the name of a column')
    const field = context.resolve(column)
    if (context.isLink(field)) throw invalid(`column [${column}]: is a link`)
    if (!types.has(field.type)) {
      throw invalid(`column [${column}]: cannot be used with type [${field.type}]`)
    }
    return field
  }

  return list(given, 'aggs', 1)
}

type Invalid = (message: string) => Error

interface Reader {
  readonly known: readonly string[]
  readonly types: ReadonlySet<FieldType>
  read(options: Shape, field: Field, invalid: Invalid): Measure | Bucketing
}

const measure = (
  kind: 'sum' | 'max' | 'min' | 'average',
  types: ReadonlySet<FieldType> = NUMBERS,
): [string, Reader] => [
  kind,
  { known: ['column'], types, read: (_options, field) => ({ kind, field }) },
]

const READERS: ReadonlyMap<string, Reader> = new Map([
  measure('sum'),
  measure('max', MEASURED),
  measure('min', MEASURED),
  measure('average'),
  [
    'uniqueCount',
    {
      // The threshold is accepted for compatibility; the count is always exact.
      known: ['column', 'precisionThreshold'],
      types: SINGLE,
      read: (_options, field) => ({ kind: 'uniqueCount', field }),
    },
  ],
  [
    'percentiles',
    {
      known: ['column', 'percentiles'],
      types: NUMBERS,
      read: ({ percentiles }, field, invalid) => {
        if (!Array.isArray(percentiles) || percentiles.length === 0) {
          throw invalid('[percentiles] must be a list of numbers')
        }
        if (percentiles.length > PERCENTILES_MAX) {
          throw invalid(`there are more than ${PERCENTILES_MAX} percentiles`)
        }
        const percents = percentiles.map((percent) => {
          if (typeof percent === 'number' && percent >= 0 && percent <= 100) return percent
          throw invalid('a percentile must be a number from 0 to 100')
        })
        return { kind: 'percentiles', field, percents }
      },
    },
  ],
  [
    'topValues',
    {
      known: ['column', 'size', 'aggs'],
      types: SINGLE,
      read: ({ size = TOP_SIZE }, field, invalid) => {
        const isSize = typeof size === 'number' && Number.isInteger(size)
        if (!isSize || size < 1 || size > TOP_SIZE_MAX) {
          throw invalid(`[size] must be a whole number from 1 to ${TOP_SIZE_MAX}`)
        }
        return { kind: 'topValues', field, size }
      },
    },
  ],
  [
    'dateHistogram',
    {
      known: ['column', 'interval', 'calendarInterval', 'timezone', 'aggs'],
      types: TIMES,
      read: (options, field, invalid) => {
        const minutes = offsetMinutes(options.timezone, invalid)
        return {
          kind: 'dateHistogram',
          field,
          interval: dateInterval(options, invalid),
          // A date is the same day in all time zones.
          offsetMinutes: field.type === 'date' ? 0 : minutes,
        }
      },
    },
  ],
  [
    'numericHistogram',
    {
      known: ['column', 'interval', 'offset', 'aggs'],
      types: NUMBERS,
      read: ({ interval, offset = 0 }, field, invalid) => {
        if (typeof interval !== 'number' || !(interval > 0) || !Number.isFinite(interval)) {
          throw invalid('[interval] must be a number above 0')
        }
        if (typeof offset !== 'number' || !Number.isFinite(offset)) {
          throw invalid('[offset] must be a number')
        }
        return { kind: 'numericHistogram', field, interval, offset }
      },
    },
  ],
])

function isBucketing(result: Measure | Bucketing): result is Bucketing {
  const { kind } = result
  return kind === 'topValues' || kind === 'dateHistogram' || kind === 'numericHistogram'
}

function dateInterval(options: Shape, invalid: Invalid): CalendarUnit | { ms: number } {
  const { interval, calendarInterval } = options
  if ((interval === undefined) === (calendarInterval === undefined)) {
    throw invalid('expected either [interval] or [calendarInterval]')
  }
  if (calendarInterval !== undefined) {
    const unit = CALENDAR_UNITS.find((known) => known === calendarInterval)
    if (unit === undefined) {
      throw invalid(`[calendarInterval] must be one of ${CALENDAR_UNITS.join(', ')}`)
    }
    return unit
  }
  const [, digits = '', unit = ''] = /^(\d{1,9})(ms|[smhd])$/.exec(String(interval)) ?? []
  const ms = Number(digits) * (UNIT_MS.get(unit) ?? 0)
  if (!(ms > 0) || ms > INTERVAL_MS_MAX) {
    throw invalid('[interval] must be a number with d, h, m, s or ms, such as 5d')
  }
  return { ms }
}

function offsetMinutes(timezone: unknown, invalid: Invalid): number {
  if (timezone === undefined || timezone === 'Z' || timezone === 'UTC') return 0
  const [, sign, hours, minutes] = /^([+-])(\d\d):([0-5]\d)$/.exec(String(timezone)) ?? []
  if (sign === undefined || Number(hours) > 15) {
    throw invalid('[timezone] must be an offset such as +01:00')
  }
  return (Number(hours) * 60 + Number(minutes)) * (sign === '-' ? -1 : 1)
}

function isObject(value: unknown): value is Shape {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
