import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import { SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import {
  type BranchCall,
  createTables,
  expectOk,
  GENERATED_ID,
  TIME,
  XATA_CLIENT,
} from '../support/tables.js'
import { takenFields } from '../support/taken.js'
import {
  EMPTY_STATE,
  expectSameAsModel,
  MODEL_TABLES,
  modelOperations,
  recreateTables,
  startOver,
} from '../support/transaction-model.js'

let service: TestService
let call: BranchCall
let model: BranchCall

beforeAll(async () => {
  service = await createTestService()
  call = await createTables(service, 'shop', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'age', type: 'int' },
      { name: 'score', type: 'float' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
      { name: 'settings', type: 'json' },
    ],
    teams: [
      { name: 'name', type: 'string' },
      { name: 'size', type: 'int' },
      { name: 'needed', type: 'string', notNull: true, defaultValue: 'given' },
    ],
    strict: [
      { name: 'must', type: 'string', notNull: true },
      { name: 'may', type: 'string' },
    ],
    files: [
      { name: 'name', type: 'string' },
      { name: 'photo', type: 'file' },
      { name: 'gallery', type: 'file[]' },
    ],
  })
  model = await createTables(service, 'model', MODEL_TABLES)
})
afterAll(() => service.close())

const run = (operations: unknown, options: object = {}): Promise<Answer> =>
  call('POST', '/transaction', { body: { operations }, ...options })
const results = async (operations: unknown) => expectOk(await run(operations)).body.results
const read = async (table: string, id: string) =>
  (await call('GET', `/tables/${table}/data/${id}`)).body
const put = async (table: string, id: string, body: unknown) =>
  expectOk(await call('PUT', `/tables/${table}/data/${id}`, { body }))
const isThere = async (table: string, id: string) =>
  (await call('GET', `/tables/${table}/data/${id}`)).status === 200

function expectFaults(answer: Answer, errors: readonly { index: number; message: string }[]) {
  expect(answer.status).toBe(400)
  const count = errors.length === 1 ? '1 operation' : `${errors.length} operations`
  expect(answer.body).toEqual({
    id: answer.headers['x-request-id'],
    code: 'transaction_failed',
    message: `${count} failed; nothing was applied`,
    errors: errors.map((error) => ({ ...error, ...takenFields(error.message) })),
  })
}

const insert = (table: string, record: object, more: object = {}) => ({
  insert: { table, record, ...more },
})
const update = (table: string, id: string, fields: object, more: object = {}) => ({
  update: { table, id, fields, ...more },
})
const remove = (table: string, id: string, more: object = {}) => ({
  delete: { table, id, ...more },
})
const get = (table: string, id: string, columns?: readonly string[]) => ({
  get: { table, id, columns },
})

