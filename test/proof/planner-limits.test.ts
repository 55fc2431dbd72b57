import { LIMITS, QUERY_LIMITS } from '@offshoot/contract/limits'
import { SEARCH_LIMITS } from '@offshoot/contract/search'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type QueryRequest, readPage } from '../../packages/server/src/data/query/page.js'
import { cursorScope, planQuery } from '../../packages/server/src/data/query/query-records.js'
import { querySql } from '../../packages/server/src/data/query/query-sql.js'
import { PREPARED_LENGTH_MAX } from '../../packages/server/src/postgres/pipeline.js'
import { TestBranches } from '../support/branches.js'
import { withSession } from '../support/explain.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'

let service: TestService
let branches: TestBranches

const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index)

beforeAll(async () => {
  service = await createTestService()
  const link = (table: string) => (index: number) => ({
    name: `l${index}`,
    type: 'link' as const,
    link: { table },
  })
  branches = await TestBranches.create(service, 'shop', {
    nodes: [
      { name: 'name', type: 'string' },
      { name: 'rank', type: 'int' },
      { name: 'document', type: 'json' },
      ...numbers(QUERY_LIMITS.relationsMax + 1).map(link('nodes')),
    ],
    wide: numbers(250).map((index) => ({ name: `c${index}`, type: 'string' as const })),
    hub: numbers(6).map(link('wide')),
  })
  await branches.put('main', 'nodes', 'a', { name: 'a', l0: 'a', document: { k: 'v' } })
  await branches.put('main', 'wide', 'w', { c0: 'word', c249: 'end' })
  await branches.put('main', 'hub', 'h', { l0: 'w', l5: 'w' })
  await branches.fork('fork')
  await branches.put('fork', 'nodes', 'b', { name: 'b', l1: 'a' })
})
afterAll(() => service.close())

const query = (body: QueryRequest, { branch = 'main', table = 'nodes' } = {}): Promise<Answer> =>
  branches.call(branch, 'POST', `/tables/${table}/query`, body)
const transaction = (operations: readonly unknown[]) =>
  branches.call('main', 'POST', '/transaction', { operations })

const names = (count: number): string[] => numbers(count).map(() => 'l0.name')
const links = (count: number): string[] => numbers(count).map((index) => `l${index}.name`)
const reverse = (count: number) => numbers(count).map((index) => ({ name: `<-nodes.l${index}` }))
const repeated = (count: number) =>
  numbers(count).map((index) => ({ name: '<-nodes.l0', as: `as${index}` }))
const compares = (count: number) => ({
  $any: numbers(count).map((index) => ({ name: { $gt: `x${index}` } })),
})
const contains = (count: number) => ({
  $any: numbers(count).map((index) => ({ name: { $contains: `x${index}` } })),
})
const through = (count: number) =>
  Object.fromEntries(numbers(count).map((index) => [`l${index}.name`, 'a']))
const key = (length: number) => ({
  filter: { [`document->${'k'.repeat(length - 'document->'.length)}`]: 'v' },
})
/** Selects this many values of the hub and of its linked records. */
const values = (count: number) => {
  const whole = 4 + 5 * (1 + 254)
  const more = numbers(count - whole - 1 - 4).map((index) => `l5.c${index}`)
  return [...numbers(5).map((index) => `l${index}.*`), ...more]
}

const {
  columnsMax,
  valuesMax,
  relationsMax,
  joinsMax,
  comparisonsMax,
  patternsMax,
  conditionsMax,
  conditionDepthMax,
  pathLengthMax,
  transactionColumnsMax,
} = QUERY_LIMITS

function nested(depth: number): unknown {
  return depth === 0 ? { name: 'a' } : { $not: nested(depth - 1) }
}

