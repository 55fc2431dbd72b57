import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { quoteIdent } from '../../packages/server/src/postgres/sql.js'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { SEED } from '../support/random.js'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Compares random filters with an evaluator that tests row by row in three-valued logic. The
 * evaluator shares no code with the service.
 */

const RUNS = 150
const WALKS = 25

interface Row {
  readonly id: string
  readonly text?: string
  readonly whole?: number
  readonly real?: number
  readonly flag?: boolean
  readonly time?: string
  readonly list?: readonly string[]
  readonly link?: string
  readonly document?: unknown
  readonly code?: string
  readonly version?: number
}

type Truth = boolean | undefined

const not = (truth: Truth): Truth => (truth === undefined ? undefined : !truth)
const and = (truths: readonly Truth[]): Truth =>
  truths.includes(false) ? false : truths.includes(undefined) ? undefined : true
const or = (truths: readonly Truth[]): Truth => not(and(truths.map(not)))

const WORDS = ['a', 'A', 'b', 'ab', 'Ab', 'ba%', 'a_b', 'a*', '', 'ä', 'Ä', 'zz\\']
const TIMES = ['2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.001Z', '2027-05-05T05:05:05.000Z']

const row = (id: string) =>
  fc.record(
    {
      id: fc.constant(id),
      text: fc.constantFrom(...WORDS),
      whole: fc.integer({ min: -2, max: 2 }),
      real: fc.constantFrom(-1.5, 0, 0.25, 2),
      flag: fc.boolean(),
      time: fc.constantFrom(...TIMES),
      list: fc.array(fc.constantFrom(...WORDS), { maxLength: 3 }),
      link: fc.constantFrom('r01', 'r02', 'r03', 'nobody'),
      code: fc.constant(`code ${id}`),
      document: fc.constantFrom(
        { k: 'a' },
        { k: 1 },
        { k: true },
        { k: null },
        { k: { l: 'ab' } },
        { k: ['a', 'ab'] },
        [],
      ),
    },
    { requiredKeys: ['id'] },
  ) as fc.Arbitrary<Row>

type Json = Readonly<Record<string, unknown>>

const comparison = (values: fc.Arbitrary<unknown>, operators: readonly string[]) =>
  fc.oneof(
    values,
    fc.array(values, { maxLength: 3 }),
    fc
      .tuple(fc.constantFrom(...operators), values)
      .map(([operator, value]) => ({ [operator]: value })),
    fc
      .tuple(fc.constantFrom(...operators), fc.array(values, { maxLength: 3 }))
      .map(([operator, list]) => ({ [operator]: list })),
    // An object with several operators requires all of them.
    fc.dictionary(fc.constantFrom(...operators), values, { minKeys: 1, maxKeys: 3 }),
    fc.constant(null),
    fc.constantFrom({ $is: null }, { $isNot: null }),
  )

const EQUAL = ['$is', '$isNot']
const RANGE = [...EQUAL, '$gt', '$ge', '$lt', '$le']
const TEXT = [
  ...RANGE,
  '$contains',
  '$startsWith',
  '$endsWith',
  '$pattern',
  '$iContains',
  '$iPattern',
]
const PATTERNS = ['*', '?', 'a*', '*b', '?b', 'A\\*', '*%', 'a_b', '\\?', 'Ä']

const word = fc.constantFrom(...WORDS, ...PATTERNS)
const whole = fc.oneof(fc.integer({ min: -3, max: 3 }), fc.constant(0.5))
const time = fc.constantFrom(...TIMES, '2026-01-01T01:00:00+01:00')