describe('results', () => {
  it('come one for each operation, in the order of the request', async () => {
    await put('users', 'old', { name: 'Old' })
    await put('teams', 'old', { name: 'Old' })
    const answer = await run([
      insert('users', { name: 'A' }),
      insert('teams', { id: 'red', name: 'Red' }),
      update('users', 'old', { age: 5 }),
      get('teams', 'red'),
      remove('teams', 'old'),
      get('users', 'missing'),
      remove('users', 'missing'),
      insert('users', { id: 'b', name: 'B' }),
    ])
    expect(answer.status).toBe(200)
    expect(answer.body).toEqual({
      results: [
        { operation: 'insert', rows: 1, id: expect.stringMatching(GENERATED_ID) },
        { operation: 'insert', rows: 1, id: 'red' },
        { operation: 'update', rows: 1, id: 'old' },
        {
          operation: 'get',
          columns: {
            id: 'red',
            service: {
              version: 0,
              createdAt: expect.stringMatching(TIME),
              updatedAt: expect.stringMatching(TIME),
            },
          },
        },
        { operation: 'delete', rows: 1 },
        { operation: 'get', columns: {} },
        { operation: 'delete', rows: 0 },
        { operation: 'insert', rows: 1, id: 'b' },
      ],
    })
    expect(await read('users', answer.body.results[0].id)).toMatchObject({ name: 'A' })
    expect(await read('users', 'old')).toMatchObject({ name: 'Old', age: 5 })
    expect(await isThere('teams', 'old')).toBe(false)
  })

  it('of nothing are none', async () => {
    expect(await run([])).toMatchObject({ status: 200, body: { results: [] } })
  })

  it('hold exactly the columns that are asked for, on every kind of operation', async () => {
    await put('teams', 'blue', { name: 'Blue', size: 3 })
    const [inserted, updated, got, linked, deleted, missing, gone] = await results([
      insert('users', { id: 'x', name: 'X', age: 1, team: 'blue' }, { columns: ['name', 'email'] }),
      update('users', 'x', { age: { $increment: 1 } }, { columns: ['id', 'age'] }),
      get('users', 'x', ['age', 'service.version']),
      get('users', 'x', ['team.name']),
      remove('users', 'x', { columns: ['*'] }),
      remove('users', 'x', { columns: ['name'] }),
      get('users', 'x', ['name']),
    ])
    const metadata = (version: number) => ({
      version,
      createdAt: expect.any(String),
      updatedAt: expect.any(String),
    })
    expect(inserted).toEqual({ operation: 'insert', rows: 1, id: 'x', columns: { name: 'X' } })
    expect(updated).toEqual({ operation: 'update', rows: 1, id: 'x', columns: { id: 'x', age: 2 } })
    expect(got).toEqual({ operation: 'get', columns: { age: 2, service: metadata(1) } })
    expect(linked).toEqual({
      operation: 'get',
      columns: { team: { id: 'blue', name: 'Blue', service: metadata(0) } },
    })
    expect(deleted).toEqual({
      operation: 'delete',
      rows: 1,
      columns: { id: 'x', name: 'X', age: 2, team: { id: 'blue' }, service: metadata(1) },
    })
    expect(missing).toEqual({ operation: 'delete', rows: 0, columns: {} })
    expect(gone).toEqual({ operation: 'get', columns: {} })
  })

  it('have columns where Xata clients look for them', async () => {
    const answer = await run(
      [
        insert('teams', { name: 'T' }),
        insert('teams', { id: 'xata', name: 'T' }),
        insert('teams', { id: 'xata-only', name: 'T' }, { createOnly: true }),
        insert('teams', { id: 'xata-not', name: 'T' }, { createOnly: false }),
        update('teams', 'xata', { size: 1 }),
        update('teams', 'xata', { size: 2 }, { columns: ['size'] }),
        get('teams', 'xata'),
        remove('teams', 'xata'),
        remove('teams', 'xata-only', { columns: ['name'] }),
      ],
      { headers: XATA_CLIENT },
    )
    expect(expectOk(answer).body.results).toEqual([
      { operation: 'insert', rows: 1, id: expect.any(String) },
      { operation: 'insert', rows: 1, id: 'xata', columns: {} },
      { operation: 'insert', rows: 1, id: 'xata-only' },
      { operation: 'insert', rows: 1, id: 'xata-not', columns: {} },
      { operation: 'update', rows: 1, id: 'xata', columns: {} },
      { operation: 'update', rows: 1, id: 'xata', columns: { size: 2 } },
      {
        operation: 'get',
        columns: { id: 'xata', xata: expect.objectContaining({ version: 2 }) },
      },
      { operation: 'delete', rows: 1 },
      { operation: 'delete', rows: 1, columns: { name: 'T' } },
    ])
  })
})

