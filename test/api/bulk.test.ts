import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { addMember, createKey, createUser } from '../support/people.js'
import { until } from '../support/process.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import {
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
  GENERATED_ID,
  XATA_CLIENT,
} from '../support/tables.js'
import { takenFields } from '../support/taken.js'

let service: TestService
let call: BranchCall

const LIMITS = { bulkRecordsMax: 3000, requestBytesMax: 1024 * 1024, recordBytesMax: 64 * 1024 }

beforeAll(async () => {
  service = await createTestService({ limits: LIMITS })
  call = await createTables(service, 'shop', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'age', type: 'int' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
      { name: 'tags', type: 'multiple' },
      { name: 'settings', type: 'json' },
      { name: 'address', type: 'object', columns: [{ name: 'city', type: 'string' }] },
      { name: 'vector', type: 'vector', vector: { dimension: 2 } },
    ],
    teams: [{ name: 'name', type: 'string', notNull: true, defaultValue: 'nameless' }],
    moments: [
      { name: 'at', type: 'datetime', unique: true },
      { name: 'size', type: 'float', unique: true },
    ],
    strict: [{ name: 'must', type: 'text', notNull: true }],
    bare: [],
    streamed: [
      { name: 'name', type: 'text' },
      { name: 'email', type: 'email', unique: true },
    ],
  })
})
afterAll(() => service.close())

const url = (table: string, query = '') => `/tables/${table}/bulk${query}`
const bulk = (table: string, records: unknown, query = '', options: object = {}) =>
  call('POST', url(table, query), { body: { records }, ...options })
const bulkText = (table: string, body: string) => call('POST', url(table), { body })
const read = async (table: string, id: string) =>
  (await call('GET', `/tables/${table}/data/${id}`)).body
const isThere = async (table: string, id: string) =>
  (await call('GET', `/tables/${table}/data/${id}`)).status === 200

