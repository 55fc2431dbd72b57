import fc from 'fast-check'
import type { Random } from '../seeded-random.js'
import type { Schema } from './document.js'
import { questionOf } from './questions.js'
import { newColumn, recordFor } from './records.js'
import { anyJson, columnsOf, freshName, type Scope } from './scope.js'
import { kindOf } from './stock.js'

const DEPTH_MAX = 6

/** Returns a value that is valid for the schema, with known names where possible. */
export function valueFor(schema: Schema, scope: Scope, name = '', depth = 0): unknown {
  const { random } = scope
  const resolved = scope.document.resolve(schema)
  if (resolved.const !== undefined) return resolved.const
  if (resolved.enum !== undefined) return random.pick(resolved.enum)
  if (resolved.title === 'Column' && random.chance(0.8)) return newColumn(scope, depth)
  // Requests whose fields exclude each other, or rarely fit a column.
  const entry = scope.stock.pick(random, 'entry')
  if (resolved.title === 'RevertRequest' && entry !== undefined && random.chance(0.6))
    return { entry }
  if (resolved.title === 'AlterColumn' && random.chance(0.4)) return { description: 'known' }
  const question = questionOf(name, resolved, scope)
  if (question !== undefined) return question
  if (resolved.anyOf !== undefined) return valueFor(random.pick(resolved.anyOf), scope, name, depth)
  switch (resolved.type) {
    case 'string':
      return textFor(resolved, scope, name)
    case 'integer':
    case 'number':
      // The first proposals of a database exist most likely.
      return name === 'number' ? 1 + random.below(3) : numberFor(resolved, random)
    case 'boolean':
      return random.chance(0.5)
    case 'null':
      return null
    case 'array':
      return listFor(resolved, scope, name, depth)
    case 'object':
      return objectFor(resolved, scope, depth)
    default:
      return anyJson(random, 2)
  }
}

function objectFor(schema: Schema, scope: Scope, depth: number): unknown {
  const { random } = scope
  const properties = Object.entries(schema.properties ?? {})
  if (properties.length === 0 && schema.additionalProperties === true) return recordFor(scope)
  const required = new Set(schema.required ?? [])
  // Of operations, each of which is a key of its own, one is meant.
  const isChoice = properties.length > 1 && required.size === 0 && isOperation(schema)
  const only = isChoice ? random.pick(properties)[0] : undefined
  const likelihood = depth > DEPTH_MAX ? 0 : 0.4
  const chosen = properties.filter(([key]) =>
    only === undefined ? required.has(key) || random.chance(likelihood) : key === only,
  )
  const [first] = properties
  const needsOne = chosen.length === 0 && (schema.minProperties ?? 0) > 0
  if (needsOne && first !== undefined) chosen.push(random.pick(properties))
  // Columns are those of the table that is named beside them.
  chosen.sort(([a], [b]) => Number(b === 'table') - Number(a === 'table'))
  const value: Record<string, unknown> = {}
  let inner = scope
  for (const [key, property] of chosen) {
    value[key] = valueFor(property, inner, key, depth + 1)
    if (key === 'table' && typeof value.table === 'string') inner = { ...scope, table: value.table }
  }
  const open = openPart(schema)
  if (open !== undefined && depth <= DEPTH_MAX) {
    for (let count = random.below(3); count > 0; count--) {
      const key = scope.stock.pick(random, 'tableName') ?? 'a'
      value[random.chance(0.7) ? key : freshName(random)] = valueFor(open, scope, '', depth + 1)
    }
  }
  return value
}

function isOperation(schema: Schema): boolean {
  return schema.maxProperties === 1 || schema.title === 'TransactionOperation'
}

function openPart(schema: Schema): Schema | undefined {
  if (typeof schema.additionalProperties === 'object') return schema.additionalProperties
  return Object.values(schema.patternProperties ?? {})[0]
}

function listFor(schema: Schema, scope: Scope, name: string, depth: number): unknown[] {
  const { minItems = 0, maxItems = 100, items = {} } = schema
  const length = Math.min(maxItems, minItems + (depth > DEPTH_MAX ? 0 : scope.random.below(4)))
  return Array.from({ length }, () => valueFor(items, scope, singular(name), depth + 1))
}

/** `databases` is a list of what `databaseName` is one of. */
function singular(name: string): string {
  return name === 'columns' ? 'column' : name
}

function textFor(schema: Schema, scope: Scope, name: string): string {
  const { random } = scope
  const kind = kindOf(name, schema.title)
  if (kind === 'columnName') {
    const columns = columnsOf(scope)
    if (columns.length > 0 && random.chance(0.75)) return random.pick(columns).name
  }
  if (kind !== undefined) {
    const known = random.chance(0.75) ? scope.stock.pick(random, kind) : undefined
    if (known !== undefined) return known
  }
  switch (schema.format) {
    case 'date-time':
      return random.pick(['2030-01-01T00:00:00Z', '2031-12-31T23:59:59.999+02:00'])
    case 'email':
      return `${freshName(random)}@example.com`
  }
  const [example] = schema.examples ?? []
  if (typeof example === 'string' && random.chance(0.4)) return example
  const { pattern, minLength = 0, maxLength = 255 } = schema
  const fresh = kind === 'databaseBranch' ? `shop:${freshName(random)}` : freshName(random)
  const candidates = [fresh, random.pick(['Ada', 'né 🍎', 'a b', '0']), 'x'.repeat(maxLength)]
  const isValid = (text: string) =>
    text.length >= minLength &&
    text.length <= maxLength &&
    (pattern === undefined || new RegExp(pattern, 'u').test(text))
  const index = random.weighted([
    [8, 0],
    [3, 1],
    [maxLength > 2048 ? 0 : 0.3, 2],
  ] as const)
  const candidate = candidates[index] ?? fresh
  if (isValid(candidate)) return candidate
  if (isValid(fresh)) return fresh
  return matching(pattern ?? '^a+$', random)
}

const matches = new Map<string, readonly string[]>()

/** Texts generated from a pattern, the same in every run. */
function matching(pattern: string, random: Random): string {
  let texts = matches.get(pattern)
  if (texts === undefined) {
    texts = fc.sample(fc.stringMatching(new RegExp(pattern)), { seed: 1, numRuns: 20 })
    matches.set(pattern, texts)
  }
  return random.pick(texts)
}

function numberFor({ type, minimum, maximum }: Schema, random: Random): number {
  const low = minimum ?? -1000
  const high = maximum ?? Math.max(low, 0) + 1000
  const ends = [minimum, maximum].filter((end) => end !== undefined)
  if (ends.length > 0 && random.chance(0.2)) return random.pick(ends)
  // Where any number is valid, small ones are more likely.
  const span = Math.min(high - low, random.chance(0.7) ? 10 : 100_000)
  const value = low + random.next() * span
  return type === 'integer' ? Math.floor(value) : value
}
