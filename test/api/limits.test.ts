import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import {
  addTables,
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
} from '../support/tables.js'

/** Low limits, so that small requests reach them. Schema limits are tested in schema.test.ts. */
const LIMITS = {
  transactionOperationsMax: 3,
  bulkRecordsMax: 3,
  requestBytesMax: 20_000,
  recordBytesMax: 1000,
  stringLengthMax: 10,
  emailLengthMax: 12,
}

let service: TestService
let call: BranchCall
/** A second service on the same database, with the default limits. */
let usual: TestService

beforeAll(async () => {
  service = await createTestService({ limits: LIMITS })
  usual = await createTestService({ url: service.url })
  call = await createTables(service, 'small', {
    t: [
      { name: 'string', type: 'string' },
      { name: 'email', type: 'email' },
      { name: 'text', type: 'text' },
      { name: 'other', type: 'text' },
      { name: 'list', type: 'multiple' },
      { name: 'json', type: 'json' },
      { name: 'vector', type: 'vector', vector: { dimension: 2 } },
      { name: 'number', type: 'int' },
    ],
  })
})
afterAll(async () => {
  await usual.close()
  await service.close()
})

/** Creates a database that is used with the default limits. */
async function openUsual(
  name: string,
  tables: Readonly<Record<string, readonly Column[]>>,
): Promise<BranchCall> {
  await createDatabase(service, name)
  const branch = branchCall(service, name, { via: usual })
  expectOk(await branch('POST', '/schema/update', { body: { operations: addTables(tables) } }))
  return branch
}

const insert = (body: unknown) => call('POST', '/tables/t/data', { body })
const repeat = <Item>(item: Item, length: number): Item[] => Array(length).fill(item)

describe('of a request', () => {
  it.each([
    [0, 200],
    [1, 200],
    [3, 200],
    [4, 400],
  ])('%i operations in a transaction are answered with %i', async (count, status) => {
    const operations = repeat({ insert: { table: 't', record: {} } }, count)
    const answer = await call('POST', '/transaction', { body: { operations } })
    expect(answer.status).toBe(status)
    if (status === 200) expect(answer.body.results).toHaveLength(count)
    else expect(answer.body.message).toBe('a transaction can have at most 3 operations, got 4')
  })

  it.each([
    [0, 200],
    [1, 200],
    [3, 200],
    [4, 400],
  ])('%i records in a bulk insert are answered with %i', async (count, status) => {
    const answer = await call('POST', '/tables/t/bulk', { body: { records: repeat({}, count) } })
    expect(answer.status).toBe(status)
    if (status === 200) expect(answer.body.recordIDs).toHaveLength(count)
    else expect(answer.body.message).toMatch(/^body: field \[records\]: must have at most 3 items/)
  })

  it('a stream has any number of records and bytes', async () => {
    const line = `{"text":"${'x'.repeat(500)}"}\n`
    const headers = { 'content-type': 'application/x-ndjson' }
    const answer = await call('POST', '/tables/t/bulk', { body: line.repeat(500), headers })
    expect(answer).toMatchObject({ status: 200, body: { inserted: 500 } })
  })

  it.each([
    ['POST', '/tables/t/data', '{}'],
    ['PUT', '/tables/t/data/size', '{}'],
    ['PATCH', '/tables/t/data/size', '{}'],
    ['POST', '/tables/t/data/size', '{}'],
    ['POST', '/tables/t/bulk', '{"records":[]}'],
    ['POST', '/transaction', '{"operations":[]}'],
    ['POST', '/schema/update', '{"operations":[]}'],
  ])('%s %s takes 20000 bytes and not one more', async (method, path, body) => {
    await call('PUT', '/tables/t/data/size', { body: {} })
    expect((await call(method, path, { body: body.padEnd(20_000) })).status).toBeLessThan(300)
    const answer = await call(method, path, { body: body.padEnd(20_001) })
    expect(answer).toMatchObject({ status: 413, body: { code: 'payload_too_large' } })
  })

  it.each([
    [0, 400],
    [1, 200],
    [255, 200],
    [256, 400],
  ])('an Idempotency-Key of %i characters is answered with %i', async (length, status) => {
    const headers = { 'idempotency-key': 'k'.repeat(length) }
    const body = { operations: [{ insert: { table: 't', record: {} } }] }
    expect((await call('POST', '/transaction', { body, headers })).status).toBe(status)
    const records = { records: [{}] }
    const bulkHeaders = { 'idempotency-key': 'b'.repeat(length) }
    const bulk = await call('POST', '/tables/t/bulk', { body: records, headers: bulkHeaders })
    expect(bulk.status).toBe(status)
  })
})

