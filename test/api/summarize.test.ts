import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import {
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
  XATA_CLIENT,
} from '../support/tables.js'

let service: TestService
const branches: BranchCall[] = []

const PETS = {
  otis: { name: 'Otis', type: 'dog', legs: 4 },
  toffee: { name: 'Toffee', type: 'cat', legs: 4 },
  lyra: { name: 'Lyra', type: 'dog', legs: 3 },
}
const USERS = {
  a: {
    name: 'A',
    index: 10,
    rating: 10.5,
    settings: { plan: 'paid', dark: true },
    pet: 'otis',
    data: { k: 1 },
    born: '2026-01-01T00:00:00Z',
    tags: ['x'],
  },
  b: {
    name: 'B',
    index: 10,
    rating: 10.5,
    settings: { plan: 'free' },
    pet: 'toffee',
    data: { k: 1 },
  },
  c: { name: 'C', index: 30, rating: 40, settings: { plan: 'paid' }, pet: 'lyra', tags: ['x'] },
}

beforeAll(async () => {
  service = await createTestService()
  const main = await createTables(service, 'sums', {
    pets: [
      { name: 'name', type: 'string' },
      { name: 'type', type: 'string' },
      { name: 'legs', type: 'int' },
    ],
    users: [
      { name: 'name', type: 'string' },
      { name: 'index', type: 'int' },
      { name: 'rating', type: 'float' },
      { name: 'pet', type: 'link', link: { table: 'pets' } },
      { name: 'data', type: 'json' },
      { name: 'born', type: 'datetime' },
      { name: 'tags', type: 'multiple' },
      { name: 'vector', type: 'vector', vector: { dimension: 2 } },
      {
        name: 'settings',
        type: 'object',
        columns: [
          { name: 'plan', type: 'string' },
          { name: 'dark', type: 'bool' },
        ],
      },
    ],
    empty: [{ name: 'value', type: 'float' }],
    large: [{ name: 'value', type: 'float' }],
    scores: [{ name: 'points', type: 'int' }],
  })
  const write = async (call: BranchCall, table: string, rows: object) => {
    for (const [id, body] of Object.entries(rows)) {
      expectOk(await call('PUT', `/tables/${table}/data/${id}`, { body }))
    }
  }
  const { a, ...others } = USERS
  await write(main, 'pets', PETS)
  await write(main, 'users', { a: { name: 'before' }, ...others, gone: { name: 'gone' } })
  await write(main, 'large', { one: { value: 1.7e308 }, two: { value: 1.7e308 } })
  await write(main, 'scores', { one: { points: 9 }, two: { points: 10 }, three: { points: 100 } })
  const path = `${service.workspace}/db/sums:fork`
  expectOk(await service.call('PUT', path, { body: { from: 'main' } }))
  const fork = branchCall(service, 'sums', { branch: 'fork' })
  for (const call of [main, fork]) {
    await write(call, 'users', { a })
    expectOk(await call('DELETE', '/tables/users/data/gone'))
    branches.push(call)
  }
})
afterAll(() => service.close())

const summarize = (call: BranchCall | undefined, body?: unknown, table = 'users') => {
  if (call === undefined) throw new Error('there is no such branch')
  return call('POST', `/tables/${table}/summarize`, body === undefined ? {} : { body })
}

