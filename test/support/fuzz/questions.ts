import type { Column } from '@offshoot/contract/schema'
import type { Schema } from './document.js'
import { columnValue } from './records.js'
import { anyJson, columnsOf, freshName, type Scope } from './scope.js'

/**
 * Makes values for parts of a request that the document leaves open, because the operation checks
 * them against the schema of the branch. They are recognised by name; undefined for all others.
 */
export function questionOf(name: string, schema: Schema, scope: Scope): unknown {
  const { random } = scope
  const isOpen =
    schema.type === undefined || schema.type === 'array' || schema.additionalProperties === true
  switch (name) {
    case 'filter':
    case 'summariesFilter':
      return isOpen ? filterFor(scope, 3) : undefined
    case 'sort':
      return isOpen ? sortFor(scope) : undefined
    case 'columns':
      return columnsFor(schema, scope)
    case 'aggs':
      return entries(scope, (inner) => aggregation(inner))
    case 'summaries':
      return entries(scope, (inner) => summary(inner))
    case 'statement':
      return statementFor(scope)
    case 'queryVector':
      return [random.next(), random.next(), random.next()]
    default:
      return undefined
  }
}

/** A list of column paths; in a query string, one text with commas. */
function columnsFor(schema: Schema, scope: Scope): unknown {
  const { random, document } = scope
  const chosen = random.some(['*', 'id', ...paths(scope)], 0.1)
  if (schema.anyOf !== undefined) return chosen.join(',')
  const items = document.resolve(schema.items ?? {})
  if (schema.type !== 'array' || items.type === 'object') return undefined
  const isLinkTaken = items.type === undefined
  return chosen.map((path) => (isLinkTaken && random.chance(0.1) ? reverseLink(scope) : path))
}

const METADATA = ['id', 'service.version', 'service.createdAt', 'xata.updatedAt']

/** The columns of a table, and those reachable through links. */
function paths(scope: Scope): string[] {
  return columnsOf(scope).flatMap((column) => {
    switch (column.type) {
      case 'link':
        return [column.name, `${column.name}.name`, `${column.name}.*`, `${column.name}.id`]
      case 'object':
        return [
          column.name,
          ...(column.columns ?? []).map((inner) => `${column.name}.${inner.name}`),
        ]
      case 'file':
        return [
          column.name,
          `${column.name}.name`,
          `${column.name}.signedUrl`,
          `${column.name}.uploadUrl`,
        ]
      case 'json':
        return [column.name, `${column.name}->a`, `${column.name}->a->b`]
      default:
        return [column.name]
    }
  })
}

function reverseLink({ random }: Scope): unknown {
  return {
    name: random.pick(['<-users.team', '<-users.team', '<-teams.name']),
    ...(random.chance(0.5) ? { as: freshName(random) } : {}),
    ...(random.chance(0.5) ? { columns: ['name', '*'] } : {}),
    ...(random.chance(0.5) ? { limit: random.below(10), sort: [{ name: 'asc' }] } : {}),
  }
}

const COMPARISONS = ['$is', '$isNot', '$gt', '$ge', '$lt', '$le']
const TEXT_COMPARISONS = ['$contains', '$startsWith', '$endsWith', '$pattern', '$iContains']

function filterFor(scope: Scope, depth: number): unknown {
  const { random } = scope
  if (depth === 0 || random.chance(0.6)) return condition(scope)
  const items = Array.from({ length: random.below(3) }, () => filterFor(scope, depth - 1))
  return { [random.pick(['$all', '$any', '$not', '$none'])]: items }
}

function condition(scope: Scope): unknown {
  const { random } = scope
  const columns = columnsOf(scope)
  if (columns.length === 0 || random.chance(0.1)) return { [random.pick(METADATA)]: 'ada' }
  if (random.chance(0.15)) {
    return { [random.pick(['$exists', '$notExists'])]: random.pick(paths(scope)) }
  }
  if (random.chance(0.15)) return { [random.pick(paths(scope))]: anyJson(random, 1) }
  const column = random.pick(columns)
  return { [column.name]: predicate(column, scope) }
}

