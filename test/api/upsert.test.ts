import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { UPSERT_REPEATS_MAX } from '../../packages/server/src/data/records/upsert-rows.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { createKey } from '../support/people.js'
import {
  type Answer,
  type CallOptions,
  createTestService,
  type TestService,
} from '../support/service.js'
import {
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
  GENERATED_ID,
} from '../support/tables.js'

const LIMITS = { bulkRecordsMax: 3000 }

let service: TestService
let main: BranchCall
let fork: BranchCall
let databases = 0

beforeAll(async () => {
  service = await createTestService({ limits: LIMITS })
})
afterAll(() => service.close())

const ADA = { id: 'ada', code: 'A', name: 'Ada', age: 36 }
const BOB = { id: 'bob', code: 'B', name: 'Bob', age: 17 }

beforeEach(async () => {
  const database = `upsert${++databases}`
  main = await createTables(service, database, {
    users: [
      { name: 'code', type: 'string', unique: true },
      { name: 'email', type: 'email', unique: true },
      { name: 'name', type: 'string', notNull: true },
      { name: 'age', type: 'int', defaultValue: '1' },
      { name: 'tags', type: 'multiple' },
      { name: 'notes', type: 'json' },
      { name: 'home', type: 'object', columns: [{ name: 'city', type: 'string' }] },
      { name: 'photo', type: 'file' },
    ],
  })
  expectOk(await main('POST', '/tables/users/bulk', { body: { records: [ADA, BOB] } }))
  fork = branchCall(service, database, { branch: 'fork' })
  expectOk(await fork('PUT', '', { body: { from: 'main' } }))
})

const upsert = (call: BranchCall, records: unknown, by?: string, options: CallOptions = {}) =>
  call('POST', '/tables/users/upsert', { body: { records, by }, ...options })
const stream = (call: BranchCall, lines: readonly string[], query = '') =>
  call('POST', `/tables/users/upsert${query}`, {
    body: lines.join('\n'),
    headers: { 'content-type': 'application/x-ndjson' },
  })
const read = async (call: BranchCall, id: string) => {
  const { service: metadata, ...record } = (await call('GET', `/tables/users/data/${id}`)).body
  return { ...record, version: metadata?.version }
}
function outcomes(answer: Answer): string[] {
  return expectOk(answer).body.results.map(
    ({ id, outcome, error }: { id: string; outcome: string; error?: { message: string } }) =>
      [id, outcome, ...(error === undefined ? [] : [error.message])].join(' '),
  )
}