const CASES: readonly (readonly [about: string, body: object, summaries: readonly object[]])[] = [
  [
    'groups in ascending order',
    { columns: ['index', 'rating'] },
    [
      { index: 10, rating: 10.5 },
      { index: 30, rating: 40 },
    ],
  ],
  [
    'all of an object',
    { columns: ['settings.*'] },
    [
      { settings: { plan: 'free', dark: null } },
      { settings: { plan: 'paid', dark: true } },
      { settings: { plan: 'paid', dark: null } },
    ],
  ],
  [
    'through links',
    { columns: ['pet.type'], summaries: { legs: { sum: 'pet.legs' } } },
    [
      { pet: { type: 'cat' }, legs: 4 },
      { pet: { type: 'dog' }, legs: 7 },
    ],
  ],
  [
    'all of a link',
    { columns: ['pet.*'], filter: { id: 'c' } },
    [{ pet: { name: 'Lyra', type: 'dog', legs: 3 } }],
  ],
  [
    'links with what they lead to',
    { columns: ['pet'], summaries: { n: { count: '*' } }, sort: { pet: 'desc' } },
    [
      { pet: { id: 'toffee', ...PETS.toffee }, n: 1 },
      { pet: { id: 'otis', ...PETS.otis }, n: 1 },
      { pet: { id: 'lyra', ...PETS.lyra }, n: 1 },
    ],
  ],
  [
    'documents, lists and times',
    {
      columns: ['data', 'tags', 'born'],
      summaries: { n: { count: '*' } },
      sort: [{ n: 'desc' }, 'born'],
    },
    [
      { data: { k: 1 }, tags: ['x'], born: '2026-01-01T00:00:00.000Z', n: 1 },
      { data: { k: 1 }, tags: null, born: null, n: 1 },
      { data: null, tags: ['x'], born: null, n: 1 },
    ],
  ],
  [
    'everything without columns',
    {
      summaries: {
        all: { count: '*' },
        names: { count: 'name' },
        dark: { count: 'settings.dark' },
        types: { count: 'pet.type' },
        documents: { count: 'data' },
      },
    },
    [{ all: 3, names: 3, dark: 1, types: 3, documents: 2 }],
  ],
  [
    'every operation',
    {
      summaries: {
        low: { min: 'index' },
        high: { max: 'rating' },
        whole: { sum: 'index' },
        real: { sum: 'rating' },
        mean: { average: 'index' },
        first: { min: 'name' },
        born: { max: 'born' },
      },
    },
    [
      {
        low: 10,
        high: 40,
        whole: 50,
        real: 61,
        mean: 50 / 3,
        first: 'A',
        born: '2026-01-01T00:00:00.000Z',
      },
    ],
  ],
  [
    'nothing as null',
    {
      filter: { name: 'nobody' },
      summaries: {
        n: { count: '*' },
        s: { sum: 'index' },
        m: { min: 'rating' },
        a: { average: 'index' },
      },
    },
    [{ n: 0, s: null, m: null, a: null }],
  ],
  ['no group of nothing', { filter: { name: 'nobody' }, columns: ['name'] }, []],
  [
    'the order of summaries',
    { columns: ['index'], summaries: { total: { count: '*' } }, sort: [{ total: 'desc' }] },
    [
      { index: 10, total: 2 },
      { index: 30, total: 1 },
    ],
  ],
  [
    'nulls last both ways',
    { columns: ['settings.dark'], sort: { 'settings.dark': 'desc' } },
    [{ settings: { dark: true } }, { settings: { dark: null } }],
  ],
  [
    'a filter of rows through links',
    { columns: ['name'], filter: { 'pet.name': 'Toffee' } },
    [{ name: 'B' }],
  ],
  [
    'a filter of summaries and groups',
    {
      columns: ['pet.type', 'index'],
      summaries: { n: { count: '*' }, mean: { average: 'rating' } },
      summariesFilter: { mean: { $gt: 10.5 }, n: 1, $not: { 'pet.type': 'cat' } },
    },
    [{ pet: { type: 'dog' }, index: 30, n: 1, mean: 40 }],
  ],
  ['a page', { columns: ['name'], page: { size: 2 } }, [{ name: 'A' }, { name: 'B' }]],
]

