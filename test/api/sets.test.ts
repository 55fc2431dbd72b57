import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createKey } from '../support/people.js'
import {
  type Answer,
  type CallOptions,
  createTestService,
  type TestService,
} from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let main: BranchCall
let databases = 0
let forks = 0
let database = ''

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const RECORDS = [
  { id: 'ada', name: 'Ada', email: 'ada@example.com', age: 36, score: 1, team: 'core' },
  { id: 'bob', name: 'Bob', email: 'bob@example.com', age: 17, score: 2, team: 'core' },
  { id: 'cyd', name: 'Cyd', email: 'cyd@example.com', age: 52, score: 3, team: 'edge' },
  { id: 'dan', name: 'Dan', email: 'dan@example.com' },
]

beforeEach(async () => {
  database = `sets${++databases}`
  main = await createTables(service, database, {
    teams: [{ name: 'name', type: 'string' }],
    users: [
      { name: 'name', type: 'string', notNull: true, defaultValue: 'nobody' },
      { name: 'email', type: 'email', unique: true },
      { name: 'number', type: 'int', unique: true },
      { name: 'age', type: 'int' },
      { name: 'score', type: 'float' },
      { name: 'tags', type: 'multiple' },
      { name: 'photo', type: 'file' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
    ],
    empty: [{ name: 'name', type: 'string' }],
  })
  const teams = [
    { id: 'core', name: 'Core' },
    { id: 'edge', name: 'Edge' },
  ]
  expectOk(await main('POST', '/tables/teams/bulk', { body: { records: teams } }))
  expectOk(await main('POST', '/tables/users/bulk', { body: { records: RECORDS } }))
})

const update = (call: BranchCall, body: unknown, options: CallOptions = {}) =>
  call('PATCH', '/tables/users/data', { body, ...options })
const remove = (call: BranchCall, body: unknown, options: CallOptions = {}) =>
  call('DELETE', '/tables/users/data', { body, ...options })
const read = async (call: BranchCall, id: string) =>
  (await call('GET', `/tables/users/data/${id}`)).body
async function fork(from = 'main'): Promise<{ name: string; call: BranchCall }> {
  const name = `fork${++forks}`
  const call = branchCall(service, database, { branch: name })
  expectOk(await call('PUT', '', { body: { from } }))
  return { name, call }
}
async function list(call: BranchCall, columns = ['name']) {
  const body = { columns, sort: [{ id: 'asc' }] }
  const { records } = expectOk(await call('POST', '/tables/users/query', { body })).body
  return records.map(({ service, ...record }: { service: { version: number } }) => ({
    ...record,
    version: service.version,
  }))
}
function expectAnswer(answer: Answer, body: unknown) {
  expect(answer.body).toEqual(body)
  expect(answer.status).toBe(200)
}
function expectRefused(answer: Answer, status: number, message: string) {
  expect(answer.body.message).toContain(message)
  expect(answer.status).toBe(status)
}

describe('an update of a set', () => {
  it('changes the records that meet the filter, and their versions', async () => {
    expectAnswer(await update(main, { filter: { age: { $ge: 18 } }, set: { name: 'Adult' } }), {
      updated: 2,
    })
    expect(await list(main)).toEqual([
      { id: 'ada', name: 'Adult', version: 1 },
      { id: 'bob', name: 'Bob', version: 0 },
      { id: 'cyd', name: 'Adult', version: 1 },
      { id: 'dan', name: 'Dan', version: 0 },
    ])
    const { createdAt, updatedAt } = (await read(main, 'ada')).service
    expect(updatedAt > createdAt).toBe(true)
  })

  it('changes all records with [all], and can clear a column', async () => {
    expectAnswer(await update(main, { all: true, set: { age: null, tags: ['x'] } }), { updated: 4 })
    expect(await read(main, 'ada')).not.toHaveProperty('age')
    expect(await read(main, 'ada')).toMatchObject({ tags: ['x'] })
  })

  it('can filter by columns of linked records', async () => {
    const filter = { 'team.name': 'Core' }
    expectAnswer(await update(main, { filter, set: { team: 'edge' } }), { updated: 2 })
    expectAnswer(await update(main, { filter, set: { team: 'core' } }), { updated: 0 })
  })

  it('calculates from the value of each record', async () => {
    const set = { age: { $increment: 2 }, score: { $multiply: 2 } }
    expectAnswer(await update(main, { filter: { $exists: 'age' }, set }), { updated: 3 })
    expect(await read(main, 'ada')).toMatchObject({ age: 38, score: 2 })
    expect(await read(main, 'cyd')).toMatchObject({ age: 54, score: 6 })
  })

  it('changes nothing if one result of arithmetic cannot be stored', async () => {
    const empty = 'record [dan]: column [age]: has no value to calculate with'
    const inexact = (id: string) =>
      `record [${id}]: column [age]: the result of the arithmetic cannot be stored exactly; ` +
      `expected a whole number between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`
    const { call } = await fork()
    for (const branch of [main, call]) {
      for (const [operation, record, message] of [
        [{ $increment: 1 }, 'dan', `1 record cannot be changed: ${empty}`],
        [{ $divide: 4 }, 'bob', `2 records cannot be changed: ${inexact('bob')}; ${empty}`],
      ] as const) {
        const refused = await update(branch, { all: true, set: { age: operation } })
        expectRefused(refused, 400, `invalid record: ${message}; nothing was changed`)
        expect(refused.body).toMatchObject({ table: 'users', column: 'age', record })
      }
    }
    expect(await list(main, ['age'])).toEqual([
      { id: 'ada', age: 36, version: 0 },
      { id: 'bob', age: 17, version: 0 },
      { id: 'cyd', age: 52, version: 0 },
      { id: 'dan', version: 0 },
    ])
  })

  it('refuses a unique value for several records, and values of other records', async () => {
    const { call } = await fork()
    for (const branch of [main, call]) {
      const several = await update(branch, { all: true, set: { email: 'one@example.com' } })
      expectRefused(several, 400, 'column [email]: is not unique')
      const taken = { filter: { id: 'ada' }, set: { email: 'bob@example.com' } }
      expectRefused(await update(branch, taken), 400, 'column [email]: is not unique')
      const own = { filter: { id: 'ada' }, set: { email: 'ada@example.com' } }
      expectAnswer(await update(branch, own), { updated: 1 })
    }
  })

  it('refuses a calculated value that an inherited record has', async () => {
    const number = async (id: string, value: number) =>
      expectOk(await main('PATCH', `/tables/users/data/${id}`, { body: { number: value } }))
    await number('ada', 1)
    await number('bob', 2)
    const { call } = await fork()
    const set = { number: { $increment: 1 } }
    expectRefused(await update(call, { filter: { id: 'ada' }, set }), 400, 'column [number]')
    expectAnswer(await update(call, { filter: { id: 'bob' }, set }), { updated: 1 })
    expectAnswer(await update(call, { filter: { id: 'ada' }, set }), { updated: 1 })
    expect(await read(call, 'bob')).toMatchObject({ number: 3 })
  })

  it('copies inherited records to a fork, and leaves its source as it is', async () => {
    const before = await list(main, ['*'])
    const { name, call } = await fork()
    expectOk(await call('DELETE', '/tables/users/data/cyd'))
    expectOk(await call('PATCH', '/tables/users/data/bob', { body: { age: 40 } }))
    const set = { name: 'Adult', age: { $increment: 1 } }
    expectAnswer(await update(call, { filter: { age: { $ge: 18 } }, set }), { updated: 2 })
    expect(await list(call, ['name', 'age', 'email'])).toEqual([
      { id: 'ada', name: 'Adult', age: 37, email: 'ada@example.com', version: 1 },
      { id: 'bob', name: 'Adult', age: 41, email: 'bob@example.com', version: 2 },
      { id: 'dan', name: 'Dan', email: 'dan@example.com', version: 0 },
    ])
    expect(await list(main, ['*'])).toEqual(before)
    const grandchild = await fork(name)
    expectAnswer(await update(call, { all: true, set: { name: 'Later' } }), { updated: 3 })
    expect(await list(grandchild.call)).toEqual([
      { id: 'ada', name: 'Adult', version: 1 },
      { id: 'bob', name: 'Adult', version: 2 },
      { id: 'dan', name: 'Dan', version: 0 },
    ])
    const before2 = await list(grandchild.call, ['*'])
    expectAnswer(await update(main, { all: true, set: { name: 'Source' } }), { updated: 4 })
    expect(await list(grandchild.call, ['*'])).toEqual(before2)
  })

  it('stores nothing with [dryRun]', async () => {
    const before = await list(main, ['*'])
    const { call } = await fork()
    for (const branch of [main, call]) {
      const filter = { age: { $ge: 18 } }
      expectAnswer(await update(branch, { filter, set: { name: 'x' }, dryRun: true }), {
        updated: 2,
      })
      expectAnswer(await remove(branch, { all: true, dryRun: true }), { deleted: 4 })
      expect(await list(branch, ['*'])).toEqual(before)
    }
    const none = await main('DELETE', '/tables/empty/data', { body: { all: true, dryRun: true } })
    expectAnswer(none, { deleted: 0 })
  })

  it('says with [dryRun] what refuses it', async () => {
    const constraint = { name: 'adult', check: 'age >= 17' }
    const table = 'users'
    const operations = [{ addConstraint: { table, constraint } }]
    expectOk(await main('POST', '/schema/apply', { body: { edits: { operations } } }))
    const number = (id: string, value: number) =>
      main('PATCH', `/tables/users/data/${id}`, { body: { number: value } })
    expectOk(await number('ada', 1))
    expectOk(await number('bob', 2))
    const before = await list(main, ['*'])
    for (const body of [
      { all: true, set: { age: -1 } },
      { filter: { id: 'ada' }, set: { email: 'bob@example.com' } },
      { all: true, set: { name: 'x', age: { $increment: 1 } } },
    ]) {
      const { id: _, ...refused } = (await update(main, { ...body, dryRun: true })).body
      expect(refused.code).toMatch(/^(check|unique)_violation$|^invalid_record$/)
      expect((await update(main, body)).body).toMatchObject(refused)
    }
    const moved = { filter: { $exists: 'number' }, set: { number: { $increment: 1 } } }
    expectAnswer(await update(main, { ...moved, dryRun: true }), { updated: 2 })
    expect(await list(main, ['*'])).toEqual(before)
    expectAnswer(await update(main, moved), { updated: 2 })
  })

  it('refuses invalid values, unknown columns, files and an empty set', async () => {
    const refuse = async (set: unknown, message: string) =>
      expectRefused(await update(main, { all: true, set }), 400, message)
    await refuse({ name: null }, 'column [name]: cannot be null')
    await refuse({ age: 'x' }, 'column [age]: expected a whole number')
    await refuse({ other: 1 }, 'column [other]: column not found')
    await refuse({ photo: { base64Content: 'eA==' } }, 'column [photo]: a file cannot be written')
    await refuse({}, 'set: expected at least one column')
    await refuse({ id: 'x' }, 'set: expected at least one column')
    expectAnswer(await update(main, { all: true, set: { photo: null } }), { updated: 4 })
  })
})

describe('a deletion of a set', () => {
  it('deletes the records that meet the filter', async () => {
    expectAnswer(await remove(main, { filter: { age: { $lt: 40 } } }), { deleted: 2 })
    expect((await list(main)).map(({ id }: { id: string }) => id)).toEqual(['cyd', 'dan'])
    expectAnswer(await remove(main, { filter: { age: { $lt: 40 } } }), { deleted: 0 })
    expectAnswer(await remove(main, { all: true }), { deleted: 2 })
    expect(await list(main)).toEqual([])
  })

  it('hides inherited records in a fork only, and forks of it keep them', async () => {
    const before = await list(main, ['*'])
    const { name, call } = await fork()
    expectOk(await call('PATCH', '/tables/users/data/bob', { body: { age: 40 } }))
    const child = await fork(name)
    const ofChild = await list(child.call, ['*'])
    expectAnswer(await remove(call, { filter: { age: { $ge: 18 } } }), { deleted: 3 })
    expect(await list(call)).toEqual([{ id: 'dan', name: 'Dan', version: 0 }])
    expect(await list(child.call, ['*'])).toEqual(ofChild)
    expect(await list(main, ['*'])).toEqual(before)
    expectAnswer(await remove(main, { all: true }), { deleted: 4 })
    expect(await list(main)).toEqual([])
    expect(await list(child.call, ['*'])).toEqual(ofChild)
    // Values of deleted records are free again.
    const records = [{ id: 'ada', email: 'ada@example.com' }]
    expectOk(await call('POST', '/tables/users/bulk', { body: { records } }))
    expect(await read(call, 'ada')).toMatchObject({ name: 'nobody', service: { version: 0 } })
  })

  it('tells with and without [dryRun] what it causes in tables with links to the records', async () => {
    const link = (onDelete: string) => ({
      ...{ name: 'user', type: 'link', link: { table: 'users', onDelete } },
    })
    const edits = ['cascade', 'setNull'].flatMap((onDelete) => [
      { addTable: { table: onDelete } },
      { addColumn: { table: onDelete, column: link(onDelete) } },
    ])
    const apply = (operations: readonly unknown[]) =>
      main('POST', '/schema/apply', { body: { edits: { operations } } })
    expectOk(await apply(edits))
    const records = ['ada', 'ada', 'bob', 'cyd'].map((user) => ({ user }))
    for (const table of ['cascade', 'setNull']) {
      expectOk(await main('POST', `/tables/${table}/bulk`, { body: { records } }))
    }
    const { call } = await fork()
    const count = async (branch: BranchCall, table: string, filter = {}) => {
      const body = { filter, page: { size: 10 } }
      return (await branch('POST', `/tables/${table}/query`, { body })).body.records.length
    }
    for (const branch of [call, main]) {
      const gone = { filter: { age: { $lt: 40 } } }
      const linked = { cascade: { deleted: 3 }, setNull: { cleared: 3 } }
      expectAnswer(await remove(branch, { ...gone, dryRun: true }), { deleted: 2, linked })
      expect(await count(branch, 'users')).toBe(4)
      expect(await count(branch, 'cascade')).toBe(4)
      expect(await count(branch, 'setNull', { $exists: 'user' })).toBe(4)
      expectAnswer(await remove(branch, gone), { deleted: 2, linked })
      expect(await count(branch, 'cascade')).toBe(1)
      expect(await count(branch, 'setNull', { $exists: 'user' })).toBe(1)
    }
    const restrict = [
      { addTable: { table: 'restrict' } },
      { addColumn: { table: 'restrict', column: link('restrict') } },
    ]
    expectOk(await apply(restrict))
    expectOk(await main('POST', '/tables/restrict/data', { body: { user: 'cyd' } }))
    const { id: _, ...refused } = (await remove(main, { all: true, dryRun: true })).body
    expect(refused.code).toBe('link_violation')
    expect((await remove(main, { all: true })).body).toMatchObject(refused)
    expectAnswer(await remove(main, { filter: { id: 'dan' }, dryRun: true }), { deleted: 1 })
  })

  it('works on a table that nothing was written to', async () => {
    expectAnswer(await main('DELETE', '/tables/empty/data', { body: { all: true } }), {
      deleted: 0,
    })
    const body = { filter: { name: 'x' }, set: { name: 'y' } }
    expectAnswer(await main('PATCH', '/tables/empty/data', { body }), { updated: 0 })
  })
})

describe('a request for a set', () => {
  it('needs a filter with a condition, or [all], and not both', async () => {
    const set = { name: 'x' }
    for (const [body, message] of [
      [{}, 'expected a filter, or [all] = true'],
      [{ all: false }, 'expected a filter, or [all] = true'],
      [{ filter: { id: 'ada' }, all: true }, 'got both'],
      [{ filter: {} }, 'filter: has no condition'],
      [{ filter: { $all: [] } }, 'filter: has no condition'],
      [{ filter: { $not: {} } }, 'filter: has no condition'],
      [{ filter: { other: 1 } }, 'column [other]: column not found'],
      [{ filter: 'x' }, 'filter: expected an object'],
    ] as const) {
      expectRefused(await update(main, { ...body, set }), 400, message)
      expectRefused(await remove(main, body), 400, message)
    }
    expect((await update(main, { all: true })).status).toBe(400)
    expect((await remove(main, { all: true, set })).status).toBe(400)
    expect((await main('DELETE', '/tables/users/data')).status).toBe(400)
    expect(await list(main)).toHaveLength(4)
  })

  it('needs write access, and a table that exists', async () => {
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    expect((await remove(main, { all: true }, { key })).status).toBe(403)
    expect((await remove(main, { all: true, dryRun: true }, { key })).status).toBe(403)
    expect((await main('DELETE', '/tables/nope/data', { body: { all: true } })).status).toBe(404)
  })

  it('is executed once for an idempotency key', async () => {
    const headers = { 'idempotency-key': 'raise' }
    const body = { filter: { $exists: 'age' }, set: { age: { $increment: 1 } } }
    expectAnswer(await update(main, body, { headers }), { updated: 3 })
    expectAnswer(await update(main, body, { headers }), { updated: 3 })
    expect(await read(main, 'ada')).toMatchObject({ age: 37 })
    expect((await remove(main, { all: true }, { headers })).status).toBe(422)
  })
})

describe('a change of many records', () => {
  const COUNT = 4000
  const WRITERS = 3

  /** Changes records one after the other until the work is done. Returns how often each was changed. */
  async function besideWriters(call: BranchCall, work: () => Promise<Answer>) {
    const changes = new Array<number>(COUNT).fill(0)
    let isDone = false
    const write = async (first: number) => {
      for (let step = first; !isDone; step += WRITERS) {
        const row = (step * 997) % COUNT
        const body = { changes: { $increment: 1 } }
        expectOk(await call('PATCH', `/tables/counters/data/c${row}`, { body }))
        changes[row] = (changes[row] ?? 0) + 1
      }
    }
    const writers = Array.from({ length: WRITERS }, (_, number) => write(number))
    const answer = await work().finally(() => {
      isDone = true
    })
    await Promise.all(writers)
    return { answer, changes }
  }

  it('is made although others keep changing single ones, and no change is lost', async () => {
    const call = await createTables(service, `busy${databases}`, {
      counters: [
        { name: 'count', type: 'int' },
        { name: 'changes', type: 'int' },
      ],
    })
    const records = Array.from({ length: COUNT }, (_, number) => ({
      ...{ id: `c${number}`, count: 0, changes: 0 },
    }))
    expectOk(await call('POST', '/tables/counters/bulk', { body: { records } }))
    const set = (set: unknown) => () =>
      call('PATCH', '/tables/counters/data', { body: { all: true, set } })
    const statement = 'update counters set count = count + 1'
    const made = new Array<number>(COUNT).fill(0)
    for (const work of [
      set({ count: 5 }),
      set({ count: { $increment: 1 } }),
      () => call('POST', '/sql', { body: { statement } }),
    ]) {
      const { answer, changes } = await besideWriters(call, work)
      expect(answer.body).toMatchObject(answer.body.total ? { total: COUNT } : { updated: COUNT })
      for (const [row, count] of changes.entries()) made[row] = (made[row] ?? 0) + count
    }
    const query = { statement: 'select id, count, changes from counters', responseType: 'json' }
    const { records: found } = expectOk(await call('POST', '/sql', { body: query })).body
    const rows = new Map(found.map((row: { id: string }) => [row.id, row]))
    for (const [row, changes] of made.entries()) {
      expect(rows.get(`c${row}`)).toEqual({ id: `c${row}`, count: 7, changes })
    }
  })
})