describe('an upsert', () => {
  it('inserts new records, updates the given fields of others, and leaves equal ones', async () => {
    for (const call of [main, fork]) {
      const records = [
        { id: 'ada', name: 'Ada L.' },
        { id: 'bob', name: 'Bob', age: 17 },
        { id: 'cyd', name: 'Cyd', tags: ['x'], home: { city: 'Bern' } },
        { name: 'Dan' },
      ]
      const answer = await upsert(call, records)
      expect(expectOk(answer).body.results).toEqual([
        { id: 'ada', outcome: 'updated' },
        { id: 'bob', outcome: 'unchanged' },
        { id: 'cyd', outcome: 'inserted' },
        { id: expect.stringMatching(GENERATED_ID), outcome: 'inserted' },
      ])
      expect(await read(call, 'ada')).toEqual({ ...ADA, name: 'Ada L.', version: 1 })
      expect(await read(call, 'bob')).toEqual({ ...BOB, version: 0 })
      expect(await read(call, 'cyd')).toEqual({
        id: 'cyd',
        name: 'Cyd',
        age: 1,
        tags: ['x'],
        home: { city: 'Bern' },
        version: 0,
      })
    }
    expect(await read(main, 'ada')).toEqual({ ...ADA, name: 'Ada L.', version: 1 })
  })

  it('compares values of every type', async () => {
    const record = {
      id: 'eve',
      name: 'Eve',
      tags: ['x', 'y'],
      notes: { a: [1, null] },
      home: { city: 'Bern' },
      email: null,
    }
    for (const call of [main, fork]) {
      expect(outcomes(await upsert(call, [record]))).toEqual(['eve inserted'])
      expect(outcomes(await upsert(call, [record]))).toEqual(['eve unchanged'])
      expect(outcomes(await upsert(call, [{ id: 'eve' }]))).toEqual(['eve unchanged'])
      for (const change of [{ tags: ['y', 'x'] }, { notes: {} }, { home: null }, { age: null }]) {
        expect(outcomes(await upsert(call, [{ ...record, ...change }]))).toEqual(['eve updated'])
      }
    }
  })

  it('finds records by a unique column', async () => {
    for (const call of [main, fork]) {
      const records = [
        { code: 'A', age: 37 },
        { code: 'C', name: 'Cyd' },
        { code: 'B', id: 'other', age: 1 },
        { id: 'ada', code: 'D', name: 'Dan' },
        { name: 'nameless' },
        { code: 'E' },
      ]
      expect(outcomes(await upsert(call, records, 'code'))).toEqual([
        'ada updated',
        expect.stringMatching(/^rec_\S+ inserted$/),
        'other failed invalid record: column [code]: the record with this value has the id [bob]',
        'ada failed invalid record: column [id]: is not unique',
        ' failed invalid record: column [code]: a value is required to find the record',
        expect.stringMatching(/failed invalid record: column \[name\]: a value is required$/),
      ])
      expect(await read(call, 'ada')).toEqual({ ...ADA, age: 37, version: 1 })
    }
  })

  it('applies a record that is given twice in order', async () => {
    for (const call of [main, fork]) {
      const records = [
        { id: 'cyd', name: 'One' },
        { id: 'cyd', name: 'Two', age: 2 },
        { id: 'cyd', age: 2 },
      ]
      expect(outcomes(await upsert(call, records))).toEqual([
        'cyd inserted',
        'cyd updated',
        'cyd unchanged',
      ])
      expect(await read(call, 'cyd')).toEqual({ id: 'cyd', name: 'Two', age: 2, version: 1 })
      const coded = [
        { code: 'Z', name: 'One' },
        { code: 'Z', name: 'Two' },
      ]
      const { results } = expectOk(await upsert(call, coded, 'code')).body
      expect(results).toMatchObject([{ outcome: 'inserted' }, { outcome: 'updated' }])
      expect(results[0].id).toBe(results[1].id)
    }
    const many = Array.from({ length: UPSERT_REPEATS_MAX + 1 }, (_, age) => ({ id: 'ada', age }))
    expect(outcomes(await upsert(main, many)).slice(-2)).toEqual([
      'ada updated',
      `ada failed the request has the record more than ${UPSERT_REPEATS_MAX} times`,
    ])
  })

  it('refuses taken values and invalid records, and writes the others', async () => {
    for (const call of [main, fork]) {
      const records = [
        { id: 'ada', code: 'B' },
        { id: 'cyd', name: 'Cyd', code: 'A' },
        { id: 'dan', name: 'Dan', code: 'D' },
        { id: 'eve', name: 'Eve', code: 'D' },
        { id: 'fay', name: 'Fay', age: 'old' },
        { id: 'gus' },
        { id: 'not an id', name: 'Hal' },
        { id: 'bob', photo: { base64Content: 'eA==' } },
        { id: 'bob', age: { $increment: 1 } },
        7,
        { id: 'ivy', name: 'Ivy' },
      ]
      expect(outcomes(await upsert(call, records))).toEqual([
        'ada failed invalid record: column [code]: is not unique',
        'cyd failed invalid record: column [code]: is not unique',
        'dan inserted',
        'eve failed invalid record: column [code]: is not unique',
        'fay failed invalid record: column [age]: expected a whole number, got a string',
        'gus failed invalid record: column [name]: a value is required',
        expect.stringMatching(/^not an id failed invalid record: column \[id\]/),
        expect.stringMatching(/^bob failed invalid record: column \[photo\]: a file cannot/),
        expect.stringMatching(/^bob failed invalid record: column \[age\]: expected a whole/),
        ' failed invalid record: expected an object',
        'ivy inserted',
      ])
      const [taken] = expectOk(await upsert(call, [{ id: 'ada', code: 'B' }])).body.results
      expect(taken.error).toMatchObject({
        code: 'unique_violation',
        table: 'users',
        column: 'code',
      })
    }
  })

  it('can move a unique value to a later record', async () => {
    for (const call of [main, fork]) {
      const records = [
        { id: 'ada', code: 'X' },
        { id: 'bob', code: 'A' },
      ]
      expect(outcomes(await upsert(call, records))).toEqual(['ada updated', 'bob updated'])
    }
  })

  it('refuses all further records with a taken value, however many there are', async () => {
    const records = Array.from({ length: UPSERT_REPEATS_MAX + 20 }, (_, index) => ({
      id: `same${index}`,
      name: 'Same',
      code: 'S',
    }))
    const results = outcomes(await upsert(main, records))
    expect(results[0]).toBe('same0 inserted')
    const other = results.slice(1).filter((text) => !text.endsWith('column [code]: is not unique'))
    expect(other).toEqual([])
  })

  it('writes a record after another one that gives up values of a constraint', async () => {
    const constraint = { unique: ['name', 'age'] }
    for (const call of [main, fork]) {
      expectOk(await call('PUT', '/tables/users/constraints/held', { body: constraint }))
      const records = [
        { id: 'cyd', name: 'One', age: 1 },
        // Refused whatever the order is, so that the records are not written together.
        { id: 'dan', name: 'Ada', age: 36 },
        { id: 'cyd', name: 'One', age: 2 },
        { id: 'eve', name: 'One', age: 1 },
      ]
      expect(outcomes(await upsert(call, records))).toEqual([
        'cyd inserted',
        expect.stringMatching(/^dan failed .* the values are not unique$/),
        'cyd updated',
        'eve inserted',
      ])
    }
  })

  it('reports a value that PostgreSQL refuses for its record alone', async () => {
    const [heap] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select h.id, h.database_id as "databaseId"
      from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${`upsert${databases}`}`)
    await service.database.query(sql`
      update ${ident(`offshoot_db_${heap?.databaseId}`)}.${ident(`heap_${heap?.id}`)}
      set version = 2147483647 where id = 'bob'`)
    const records = [
      { id: 'ada', age: 1 },
      { id: 'bob', age: 1 },
      { id: 'cyd', age: 1, name: 'Cyd' },
      { id: 'dan', age: 1, name: 'Dan' },
    ]
    expect(outcomes(await upsert(main, records))).toEqual([
      'ada updated',
      expect.stringMatching(/^bob failed invalid record: the versions of the record are used up/),
      'cyd inserted',
      'dan inserted',
    ])
  })

  it('judges each of many new records by itself', async () => {
    for (const call of [main, fork]) {
      const rules = { once: { unique: ['name', 'age'] }, grown: { check: 'age > 0' } }
      for (const [name, body] of Object.entries(rules)) {
        expectOk(await call('PUT', `/tables/users/constraints/${name}`, { body }))
      }
      const records: object[] = Array.from({ length: 1200 }, (_, n) => ({
        ...{ id: `r${n}`, name: `N${n}`, code: `C${n}`, age: 1 + n },
      }))
      records[100] = { id: 'r100', name: 'Bob', age: 17 }
      records[200] = { id: 'r200', name: 'Zero', age: 0 }
      records[300] = { id: 'r300', name: 'Code', code: 'A' }
      records[400] = { id: 'r399', age: 7 }
      records[500] = { id: 'r500', age: 7 }
      records[600] = { id: 'ada', age: 7 }
      records[1100] = { id: 'r1100', name: 'N1', age: 2 }
      const others = outcomes(await upsert(call, records)).flatMap((text, n) =>
        text === `r${n} inserted` ? [] : text,
      )
      const once = 'constraint [once]: columns [name, age]: the values are not unique'
      expect(others).toEqual([
        `r100 failed invalid record: ${once}`,
        'r200 failed invalid record: constraint [grown]: column [age]: the check fails',
        'r300 failed invalid record: column [code]: is not unique',
        'r399 updated',
        'r500 failed invalid record: column [name]: a value is required',
        'ada updated',
        `r1100 failed invalid record: ${once}`,
      ])
      const more = [...records.slice(700, 1000), { id: 'last', name: 'Last' }]
      const unchanged = records.slice(700, 1000).map((_, n) => `r${700 + n} unchanged`)
      expect(outcomes(await upsert(call, more))).toEqual([...unchanged, 'last inserted'])
    }
  })

  it('needs a body of records and a unique column', async () => {
    const refuse = async (body: unknown, message: string) => {
      const answer = await main('POST', '/tables/users/upsert', { body })
      expect(answer.body.message).toContain(message)
      expect(answer.status).toBe(400)
    }
    await refuse({}, 'body: field [records]: expected a list')
    await refuse([], 'body: must be of type object')
    await refuse({ records: [], by: 7 }, 'body: field [by]')
    await refuse({ records: [], other: 1 }, 'body: field [other]: is not known')
    await refuse({ records: [], by: 'name' }, 'column [name]: is not unique')
    await refuse({ records: [], by: 'nope' }, 'column [nope]: column not found')
    const many = Array.from({ length: LIMITS.bulkRecordsMax + 1 }, () => ({}))
    await refuse({ records: many }, `must have at most ${LIMITS.bulkRecordsMax} items`)
    expect(outcomes(await upsert(main, []))).toEqual([])
    const missing = await main('POST', '/tables/nope/upsert', { body: { records: [] } })
    expect(missing.status).toBe(404)
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    expect((await upsert(main, [], undefined, { key })).status).toBe(403)
  })

  it('is executed once for an idempotency key', async () => {
    const headers = { 'idempotency-key': 'upsert' }
    const records = [{ id: 'ada', age: 40 }, { name: 'New' }]
    const first = expectOk(await upsert(main, records, undefined, { headers })).body
    expect(expectOk(await upsert(main, records, undefined, { headers })).body).toEqual(first)
    expect(await read(main, 'ada')).toMatchObject({ age: 40, version: 1 })
    expect((await upsert(main, [], undefined, { headers })).status).toBe(422)
  })
})

describe('a stream of upserts', () => {
  it('counts the outcomes, and reports the lines that were refused', async () => {
    for (const call of [main, fork]) {
      const lines = [
        '{"code": "A", "age": 50}',
        '{"code": "B", "name": "Bob"}',
        '',
        'not json',
        '{"code": "C"}',
        ...Array.from({ length: 5000 }, (_, n) => JSON.stringify({ code: `n${n}`, name: 'N' })),
        '{"code": "n0", "name": "M"}',
      ]
      const answer = expectOk(await stream(call, lines, '?by=code')).body
      expect(answer).toMatchObject({ inserted: 5000, updated: 2, unchanged: 1, failed: 2 })
      expect(answer.errors.map(({ line }: { line: number }) => line)).toEqual([4, 5])
    }
  })

  it('answers with the outcome of each line, unless there are more than a body may have', async () => {
    const lines = ['{"code": "A", "age": 50}', '', 'not json', '{"code": "B", "name": "Bob"}']
    const answer = await stream(fork, [...lines, '{"id": "new", "code": "C"}'], '?by=code')
    expect(outcomes(answer)).toEqual([
      'ada updated',
      expect.stringMatching(/^ failed is not valid JSON/),
      'bob unchanged',
      'new failed invalid record: column [name]: a value is required',
    ])
    const ids = Array.from({ length: LIMITS.bulkRecordsMax }, (_, n) => `{"id": "r${n}"}`)
    const all = expectOk(await stream(main, ids)).body
    expect(all.results).toHaveLength(LIMITS.bulkRecordsMax)
    const more = expectOk(await stream(main, [...ids, '{}'])).body
    expect(more).toMatchObject({ failed: LIMITS.bulkRecordsMax + 1 })
    expect(more).not.toHaveProperty('results')
  })

  it('refuses an idempotency key, and a column that is not unique', async () => {
    const keyed = await main('POST', '/tables/users/upsert', {
      body: '{}',
      headers: { 'content-type': 'application/x-ndjson', 'idempotency-key': 'x' },
    })
    expect(keyed.status).toBe(400)
    expect(keyed.body.message).toContain('cannot be repeated as a whole')
    expect((await stream(main, ['{}'], '?by=name')).status).toBe(400)
    expect(expectOk(await stream(main, [])).body).toEqual({
      ...{ results: [], inserted: 0, updated: 0, unchanged: 0, failed: 0, errors: [] },
    })
  })
})
