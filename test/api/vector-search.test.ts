import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let main: BranchCall
/** Has the same rows as `main`, half of them written after the fork. */
let fork: BranchCall

type Vector = readonly number[]

const DIMENSION = 5
const COUNT = 60
const LARGE = 2050
const random = new Random(SEED)
const vector = (length: number): number[] =>
  Array.from({ length }, () => Math.fround(random.next() * 2 - 1))
const ROWS = Array.from({ length: COUNT }, (_, index) => ({
  id: `v${String(index).padStart(2, '0')}`,
  group: index % 3,
  // Every tenth row has no vector, and one has the zero vector, which has no direction.
  ...(index % 10 === 9
    ? {}
    : { embedding: index === 7 ? new Array(DIMENSION).fill(0) : vector(DIMENSION) }),
}))

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'vectors', {
    items: [
      { name: 'group', type: 'int' },
      { name: 'embedding', type: 'vector', vector: { dimension: DIMENSION } },
      {
        name: 'nested',
        type: 'object',
        columns: [{ name: 'embedding', type: 'vector', vector: { dimension: 2 } }],
      },
    ],
    large: [{ name: 'embedding', type: 'vector', vector: { dimension: LARGE } }],
  })
  expectOk(await main('POST', '/tables/items/bulk', { body: { records: ROWS } }))
  expectOk(
    await service.call('PUT', `${service.workspace}/db/vectors:fork`, { body: { from: 'main' } }),
  )
  fork = branchCall(service, 'vectors', { branch: 'fork' })
  for (const { id, ...record } of ROWS.filter((_row, index) => index % 2 === 0)) {
    expectOk(await fork('DELETE', `/tables/items/data/${id}`))
    expectOk(await fork('PUT', `/tables/items/data/${id}`, { body: record }))
  }
})

afterAll(() => service.close())

const sum = (values: Vector) => values.reduce((total, value) => total + value, 0)
const length = (one: Vector) => Math.hypot(...one)
const SCORES: Readonly<Record<string, (one: Vector, other: Vector) => number>> = {
  cosineSimilarity: (one, other) =>
    1 +
    (sum(one.map((value, at) => value * (other[at] ?? 0))) / (length(one) * length(other)) || 0),
  l1: (one, other) => 1 / (1 + sum(one.map((value, at) => Math.abs(value - (other[at] ?? 0))))),
  l2: (one, other) => 1 / (1 + length(one.map((value, at) => value - (other[at] ?? 0)))),
}

type Found = { id: string; service: { score: number; table: string } }
const search = (body: object, call = main): Promise<Answer> =>
  call('POST', '/tables/items/vectorSearch', { body: { column: 'embedding', ...body } })

describe.each([
  ['a branch without a parent', () => main],
  ['a fork', () => fork],
])('on %s', (_name, branch) => {
  it.each(Object.entries(SCORES))('finds the nearest by %s', async (similarityFunction, score) => {
    const queryVector = vector(DIMENSION)
    const expected = ROWS.flatMap(({ id, embedding }) =>
      embedding === undefined ? [] : [{ id, score: score(queryVector, embedding) }],
    )
    expected.sort((one, other) => other.score - one.score)
    const answer = await search({ queryVector, similarityFunction, size: 1000 }, branch())
    const { records, totalCount } = expectOk(answer).body
    expect(totalCount).toBe(54)
    expect(
      records.map(({ id }: Found) => id),
      `seed ${SEED}`,
    ).toEqual(expected.map(({ id }) => id))
    for (const [index, record] of (records as Found[]).entries()) {
      expect(record.service.score).toBeCloseTo(expected[index]?.score ?? 0, 5)
      expect(record.service.table).toBe('items')
    }
  })

  it('keeps to a filter, and counts what meets it', async () => {
    const answer = await search({ queryVector: vector(DIMENSION), filter: { group: 1 } }, branch())
    expect(answer.body.totalCount).toBe(18)
    expect(answer.body.records).toHaveLength(10)
    for (const { group } of answer.body.records) expect(group).toBe(1)
  })
})

it('finds ten by cosine when nothing is said', async () => {
  const queryVector = ROWS[3]?.embedding
  const { body } = await search({ queryVector })
  expect(body.records).toHaveLength(10)
  expect(body.records[0]).toMatchObject({ id: 'v03' })
  expect(body.records[0].service.score).toBeCloseTo(2, 6)
  expect(body.records[0].service).not.toHaveProperty('highlight')
})