describe('insert', () => {
  it('replaces a record of the same id, keeping its creation time, unless createOnly', async () => {
    await put('users', 'again', { name: 'A', age: 1 })
    const before = await read('users', 'again')
    await results([insert('users', { id: 'again', name: 'B' })])
    expect(await read('users', 'again')).toEqual({
      id: 'again',
      name: 'B',
      service: { ...before.service, version: 1, updatedAt: expect.any(String) },
    })
    const operations = [
      insert('users', { id: 'never', name: 'N' }),
      insert('users', { id: 'again', name: 'C' }, { createOnly: true }),
    ]
    expectFaults(await run(operations), [
      { index: 1, message: 'table [users]: record [again] already exists' },
    ])
    expect(await isThere('users', 'never')).toBe(false)
    expect(await read('users', 'again')).toMatchObject({ name: 'B', service: { version: 1 } })
  })

  it('with ifVersion replaces that version, or creates', async () => {
    await put('users', 'insert-version', { name: 'A' })
    for (const ifVersion of [1, 2_147_483_648, Number.MAX_SAFE_INTEGER]) {
      const refused = [insert('users', { id: 'insert-version', name: 'B' }, { ifVersion })]
      expectFaults(await run(refused), [
        { index: 0, message: 'table [users]: record [insert-version]: version condition not met' },
      ])
    }
    await results([
      insert('users', { id: 'insert-version', name: 'B' }, { ifVersion: 0 }),
      insert('users', { id: 'insert-version-new', name: 'C' }, { ifVersion: 7 }),
    ])
    expect(await read('users', 'insert-version')).toMatchObject({
      name: 'B',
      service: { version: 1 },
    })
    expect(await read('users', 'insert-version-new')).toMatchObject({ service: { version: 0 } })
  })

  it('fills defaults', async () => {
    await results([insert('teams', { id: 'defaults' })])
    expect(await read('teams', 'defaults')).toMatchObject({ needed: 'given' })
  })
})

describe('update', () => {
  it('changes only the fields given', async () => {
    await put('users', 'fields', { name: 'A', age: 1, score: 0.5 })
    await results([update('users', 'fields', { age: null, score: { $multiply: 4 } })])
    expect(await read('users', 'fields')).toEqual({
      id: 'fields',
      name: 'A',
      score: 2,
      service: expect.objectContaining({ version: 1 }),
    })
  })

  it('of a missing record fails the transaction, and with upsert creates it', async () => {
    expectFaults(await run([insert('users', { id: 'none' }), update('users', 'missing', {})]), [
      { index: 1, message: 'table [users]: record [missing] not found' },
    ])
    expect(await isThere('users', 'none')).toBe(false)
    const upserts = [
      update('teams', 'upserted', { name: 'A' }, { upsert: true }),
      update('teams', 'upserted', { size: 1 }, { upsert: true, columns: ['*'] }),
    ]
    const [, second] = await results(upserts)
    expect(second.columns).toMatchObject({
      name: 'A',
      size: 1,
      needed: 'given',
      service: { version: 1 },
    })
  })

  it('with upsert that cannot make a whole record fails only when there is none', async () => {
    await put('strict', 'there', { must: 'x' })
    await results([update('strict', 'there', { may: 'y' }, { upsert: true })])
    expectFaults(await run([update('strict', 'not-there', { may: 'y' }, { upsert: true })]), [
      { index: 0, message: 'table [strict]: column [must]: a value is required' },
    ])
  })

  it('with ifVersion changes only that version, also one made a moment ago', async () => {
    await put('users', 'update-version', { age: 1 })
    for (const ifVersion of [3, 2_147_483_648]) {
      expectFaults(await run([update('users', 'update-version', { age: 2 }, { ifVersion })]), [
        { index: 0, message: 'table [users]: record [update-version]: version condition not met' },
      ])
    }
    await results([
      update('users', 'update-version', { age: 2 }, { ifVersion: 0 }),
      update('users', 'update-version', { age: 3 }, { ifVersion: 1 }),
    ])
    expect(await read('users', 'update-version')).toMatchObject({ age: 3, service: { version: 2 } })
    const operations = [
      update('users', 'update-version', { age: 4 }),
      update('users', 'update-version', { age: 5 }, { ifVersion: 2 }),
    ]
    expectFaults(await run(operations), [
      { index: 1, message: 'table [users]: record [update-version]: version condition not met' },
    ])
    expect(await read('users', 'update-version')).toMatchObject({ age: 3 })
  })

  const WHOLE = `expected a whole number between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`

  it.each<[string, object, object, string]>([
    [
      'a fraction in an int',
      { age: 5 },
      { age: { $divide: 2 } },
      `record [sum]: column [age]: the result of the arithmetic cannot be stored exactly; ${WHOLE}`,
    ],
    [
      'arithmetic on nothing',
      { age: null },
      { age: { $increment: 1 } },
      'record [sum]: column [age]: has no value to calculate with',
    ],
    [
      'an int too large',
      { age: 2 ** 53 - 1 },
      { age: { $increment: 1 } },
      `record [sum]: column [age]: the result of the arithmetic cannot be stored exactly; ${WHOLE}`,
    ],
    [
      'a float too large',
      { score: 1e308 },
      { score: { $multiply: 10 } },
      'the result is out of range',
    ],
  ])('refuses %s and applies nothing', async (_name, before, fields, message) => {
    await put('users', 'sum', before)
    const present = await read('users', 'sum')
    const operations = [update('users', 'sum', { name: 'changed' }), update('users', 'sum', fields)]
    expectFaults(await run(operations), [{ index: 1, message: `table [users]: ${message}` }])
    expect(await read('users', 'sum')).toEqual(present)
  })
})