const predicateOf = (leaf: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.letrec((tie) => ({
    predicate: fc.oneof(
      { maxDepth: 3, depthSize: 'small', withCrossShrink: true },
      leaf,
      fc.record({ $not: tie('predicate') }),
      fc.record({ $any: fc.array(tie('predicate'), { maxLength: 3 }) }),
      fc.record({ $all: fc.array(tie('predicate'), { maxLength: 3 }) }),
      fc.record({ $none: fc.array(tie('predicate'), { maxLength: 3 }) }),
    ),
  })).predicate

const textPredicate = predicateOf(comparison(word, TEXT))
const listPredicate = predicateOf(
  fc.oneof(
    fc
      .tuple(
        fc.constantFrom('$includes', '$includesAny', '$includesAll', '$includesNone'),
        textPredicate,
      )
      .map(([operator, operand]) => ({ [operator]: operand })),
    fc.constant(null),
  ),
)

const field: fc.Arbitrary<Json> = fc.oneof(
  ...(
    [
      ['id', predicateOf(comparison(fc.constantFrom('r01', 'r05', 'x'), TEXT))],
      ['text', textPredicate],
      ['whole', predicateOf(comparison(whole, RANGE))],
      ['real', predicateOf(comparison(fc.constantFrom(-1.5, 0, 1, 2), RANGE))],
      ['flag', predicateOf(comparison(fc.boolean(), EQUAL))],
      ['time', predicateOf(comparison(time, RANGE))],
      ['list', listPredicate],
      ['link', predicateOf(comparison(fc.constantFrom('r01', 'nobody'), EQUAL))],
      ['link.text', textPredicate],
      ['link.link.whole', predicateOf(comparison(whole, RANGE))],
      ['document', predicateOf(comparison(fc.constantFrom('{"k": 1}', '[]', '{"k":"a"}'), EQUAL))],
      ['document->k', predicateOf(comparison(fc.oneof(word, whole, fc.boolean()), EQUAL))],
      ['document->k', predicateOf(comparison(whole, RANGE))],
      ['document->k', textPredicate],
      ['code', predicateOf(comparison(fc.constantFrom('code r01', 'code r25', 'x'), TEXT))],
      ['service.version', predicateOf(comparison(fc.constantFrom(0, 1, 2), RANGE))],
      ['xata.version', predicateOf(comparison(fc.constantFrom(0, 1), EQUAL))],
      ['document->k->l', textPredicate],
    ] as const
  ).map(([name, predicate]) => predicate.map((value) => ({ [name]: value }))),
  // A path may be written as nested objects.
  textPredicate.map((value) => ({ link: { text: value } })),
  predicateOf(comparison(whole, RANGE)).map((value) => ({ link: { link: { whole: value } } })),
)

const NAMES = ['text', 'list', 'link', 'link.text', 'document->k', 'time', 'code'] as const

const SORTED = ['id', 'text', 'whole', 'real', 'flag', 'time', 'code', 'link', 'link.text'] as const

type SortKeys = readonly (readonly [name: string, direction: 'asc' | 'desc'])[]

const sortOf: fc.Arbitrary<SortKeys> = fc.uniqueArray(
  fc.tuple(
    fc.constantFrom(...SORTED, 'service.version'),
    fc.constantFrom('asc' as const, 'desc' as const),
  ),
  { maxLength: 3, selector: ([name]) => name },
)

/** Compares rows in the order of `sort`. Nulls are last in both directions; the id breaks ties. */
function inOrder(rows: ReadonlyMap<string, Row>, sort: SortKeys): (a: Row, b: Row) => number {
  return (a, b) => {
    for (const [name, direction] of [...sort, ['id', 'asc'] as const]) {
      const [left, right] = [valueAt(rows, a, name), valueAt(rows, b, name)]
      if (left === right) continue
      if (left === null) return 1
      if (right === null) return -1
      return (left as number) < (right as number) === (direction === 'asc') ? -1 : 1
    }
    return 0
  }
}

const filterOf: fc.Arbitrary<Json> = fc.letrec<{ filter: Json }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 3, depthSize: 'small', withCrossShrink: true },
    fc.array(field, { maxLength: 3 }).map((parts) => Object.assign({}, ...parts) as Json),
    fc
      .tuple(fc.constantFrom('$exists', '$notExists', '$existsNot'), fc.constantFrom(...NAMES))
      .map(([operator, name]) => ({ [operator]: name })),
    fc
      .tuple(
        fc.constantFrom('$any', '$all', '$not', '$none'),
        fc.oneof(tie('filter'), fc.array(tie('filter'), { maxLength: 3 })),
      )
      .map(([operator, operand]) => ({ [operator]: operand })),
  ),
})).filter