it('finds vectors inside of objects', async () => {
  expectOk(await main('PUT', '/tables/items/data/n1', { body: { nested: { embedding: [1, 0] } } }))
  expectOk(await main('PUT', '/tables/items/data/n2', { body: { nested: { embedding: [0, 1] } } }))
  const { body } = await search({ column: 'nested.embedding', queryVector: [0, 2] })
  expect(body.records.map(({ id }: Found) => id)).toEqual(['n2', 'n1'])
  expect(body.totalCount).toBe(2)
})

it('finds vectors of thousands of numbers', async () => {
  const rows = ['a', 'b', 'c'].map((id) => ({ id, embedding: vector(LARGE) }))
  expectOk(await main('POST', '/tables/large/bulk', { body: { records: rows } }))
  for (const similarityFunction of Object.keys(SCORES)) {
    const body = {
      column: 'embedding',
      queryVector: rows[1]?.embedding,
      similarityFunction,
      size: 1,
    }
    const answer = expectOk(await main('POST', '/tables/large/vectorSearch', { body }))
    expect(answer.body.records[0].id).toBe('b')
    expect(answer.body.records[0].service.score).toBeCloseTo(
      similarityFunction === 'cosineSimilarity' ? 2 : 1,
      3,
    )
  }
})

it('finds nothing on a branch where nothing was written', async () => {
  expectOk(
    await service.call('PUT', `${service.workspace}/db/vectors:bare`, {
      body: { from: 'main', data: false },
    }),
  )
  const bare = branchCall(service, 'vectors', { branch: 'bare' })
  const { body } = await search({ queryVector: vector(DIMENSION) }, bare)
  expect(body).toEqual({ totalCount: 0, records: [] })
})

it('takes no number that is larger than any', async () => {
  const answer = await service.app.inject({
    method: 'POST',
    url: `${service.workspace}/db/vectors:main/tables/items/vectorSearch`,
    headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
    payload: `{"column": "embedding", "queryVector": [1, 1e999, 3, 4, 5]}`,
  })
  expect(answer.statusCode).toBe(400)
  expect(answer.json()).toMatchObject({
    message: 'body: field [queryVector.1]: the number is beyond the range of 64-bit floating point',
  })
})

it.each<[string, object, string]>([
  [
    'too few numbers',
    { queryVector: [1, 2] },
    'queryVector: column [embedding] has 5 numbers, got 2',
  ],
  ['no numbers', { queryVector: [] }, 'body: field [queryVector]: must not be empty'],
  [
    'a text among the numbers',
    { queryVector: [1, 2, 3, 4, 'x'] },
    'body: field [queryVector.4]: must be of type number',
  ],
  ['no vector', {}, 'body: field [queryVector]: is required'],
  [
    'zeros alone',
    { queryVector: [0, 0, 0, 0, 0] },
    'queryVector: is all zeros; cosine similarity is not defined for it',
  ],
  [
    'a column that is not there',
    { column: 'nope', queryVector: [1] },
    'table [items]: column [nope]: column not found',
  ],
  [
    'a column without vectors',
    { column: 'group', queryVector: [1] },
    'table [items]: column [group]: is of type [int], not [vector]',
  ],
  [
    'an unknown function',
    { queryVector: [1, 2, 3, 4, 5], similarityFunction: 'dot' },
    'body: field [similarityFunction]: must be one of [cosineSimilarity, l1, l2]',
  ],
  ['a size of zero', { queryVector: [1, 2, 3, 4, 5], size: 0 }, 'body: field [size]: must be >= 1'],
  [
    'a size of 1001',
    { queryVector: [1, 2, 3, 4, 5], size: 1001 },
    'body: field [size]: must be <= 1000',
  ],
  ['an unknown key', { queryVector: [1, 2, 3, 4, 5], k: 3 }, 'body: field [k]: is not known'],
  [
    'numbers that are too large to compare',
    { queryVector: [1e200, 0, 0, 0, 0], similarityFunction: 'l2' },
    'the result is out of range',
  ],
])('refuses %s', async (_what, body, message) => {
  const answer = await search(body)
  expect(answer.status).toBe(400)
  expect(answer.body).toMatchObject({ message, code: 'invalid_request' })
})

it('refuses a table that is not there', async () => {
  const body = { column: 'embedding', queryVector: [1] }
  expect((await main('POST', '/tables/nope/vectorSearch', { body })).status).toBe(404)
})

it('compares zeros by distance', async () => {
  const { body } = await search({ queryVector: [0, 0, 0, 0, 0], similarityFunction: 'l2', size: 1 })
  expect(body.records[0]).toMatchObject({ id: 'v07', service: { score: 1 } })
})