/** Counts the records of a table of `main` in its heap, without the API. */
async function count(table: string): Promise<number> {
  const { body } = await call('GET', '')
  const found = body.schema.tables.find((candidate: { name: string }) => candidate.name === table)
  const [heap] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    where b.name = 'main' and h.table_id = ${found.id.replace('tbl_', '')}`)
  const { rows } = await service.database.pool.query(
    `select count(*)::integer as count from ${heap?.name}`,
  )
  return rows[0].count
}

/** Returns the code that all faults have, if they have the same one. */
function codeOf(messages: readonly string[]): string {
  const codes = messages.map((message) => (takenFields(message) as { code?: string }).code)
  return (codes.every((code) => code === codes[0]) && codes[0]) || 'invalid_record'
}

type Fault = [index: number, message: string]
function expectFaults(answer: Answer, faults: readonly Fault[]) {
  expect(answer.status).toBe(400)
  expect(answer.body).toEqual({
    id: answer.headers['x-request-id'],
    code: codeOf(faults.map(([, message]) => message)),
    message: `${faults.length === 1 ? '1 record is' : `${faults.length} records are`} invalid; nothing was inserted`,
    errors: faults.map(([index, message]) => ({
      index,
      status: 400,
      message: `invalid record: ${message}`,
      ...takenFields(message),
    })),
  })
}

/** An entry of the list of refused lines. */
const refusedLine = (line: number, message: string) => ({ line, message, ...takenFields(message) })

describe('bulk insert', () => {
  it('answers with ids in the order of the records', async () => {
    const answer = await bulk('users', [{ name: 'A' }, { id: 'given', name: 'B' }, {}])
    expect(answer.status).toBe(200)
    const { recordIDs, ...rest } = answer.body
    expect(rest).toEqual({})
    expect(recordIDs).toEqual([
      expect.stringMatching(GENERATED_ID),
      'given',
      expect.stringMatching(GENERATED_ID),
    ])
    expect(await read('users', recordIDs[0])).toMatchObject({ name: 'A', service: { version: 0 } })
    expect(await read('users', 'given')).toMatchObject({ name: 'B' })
    expect(recordIDs[0] < recordIDs[2]).toBe(true)
  })

  it('answers with records when columns are asked for', async () => {
    await call('PUT', '/tables/teams/data/red', { body: { name: 'Red' } })
    const records = [{ name: 'A', age: 1, team: 'red' }, { name: 'B' }]
    for (const query of ['?columns=name,team.name', '?columns=name&columns=team.name']) {
      const { status, body } = await bulk('users', records, query)
      expect(status).toBe(200)
      const service0 = { version: 0, createdAt: expect.any(String), updatedAt: expect.any(String) }
      expect(body).toEqual({
        records: [
          {
            id: expect.stringMatching(GENERATED_ID),
            name: 'A',
            team: { id: 'red', name: 'Red', service: service0 },
            service: service0,
          },
          { id: expect.stringMatching(GENERATED_ID), name: 'B', service: service0 },
        ],
      })
    }
    const { body } = await bulk('users', records, '?columns=*', { headers: XATA_CLIENT })
    expect(body.records[0]).toMatchObject({ age: 1, team: { id: 'red' }, xata: { version: 0 } })
  })

  it('keeps every value as it was sent, also those that COPY has signs for', async () => {
    const text = '\\N \\. \t\n\r\b"quotes" \\\\ {a,b} é𝔘\u2028 $1'
    const values = {
      name: text,
      tags: [text, '', 'NULL', '\\N'],
      settings: { [text]: [text, null, 1.5e-7] },
      address: { city: text },
      vector: [0.5, -1],
      age: -5,
    }
    const { body } = await bulk('users', [values, { name: '' }, { name: '\\N' }, { name: '\\.' }])
    expect(await read('users', body.recordIDs[0])).toMatchObject(values)
    expect(await read('users', body.recordIDs[1])).toMatchObject({ name: '' })
    expect(await read('users', body.recordIDs[2])).toMatchObject({ name: '\\N' })
    expect(await read('users', body.recordIDs[3])).toMatchObject({ name: '\\.' })
  })

  it('takes an empty list, and records of a table without columns', async () => {
    expect((await bulk('users', [])).body).toEqual({ recordIDs: [] })
    expect((await bulk('users', [], '?columns=*')).body).toEqual({ records: [] })
    const { body } = await bulk('bare', [{}, { id: 'bare' }])
    expect(body.recordIDs).toHaveLength(2)
    expect(await isThere('bare', 'bare')).toBe(true)
  })

  it('fills defaults and ignores metadata', async () => {
    const { body } = await bulk(
      'teams',
      [{ xata: 1, service: { version: 9 } }, { name: 'x' }],
      '?columns=*',
    )
    expect(body.records).toMatchObject([
      { name: 'nameless', service: { version: 0 } },
      { name: 'x', service: { version: 0 } },
    ])
  })

  it('reports every bad record with its index and stores nothing', async () => {
    const before = await count('users')
    const answer = await bulk('users', [
      { name: 'good' },
      { nope: 1 },
      { age: 'x', name: 5 },
      'no object',
      { id: 'a b' },
      null,
      { name: 'good too' },
      [],
      { id: null, age: 0.5 },
    ])
    expectFaults(answer, [
      [1, 'column [nope]: column not found'],
      [
        2,
        'column [age]: expected a whole number, got a string; column [name]: expected a string, got a number',
      ],
      [3, 'expected an object'],
      [4, 'column [id]: is not a record id: only letters, digits and _ - ~ : ` { | } are allowed'],
      [5, 'expected an object'],
      [7, 'expected an object'],
      [
        8,
        'column [id]: expected a record id, got null; column [age]: expected a whole number, got a fraction',
      ],
    ])
    expect(await count('users')).toBe(before)
    expectFaults(await bulk('strict', [{ must: 'x' }, {}, { must: null }]), [
      [1, 'column [must]: a value is required'],
      [2, 'column [must]: cannot be null'],
    ])
    expect(await count('strict')).toBe(0)
  })

  it('lists a thousand faults and says how many there are', async () => {
    const answer = await bulk('users', Array(1500).fill({ nope: 1 }))
    expect(answer.body.message).toBe('1500 records are invalid; nothing was inserted')
    expect(answer.body.errors).toHaveLength(1000)
    expect(answer.body.errors[999]).toMatchObject({ index: 999 })
  })

  it('cancels everything for an id that exists, or that stands twice in the request', async () => {
    await bulk('users', [{ id: 'taken' }])
    const before = await count('users')
    expectFaults(
      await bulk('users', [{ id: 'fresh' }, { id: 'taken' }, { id: 'twice' }, {}, { id: 'twice' }]),
      [
        [1, 'column [id]: is not unique'],
        [4, 'column [id]: is not unique'],
      ],
    )
    expect(await count('users')).toBe(before)
    expect(await read('users', 'taken')).toMatchObject({ service: { version: 0 } })
  })

  it('cancels everything for a value that a unique column has, and names each record', async () => {
    await bulk('users', [{ id: 'holder', email: 'holder@bulk.test' }])
    const before = await count('users')
    expectFaults(
      await bulk('users', [
        { email: 'a@bulk.test' },
        { id: 'holder', email: 'holder@bulk.test' },
        { email: null },
        {},
        { email: 'a@bulk.test' },
        { email: 'A@bulk.test' },
      ]),
      [
        [1, 'column [id]: is not unique; column [email]: is not unique'],
        [4, 'column [email]: is not unique'],
      ],
    )
    expect(await count('users')).toBe(before)
  })

  it('knows which values are the same though they are written differently', async () => {
    expectFaults(
      await bulk('moments', [
        { at: '2026-01-01T00:00:00Z', size: 0 },
        { at: '2026-01-01T01:00:00+01:00' },
        { at: '2026-01-01T00:00:00.000Z' },
      ]),
      [
        [1, 'column [at]: is not unique'],
        [2, 'column [at]: is not unique'],
      ],
    )
    const text = '{"records":[{"size":0},{"size":1},{"size":-0},{"size":1e0}]}'
    expectFaults(await bulkText('moments', text), [
      [2, 'column [size]: is not unique'],
      [3, 'column [size]: is not unique'],
    ])
    expect(await count('moments')).toBe(0)
  })

  it('takes as many records as the limit says and not one more', async () => {
    const records = (length: number) => Array.from({ length }, () => ({}))
    const before = await count('bare')
    expect((await bulk('bare', records(3000))).body.recordIDs).toHaveLength(3000)
    const answer = await bulk('bare', records(3001))
    expect(answer.status).toBe(400)
    expect(answer.body.message).toBe(
      'body: field [records]: must have at most 3000 items; send more as application/x-ndjson',
    )
    expect(await count('bare')).toBe(before + 3000)
  })

  it('refuses a body of more bytes than the limit says with 413', async () => {
    const records = Array.from({ length: 20 }, () => '{}'.padEnd(50_000))
    const body = (length: number) => `{"records":[${records.join()}]}`.padEnd(length)
    expect((await bulkText('bare', body(1024 * 1024))).status).toBe(200)
    const answer = await bulkText('bare', body(1024 * 1024 + 1))
    expect(answer).toMatchObject({ status: 413, body: { code: 'payload_too_large' } })
  })

  it('refuses a record of more bytes than the limit says', async () => {
    const name = 'name'.length
    const record = (bytes: number) => ({ must: 'x'.repeat(bytes - name) })
    expect((await bulk('strict', [record(64 * 1024)])).status).toBe(200)
    expectFaults(await bulk('strict', [{ must: 'x' }, record(64 * 1024 + 1)]), [
      [1, 'record is larger than the limit of 65536 bytes'],
    ])
  })

  it.each<[string, unknown, string | RegExp]>([
    ['no body', undefined, /^body: /],
    ['no list', {}, 'body: field [records]: is required'],
    ['another type', { records: {} }, 'body: field [records]: must be of type array'],
    ['an unknown field', { records: [], mode: 'x' }, 'body: field [mode]: is not known'],
    ['no object', [], 'body: must be of type object'],
  ])('refuses %s with 400', async (_name, body, message) => {
    const answer = await call('POST', url('users'), { body })
    expect(answer.status).toBe(400)
    if (typeof message === 'string') expect(answer.body.message).toBe(message)
    else expect(answer.body.message).toMatch(message)
  })

  it('answers 404 for an unknown table and branch, 400 for unknown columns, 415 for other types', async () => {
    expect((await bulk('nope', [])).body).toMatchObject({ message: 'table [nope] not found' })
    const branch = branchCall(service, 'shop', { branch: 'nope' })
    expect((await branch('POST', url('users'), { body: { records: [] } })).status).toBe(404)
    const columns = await bulk('users', [{ id: 'unseen' }], '?columns=nope')
    expect(columns).toMatchObject({
      status: 400,
      body: { message: 'table [users]: column [nope]: column not found' },
    })
    expect(await isThere('users', 'unseen')).toBe(false)
    const headers = { 'content-type': 'text/csv' }
    expect((await call('POST', url('users'), { body: 'a,b', headers })).status).toBe(415)
  })

  it('is refused to a key that can only read', async () => {
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    expect((await bulk('users', [], '', { key })).body.code).toBe('key_scope')
  })

  describe.each([
    ['small', 3],
    ['large', 900],
  ])('of a %s body', (_size, length) => {
    const records = Array.from({ length }, (_, number) => ({
      id: `m${number}`,
      name: 'x'.repeat(100),
    }))
    const texts = records.map((record) => JSON.stringify(record))
    const good = texts.join(',')

    it.each<[string, string]>([
      ['that ends too early', `{"records":[${good}`],
      ['whose record is not closed', `{"records":[${good},{"id":"x"]}`],
      ['with a comma too many', `{"records":[${good},]}`],
      ['with two commas', `{"records":[${texts[0]},,${good}]}`],
      ['with text behind it', `{"records":[${good}]}}`],
      ['with text in front of it', `,{"records":[${good}]}`],
      ['with a bad escape', `{"records":[${good},{"name":"\\x"}]}`],
      ['with a bad number', `{"records":[${good},{"age":1.}]}`],
      ['with a raw tab in a string', `{"records":[${good},{"name":"\t"}]}`],
      ['with single quotes', `{"records":[${good},{'name':1}]}`],
    ])('is refused when it is one %s, and nothing is stored', async (_name, body) => {
      const before = await count('users')
      const answer = await bulkText('users', body)
      expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_json' } })
      expect(answer.body.message).toMatch(/^body: is not valid JSON: /)
      expect(await count('users')).toBe(before)
    })

    it('is refused when it is no UTF-8', async () => {
      const body = Buffer.from(`{"records":[${good},{"name":"??"}]}`)
      body[body.indexOf('??')] = 0xff
      const response = await service.app.inject({
        method: 'POST',
        url: `${service.workspace}/db/shop:main${url('users')}`,
        headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
        payload: body,
      })
      expect(response.json()).toMatchObject({ message: 'body: is not valid UTF-8' })
    })

    it('gives every fault its index, however far back', async () => {
      const bad = [...records.slice(0, -1), { id: 'last', age: 'x' }]
      expectFaults(await bulk('users', bad), [
        [length - 1, 'column [age]: expected a whole number, got a string'],
      ])
      expectFaults(await bulk('users', [...records, records[0]]), [
        [length, 'column [id]: is not unique'],
      ])
    })

    it('is stored when nothing is wrong with it', async () => {
      const answer = expectOk(await bulk('users', records, '?columns=name'))
      expect(answer.body.records.map((record: { id: string }) => record.id)).toEqual(
        records.map(({ id }) => id),
      )
      const operations = records.map(({ id }) => ({ delete: { table: 'users', id } }))
      expectOk(await call('POST', '/transaction', { body: { operations } }))
    })
  })
})