/** Returns the value at a path, or null if there is none. */
function valueAt(rows: ReadonlyMap<string, Row>, record: Row | undefined, path: string): unknown {
  if (record === undefined) return null
  if (path === 'service.version' || path === 'xata.version') return record.version ?? 0
  // Documents are compared by content, not by formatting.
  if (path === 'document' && record.document !== undefined) return JSON.stringify(record.document)
  const [name = '', ...keys] = path.split('->')
  const dot = name.indexOf('.')
  if (dot > 0) {
    const next = (record as unknown as Json)[name.slice(0, dot)]
    return valueAt(rows, rows.get(String(next)), path.slice(dot + 1))
  }
  let value: unknown = (record as unknown as Json)[name] ?? null
  for (const key of keys) {
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value)
    value = isObject ? ((value as Json)[key] ?? null) : null
  }
  return value
}

function matches(rows: ReadonlyMap<string, Row>, record: Row, filter: Json): Truth {
  return and(
    Object.entries(filter).map(([key, operand]): Truth => {
      const items = () =>
        Array.isArray(operand)
          ? operand.map((item) => matches(rows, record, item))
          : Object.entries(operand as Json).map(([name, value]) =>
              matches(rows, record, { [name]: value }),
            )
      if (key === '$all') return and(items())
      if (key === '$any') return or(items())
      if (key === '$not') return not(and(items()))
      if (key === '$none') return not(or(items()))
      if (key === '$exists') return valueAt(rows, record, String(operand)) !== null
      if (key.startsWith('$')) return valueAt(rows, record, String(operand)) === null
      if (isPath(operand)) {
        const inner = Object.entries(operand).map(([name, value]) => [`${key}.${name}`, value])
        return matches(rows, record, Object.fromEntries(inner))
      }
      if (key === 'document') return holds(valueAt(rows, record, key), rewritten(operand))
      return holds(valueAt(rows, record, key), operand)
    }),
  )
}

/** Returns whether an operand is an object of column names, not of operators. */
function isPath(operand: unknown): operand is Json {
  const isObject = typeof operand === 'object' && operand !== null && !Array.isArray(operand)
  return isObject && Object.keys(operand).some((key) => !key.startsWith('$'))
}

/** Normalizes the JSON documents in a predicate. */
function rewritten(predicate: unknown): unknown {
  return JSON.parse(JSON.stringify(predicate), (_key, value) =>
    typeof value === 'string' ? JSON.stringify(JSON.parse(value)) : value,
  )
}

function holds(value: unknown, predicate: unknown): Truth {
  if (Array.isArray(predicate)) return or(predicate.map((item) => holds(value, item)))
  if (typeof predicate !== 'object' || predicate === null) return compare('$is', value, predicate)
  return and(
    Object.entries(predicate).map(([operator, operand]): Truth => {
      const items = () => [operand].flat().map((item) => holds(value, item))
      if (operator === '$all') return and(items())
      if (operator === '$any') return or(items())
      if (operator === '$not') return not(and(items()))
      if (operator === '$none') return not(or(items()))
      if (!operator.startsWith('$includes')) {
        const each = [operand].flat().map((item) => compare(operator, value, item))
        // `$isNot` with a list requires that the value differs from every item.
        return operator === '$isNot' ? and(each) : or(each)
      }
      if (!Array.isArray(value)) return undefined
      const each = value.map((element) => holds(element, operand))
      // Unknown counts neither as a match nor as a mismatch.
      if (operator === '$includesNone') return !each.includes(true)
      return operator === '$includesAll' ? !each.includes(false) : each.includes(true)
    }),
  )
}