type Case = readonly [string, number, (count: number) => Promise<Answer>]
const LIMITED: readonly Case[] = [
  ['names of columns', columnsMax, (count) => query({ columns: names(count) })],
  [
    'names of columns of a reverse link',
    columnsMax,
    (count) => query({ columns: [{ name: '<-nodes.l0', columns: names(count - 1) }] }),
  ],
  [
    'names of columns of an operation',
    columnsMax,
    (count) => transaction([{ get: { table: 'nodes', id: 'a', columns: names(count) } }]),
  ],
  ['values of a record', valuesMax, (count) => query({ columns: values(count) }, { table: 'hub' })],
  ['links', relationsMax, (count) => query({ columns: links(count) })],
  [
    'links of a fork',
    relationsMax,
    (count) => query({ columns: links(count) }, { branch: 'fork' }),
  ],
  [
    'links of one record',
    relationsMax,
    (count) =>
      branches.call('main', 'GET', `/tables/nodes/data/a?columns=${links(count).join(',')}`),
  ],
  ['reverse links', relationsMax, (count) => query({ columns: reverse(count) })],
  ['the same reverse link', relationsMax, (count) => query({ columns: repeated(count) })],
  [
    'links and reverse links',
    relationsMax,
    (count) => query({ columns: [...links(10), ...reverse(count - 10)] }),
  ],
  [
    'links of the operations of a transaction',
    relationsMax,
    (count) =>
      transaction(
        links(count).map((column) => ({ get: { table: 'nodes', id: 'a', columns: [column] } })),
      ),
  ],
  [
    'names in the lists of a transaction',
    transactionColumnsMax / 1000,
    (count) =>
      transaction(
        numbers(count).map((index) => {
          const columns = numbers(1000).map((at) => (at === index ? 'rank' : 'name'))
          return { get: { table: 'nodes', id: 'a', columns } }
        }),
      ),
  ],
  ['links of a filter', joinsMax, (count) => query({ filter: through(count) })],
  [
    'links of groups',
    joinsMax,
    (count) =>
      branches.call('main', 'POST', '/tables/nodes/summarize', {
        columns: links(count),
        summaries: { all: { count: '*' } },
      }),
  ],
  ['comparisons', comparisonsMax, (count) => query({ filter: compares(count) })],
  ['searches within a text', patternsMax, (count) => query({ filter: contains(count) })],
  [
    'comparisons of aggregations',
    comparisonsMax,
    (count) =>
      branches.call('main', 'POST', '/tables/nodes/aggregate', {
        filter: compares(10),
        aggs: { some: { count: { filter: compares(count - 10) } } },
      }),
  ],
  [
    'conditions',
    conditionsMax,
    (count) => query({ filter: { name: { $any: numbers(count - 2).map(String) } } }),
  ],
  ['levels of conditions', conditionDepthMax - 1, (count) => query({ filter: nested(count) })],
  ['characters of a path', pathLengthMax, (count) => query(key(count))],
]

describe('a request', () => {
  it.each(LIMITED)('has as many %s as it may, and not one more', async (_name, max, ask) => {
    const most = await ask(max)
    expect(most, JSON.stringify(most.body).slice(0, 500)).toMatchObject({ status: 200 })
    const refused = await ask(max + 1)
    expect(refused.status).toBe(400)
    const text = JSON.stringify(refused.body)
    expect(text.length).toBeLessThan(5000)
    const limits: number[] = [...Object.values(QUERY_LIMITS)]
    expect(limits.some((limit) => text.includes(String(limit)))).toBe(true)
  })

  it('with many more than it may have is refused', async () => {
    for (const body of [
      { columns: names(30_001) },
      { columns: repeated(3000) },
      { filter: contains(15_000) },
      { filter: { name: { $any: numbers(60_000).map(String) } } },
    ]) {
      expect((await query(body)).status).toBe(400)
    }
  })

  describe('on a deep fork', () => {
    const LEVELS = 6
    /**
     * PostgreSQL tables that a read unites: the branch's own heap, and the heap and past table of
     * each ancestor.
     */
    const arms = 2 * LEVELS - 1
    /** `arms`, plus the tables in which each arm looks for newer versions. */
    const scans = 1 + 2 * numbers(LEVELS - 1).reduce((sum, level) => sum + 2 * (level + 1), 0)
    const { scannedTablesMax } = QUERY_LIMITS

    beforeAll(async () => {
      for (const level of numbers(LEVELS - 1)) {
        await branches.fork(`deep${level + 1}`, level === 0 ? 'main' : `deep${level}`)
        await branches.put(`deep${level + 1}`, 'nodes', `n${level}`, { name: 'n', l0: 'a' })
      }
    })

    const branch = `deep${LEVELS - 1}`
    const plan = (request: QueryRequest) =>
      withSession(service, { database: 'shop', branch }, async (session) => {
        const context = { ...service, session, tableName: 'nodes', limits: LIMITS }
        const scope = cursorScope(session, session.table('nodes').codec.table.id)
        return querySql(planQuery(context, readPage(request, { limits: LIMITS, scope })))
      })

    it.each([
      ['reverse links', scans, (count: number) => ({ columns: reverse(count) })],
      ['links in a filter', 2 * arms * arms, (count: number) => ({ filter: through(count) })],
    ])('follows %s as far as its tables reach', async (_name, each, request) => {
      const most = Math.floor((scannedTablesMax - scans) / each)
      expect((await plan(request(most))).statement.text).toContain('select')
      const refused = await query(request(most + 1), { branch })
      expect(refused).toMatchObject({ status: 400, body: { code: 'query_too_costly' } })
      expect(refused.body.message).toContain(String(scannedTablesMax))
    })
  })

  it('that names a column in many conditions compares it with a list', async () => {
    const ids = numbers(1500).map((index) => ({ id: `rec_${index}` }))
    const found = await query({ filter: { $any: [...ids, { id: 'a' }] } })
    expect(found.body.records.map(({ id }: { id: string }) => id)).toEqual(['a'])
    const inside = { $any: [...numbers(9000).map((index) => `v${index}`), 'v'] }
    const other = await query({ filter: { 'document->k': inside } })
    expect(other.body.records.map(({ id }: { id: string }) => id)).toEqual(['a'])
    const none = await query({ filter: { $none: [...ids, { id: 'a' }] } })
    expect(none.body.records).toEqual([])
  })

  it('searches all columns of a wide table', async () => {
    const answer = await branches.call('main', 'POST', '/tables/wide/search', { query: 'end' })
    expect(answer).toMatchObject({ status: 200, body: { totalCount: 1 } })
  })

  it('searches as many tables and columns as it may at once, and not one more', async () => {
    const count = SEARCH_LIMITS.tablesMax + 1
    const columns = numbers(SEARCH_LIMITS.columnsMax / SEARCH_LIMITS.tablesMax).map((index) => ({
      name: `c${index}`,
      type: 'string' as const,
    }))
    const tables = Object.fromEntries(numbers(count).map((index) => [`t${index}`, columns]))
    const many = await TestBranches.create(service, 'many', {
      ...tables,
      more: [...columns, { name: 'one', type: 'string' }],
    })
    const search = (listed: number, ...others: string[]) =>
      many.call('main', 'POST', '/search', {
        query: 'word',
        tables: [...numbers(listed).map((index) => `t${index}`), ...others],
      })
    expect((await search(SEARCH_LIMITS.tablesMax)).status).toBe(200)
    expect(await search(SEARCH_LIMITS.tablesMax + 1)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`at most ${SEARCH_LIMITS.tablesMax} of the`) },
    })
    expect(await search(SEARCH_LIMITS.tablesMax - 1, 'more')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`at most ${SEARCH_LIMITS.columnsMax} columns`) },
    })
  })
})

