import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SMALL_ANSWER_BYTES } from '../../packages/server/src/common/byte-budget.js'
import { AnswerReader } from '../../packages/server/src/postgres/bounds.js'
import { Database } from '../../packages/server/src/postgres/database.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { compileStatement, slot } from '../../packages/server/src/postgres/statement.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

const BYTES_MAX = 100_000
/** This many records of `TEXT` exceed the size limit of an answer. */
const RECORDS = 20
const TEXT = 'x'.repeat(10_000)
const REFUSAL = {
  code: 'query_too_costly',
  message: `the answer would take more than ${BYTES_MAX} bytes of rows: request fewer records, for example with a smaller page, or fewer columns`,
}

let service: TestService
let branches: TestBranches

beforeAll(async () => {
  service = await createTestService({ limits: { answerBytesMax: BYTES_MAX } })
  branches = await TestBranches.create(service, 'shop', {
    notes: [
      { name: 'text', type: 'text' },
      { name: 'number', type: 'int' },
      { name: 'place', type: 'vector', vector: { dimension: 2 } },
      { name: 'next', type: 'link', link: { table: 'notes' } },
    ],
    refs: [{ name: 'note', type: 'link', link: { table: 'notes' } }],
  })
  const notes = Array.from({ length: RECORDS }, (_, number) => {
    return { id: `n${number}`, text: `${TEXT}${number}`, number, place: [number, 1], next: 'n0' }
  })
  await branches.bulk('main', 'notes', notes)
  await branches.bulk(
    'main',
    'refs',
    notes.map(({ id }) => ({ id, note: id })),
  )
  await branches.fork('dev')
  for (const { id } of notes) await branches.patch('dev', 'notes', id, { text: `${TEXT}dev` })
})
afterAll(() => service.close())

const post = (path: string, body: unknown) => branches.call('main', 'POST', path, body)
const gets = (count: number) =>
  Array.from({ length: count }, (_, number) => ({
    get: { table: 'notes', id: `n${number}`, columns: ['text'] },
  }))
const add = { insert: { table: 'notes', record: { id: 'new', number: 1 } } }
const newRefs = Array.from({ length: RECORDS }, (_, number) => ({ note: `n${number}` }))

/** Requests with a body whose answer fits and a body whose answer is too large. */
const REQUESTS: readonly [name: string, path: string, small: unknown, large: unknown][] = [
  ['a query', '/tables/notes/query', { page: { size: 5 } }, { page: { size: 20 } }],
  [
    'a query through links',
    '/tables/refs/query',
    { columns: ['note.number'], page: { size: 20 } },
    { columns: ['note.*'], page: { size: 20 } },
  ],
  [
    'a query of what links to a record',
    '/tables/notes/query',
    { columns: ['id', { name: '<-notes.next', columns: ['number'] }], page: { size: 1 } },
    { columns: ['id', { name: '<-notes.next', columns: ['text'] }], page: { size: 1 } },
  ],
  [
    'a summary',
    '/tables/notes/summarize',
    { columns: ['number'] },
    { columns: ['text'], page: { size: 20 } },
  ],
  [
    'a calculation',
    '/tables/notes/aggregate',
    {},
    { aggs: { a: { topValues: { column: 'text', size: 20 } } } },
  ],
  [
    'a search',
    '/tables/notes/search',
    { filter: { number: { $lt: 5 } } },
    { filter: { number: { $lt: 20 } } },
  ],
  [
    'a search by vector',
    '/tables/notes/vectorSearch',
    { queryVector: [1, 1], column: 'place', size: 5 },
    { queryVector: [1, 1], column: 'place', size: 20 },
  ],
  ['a transaction that reads', '/transaction', { operations: gets(5) }, { operations: gets(20) }],
  [
    'a transaction that writes',
    '/transaction',
    { operations: gets(5) },
    { operations: [add, ...gets(20)] },
  ],
  [
    'a bulk insert that is answered with records',
    '/tables/refs/bulk?columns=note.*',
    { records: newRefs.slice(0, 5) },
    { records: newRefs },
  ],
]