function compare(operator: string, value: unknown, operand: unknown): Truth {
  if (operand === null) return operator === '$is' ? value === null : value !== null
  if (value === null) return undefined
  if (typeof value === 'object') {
    // A list or an object in a document is matched as text, and has no order.
    return RANGE.includes(operator) ? undefined : compare(operator, documentText(value), operand)
  }
  const isTime = typeof operand === 'string' && /^\d{4}-.*T/.test(operand)
  const [left, right] = isTime ? [Date.parse(String(value)), Date.parse(operand)] : [value, operand]
  if (typeof left !== typeof right) return undefined
  switch (operator) {
    case '$is':
      return left === right
    case '$isNot':
      return left !== right
    case '$gt':
      return (left as number) > (right as number)
    case '$ge':
      return (left as number) >= (right as number)
    case '$lt':
      return (left as number) < (right as number)
    case '$le':
      return (left as number) <= (right as number)
  }
  const [text, part] = [String(left), String(right)]
  switch (operator) {
    case '$contains':
      return text.includes(part)
    case '$startsWith':
      return text.startsWith(part)
    case '$endsWith':
      return text.endsWith(part)
    case '$iContains':
      return text.toLowerCase().includes(part.toLowerCase())
    default:
      return toRegExp(part, operator === '$iPattern').test(text)
  }
}