describe('planning a query', () => {
  /** Returns the CPU time of planning in milliseconds, the minimum of 15 runs. */
  function cost(request: QueryRequest, branch: string): Promise<number> {
    return withSession(service, { database: 'shop', branch }, async (session) => {
      const context = { ...service, session, tableName: 'nodes', limits: LIMITS }
      const scope = cursorScope(session, session.table('nodes').codec.table.id)
      let least = Number.POSITIVE_INFINITY
      for (let round = 0; round < 15; round++) {
        const before = process.cpuUsage()
        querySql(planQuery(context, readPage(request, { limits: LIMITS, scope })))
        const { user, system } = process.cpuUsage(before)
        least = Math.min(least, (user + system) / 1000)
      }
      return least
    })
  }

  const distinct = (count: number) => ({
    // The last part of the paths varies, so that no cached plan applies.
    columns: numbers(count).map((index) => `l${index % 60}.${index % 2 ? 'name' : 'rank'}`),
  })
  it.each<[string, number, (count: number) => QueryRequest]>([
    ['columns', columnsMax, distinct],
    ['links', relationsMax, (count) => ({ columns: links(count) })],
    ['reverse links', relationsMax, (count) => ({ columns: repeated(count) })],
    ['comparisons', comparisonsMax / 3, (count) => ({ filter: compares(Math.floor(count)) })],
    ['values', conditionsMax - 2, (count) => ({ filter: { name: numbers(count).map(String) } })],
    [
      'characters',
      QUERY_LIMITS.queryLengthMax - 100,
      (count) => ({ filter: { name: { $contains: 'x'.repeat(count) } } }),
    ],
  ])('takes time in proportion to its %s', async (_name, max, request) => {
    for (const branch of ['main', 'fork']) {
      const quarter = await cost(request(Math.floor(max / 4)), branch)
      const whole = await cost(request(max), branch)
      // Linear cost is a factor of 4, doubled for noise. Quadratic cost would be a factor of 16.
      expect(whole).toBeLessThan(8 * Math.max(quarter, 1))
    }
  })
})

describe('prepared statements', () => {
  it('stay small whatever keys are asked for', async () => {
    const long = (index: number) =>
      `document->${String(index).padStart(2, '0')}${'k'.repeat(pathLengthMax - 12)}`
    for (const index of numbers(15)) {
      const filter = { $any: numbers(50).map((at) => ({ [long(index)]: { $contains: `${at}` } })) }
      expect((await query({ filter })).status).toBe(200)
      expect((await query({ filter: { [long(index)]: 'v' } })).status).toBe(200)
    }
    const clients = await Promise.all(numbers(10).map(() => service.database.pool.connect()))
    try {
      for (const client of clients) {
        const { rows } = await client.query(`
          select coalesce(sum(length(statement)), 0)::integer as length,
            coalesce(bool_or(statement like '%kkkk%'), false) as "hasKey"
          from pg_prepared_statements`)
        expect(rows[0].hasKey).toBe(false)
        expect(rows[0].length).toBeLessThanOrEqual(PREPARED_LENGTH_MAX)
      }
    } finally {
      for (const client of clients) client.release()
    }
  })
})