describe('Idempotency-Key', () => {
  const keyed = (
    records: unknown,
    key: string,
    options: { as?: string; at?: BranchCall; query?: string } = {},
  ) =>
    (options.at ?? call)('POST', url('users', options.query), {
      body: { records },
      headers: { 'idempotency-key': key },
      ...(options.as === undefined ? {} : { key: options.as }),
    })

  it('gives a repeated request the same answer and stores its records once', async () => {
    const before = await count('users')
    const first = expectOk(await keyed([{ name: 'once' }, { name: 'once' }], 'b1'))
    const second = await keyed([{ name: 'once' }, { name: 'once' }], 'b1')
    expect(second.body).toEqual(first.body)
    expect(await count('users')).toBe(before + 2)
  })

  it('refuses another request under the same key with 422', async () => {
    expectOk(await keyed([{ name: 'a' }], 'b2'))
    const before = await count('users')
    for (const answer of [
      await keyed([{ name: 'b' }], 'b2'),
      await keyed([{ name: 'a' }], 'b2', { query: '?columns=name' }),
    ]) {
      expect(answer).toMatchObject({ status: 422, body: { code: 'idempotency_mismatch' } })
    }
    expect(await count('users')).toBe(before)
  })

  it('does not mix up users or branches', async () => {
    const other = await createUser(service, 'other')
    await addMember(service, other)
    const fork = branchCall(service, 'shop', { branch: 'fork' })
    expectOk(await fork('PUT', ''))
    const ids = new Set<string>()
    for (const options of [{}, { as: other.key }, { at: fork }]) {
      const { body } = expectOk(await keyed([{ name: 'mine' }], 'b3', options))
      ids.add(body.recordIDs[0])
    }
    expect(ids.size).toBe(3)
  })

  it('lets the same request at the same time store its records once', async () => {
    for (const records of [[{ name: 'race' }], [{ id: 'race', email: 'race@bulk.test' }]]) {
      const before = await count('users')
      const key = `b4-${before}`
      const answers = await Promise.all(Array.from({ length: 8 }, () => keyed(records, key)))
      for (const answer of answers)
        expect(answer).toMatchObject({ status: 200, body: answers[0]?.body })
      expect(await count('users')).toBe(before + 1)
    }
  })

  /** The table with the answers of the database. */
  const answers = async () => {
    const [row] = await service.database.query<{ id: string }>(sql`
      select database_id as id from offshoot.branches order by created_at limit 1`)
    return sql`${ident(`offshoot_db_${row?.id}`)}.idempotency_keys`
  }

  it('keeps an answer together with the records, or neither', async () => {
    const keys = async () => {
      const [row] = await service.database.query<{ count: number }>(sql`
        select count(*)::integer as count from ${await answers()}`)
      return row?.count
    }
    const before = await keys()
    expect((await keyed([{ nope: 1 }], 'b5')).status).toBe(400)
    expect((await keyed([{ id: 'race' }], 'b5')).status).toBe(400)
    expect(await keys()).toBe(before)
    expect((await keyed([{ name: 'now right' }], 'b5')).status).toBe(200)
    expect(await keys()).toBe((before ?? 0) + 1)
  })
})