describe('delete and get', () => {
  it('of missing records do not cancel the transaction', async () => {
    await results([insert('users', { id: 'stays' }), remove('users', 'nope'), get('users', 'nope')])
    expect(await isThere('users', 'stays')).toBe(true)
  })

  it('with failIfMissing cancels it', async () => {
    const operations = [
      insert('users', { id: 'cancelled' }),
      remove('teams', 'nope', { failIfMissing: true }),
    ]
    expectFaults(await run(operations), [{ index: 1, message: 'table [teams]: no rows deleted' }])
    expect(await isThere('users', 'cancelled')).toBe(false)
    await put('teams', 'yes', {})
    expect(await results([remove('teams', 'yes', { failIfMissing: true })])).toEqual([
      { operation: 'delete', rows: 1 },
    ])
    const twice = [remove('users', 'stays'), remove('users', 'stays', { failIfMissing: true })]
    expectFaults(await run(twice), [{ index: 1, message: 'table [users]: no rows deleted' }])
  })
})

describe('order', () => {
  it('is kept on one record: each operation sees what the earlier ones did', async () => {
    const answers = await results([
      get('users', 'life', ['name']),
      insert('users', { id: 'life', name: 'A', age: 1 }),
      update('users', 'life', { age: { $increment: 1 } }),
      get('users', 'life', ['name', 'age', 'service.version']),
      update('users', 'life', { age: { $multiply: 5 } }, { columns: ['age'] }),
      remove('users', 'life', { columns: ['age'] }),
      get('users', 'life', ['name']),
      update('users', 'life', { name: 'B' }, { upsert: true, columns: ['*'] }),
      insert('users', { id: 'life', name: 'C' }),
      get('users', 'life', ['*']),
    ])
    expect(answers.map((result: { columns?: object }) => result.columns)).toMatchObject([
      {},
      undefined,
      undefined,
      { name: 'A', age: 2, service: { version: 1 } },
      { age: 10 },
      { age: 10 },
      {},
      { name: 'B', service: { version: 0 } },
      undefined,
      { name: 'C', service: { version: 1 } },
    ])
  })

  it('is kept where links lead from one record to another', async () => {
    const answers = await results([
      insert('teams', { id: 'seen', name: 'first' }),
      insert('users', { id: 'viewer', team: 'seen' }, { columns: ['team.name'] }),
      update('teams', 'seen', { name: 'second' }),
      get('users', 'viewer', ['team.name']),
      update('teams', 'seen', { name: 'third' }),
      update('users', 'viewer', { age: 1 }, { columns: ['team.name'] }),
      remove('teams', 'seen'),
      get('users', 'viewer', ['age', 'team.name']),
      insert('teams', { id: 'seen', name: 'fourth' }),
      remove('users', 'viewer', { columns: ['team.name'] }),
    ])
    const names = answers.map(
      (result: { columns?: { team?: { name: string } } }) => result.columns?.team?.name,
    )
    expect(names.filter((_: unknown, index: number) => index % 2 === 1)).toEqual([
      'first',
      'second',
      'third',
      undefined,
      'fourth',
    ])
  })

  it('does not matter where unique values move from one record to another', async () => {
    await put('users', 'from', { email: 'moved@order.test' })
    const give = (id: string, email: string | null) => update('users', id, { email })
    await put('users', 'to', {})
    await results([give('to', 'moved@order.test'), give('from', null)])
    await results([give('from', 'moved@order.test'), give('to', null)])
    await results([
      insert('users', { id: 'to', email: 'moved@order.test' }),
      insert('users', { id: 'from', email: 'other@order.test' }),
    ])
    await results([give('from', null), give('to', 'moved@order.test')])
    await results([
      insert('users', { id: 'to', email: 'other@order.test' }),
      insert('users', { id: 'from', email: 'moved@order.test' }),
    ])
    await results([remove('users', 'from'), insert('users', { email: 'moved@order.test' })])
    expect(await read('users', 'to')).toMatchObject({ email: 'other@order.test' })
  })
})