describe('of an id', () => {
  it.each([
    [1, 201],
    [255, 201],
    [256, 400],
  ])('%i characters are answered with %i', async (length, status) => {
    const id = (mark: string) => mark.repeat(length)
    expect((await call('PUT', `/tables/t/data/${id('p')}`, { body: {} })).status).toBe(status)
    expect((await insert({ id: id('b') })).status).toBe(status)
    const bulk = await call('POST', '/tables/t/bulk', { body: { records: [{ id: id('k') }] } })
    expect(bulk.status).toBe(status === 201 ? 200 : 400)
    const operations = [{ insert: { table: 't', record: { id: id('t') } } }]
    const transaction = await call('POST', '/transaction', { body: { operations } })
    expect(transaction.status).toBe(status === 201 ? 200 : 400)
  })
})

describe('of a value', () => {
  const nested = (depth: number) => `${'['.repeat(depth)}${']'.repeat(depth)}`

  it.each<[string, string, unknown, string | undefined]>([
    ['an empty string', 'string', '', undefined],
    ['a string of 1 character', 'string', 'x', undefined],
    ['a string of 10 characters', 'string', 'x'.repeat(10), undefined],
    ['a string of 11 characters', 'string', 'x'.repeat(11), 'is longer than 10 characters'],
    ['a string of 10 characters of four bytes', 'string', '𝔘'.repeat(10), undefined],
    [
      'a string of 11 characters of four bytes',
      'string',
      '𝔘'.repeat(11),
      'is longer than 10 characters',
    ],
    ['an empty email', 'email', '', 'is not an email address'],
    ['an email of 12 characters', 'email', 'abcd@efg.hij', undefined],
    ['an email of 13 characters', 'email', 'abcde@efg.hij', 'is longer than 12 characters'],
    ['a vector of no dimension', 'vector', [], 'expected 2 numbers, got 0'],
    ['a vector of too few', 'vector', [1], 'expected 2 numbers, got 1'],
    ['a vector of as many as it takes', 'vector', [1, 2], undefined],
    ['a vector of too many', 'vector', [1, 2, 3], 'expected 2 numbers, got 3'],
    ['an empty list', 'list', [], undefined],
    ['json nested to the limit', 'json', nested(256), undefined],
    ['json nested beyond it', 'json', nested(257), 'is nested deeper than 256 levels'],
    ['the largest int', 'number', 2 ** 53 - 1, undefined],
    ['a larger one', 'number', 2 ** 53, `is not between -${2 ** 53 - 1} and ${2 ** 53 - 1}`],
  ])('%s', async (_name, column, value, fault) => {
    const answer = await insert({ [column]: value })
    if (fault === undefined) expect(answer.status).toBe(201)
    else expect(answer.body.message).toBe(`invalid record: column [${column}]: ${fault}`)
  })
})

describe('of a record', () => {
  const name = 'text'.length
  /** Makes a record of this many bytes, column names included. */
  const record = (bytes: number) => ({ text: 'x'.repeat(bytes - name) })
  const LARGE = 'record is larger than the limit of 1000 bytes'

  it('1000 bytes are taken by every way in, and 1001 by none', async () => {
    await call('PUT', '/tables/t/data/size', { body: {} })
    const ways: ((body: object) => Promise<{ status: number; body: unknown }>)[] = [
      insert,
      (body) => call('PUT', '/tables/t/data/size', { body }),
      (body) => call('PATCH', '/tables/t/data/size', { body }),
      (body) => call('POST', '/tables/t/data/size', { body }),
      (body) => call('POST', '/tables/t/bulk', { body: { records: [body] } }),
      (body) =>
        call('POST', '/tables/t/bulk', {
          body: JSON.stringify(body),
          headers: { 'content-type': 'application/x-ndjson' },
        }),
      (body) =>
        call('POST', '/transaction', {
          body: { operations: [{ insert: { table: 't', record: body } }] },
        }),
      (body) =>
        call('POST', '/transaction', {
          body: { operations: [{ update: { table: 't', id: 'size', fields: body } }] },
        }),
    ]
    for (const way of ways) {
      expect((await way(record(1000))).status).toBeLessThan(300)
      const refused = await way(record(1001))
      expect(refused.status).toBe(400)
      expect(JSON.stringify(refused.body)).toContain(LARGE)
    }
    expect((await call('GET', '/tables/t/data/size')).body.text).toHaveLength(1000 - name)
  })

  it('bytes are counted, not characters', async () => {
    expect((await insert({ text: 'é'.repeat(498) })).status).toBe(201)
    expect((await insert({ text: 'é'.repeat(499) })).status).toBe(400)
  })
})

