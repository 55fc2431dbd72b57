import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let call: BranchCall
beforeAll(async () => {
  service = await createTestService()
  call = await createTables(service, 'shop', {
    users: [{ name: 'email', type: 'string', unique: true }],
  })
  expectOk(await call('PUT', '/tables/users/data/one', { body: { email: 'a@example.com' } }))
})
afterAll(() => service.close())

const EMAIL = { code: 'unique_violation', table: 'users', column: 'email' }
const ID = { ...EMAIL, column: 'id' }
const send = (method: string, path: string, body?: unknown) => call(method, path, { body })

describe('a value of a unique column that is taken', () => {
  it.each([
    ['an insert', 'POST', '/tables/users/data', { email: 'a@example.com' }, EMAIL],
    ['an insert with an id that exists', 'POST', '/tables/users/data', { id: 'one' }, ID],
    ['a replacement', 'PUT', '/tables/users/data/two', { email: 'a@example.com' }, EMAIL],
    ['an upsert', 'POST', '/tables/users/data/two', { email: 'a@example.com' }, EMAIL],
  ])(
    'has an error code of its own, and says where it is: %s',
    async (_, method, path, body, at) => {
      const answer = await send(method, path, body)
      expect(answer.status).toBe(400)
      expect(answer.body).toEqual({
        id: expect.any(String),
        message: `invalid record: column [${at.column}]: is not unique`,
        ...at,
      })
    },
  )

  it('is named for an update', async () => {
    expectOk(await send('PUT', '/tables/users/data/free', { email: 'free@example.com' }))
    const answer = await send('PATCH', '/tables/users/data/free', { email: 'a@example.com' })
    expect(answer).toMatchObject({ status: 400, body: EMAIL })
  })

  it('is named for each record of a bulk insert', async () => {
    const records = [{ email: 'a@example.com' }, { email: 'b@example.com' }, { id: 'one' }]
    const answer = await send('POST', '/tables/users/bulk', { records })
    expect(answer).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
    expect(answer.body.errors).toEqual([
      { index: 0, status: 400, message: expect.stringContaining('[email]'), ...EMAIL },
      { index: 2, status: 400, message: expect.stringContaining('[id]'), ...ID },
    ])
  })

  it('is not the code of a bulk insert that has other faults', async () => {
    const records = [{ email: 7 }, { email: 'a@example.com' }]
    const answer = await send('POST', '/tables/users/bulk', { records })
    expect(answer.body.code).toBe('invalid_record')
  })

  it('is named for the operation of a transaction', async () => {
    const insert = { table: 'users', record: { email: 'a@example.com' } }
    const answer = await send('POST', '/transaction', {
      operations: [{ get: { table: 'users', id: 'one' } }, { insert }],
    })
    expect(answer).toMatchObject({ status: 400, body: { code: 'transaction_failed' } })
    expect(answer.body.errors).toEqual([
      { index: 1, message: 'table [users]: column [email]: is not unique', ...EMAIL },
    ])
    const again = { table: 'users', record: { id: 'one' }, createOnly: true }
    const exists = await send('POST', '/transaction', { operations: [{ insert: again }] })
    expect(exists.body.errors).toEqual([
      { index: 0, message: 'table [users]: record [one] already exists', ...ID },
    ])
  })

  it.each(['', '?mode=partial'])('is named for each line of a stream%s', async (mode) => {
    const answer = await call('POST', `/tables/users/bulk${mode}`, {
      body: '{"email":"a@example.com"}\n',
      headers: { 'content-type': 'application/x-ndjson' },
    })
    expect(answer.body.errors).toEqual([expect.objectContaining({ line: 1, ...EMAIL })])
    if (mode === '') expect(answer).toMatchObject({ status: 400, body: { code: EMAIL.code } })
  })

  it('is named for SQL', async () => {
    for (const statement of [
      "insert into users (email) values ('a@example.com')",
      "update users set email = 'a@example.com' where id = 'free'",
    ]) {
      const answer = await send('POST', '/sql', { statement })
      expect([statement, answer]).toMatchObject([statement, { status: 400, body: EMAIL }])
      expect(answer.body.message).toBe('invalid SQL: table [users]: column [email]: is not unique')
    }
    const statement = "insert into users (id) values ('one')"
    expect(await send('POST', '/sql', { statement })).toMatchObject({ status: 400, body: ID })
  })
})