/** Formats JSON as PostgreSQL's jsonb does. */
function documentText(value: unknown): string {
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(documentText).join(', ')}]`
  const members = Object.entries(value).map(
    ([key, inner]) => `${JSON.stringify(key)}: ${documentText(inner)}`,
  )
  return `{${members.join(', ')}}`
}

function toRegExp(pattern: string, ignoreCase: boolean): RegExp {
  const source = pattern.replace(/\\(.)|[\s\S]/g, (match, escaped: string | undefined) => {
    if (escaped === undefined && match === '*') return '[^]*'
    if (escaped === undefined && match === '?') return '[^]'
    return (escaped ?? match).replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')
  })
  return new RegExp(`^${source}$`, ignoreCase ? 'iu' : 'u')
}

const id = (index: number) => `r${String(index).padStart(2, '0')}`

describe(`random filters (seed ${SEED})`, () => {
  let service: TestService
  let postgres: TestDatabase
  const branches: { call: BranchCall; rows: Map<string, Row> }[] = []

  beforeAll(async () => {
    postgres = await createTestDatabase()
    // Disable sequential scans, which PostgreSQL prefers for so few rows, so that the indexes are
    // tested.
    const name = quoteIdent(new URL(postgres.url).pathname.slice(1))
    await postgres.pool.query(`alter database ${name} set enable_seqscan = off`)
    await postgres.pool.query(`alter database ${name} set enable_sort = off`)
    service = await createTestService({ url: postgres.url })
    const main = await createTables(service, 'random', {
      rows: [
        { name: 'text', type: 'string' },
        { name: 'whole', type: 'int' },
        { name: 'real', type: 'float' },
        { name: 'flag', type: 'bool' },
        { name: 'time', type: 'datetime' },
        { name: 'list', type: 'multiple' },
        { name: 'link', type: 'link', link: { table: 'rows' } },
        { name: 'document', type: 'json' },
        { name: 'code', type: 'string', unique: true },
      ],
    })
    // An index scan must return the same rows as a sequential scan.
    for (const column of ['text', 'whole', 'flag', 'time']) {
      expectOk(await main('PUT', `/tables/rows/columns/${column}/index`))
    }
    const sample = (start: number, end: number, salt: number) =>
      Array.from({ length: end - start }, (_, index) => index + start).map((index) => {
        const [made] = fc.sample(row(id(index)), { seed: SEED + salt + index, numRuns: 1 })
        if (made === undefined) throw new Error('a sample has a row')
        return made
      })
    const inherited = sample(0, 30, 0)
    expectOk(await main('POST', '/tables/rows/bulk', { body: { records: inherited } }))
    const path = `${service.workspace}/db/random:fork`
    expectOk(await service.call('PUT', path, { body: { from: 'main' } }))
    const fork = branchCall(service, 'random', { branch: 'fork' })
    const rows = new Map(inherited.map((record) => [record.id, record]))
    branches.push({ call: main, rows: new Map(rows) }, { call: fork, rows: new Map(rows) })
    // Both branches diverge.
    for (const [salt, branch] of branches.entries()) {
      const records = sample(20 + salt, 40 + salt, 1000 * (salt + 1))
      const gone = [id(2 + salt), id(11 + salt), id(25)]
      const operations = [
        ...records.map((record) => ({ insert: { table: 'rows', record } })),
        ...gone.map((recordId) => ({ delete: { table: 'rows', id: recordId } })),
      ]
      expectOk(await branch.call('POST', '/transaction', { body: { operations } }))
      for (const record of records) {
        const known = branch.rows.get(record.id)
        branch.rows.set(
          record.id,
          known ? { ...record, version: (known.version ?? 0) + 1 } : record,
        )
      }
      for (const recordId of gone) branch.rows.delete(recordId)
    }
  })
  afterAll(async () => {
    await service.close()
    await postgres.close()
  })

  it.each([
    ['a plain branch', 0],
    ['a fork with changes', 1],
  ])('find on %s what going through all rows finds', async (_name, index) => {
    const branch = branches[index]
    if (branch === undefined) throw new Error('both branches are made')
    const { call, rows } = branch
    await fc.assert(
      fc.asyncProperty(filterOf, async (filter) => {
        const body = { filter, columns: ['id'], page: { size: 100 } }
        const answer = await call('POST', '/tables/rows/query', { body })
        const expected = [...rows.values()]
          .filter((record) => matches(rows, record, filter) === true)
          .map((record) => record.id)
          .sort()
        expect(answer.status, JSON.stringify(answer.body)).toBe(200)
        expect(answer.body.records.map((record: Row) => record.id)).toEqual(expected)
      }),
      { seed: SEED, numRuns: RUNS },
    )
  })

  it.each([
    ['a plain branch', 0],
    ['a fork with changes', 1],
  ])('walk %s from page to page and back in the order of their sort', async (_name, index) => {
    const branch = branches[index]
    if (branch === undefined) throw new Error('both branches are made')
    const { call, rows } = branch
    const read = async (body: Json) => {
      const answer = await call('POST', '/tables/rows/query', { body })
      expect(answer.status, JSON.stringify(answer.body)).toBe(200)
      const ids: string[] = answer.body.records.map((record: Row) => record.id)
      return { ids, ...(answer.body.meta.page as { cursor: string; more: boolean }) }
    }
    const sizes = fc.integer({ min: 2, max: 9 })
    await fc.assert(
      fc.asyncProperty(filterOf, sortOf, sizes, async (filter, sort, size) => {
        const expected = [...rows.values()]
          .filter((record) => matches(rows, record, filter) === true)
          .sort(inOrder(rows, sort))
          .map((record) => record.id)
        const pages = Array.from(
          { length: Math.max(1, Math.ceil(expected.length / size)) },
          (_, at) => expected.slice(at * size, (at + 1) * size),
        )
        const request = { filter, sort: sort.map(([name, direction]) => ({ [name]: direction })) }
        let page = await read({ ...request, columns: ['id'], page: { size } })
        const forward = [page.ids]
        while (page.more) {
          page = await read({ page: { after: page.cursor } })
          forward.push(page.ids)
        }
        expect(forward).toEqual(pages)
        const back = [page.ids]
        for (let count = 1; count < pages.length; count++) {
          page = await read({ page: { before: page.cursor } })
          back.push(page.ids)
        }
        expect(back.reverse()).toEqual(pages)
        expect(page.more).toBe(false)
        const last = await read({ page: { end: page.cursor } })
        expect(last.ids).toEqual(expected.slice(-size))
      }),
      { seed: SEED, numRuns: WALKS },
    )
  })
})