function predicate(column: Column, scope: Scope): unknown {
  const { random } = scope
  const value = () => columnValue(column, scope)
  switch (column.type) {
    case 'string':
    case 'text':
    case 'email':
      return random.chance(0.5)
        ? { [random.pick(TEXT_COMPARISONS)]: random.pick(['a', '*?', '%']) }
        : value()
    case 'multiple': {
      const operator = random.pick(['$includes', '$includesAll', '$includesNone', '$includesAny'])
      return { [operator]: random.pick<unknown>(['a', ['a', 'b'], { $contains: 'a' }]) }
    }
    default:
      return random.chance(0.3) ? value() : { [random.pick(COMPARISONS)]: value() }
  }
}

function sortFor(scope: Scope): unknown {
  const { random } = scope
  const direction = () => random.pick(['asc', 'desc', 'random'])
  const path = () => random.pick([...paths(scope), ...METADATA, '*'])
  return random.pick<() => unknown>([
    () => ({ [path()]: direction() }),
    () => [{ [path()]: direction() }, { [path()]: direction() }],
    () => [path()],
    () => path(),
  ])()
}

function entries(scope: Scope, make: (scope: Scope) => unknown): unknown {
  const count = 1 + scope.random.below(3)
  return Object.fromEntries(
    Array.from({ length: count }, () => [freshName(scope.random), make(scope)]),
  )
}

function summary(scope: Scope): unknown {
  const { random } = scope
  const operator = random.pick(['count', 'min', 'max', 'sum', 'average'])
  return { [operator]: operator === 'count' && random.chance(0.5) ? '*' : columnPath(scope) }
}

function columnPath(scope: Scope): string {
  return scope.random.pick([...paths(scope), 'id'])
}

function columnOf(scope: Scope, ...types: readonly string[]): string {
  const fitting = columnsOf(scope).filter((column) => types.includes(column.type))
  const fits = fitting.length > 0 && scope.random.chance(0.8)
  return fits ? scope.random.pick(fitting).name : columnPath(scope)
}

function aggregation(scope: Scope): unknown {
  const { random } = scope
  const number = () => columnOf(scope, 'int', 'float')
  const inner = () => (random.chance(0.3) ? { aggs: entries(scope, summary) } : {})
  return random.pick<() => unknown>([
    () => ({ count: random.chance(0.5) ? '*' : { filter: condition(scope) } }),
    () => ({ [random.pick(['sum', 'max', 'min', 'average'])]: { column: number() } }),
    () => ({ percentiles: { column: number(), percentiles: [1, 50, 99.9] } }),
    () => ({ uniqueCount: { column: columnPath(scope), precisionThreshold: random.below(5000) } }),
    () => ({
      dateHistogram: {
        column: columnOf(scope, 'datetime'),
        ...(random.chance(0.5)
          ? { calendarInterval: random.pick(['minute', 'day', 'month', 'year']) }
          : { interval: random.pick(['1d', '12h', '30m']) }),
        ...(random.chance(0.3) ? { timezone: random.pick(['+02:00', 'UTC', '-11:30']) } : {}),
        ...inner(),
      },
    }),
    () => ({ topValues: { column: columnPath(scope), size: random.below(20), ...inner() } }),
    () => ({
      numericHistogram: {
        column: number(),
        interval: random.pick([1, 0.5, 100, 0, -1]),
        offset: random.pick([0, 0.5]),
        ...inner(),
      },
    }),
  ])()
}

function statementFor(scope: Scope): string {
  const { random } = scope
  const table = `"${scope.stock.pick(random, 'tableName') ?? 'users'}"`
  return random.pick([
    `select * from ${table}`,
    `select count(*) from ${table} where id = 'ada'`,
    `insert into ${table} (id) values ('${freshName(random)}')`,
    `delete from ${table} where id = 'nobody'`,
    `select * from ${table}; select 1`,
    'select * from pg_catalog.pg_class',
    'select 1',
  ])
}