describe('faults that can be seen beforehand', () => {
  it('are all reported together, and nothing is applied', async () => {
    const operations = [
      insert('users', { id: 'good' }),
      insert('nope', { id: 'x' }),
      update('users', 'good', { nope: 1 }),
      remove('users', 'good'),
      get('users', 'good', ['nope']),
      insert('users', { id: 'x', age: 'old' }),
      get('nope', 'x'),
    ]
    expectFaults(await run(operations), [
      { index: 1, message: 'table [nope] not found' },
      { index: 2, message: 'table [users]: column [nope]: column not found' },
      { index: 4, message: 'table [users]: column [nope]: column not found' },
      { index: 5, message: 'table [users]: column [age]: expected a whole number, got a string' },
      { index: 6, message: 'table [nope] not found' },
    ])
    expect(await isThere('users', 'good')).toBe(false)
  })

  it('come before those that only running would find', async () => {
    const operations = [update('users', 'missing', {}), insert('nope', {})]
    expectFaults(await run(operations), [{ index: 1, message: 'table [nope] not found' }])
  })

  it.each<[string, unknown, string]>([
    ['no object', 5, 'expected an object'],
    ['null', null, 'expected an object'],
    ['a list', [], 'expected an object'],
    ['no key', {}, 'expected exactly one of [insert, update, delete, get], got []'],
    [
      'an unknown key',
      { upsert: {} },
      'expected exactly one of [insert, update, delete, get], got [upsert]',
    ],
    [
      'two keys',
      { get: {}, delete: {} },
      'expected exactly one of [insert, update, delete, get], got [get, delete]',
    ],
    ['fields of another type', { get: [] }, 'operation [get]: expected an object'],
    ['no table', { get: { id: 'x' } }, 'operation [get]: field [table]: is required'],
    [
      'a table of another type',
      { get: { table: 5, id: 'x' } },
      'operation [get]: field [table]: must be a string',
    ],
    [
      'no record',
      { insert: { table: 'users' } },
      'operation [insert]: field [record]: is required',
    ],
    [
      'a record that is a list',
      { insert: { table: 'users', record: [] } },
      'operation [insert]: field [record]: must be an object',
    ],
    [
      'no id',
      { update: { table: 'users', fields: {} } },
      'operation [update]: field [id]: is required',
    ],
    [
      'a null id',
      { delete: { table: 'users', id: null } },
      'operation [delete]: field [id]: must be a string or a number',
    ],
    [
      'no fields',
      { update: { table: 'users', id: 'x' } },
      'operation [update]: field [fields]: is required',
    ],
    [
      'an unknown field',
      { get: { table: 'users', id: 'x', where: 1 } },
      'operation [get]: field [where]: is not known',
    ],
    [
      'a field of another operation',
      { delete: { table: 'users', id: 'x', upsert: true } },
      'operation [delete]: field [upsert]: is not known',
    ],
    [
      'a version of another type',
      { update: { table: 'users', id: 'x', fields: {}, ifVersion: '1' } },
      'operation [update]: field [ifVersion]: must be a whole number from 0',
    ],
    [
      'a negative version',
      { update: { table: 'users', id: 'x', fields: {}, ifVersion: -1 } },
      'operation [update]: field [ifVersion]: must be a whole number from 0',
    ],
    [
      'half a version',
      { update: { table: 'users', id: 'x', fields: {}, ifVersion: 0.5 } },
      'operation [update]: field [ifVersion]: must be a whole number from 0',
    ],
    [
      'columns of another type',
      { get: { table: 'users', id: 'x', columns: 'name' } },
      'operation [get]: field [columns]: must be a list of strings',
    ],
    [
      'createOnly of another type',
      { insert: { table: 'users', record: {}, createOnly: 1 } },
      'operation [insert]: field [createOnly]: must be a boolean',
    ],
    [
      'a bad id',
      { get: { table: 'users', id: 'a b' } },
      'table [users]: column [id]: is not a record id: only letters, digits and _ - ~ : ` { | } are allowed',
    ],
    [
      'an empty id',
      { delete: { table: 'users', id: '' } },
      'table [users]: column [id]: is empty; a record id has at least one character',
    ],
    [
      'a bad id in a record',
      { insert: { table: 'users', record: { id: 5 } } },
      'table [users]: column [id]: expected a record id, got a number',
    ],
    [
      'a version without an id',
      { insert: { table: 'users', record: {}, ifVersion: 0 } },
      'table [users]: field [ifVersion]: needs an id',
    ],
    ['a table in other case', { get: { table: 'Users', id: 'x' } }, 'table [Users] not found'],
    [
      'a missing value',
      { insert: { table: 'strict', record: {} } },
      'table [strict]: column [must]: a value is required',
    ],
    [
      'null in a not-null column',
      { update: { table: 'strict', id: 'x', fields: { must: null } } },
      'table [strict]: column [must]: cannot be null',
    ],
    [
      'a file',
      { insert: { table: 'files', record: { photo: { name: 'a.png', base64Content: 'aGk=' } } } },
      'column [photo]: file upload not permitted in transaction',
    ],
    [
      'a list of files',
      { update: { table: 'files', id: 'x', fields: { gallery: [{ base64Content: 'aGk=' }] } } },
      'column [gallery]: file entry [0]: file upload not permitted in transaction',
    ],
    [
      'a division by zero',
      { update: { table: 'users', id: 'x', fields: { age: { $divide: 0 } } } },
      'table [users]: column [age]: cannot be divided by zero',
    ],
    [
      'arithmetic in an insert',
      { insert: { table: 'users', record: { age: { $increment: 1 } } } },
      'table [users]: column [age]: expected a whole number, got an object',
    ],
  ])('are told of %s', async (_name, operation, message) => {
    expectFaults(await run([insert('users', { id: 'untouched' }), operation]), [
      { index: 1, message },
    ])
    expect(await isThere('users', 'untouched')).toBe(false)
  })

  it('let a table with file columns be written apart from those', async () => {
    await results([
      insert('files', { id: 'f', name: 'x', photo: null }),
      update('files', 'f', { name: 'y' }),
    ])
    expect(await read('files', 'f')).toMatchObject({ name: 'y' })
  })
})