describe('an answer that is larger than the limit', () => {
  it.each(REQUESTS)('is refused: %s', async (_name, path, small, large) => {
    expect((await post(path, small)).status).toBe(200)
    expect(await post(path, large)).toMatchObject({ status: 400, body: REFUSAL })
  })

  it('is refused: a difference', async () => {
    const read = (size: number) => branches.call('dev', 'GET', `/diff?size=${size}`)
    expect((await read(4)).status).toBe(200)
    expect(await read(20)).toMatchObject({ status: 400, body: REFUSAL })
  })

  it('leaves nothing behind of a transaction or a bulk insert', async () => {
    const refs = (await post('/tables/refs/aggregate', {})).body.aggs.count
    expect((await post('/tables/refs/bulk?columns=note.*', { records: newRefs })).status).toBe(400)
    expect((await post('/transaction', { operations: [add, ...gets(20)] })).status).toBe(400)
    expect((await post('/tables/refs/aggregate', {})).body.aggs.count).toBe(refs)
    expect(await branches.record('main', 'notes', 'new')).toBeUndefined()
  })

  it('is found out at its edge', async () => {
    const ask = async (length: number) => {
      await branches.put('main', 'notes', 'edge', { text: 'x'.repeat(length) })
      const body = { filter: { id: 'edge' }, columns: ['text'] }
      return (await post('/tables/notes/query', body)).status
    }
    let [fits, isTooLong] = [BYTES_MAX - 1000, BYTES_MAX]
    expect(await ask(fits)).toBe(200)
    expect(await ask(isTooLong)).toBe(400)
    while (isTooLong - fits > 1) {
      const middle = Math.floor((fits + isTooLong) / 2)
      if ((await ask(middle)) === 200) fits = middle
      else isTooLong = middle
    }
    // The id, the version and the timestamps also count.
    expect(BYTES_MAX - fits).toBeLessThan(200)
  })

  it('costs others nothing: requests at the same time are answered', async () => {
    const large = () => post('/tables/notes/query', { page: { size: 20 } })
    const one = (number: number) => branches.record('main', 'notes', `n${number}`)
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, number) =>
        number % 3 === 0 ? large().then(({ status }) => status) : one(number % RECORDS),
      ),
    )
    for (const [number, answer] of answers.entries()) {
      if (number % 3 === 0) expect(answer).toBe(400)
      else expect(answer).toMatchObject({ number: number % RECORDS })
    }
  })
})

describe('records that are read at the same time', () => {
  it('are each limited for themselves, although they share round trips', async () => {
    const ids = Array.from({ length: 8 }, (_, number) => `long${number}`)
    for (const id of ids) await branches.put('main', 'notes', id, { text: 'x'.repeat(30_000) })
    const reads = await Promise.all(ids.map((id) => branches.record('main', 'notes', id)))
    expect(reads.map((record) => record?.id)).toEqual(ids)
    const statement = 'select id, text from notes where id = $1'
    const lookUp = (id: string) => post('/sql', { statement, params: [id] })
    await lookUp('long0')
    const answers = await Promise.all(ids.map(lookUp))
    expect(answers.map(({ body }) => body.records?.[0]?.id)).toEqual(ids)
    for (const id of ids) await branches.call('main', 'DELETE', `/tables/notes/data/${id}`)
  })
})

describe('large answers at the same time', () => {
  it('are refused when there is no room for all of them, and one alone is always read', async () => {
    const limits = { bufferedBytesMax: 150_000 }
    const crowded = await createTestService({ url: service.url, limits })
    const { key } = service
    const ask = (size: number) =>
      crowded.call('POST', `${service.workspace}/db/shop:main/tables/notes/query`, {
        key,
        body: { page: { size } },
      })
    expect((await ask(20)).status).toBe(200)
    const answers = await Promise.all(Array.from({ length: 8 }, () => ask(10)))
    const refused = answers.filter(({ status }) => status !== 200)
    expect(refused.length).toBeLessThan(answers.length)
    for (const { status, body, headers } of refused) {
      expect([status, body.code]).toEqual([503, 'overloaded'])
      expect(headers['retry-after']).toBeDefined()
    }
    expect(crowded.database.budget.bytes).toBe(0)
    expect((await ask(10)).status).toBe(200)
    await crowded.close()
  })

  it('count as they are read, and no more when they were', async () => {
    const database = new Database({
      poolMax: 1,
      statementTimeoutMs: 0,
      bufferedBytesMax: 300_000,
      onIdleError: () => undefined,
    })
    database.connect({ url: service.url })
    const client = await database.pool.connect()
    const read = async (owner: string, length: number) => {
      await new AnswerReader(database, { client, owner }).run([
        {
          statement: compileStatement(sql`select repeat('x', ${slot(0)}::integer)`),
          values: [String(length)],
        },
      ])
    }
    // An answer that is read alone may exceed the budget.
    await read('greedy', 500_000)
    // A row with one text value counts 10 bytes more than the text.
    const small = SMALL_ANSWER_BYTES - 10
    const share = database.budget.shareOf('greedy')
    database.budget.add(share, 200_000)
    await expect(read('greedy', small + 1)).rejects.toMatchObject({ code: 'overloaded' })
    await read('greedy', small)
    // Another key reads on, up to twice the budget in all. Then it still gets small answers.
    await read('other', 500_000)
    database.budget.add(share, 400_000)
    await read('other', small)
    await expect(read('other', small + 1)).rejects.toMatchObject({ code: 'overloaded' })
    expect(database.budget.bytes).toBe(600_000)
    client.release()
    await database.close()
  })
})
