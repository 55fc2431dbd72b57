import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let call: BranchCall
beforeAll(async () => {
  service = await createTestService()
  call = await createTables(service, 'shop', {
    users: [
      { name: 'email', type: 'string', notNull: true },
      { name: 'age', type: 'int' },
    ],
  })
  expectOk(await call('PUT', '/tables/users/data/one', { body: { email: 'a@example.com' } }))
})
afterAll(() => service.close())

const EMAIL = { code: 'not_null_violation', table: 'users', column: 'email' }
const send = (method: string, path: string, body?: unknown) => call(method, path, { body })

describe('a missing value of a column that must have one', () => {
  it.each([
    ['an insert', 'POST', '/tables/users/data', {}, 'a value is required'],
    ['a replacement', 'PUT', '/tables/users/data/one', { age: 1 }, 'a value is required'],
    ['an update', 'PATCH', '/tables/users/data/one', { email: null }, 'cannot be null'],
    ['an upsert', 'POST', '/tables/users/data/two', { age: 1 }, 'a value is required'],
    ['a set', 'PATCH', '/tables/users/data', { all: true, set: { email: null } }, 'cannot be null'],
  ])(
    'has an error code of its own, and says where it is: %s',
    async (_, method, path, body, text) => {
      const answer = await send(method, path, body)
      expect(answer.status).toBe(400)
      expect(answer.body).toEqual({
        id: expect.any(String),
        message: `invalid record: column [email]: ${text}`,
        ...EMAIL,
      })
    },
  )

  it('is named for each record of a bulk insert, and is its code if there is no other fault', async () => {
    const records = [{ email: 'b@example.com' }, {}, { age: 'x' }]
    const answer = await send('POST', '/tables/users/bulk', { records })
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_record' } })
    expect(answer.body.errors).toEqual([
      { index: 1, status: 400, message: expect.stringContaining('[email]'), ...EMAIL },
      { index: 2, status: 400, message: expect.stringContaining('[age]') },
    ])
    const alone = await send('POST', '/tables/users/bulk', { records: [{}, { email: null }] })
    expect(alone).toMatchObject({ status: 400, body: { code: 'not_null_violation' } })
    expect(alone.body.errors).toMatchObject([EMAIL, EMAIL])
  })

  it.each(['', '?mode=partial'])('is named for a line of a stream%s', async (mode) => {
    const answer = await call('POST', `/tables/users/bulk${mode}`, {
      body: '{"age": 1}\n',
      headers: { 'content-type': 'application/x-ndjson' },
    })
    expect(answer.body.errors).toEqual([expect.objectContaining({ line: 1, ...EMAIL })])
  })

  it('is named for a record of a bulk upsert', async () => {
    const { body } = await send('POST', '/tables/users/upsert', { records: [{ id: 'x', age: 1 }] })
    expect(body.results).toMatchObject([{ outcome: 'failed', error: EMAIL }])
  })

  it('is named for an operation of a transaction', async () => {
    const operations = [
      { insert: { table: 'users', record: {} } },
      { update: { table: 'users', id: 'one', fields: { email: null } } },
    ]
    const answer = await send('POST', '/transaction', { operations })
    expect(answer).toMatchObject({ status: 400, body: { code: 'transaction_failed' } })
    expect(answer.body.errors).toMatchObject([
      { index: 0, ...EMAIL },
      { index: 1, ...EMAIL },
    ])
    const upsert = { table: 'users', id: 'none', fields: { age: 1 }, upsert: true }
    const found = await send('POST', '/transaction', { operations: [{ update: upsert }] })
    expect(found.body.errors).toMatchObject([{ index: 0, ...EMAIL }])
  })

  it.each(['insert into users (age) values (1)', 'update users set email = null'])(
    'is named for SQL: %s',
    async (statement) => {
      expect(await send('POST', '/sql', { statement })).toMatchObject({ status: 400, body: EMAIL })
    },
  )
})