describe('faults that only running finds', () => {
  it('end at the first, in the order of the request, whatever the order of the work', async () => {
    await put('users', 'first', { email: 'taken@run.test' })
    const operations = [
      insert('users', { id: 'r1', name: 'x' }),
      insert('teams', { id: 'r2' }),
      update('teams', 'missing-a', { size: 1 }),
      insert('users', { id: 'first' }, { createOnly: true }),
      insert('users', { id: 'r3', email: 'taken@run.test' }),
      update('users', 'missing-b', { age: 1 }),
    ]
    expectFaults(await run(operations), [
      { index: 2, message: 'table [teams]: record [missing-a] not found' },
    ])
    for (const [table, id] of [
      ['users', 'r1'],
      ['teams', 'r2'],
      ['users', 'r3'],
    ] as const) {
      expect(await isThere(table, id)).toBe(false)
    }
    expect(await read('users', 'first')).toMatchObject({ email: 'taken@run.test' })
  })

  it('name the unique column', async () => {
    await put('users', 'holder', { email: 'unique@run.test' })
    const message = 'table [users]: column [email]: is not unique'
    const email = 'unique@run.test'
    expectFaults(await run([insert('users', { email })]), [{ index: 0, message }])
    expectFaults(await run([insert('users', { id: 'n' }), update('users', 'n', { email })]), [
      { index: 1, message },
    ])
    expectFaults(await run([update('users', 'n', { email }, { upsert: true })]), [
      { index: 0, message },
    ])
    const twice = [
      insert('users', { email: 'a@run.test' }),
      insert('users', { email: 'a@run.test' }),
    ]
    expectFaults(await run(twice), [{ index: 1, message }])
    expect(await isThere('users', 'n')).toBe(false)
  })
})