describe('a stream', () => {
  const NDJSON = { 'content-type': 'application/x-ndjson' }
  const stream = (text: string, query = '', headers: Record<string, string> = {}, at = call) =>
    at('POST', url('streamed', query), { body: text, headers: { ...NDJSON, ...headers } })
  const lines = (...records: unknown[]) =>
    records.map((record) => JSON.stringify(record)).join('\n')

  it('is inserted as a whole and answered with counts', async () => {
    const before = await count('streamed')
    const answer = await stream(lines({ name: 'a' }, { id: 's1', name: 'é\n' }, {}))
    expect(answer).toMatchObject({ status: 200, body: { inserted: 3, failed: 0, errors: [] } })
    expect(await read('streamed', 's1')).toMatchObject({ name: 'é\n' })
    expect(await count('streamed')).toBe(before + 3)
  })

  it.each<[string, string, number]>([
    ['nothing', '', 0],
    ['blank lines alone', '\n\n \n', 0],
    ['a line break at the end', '{"name":"x"}\n', 1],
    ['carriage returns', '{"name":"x"}\r\n{}\r\n', 2],
    ['blank lines in between', '\n{}\n\n{}\n\n', 2],
    ['space around records', '  {}  \n\t{}\t', 2],
  ])('may be %s', async (_name, text, inserted) => {
    for (const mode of ['atomic', 'partial']) {
      expect((await stream(text, `?mode=${mode}`)).body).toEqual({
        inserted,
        failed: 0,
        errors: [],
      })
    }
  })

  it('of many records is no different', async () => {
    const before = await count('streamed')
    const text = lines(
      ...Array.from({ length: 20_000 }, (_, number) => ({ name: `name ${number}` })),
    )
    for (const mode of ['atomic', 'partial']) {
      expect((await stream(text, `?mode=${mode}`)).body).toMatchObject({
        inserted: 20_000,
        failed: 0,
      })
    }
    expect(await count('streamed')).toBe(before + 40_000)
  })

  const faulty = [
    '{"name":"good"}',
    '',
    '{"name":5}',
    'no json',
    '{"id":"a b"}',
    '5',
    '{"name":"good"},{}',
    '',
    '{"nope":1}',
    '{"name":"good"}',
  ].join('\n')
  const faults = [
    [3, 'invalid record: column [name]: expected a string, got a number'],
    [4, /^is not valid JSON: /],
    [5, /^invalid record: column \[id\]: is not a record id/],
    [6, 'invalid record: expected an object'],
    [7, /^is not valid JSON: /],
    [9, 'invalid record: column [nope]: column not found'],
  ] as const
  const messageOf = (text: string | RegExp) =>
    typeof text === 'string' ? text : expect.stringMatching(text)

  it('with bad lines is refused as a whole, each of them named', async () => {
    const before = await count('streamed')
    const answer = await stream(faulty)
    expect(answer.status).toBe(400)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      code: 'invalid_record',
      message: '6 lines are invalid; nothing was inserted',
      errors: faults.map(([line, message]) => ({
        index: line - 1,
        line,
        status: 400,
        message: messageOf(message),
      })),
    })
    expect(await count('streamed')).toBe(before)
  })

  it('in partial mode refuses a line only for values that exist or that an inserted line has', async () => {
    const at = '2031-01-01T00:00:00Z'
    expectOk(await call('PUT', '/tables/moments/data/taken', { body: { at, size: 0.5 } }))
    const lines = [
      { id: 'taken', size: 101 },
      // The line before was refused, so its size is free.
      { id: 'm1', size: 101 },
      { id: 'm1', size: 102 },
      { id: 'm2', size: 102, at: '2031-01-02T00:00:00Z' },
      // The same instant and the same number in another form.
      { id: 'm3', at: '2031-01-02T01:00:00+01:00' },
      { id: 'm4', at: '2031-01-01T02:00:00+02:00' },
      { id: 'm5', size: 0.5 },
      { id: 'm6', size: 1.02e2 },
      { id: 'm7', size: 1.03e2 },
      {},
      {},
    ]
    const text = lines.map((line) => JSON.stringify(line)).join('\n')
    const answer = await call('POST', url('moments', '?mode=partial'), {
      body: text,
      headers: NDJSON,
    })
    expect(answer.body).toEqual({
      inserted: 5,
      failed: 6,
      errors: [
        refusedLine(1, 'invalid record: column [id]: is not unique'),
        refusedLine(3, 'invalid record: column [id]: is not unique'),
        refusedLine(5, 'invalid record: column [at]: is not unique'),
        refusedLine(6, 'invalid record: column [at]: is not unique'),
        refusedLine(7, 'invalid record: column [size]: is not unique'),
        refusedLine(8, 'invalid record: column [size]: is not unique'),
      ],
    })
  })

  it('in partial mode keeps the lines that are good', async () => {
    const before = await count('streamed')
    const answer = await stream(faulty, '?mode=partial')
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({
      inserted: 2,
      failed: 6,
      errors: faults.map(([line, message]) => ({ line, message: messageOf(message) })),
    })
    expect(await count('streamed')).toBe(before + 2)
  })

  it('counts every bad line, though it lists a thousand', async () => {
    const text = lines(
      ...Array.from({ length: 5000 }, (_, number) => (number % 2 === 0 ? { nope: 1 } : {})),
    )
    const partial = (await stream(text, '?mode=partial')).body
    expect(partial).toMatchObject({ inserted: 2500, failed: 2500 })
    expect(partial.errors).toHaveLength(1000)
    expect(partial.errors[999]).toMatchObject({ line: 1999 })
    const atomic = (await stream(text)).body
    expect(atomic.message).toBe('2500 lines are invalid; nothing was inserted')
    expect(atomic.errors).toHaveLength(1000)
  })

  describe.each(['main', 'inherited'])('on a branch whose rows are %s', (kind) => {
    let at: BranchCall

    beforeAll(async () => {
      if (kind === 'main') {
        at = call
        return
      }
      at = branchCall(service, 'shop', { branch: 'stream-fork' })
      expectOk(await at('PUT', ''))
    })

    it('is refused with the line of an id or value that is taken', async () => {
      await at('PUT', `/tables/streamed/data/${kind}-taken`, {
        body: { email: `${kind}@stream.test` },
      })
      for (const [bad, column] of [
        [{ id: `${kind}-taken` }, 'id'],
        [{ email: `${kind}@stream.test` }, 'email'],
        [{ id: 'first' }, 'id'],
        [{ email: 'first@stream.test' }, 'email'],
      ] as const) {
        const text = `\n${lines({ id: 'first', email: 'first@stream.test' }, {})}\n\n\n${lines({}, bad, {})}`
        const answer = await stream(text, '', {}, at)
        expect(answer.status).toBe(400)
        expect(answer.body.errors).toEqual([
          {
            index: 6,
            line: 7,
            status: 400,
            message: `invalid record: column [${column}]: is not unique`,
            ...takenFields(`column [${column}]: is not unique`),
          },
        ])
        expect((await at('GET', '/tables/streamed/data/first')).status).toBe(404)
      }
    })

    it('in partial mode leaves out the lines that are taken', async () => {
      const text = lines(
        { id: `${kind}-p1`, email: `p1@${kind}.test` },
        { id: `${kind}-taken` },
        { email: `p1@${kind}.test` },
        {},
        { id: `${kind}-p1` },
        { id: `${kind}-p2` },
      )
      const answer = await stream(text, '?mode=partial', {}, at)
      expect(answer.body).toEqual({
        inserted: 3,
        failed: 3,
        errors: [
          refusedLine(2, 'invalid record: column [id]: is not unique'),
          refusedLine(3, 'invalid record: column [email]: is not unique'),
          refusedLine(5, 'invalid record: column [id]: is not unique'),
        ],
      })
    })
  })

  it('with a line that is no UTF-8 is refused by its number', async () => {
    const text = Buffer.from('{"name":"a"}\n{"name":"??"}\n{"name":"b"}')
    text[text.indexOf('??')] = 0xff
    const send = (query: string) =>
      service.app.inject({
        method: 'POST',
        url: `${service.workspace}/db/shop:main${url('streamed', query)}`,
        headers: { authorization: `Bearer ${service.key}`, ...NDJSON },
        payload: text,
      })
    expect((await send('')).json()).toMatchObject({
      errors: [{ line: 2, message: 'is not valid UTF-8' }],
    })
    expect((await send('?mode=partial')).json()).toMatchObject({ inserted: 2, failed: 1 })
  })

  it('answers 404 for an unknown table, 400 for an unknown mode', async () => {
    const answer = await call('POST', url('nope'), { body: '{}', headers: NDJSON })
    expect(answer.body.code).toBe('table_not_found')
    expect(
      (await call('POST', url('nope', '?mode=partial'), { body: '{}', headers: NDJSON })).status,
    ).toBe(404)
    expect((await stream('{}', '?mode=most')).status).toBe(400)
  })

  it('with an Idempotency-Key is inserted once', async () => {
    const before = await count('streamed')
    const text = lines({ name: 'a' }, { name: 'b' })
    const first = expectOk(await stream(text, '', { 'idempotency-key': 'n1' }))
    const second = await stream(text, '', { 'idempotency-key': 'n1' })
    expect(second).toMatchObject({ status: 200, body: first.body })
    expect(await count('streamed')).toBe(before + 2)
    const other = await stream(`${text}\n`, '', { 'idempotency-key': 'n1' })
    expect(other).toMatchObject({ status: 422, body: { code: 'idempotency_mismatch' } })
    expect(await count('streamed')).toBe(before + 2)
    const partial = await stream(text, '?mode=partial', { 'idempotency-key': 'n2' })
    expect(partial.status).toBe(400)
    expect(await count('streamed')).toBe(before + 2)
  })

  it('at the same time under one Idempotency-Key is inserted once, also when the ids are given', async () => {
    for (const text of [
      lines({ name: 'a' }),
      lines({ id: 'stream-race', email: 'race@stream.test' }),
    ]) {
      const before = await count('streamed')
      const key = `n3-${before}`
      const answers = await Promise.all(
        Array.from({ length: 6 }, () => stream(text, '', { 'idempotency-key': key })),
      )
      for (const answer of answers)
        expect(answer).toMatchObject({ status: 200, body: { inserted: 1 } })
      expect(await count('streamed')).toBe(before + 1)
    }
  })

  describe('over a real connection', () => {
    let port: number
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 })

    beforeAll(async () => {
      await service.app.listen({ port: 0, host: '127.0.0.1' })
      port = (service.app.server.address() as AddressInfo).port
    })
    afterAll(() => agent.destroy())

    function open(query = ''): http.ClientRequest {
      return http.request({
        port,
        host: '127.0.0.1',
        agent,
        method: 'POST',
        path: `${service.workspace}/db/shop:main${url('streamed', query)}`,
        headers: { authorization: `Bearer ${service.key}`, ...NDJSON },
      })
    }
    async function answerOf(request: http.ClientRequest) {
      const [response] = (await once(request, 'response')) as [http.IncomingMessage]
      let text = ''
      for await (const chunk of response) text += chunk
      return { status: response.statusCode, body: JSON.parse(text) }
    }

    it('goes in while it comes, chunk by chunk', async () => {
      const before = await count('streamed')
      const request = open()
      const bytes = Buffer.from(lines({ name: 'é' }, { name: '𝔘' }, { name: 'x' }))
      for (let at = 0; at < bytes.length; at += 7) {
        request.write(bytes.subarray(at, at + 7))
        await delay(1)
      }
      request.end()
      expect(await answerOf(request)).toEqual({
        status: 200,
        body: { inserted: 3, failed: 0, errors: [] },
      })
      expect(await count('streamed')).toBe(before + 3)
    })

    it.each(['atomic', 'partial'])(
      'leaves nothing behind when the client goes away, %s',
      async (mode) => {
        const before = await count('streamed')
        const request = open(`?mode=${mode}`)
        request.on('error', () => undefined)
        for (let number = 0; number < 200; number++)
          request.write(`{"name":"${'x'.repeat(1000)}"}\n`)
        await delay(50)
        request.destroy()
        await delay(100)
        expect(await count('streamed')).toBe(before)
        expect((await stream('{}')).status).toBe(200)
      },
    )

    it.each([
      ['a taken id', '{"id":"real-taken"}\n', 400, /not unique/],
      ['a line that has no end', 'x'.repeat(7 * 64 * 1024), 413, /is longer than 393216 bytes/],
    ])(
      'is answered as soon as it is refused for %s, and the connection stays',
      async (_name, bad, status, message) => {
        await call('PUT', '/tables/streamed/data/real-taken', { body: {} })
        const before = await count('streamed')
        const request = open()
        request.write(`{"id":"real-taken-not"}\n${bad}`)
        for (let number = 0; number < 400; number++)
          request.write(`{"name":"${'x'.repeat(1000)}"}\n`)
        const answer = answerOf(request)
        await delay(20)
        request.end('{}\n')
        expect(await answer).toMatchObject({ status })
        expect(JSON.stringify((await answer).body)).toMatch(message)
        expect(await count('streamed')).toBe(before)
        const next = open()
        next.end('{}\n')
        expect(await answerOf(next)).toMatchObject({ status: 200 })
        expect(next.reusedSocket).toBe(true)
      },
    )

    it('in partial mode goes on when the branch is forked or edited meanwhile', async () => {
      const before = await count('streamed')
      const request = open('?mode=partial')
      const send = (lines: number, fields: string) => {
        const name = 'n'.repeat(500)
        for (let number = 0; number < lines; number++)
          request.write(`{"name":"${name}"${fields}}\n`)
      }
      // The column does not exist yet, so this line is refused. The records after it are committed in
      // parts of about 2000, and the first part shows that the line was read.
      send(1, ',"later":"a"')
      send(3000, '')
      await until(async () => (await count('streamed')) > before)
      expectOk(await branchCall(service, 'shop', { branch: 'meanwhile' })('PUT', ''))
      send(3000, '')
      const column = { name: 'later', type: 'string' }
      expectOk(await call('POST', '/tables/streamed/columns', { body: column }))
      send(3000, ',"later":"b"')
      request.end()
      const { status, body } = await answerOf(request)
      expect(status).toBe(200)
      const message = 'invalid record: column [later]: column not found'
      expect(body).toEqual({ inserted: 9000, failed: 1, errors: [{ line: 1, message }] })
      expect(await count('streamed')).toBe(before + 9000)
    })
  })
})