describe('summarize', () => {
  it.each(CASES)('gives %s', async (_about, body, summaries) => {
    for (const call of branches) {
      expect(expectOk(await summarize(call, body)).body).toEqual({ summaries })
    }
  })

  it('gives one row without columns, and nothing of an empty table', async () => {
    expect((await summarize(branches[0])).body).toEqual({ summaries: [{}] })
    const body = { columns: ['value'], summaries: { n: { count: '*' } } }
    expect((await summarize(branches[0], body, 'empty')).body).toEqual({ summaries: [] })
    const whole = { summaries: { n: { count: '*' }, m: { max: 'value' } } }
    expect((await summarize(branches[1], whole, 'empty')).body).toEqual({
      summaries: [{ n: 0, m: null }],
    })
  })

  it('gives numbers in the order of numbers, groups and summaries alike', async () => {
    const ordered = async (sort?: object) => {
      const body = { columns: ['points'], summaries: { total: { sum: 'points' } }, sort }
      const answer = expectOk(await summarize(branches[0], body, 'scores'))
      return answer.body.summaries.map(({ total }: { total: number }) => total)
    }
    expect(await ordered()).toEqual([9, 10, 100])
    expect(await ordered({ points: 'desc' })).toEqual([100, 10, 9])
    expect(await ordered({ total: 'desc' })).toEqual([100, 10, 9])
    expect(await ordered([{ total: 'asc' }])).toEqual([9, 10, 100])
  })

  it('gives documents as text to Xata clients', async () => {
    const body = { columns: ['data'], filter: { id: 'a' }, consistency: 'eventual' }
    const answer = await branches[1]?.('POST', '/tables/users/summarize', {
      body,
      headers: XATA_CLIENT,
    })
    expect(answer?.body).toEqual({ summaries: [{ data: '{"k": 1}' }] })
  })

  it.each([
    [{ columns: ['nope'] }, 'table [users]: column [nope]: column not found'],
    [{ columns: ['vector'] }, 'columns: column [vector]: cannot be grouped by'],
    [{ columns: ['data->k'] }, 'columns: column [data->k]: cannot be grouped by'],
    [
      { columns: ['name'], summaries: { name: { count: '*' } } },
      'summaries: the name [name] is taken',
    ],
    [
      { columns: ['pet.name'], summaries: { pet: { count: '*' } } },
      'summaries: the name [pet] is taken',
    ],
    [{ summaries: { 'a b': { count: '*' } } }, 'summaries: [a b]: is not a name'],
    [{ summaries: { n: { sum: '*' } } }, 'summaries: [n]: [sum] needs a column'],
    [{ summaries: { n: {} } }, 'summaries: [n]: expected one of count, min, max, sum, average'],
    [
      { summaries: { n: { constructor: 'name' } } },
      'summaries: [n]: [constructor] is not one of count, min, max, sum, average',
    ],
    [{ summaries: { n: { count: 5 } } }, 'summaries: [n]: expected the name of a column'],
    [
      { summaries: { n: { count: 'id' } } },
      'summaries: [n]: column [id]: id and metadata cannot be summarized',
    ],
    [
      { summaries: { n: { max: 'xata.version' } } },
      'summaries: [n]: column [xata.version]: id and metadata cannot be summarized',
    ],
    [
      { summaries: { n: { sum: 'name' } } },
      'summaries: [n]: column [name]: [sum] cannot be used with type [text]',
    ],
    [{ summariesFilter: { name: 'A' } }, 'column [name]: is neither grouped nor summarized'],
    [{ columns: ['name'], sort: 'index' }, 'column [index]: is neither grouped nor summarized'],
    [{ columns: ['data'], sort: 'data' }, 'sort: column [data]: cannot be sorted by'],
    [{ page: { size: 1001 } }, 'page size exceeds max limit of 1000'],
  ])('refuses %j', async (body, message) => {
    const answer = await summarize(branches[0], body)
    expect(answer).toMatchObject({ status: 400, body: { message, code: 'invalid_request' } })
  })

  it('refuses what is not there, malformed, or larger than any number', async () => {
    expect((await summarize(branches[0], {}, 'nope')).status).toBe(404)
    expect((await summarize(branches[0], { page: { size: 0 } })).status).toBe(400)
    expect((await summarize(branches[0], { page: { offset: 1 } })).status).toBe(400)
    expect((await summarize(branches[0], { groupBy: [] })).status).toBe(400)
    const body = { summaries: { all: { sum: 'value' } } }
    const large = await summarize(branches[0], body, 'large')
    expect(large).toMatchObject({ status: 400, body: { message: 'the result is out of range' } })
  })
})