describe('the request', () => {
  it('may hold 1000 operations and not 1001', async () => {
    const many = (count: number) =>
      Array.from({ length: count }, (_, number) =>
        insert('teams', { id: `m${number}`, size: number }),
      )
    expect(await results(many(1000))).toHaveLength(1000)
    expect(await read('teams', 'm999')).toMatchObject({ size: 999 })
    const answer = await run([...many(1000), get('teams', 'm0')])
    expect(answer.status).toBe(400)
    expect(answer.body).toMatchObject({
      message: 'a transaction can have at most 1000 operations, got 1001',
      code: 'invalid_request',
    })
    expect(await read('teams', 'm0')).toMatchObject({ service: { version: 0 } })
  })

  it('may hold 1000 operations on one record', async () => {
    await put('users', 'busy', { age: 0 })
    const operations = Array.from({ length: 1000 }, () =>
      update('users', 'busy', { age: { $increment: 1 } }),
    )
    expect(await results(operations)).toHaveLength(1000)
    expect(await read('users', 'busy')).toMatchObject({ age: 1000, service: { version: 1000 } })
  })

  it.each<[string, unknown, string | RegExp]>([
    ['no body', undefined, /^body: /],
    ['no operations', {}, 'body: field [operations]: is required'],
    [
      'operations that are no list',
      { operations: {} },
      'body: field [operations]: must be of type array',
    ],
    ['an unknown field', { operations: [], dryRun: true }, 'body: field [dryRun]: is not known'],
    ['broken JSON', '{"operations":[', /^body: is not valid JSON/],
  ])('is refused with %s', async (_name, body, message) => {
    const answer = await call('POST', '/transaction', { body })
    expect(answer.status).toBe(400)
    if (typeof message === 'string') expect(answer.body.message).toBe(message)
    else expect(answer.body.message).toMatch(message)
  })

  it('is refused when it is nested deeper than anyone can mean, with and without a key', async () => {
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`
    for (const headers of [{}, { 'idempotency-key': 'deep' }] as Record<string, string>[]) {
      const body = `{"operations":[{"insert":{"table":"users","record":{"settings":${deep}}}}]}`
      const answer = await call('POST', '/transaction', { body, headers })
      expect(answer.status).toBe(400)
    }
  })

  it('answers 404 for an unknown branch, also when it holds nothing', async () => {
    const url = `${service.workspace}/db/shop:nope/transaction`
    for (const operations of [[], [get('users', 'x')]]) {
      const answer = await service.call('POST', url, { body: { operations } })
      expect(answer).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
    }
  })

  it('of a key that can only read may hold gets alone', async () => {
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    await put('users', 'scoped', { name: 'A' })
    const allowed = await run([get('users', 'scoped', ['name'])], { key })
    expect(allowed.body.results).toEqual([{ operation: 'get', columns: { name: 'A' } }])
    for (const operation of [
      insert('users', {}),
      update('users', 'scoped', {}),
      remove('users', 'scoped'),
      { get: { table: 'users', id: 'scoped' }, delete: { table: 'users', id: 'scoped' } },
    ]) {
      const answer = await run([get('users', 'scoped'), operation], { key })
      expect(answer.status).toBe('get' in operation ? 400 : 403)
    }
    expect(await read('users', 'scoped')).toMatchObject({ name: 'A', service: { version: 0 } })
  })
})

describe('Idempotency-Key', () => {
  const keyed = (operations: unknown, key: string, more: object = {}) =>
    run(operations, { headers: { 'idempotency-key': key }, ...more })

  it('gives a repeated transaction the same answer and applies it once', async () => {
    await put('users', 'repeated', { age: 0 })
    const operations = [
      update('users', 'repeated', { age: { $increment: 1 } }, { columns: ['*'] }),
      insert('users', { name: 'once' }),
    ]
    const first = expectOk(await keyed(operations, 'k1'))
    const second = await keyed(operations, 'k1')
    expect(second.body).toEqual(first.body)
    expect(await read('users', 'repeated')).toMatchObject({ age: 1 })
    expect((await keyed(operations, 'k2')).body).not.toEqual(first.body)
  })

  it('refuses another transaction under the same key with 422', async () => {
    expectOk(await keyed([insert('teams', { id: 'k' })], 'k3'))
    const answer = await keyed([insert('teams', { id: 'other' })], 'k3')
    expect(answer).toMatchObject({ status: 422, body: { code: 'idempotency_mismatch' } })
    expect(await isThere('teams', 'other')).toBe(false)
  })

  it('keeps nothing of a transaction that failed', async () => {
    const operations = [update('users', 'later', { age: 1 })]
    expect((await keyed(operations, 'k4')).status).toBe(400)
    await put('users', 'later', {})
    expect((await keyed(operations, 'k4')).status).toBe(200)
  })

  it('lets transactions at the same time execute once, also when they would collide', async () => {
    await put('users', 'race', { age: 0 })
    const operations = [
      update('users', 'race', { age: { $increment: 1 } }),
      insert('users', { id: 'race-new', email: 'race@idem.test' }, { createOnly: true }),
    ]
    const answers = await Promise.all(Array.from({ length: 8 }, () => keyed(operations, 'k5')))
    for (const answer of answers)
      expect(answer).toMatchObject({ status: 200, body: answers[0]?.body })
    expect(await read('users', 'race')).toMatchObject({ age: 1, service: { version: 1 } })
  })

  it.each(['', 'x'.repeat(256)])('refuses a key of %j with 400', async (key) => {
    const answer = await keyed([insert('teams', { id: 'bad-key' })], key)
    expect(answer.status).toBe(400)
    expect(await isThere('teams', 'bad-key')).toBe(false)
  })
})

describe('random transactions', () => {
  it(
    'do the same as one operation after the other would',
    async () => {
      let state = EMPTY_STATE
      await fc.assert(
        fc.asyncProperty(modelOperations, async (operations) => {
          state = await startOver(model, state)
          try {
            state = await expectSameAsModel(model, state, operations)
          } catch (error) {
            await recreateTables(model)
            state = EMPTY_STATE
            throw error
          }
        }),
        { numRuns: STEPS, seed: SEED },
      )
    },
    STEPS_TIMEOUT_MS,
  )
})