describe('of a reading', () => {
  it('more values than PostgreSQL can select at once are refused', async () => {
    const columns: Column[] = [
      ...Array.from({ length: 248 }, (_, number): Column => ({ name: `c${number}`, type: 'int' })),
      ...Array.from(
        { length: 8 },
        (_, number): Column => ({ name: `l${number}`, type: 'link', link: { table: 'wide' } }),
      ),
    ]
    const wide = await openUsual('wide', { wide: columns })
    const links = Object.fromEntries(Array.from({ length: 8 }, (_, number) => [`l${number}`, 'x']))
    expectOk(await wide('PUT', '/tables/wide/data/x', { body: { c0: 1, ...links } }))
    const read = (count: number) =>
      wide('GET', `/tables/wide/data/x?columns=${Object.keys(links).slice(0, count).join()}`)
    const some = await read(5)
    expect(some.body.l4).toMatchObject({ id: 'x', c0: 1 })
    const answer = await read(8)
    expect(answer).toMatchObject({
      status: 400,
      body: { message: 'table [wide]: a request cannot read more than 1500 values of a record' },
    })
  })
})

describe('of a unique value', () => {
  it('as many bytes as an index can hold', async () => {
    const unique = await openUsual('unique', {
      u: [{ name: 'word', type: 'string', unique: true }],
    })
    const word = (bytes: number) =>
      Array.from({ length: bytes / 4 }, (_, number) =>
        String.fromCodePoint(0x1d400 + ((number * 7919) % 50_000)),
      ).join('')
    const inserted = await unique('POST', '/tables/u/data', { body: { word: word(2600) } })
    expect(inserted.status).toBe(201)
    const body = { records: [{}, { word: word(2604) }] }
    const answer = await unique('POST', '/tables/u/bulk', { body })
    expect(answer.body.errors).toEqual([
      {
        index: 1,
        status: 400,
        message:
          'invalid record: column [word]: is longer than 2600 bytes, the limit of a unique column',
      },
    ])
  })
})

describe('of a table in the long run', () => {
  it('so many columns added and removed that PostgreSQL has no room for another', async () => {
    const worn = await openUsual('worn', { t: [] })
    expectOk(await worn('PUT', '/tables/t/data/x', { body: {} }))
    // Add the columns that 1590 removed columns leave in the heap, in one statement.
    const { rows } = await service.database.pool.query(
      `select format('offshoot_db_%s.heap_%s', database_id, id) as name from offshoot.heaps order by id desc`,
    )
    const removed = Array.from({ length: 1590 }, (_, number) => `add column gone${number} integer`)
    await service.database.pool.query(`alter table ${rows[0].name} ${removed.join(', ')}`)
    const add = (count: number) => {
      const column = (number: number) => ({ name: `c${number}`, type: 'int' })
      const columns = Array.from({ length: count }, (_, number) => column(number))
      return worn('PUT', '/tables/t/schema', { body: { columns } })
    }
    const answer = await add(5)
    expect(answer).toMatchObject({ status: 422, body: { code: 'limit_reached' } })
    expect((await worn('GET', '/tables/t/schema')).body.columns).toEqual([])
    expectOk(await add(4))
    expectOk(await worn('PATCH', '/tables/t/data/x', { body: { c3: 1 } }))
  })
})
