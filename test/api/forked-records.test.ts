import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { createTestService, type TestService } from '../support/service.js'
import {
  type addTables,
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
  XATA_CLIENT,
} from '../support/tables.js'
import { takenFields } from '../support/taken.js'
import {
  EMPTY_STATE,
  expectSameAsModel,
  expectState,
  MODEL_TABLES,
  modelOperations,
  startOver,
} from '../support/transaction-model.js'

let service: TestService
let main: BranchCall
let forks = 0

beforeAll(async () => {
  service = await createTestService()
  main = await createTables(service, 'shop', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'email', unique: true },
      { name: 'age', type: 'int' },
      { name: 'tags', type: 'multiple' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
      { name: 'address', type: 'object', columns: [{ name: 'city', type: 'string' }] },
    ],
    teams: [{ name: 'name', type: 'string' }],
  })
})
afterAll(() => service.close())

async function fork(from = 'main', body: object = {}): Promise<{ name: string; call: BranchCall }> {
  const name = `fork${++forks}`
  const call = branchCall(service, 'shop', { branch: name })
  expectOk(await call('PUT', '', { body: { from, ...body } }))
  return { name, call }
}

const path = (id: string, table = 'users') => `/tables/${table}/data/${id}`
const put = async (call: BranchCall, id: string, body: unknown, table = 'users') =>
  expectOk(await call('PUT', path(id, table), { body }))
const patch = (call: BranchCall, id: string, body: unknown, query = '') =>
  call('PATCH', `${path(id)}${query}`, { body })
const remove = (call: BranchCall, id: string) => call('DELETE', path(id))
const read = async (call: BranchCall, id: string, query = '') => {
  const answer = await call('GET', `${path(id)}${query}`)
  return answer.status === 404 ? undefined : expectOk(answer).body
}

describe('a fork', () => {
  it('that was read, deleted and created again under its name takes writes at once', async () => {
    await put(main, 'anew', { name: 'A' })
    const { call } = await fork()
    expect(await read(call, 'anew')).toMatchObject({ name: 'A' })
    expectOk(await call('DELETE', ''))
    expectOk(await call('PUT', '', { body: { from: 'main' } }))
    expect((await patch(call, 'anew', { name: 'B' })).body).toMatchObject({ id: 'anew' })
    expect(await read(call, 'anew')).toMatchObject({ name: 'B' })
  })

  it('reads what its source held at that moment', async () => {
    const values = { name: 'A', email: 'a@reads.test', tags: ['x'], address: { city: 'C' } }
    await put(main, 'reads', values)
    const { call } = await fork()
    expect(await read(call, 'reads')).toEqual(await read(main, 'reads'))
    expect(await read(call, 'reads', '?columns=name,address.city')).toMatchObject({
      name: 'A',
      address: { city: 'C' },
    })
    expect(await read(call, 'missing')).toBeUndefined()
  })

  it('does not see what the source does later', async () => {
    await put(main, 'parent-changed', { name: 'A' })
    await put(main, 'parent-deleted', { name: 'A' })
    await put(main, 'parent-replaced', { name: 'A', age: 1 })
    const { call } = await fork()
    const before = await read(call, 'parent-changed')
    for (let time = 0; time < 3; time++) await patch(main, 'parent-changed', { name: `B${time}` })
    await remove(main, 'parent-deleted')
    await put(main, 'parent-replaced', { name: 'B' })
    await put(main, 'parent-new', { name: 'N' })
    expect(await read(call, 'parent-changed')).toEqual(before)
    expect(await read(call, 'parent-deleted')).toMatchObject({ name: 'A', service: { version: 0 } })
    expect(await read(call, 'parent-replaced')).toMatchObject({ name: 'A', age: 1 })
    expect(await read(call, 'parent-new')).toBeUndefined()
    await put(main, 'parent-deleted', { name: 'again' })
    expect(await read(call, 'parent-deleted')).toMatchObject({ name: 'A' })
  })

  it('does not show its source what it does', async () => {
    await put(main, 'child-changed', { name: 'A', age: 1 })
    await put(main, 'child-deleted', { name: 'A' })
    const before = [await read(main, 'child-changed'), await read(main, 'child-deleted')]
    const { call } = await fork()
    await patch(call, 'child-changed', { name: 'B' })
    expect((await remove(call, 'child-deleted')).status).toBe(204)
    await put(call, 'child-new', { name: 'N' })
    expect([await read(main, 'child-changed'), await read(main, 'child-deleted')]).toEqual(before)
    expect(await read(main, 'child-new')).toBeUndefined()
    expect(await read(call, 'child-changed')).toMatchObject({
      name: 'B',
      age: 1,
      service: { version: 1 },
    })
    expect(await read(call, 'child-deleted')).toBeUndefined()
  })

  it('updates, replaces, deletes and makes anew what it inherits', async () => {
    await put(main, 'life', { name: 'A', age: 1, address: { city: 'X' } })
    await patch(main, 'life', { age: 2 })
    const inherited = await read(main, 'life')
    const { call } = await fork()
    const patched = expectOk(await patch(call, 'life', { name: 'B' }, '?columns=*')).body
    expect(patched).toEqual({
      ...inherited,
      name: 'B',
      service: { ...inherited.service, version: 2, updatedAt: expect.any(String) },
    })
    const replaced = await put(call, 'life', { name: 'C' })
    expect(replaced).toMatchObject({
      status: 200,
      body: { service: { version: 3, createdAt: inherited.service.createdAt } },
    })
    expect((await remove(call, 'life')).status).toBe(204)
    expect((await remove(call, 'life')).status).toBe(404)
    expect((await patch(call, 'life', {})).status).toBe(404)
    const anew = await call('PUT', `${path('life')}?createOnly=true`, { body: { name: 'D' } })
    expect(anew).toMatchObject({ status: 201, body: { service: { version: 0 } } })
    expect(await read(call, 'life')).toMatchObject({ name: 'D' })
    expect(await read(call, 'life')).not.toHaveProperty('age')
    expect(await read(main, 'life')).toEqual(inherited)
  })

  it.each<[string, string, string, unknown, number, string]>([
    [
      'a create of an inherited id',
      'PUT',
      `${path('held')}?createOnly=true`,
      { email: 'held@refused.test' },
      422,
      'table [users]: record [held] already exists',
    ],
    [
      'a POST of an inherited id',
      'POST',
      '/tables/users/data',
      { id: 'held' },
      400,
      'invalid record: column [id]: is not unique',
    ],
    [
      'a wrong version of an inherited record',
      'PATCH',
      `${path('held')}?ifVersion=999`,
      { name: 'x' },
      422,
      'version condition not met',
    ],
    [
      'a wrong version, though the value is unchanged',
      'PATCH',
      `${path('held')}?ifVersion=999`,
      { email: 'held@refused.test' },
      422,
      'version condition not met',
    ],
    [
      'a wrong version of a replacement',
      'PUT',
      `${path('held')}?ifVersion=999`,
      { email: 'held@refused.test' },
      422,
      'version condition not met',
    ],
    [
      'an update of a missing record with a taken value',
      'PATCH',
      path('not-there'),
      { email: 'held@refused.test' },
      404,
      'table [users]: record [not-there] not found',
    ],
    [
      'an inherited unique value in a new record',
      'POST',
      '/tables/users/data',
      { email: 'held@refused.test' },
      400,
      'invalid record: column [email]: is not unique',
    ],
    [
      'an inherited unique value in an update',
      'PATCH',
      path('other'),
      { email: 'held@refused.test' },
      400,
      'invalid record: column [email]: is not unique',
    ],
    [
      'an inherited unique value in a replacement',
      'PUT',
      path('other'),
      { email: 'held@refused.test' },
      400,
      'invalid record: column [email]: is not unique',
    ],
    [
      'an inherited unique value in an upsert that updates',
      'POST',
      path('other'),
      { email: 'held@refused.test' },
      400,
      'invalid record: column [email]: is not unique',
    ],
    [
      'an inherited unique value in an upsert that creates',
      'POST',
      path('not-there'),
      { email: 'held@refused.test' },
      400,
      'invalid record: column [email]: is not unique',
    ],
    [
      'arithmetic without a result',
      'PATCH',
      path('held'),
      { age: { $divide: 2 } },
      400,
      'invalid record: column [age]: the result of the arithmetic cannot be stored exactly; ' +
        `expected a whole number between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}`,
    ],
  ])('refuses %s and changes nothing', async (_name, method, where, body, status, message) => {
    await put(main, 'held', { email: 'held@refused.test', age: 1 })
    await put(main, 'other', { name: 'O' })
    const { call } = await fork()
    const before = [await read(call, 'held'), await read(call, 'other')]
    const answer = await call(method, where, { body })
    expect({ status: answer.status, message: answer.body.message }).toEqual({ status, message })
    expect([await read(call, 'held'), await read(call, 'other')]).toEqual(before)
    expect(await read(call, 'not-there')).toBeUndefined()
    // The write gives the fork its own heap, which must not change the answer.
    await put(call, 'own', {})
    const again = await call(method, where, { body })
    expect({ status: again.status, message: again.body.message }).toEqual({ status, message })
  })

  it('may use a unique value as soon as its holder has let it go, in that branch alone', async () => {
    await put(main, 'giver', { email: 'given@unique.test' })
    const { call } = await fork()
    await patch(call, 'giver', { email: 'other@unique.test' })
    await put(call, 'taker', { email: 'given@unique.test' })
    expect((await patch(call, 'giver', { email: 'given@unique.test' })).status).toBe(400)
    expect((await patch(call, 'giver', { email: 'other@unique.test' })).status).toBe(200)
    expect(
      (await main('POST', '/tables/users/data', { body: { email: 'given@unique.test' } })).status,
    ).toBe(400)
    expect(
      (await main('POST', '/tables/users/data', { body: { email: 'other@unique.test' } })).status,
    ).toBe(201)
    const second = await fork()
    await remove(second.call, 'giver')
    await put(second.call, 'heir', { email: 'given@unique.test' })
  })

  it('cannot reckon its way to a unique value that is inherited', async () => {
    const columns = [{ name: 'u', type: 'int', unique: true }] as const
    const source = await createTables(service, 'reckon', { users: columns })
    for (const u of [1, 2]) await put(source, `u${u}`, { u })
    const call = branchCall(service, 'reckon', { branch: 'fork' })
    expectOk(await call('PUT', ''))
    const taken = 'invalid record: column [u]: is not unique'
    const fields = { u: { $increment: 1 } }
    expect((await patch(call, 'u1', fields)).body.message).toBe(taken)
    expect((await call('POST', path('u1'), { body: fields })).body.message).toBe(taken)
    const operations = [{ update: { table: 'users', id: 'u1', fields } }]
    const answer = await call('POST', '/transaction', { body: { operations } })
    expect(answer.body.errors).toEqual([
      {
        index: 0,
        message: 'table [users]: column [u]: is not unique',
        ...takenFields('table [users]: column [u]: is not unique'),
      },
    ])
    expect(await read(call, 'u1')).toMatchObject({ u: 1, service: { version: 0 } })
    expectOk(await patch(call, 'u2', fields))
    expectOk(await patch(call, 'u1', fields))
    expect(await read(call, 'u1')).toMatchObject({ u: 2 })
  })

  it('keeps its values when the source gives them up or takes them', async () => {
    await put(main, 'keeps', { email: 'keeps@unique.test' })
    const { call } = await fork()
    await remove(main, 'keeps')
    expect(
      (await call('POST', '/tables/users/data', { body: { email: 'keeps@unique.test' } })).status,
    ).toBe(400)
    await put(call, 'own', { email: 'own@unique.test' })
    await put(main, 'own', { email: 'own@unique.test' })
    expect(
      (await main('POST', '/tables/users/data', { body: { email: 'keeps@unique.test' } })).status,
    ).toBe(201)
  })

  it('expands links to what it inherits and to what it wrote', async () => {
    await put(main, 'inherited', { name: 'Inherited' }, 'teams')
    await put(main, 'linked', { team: 'inherited' })
    const { call } = await fork()
    const team = async (id: string) => (await read(call, id, '?columns=team.name')).team?.name
    expect(await team('linked')).toBe('Inherited')
    await put(call, 'inherited', { name: 'Changed' }, 'teams')
    expect(await team('linked')).toBe('Changed')
    await put(call, 'own', { name: 'Own' }, 'teams')
    await patch(call, 'linked', { team: 'own' })
    expect(await team('linked')).toBe('Own')
    await call('DELETE', path('own', 'teams'))
    expect(await team('linked')).toBeUndefined()
    expect((await read(main, 'linked', '?columns=team.name')).team.name).toBe('Inherited')
  })

  it('of a fork of a fork sees through all of them', async () => {
    for (const id of ['g1', 'g2', 'g3', 'g4'])
      await put(main, id, { name: 'main', email: `${id}@deep.test` })
    const first = await fork()
    await patch(first.call, 'g2', { name: 'first' })
    await remove(first.call, 'g4')
    const second = await fork(first.name)
    await patch(second.call, 'g3', { name: 'second' })
    await put(second.call, 'g4', { name: 'second' })
    const third = await fork(second.name)
    for (const { call } of [first, second]) await patch(call, 'g1', { name: 'too late' })
    await patch(main, 'g1', { name: 'too late' })
    await remove(first.call, 'g2')
    await remove(second.call, 'g3')
    const names = async (call: BranchCall) =>
      Promise.all(['g1', 'g2', 'g3', 'g4'].map(async (id) => (await read(call, id))?.name))
    expect(await names(third.call)).toEqual(['main', 'first', 'second', 'second'])
    expect(await names(second.call)).toEqual(['too late', 'first', undefined, 'second'])
    expect(await names(first.call)).toEqual(['too late', undefined, 'main', undefined])
    expect(await names(main)).toEqual(['too late', 'main', 'main', 'main'])
    const taken = await third.call('POST', '/tables/users/data', {
      body: { email: 'g1@deep.test' },
    })
    expect(taken.status).toBe(400)
    expect((await patch(third.call, 'g1', { age: 1 })).body.service.version).toBe(1)
  })

  it('of a fork of a fork, and so on, is queried like any other', async () => {
    const DEPTH = 12
    await put(main, 'chain0', { name: 'Chained', email: 'chain0@deep.test', age: 0 })
    let tip = await fork()
    for (let depth = 1; depth < DEPTH; depth++) {
      await put(tip.call, `chain${depth}`, { name: 'Chained', age: depth })
      await patch(tip.call, 'chain0', { age: depth })
      tip = await fork(tip.name)
    }
    const found = await tip.call('POST', '/tables/users/query', {
      body: { filter: { name: 'Chained' }, sort: { age: 'desc' }, page: { size: 2 } },
    })
    const counted = await tip.call('POST', '/tables/users/summarize', {
      body: { filter: { name: 'Chained' }, summaries: { all: { count: '*' } } },
    })
    const taken = await tip.call('PATCH', '/tables/users/data/chain1', {
      body: { email: 'chain0@deep.test' },
    })
    expect(found.body.records).toMatchObject([
      { id: 'chain0', age: DEPTH - 1 },
      { id: `chain${DEPTH - 1}`, age: DEPTH - 1 },
    ])
    expect(counted.body.summaries).toEqual([{ all: DEPTH }])
    expect(taken.body.message).toBe('invalid record: column [email]: is not unique')
  })

  it('without data has the schema and no record', async () => {
    await put(main, 'no-data', { name: 'A', email: 'nodata@test.test' })
    for (const options of [
      { body: { data: false } },
      { headers: XATA_CLIENT },
      { body: {}, headers: XATA_CLIENT },
    ]) {
      const call = branchCall(service, 'shop', { branch: `empty${++forks}` })
      expectOk(await call('PUT', '', options))
      expect(await read(call, 'no-data')).toBeUndefined()
      await put(call, 'no-data', { name: 'B', email: 'nodata@test.test', team: 'nowhere' })
      expect(await read(call, 'no-data', '?columns=team.name')).not.toHaveProperty('team')
      expect((await call('GET', '')).body.schema).toEqual((await main('GET', '')).body.schema)
    }
    const call = branchCall(service, 'shop', { branch: `full${++forks}` })
    expectOk(await call('PUT', '', { body: { data: true }, headers: XATA_CLIENT }))
    expect(await read(call, 'no-data')).toMatchObject({ name: 'A' })
  })

  it('reads on when its source is deleted', async () => {
    const first = await fork()
    await put(first.call, 'orphan', { name: 'A' })
    const second = await fork(first.name)
    expectOk(await first.call('DELETE', ''))
    expect(await read(second.call, 'orphan')).toMatchObject({ name: 'A' })
    await patch(second.call, 'orphan', { name: 'B' })
    expect(await read(second.call, 'orphan')).toMatchObject({ name: 'B' })
  })
})

describe('bulk inserts in a fork', () => {
  const bulk = (call: BranchCall, records: unknown, query = '') =>
    call('POST', `/tables/users/bulk${query}`, { body: { records } })
  const faults = (body: { errors: { index: number; message: string }[] }) =>
    body.errors.map(({ index, message }) => [index, message])

  it('go beside what is inherited', async () => {
    await put(main, 'bulk-main', { name: 'M' })
    const { call } = await fork()
    const { body } = expectOk(
      await bulk(call, [{ id: 'bulk-own', name: 'A' }, { name: 'B' }], '?columns=name'),
    )
    expect(body.records).toMatchObject([{ id: 'bulk-own', name: 'A' }, { name: 'B' }])
    expect(await read(call, 'bulk-main')).toMatchObject({ name: 'M' })
    expect(await read(main, 'bulk-own')).toBeUndefined()
  })

  it('are refused for ids and values that are inherited, own, or given twice', async () => {
    await put(main, 'b-main', { email: 'main@bulkfork.test' })
    const { call } = await fork()
    await put(call, 'b-own', { email: 'own@bulkfork.test' })
    const answer = await bulk(call, [
      { id: 'b-new', email: 'new@bulkfork.test' },
      { id: 'b-main' },
      { id: 'b-own' },
      { email: 'main@bulkfork.test' },
      { email: 'own@bulkfork.test' },
      { email: 'new@bulkfork.test' },
      { id: 'b-new' },
    ])
    const id = 'invalid record: column [id]: is not unique'
    const email = 'invalid record: column [email]: is not unique'
    expect(faults(answer.body)).toEqual([
      [1, id],
      [2, id],
      [3, email],
      [4, email],
      [5, email],
      [6, id],
    ])
    expect(await read(call, 'b-new')).toBeUndefined()
    for (const records of [
      [{ id: 'x' }, { id: 'x' }],
      [{ id: 'b-main' }],
      [{ email: 'main@bulkfork.test' }],
    ]) {
      expect((await bulk(call, records)).status).toBe(400)
    }
  })

  it('may use ids and values that the fork has let go', async () => {
    await put(main, 'let-go', { email: 'letgo@bulkfork.test' })
    const { call } = await fork()
    await remove(call, 'let-go')
    expectOk(await bulk(call, [{ id: 'let-go', name: 'N' }, { email: 'letgo@bulkfork.test' }]))
    expect(await read(call, 'let-go')).toMatchObject({ name: 'N', service: { version: 0 } })
    expect(await read(call, 'let-go')).not.toHaveProperty('email')
  })

  it('of many records are no different', async () => {
    const { call } = await fork()
    const records = Array.from({ length: 5000 }, (_, number) => ({
      id: `many${number}`,
      name: 'x'.repeat(50),
    }))
    expectOk(await bulk(call, records))
    expect(await read(call, 'many4999')).toMatchObject({ name: 'x'.repeat(50) })
    const answer = await bulk(call, [...records.map(({ name }) => ({ name })), { id: 'many0' }])
    expect(faults(answer.body)).toEqual([[5000, 'invalid record: column [id]: is not unique']])
  })
})

describe('schema edits', () => {
  let number = 0
  async function open(columns: Parameters<typeof addTables>[0][string]) {
    const database = `edits${++number}`
    const source = await createTables(service, database, { t: columns })
    return {
      source,
      async fork(name: string, from = 'main') {
        const call = branchCall(service, database, { branch: name })
        expectOk(await call('PUT', '', { body: { from } }))
        return call
      },
    }
  }
  const values = async (call: BranchCall, id: string) => {
    const {
      id: _id,
      service: _service,
      ...rest
    } = expectOk(await call('GET', `/tables/t/data/${id}`)).body
    return rest
  }
  const write = async (call: BranchCall, id: string, body: unknown) =>
    expectOk(await call('PUT', `/tables/t/data/${id}`, { body }))
  const add = (call: BranchCall, column: object) =>
    call('POST', '/tables/t/columns', { body: column })
  const A = { name: 'a', type: 'string' } as const

  it('in the source leave the fork as it was', async () => {
    const { source, fork: forkOf } = await open([A, { name: 'b', type: 'string' }])
    await write(source, 'x', { a: '1', b: '2' })
    const call = await forkOf('f')
    expectOk(await source('DELETE', '/tables/t/columns/a'))
    expectOk(await source('PATCH', '/tables/t/columns/b', { body: { name: 'a' } }))
    expectOk(await add(source, { name: 'c', type: 'int', notNull: true, defaultValue: '1' }))
    await write(source, 'x', { a: '3' })
    expect(await values(call, 'x')).toEqual({ a: '1', b: '2' })
    expect(await values(source, 'x')).toEqual({ a: '3', c: 1 })
    expectOk(await source('DELETE', '/tables/t'))
    expect(await values(call, 'x')).toEqual({ a: '1', b: '2' })
    await write(call, 'x', { a: '4' })
    expect(await values(call, 'x')).toEqual({ a: '4' })
  })

  it('in the fork leave the source as it was, and hold for inherited records', async () => {
    const { source, fork: forkOf } = await open([A, { name: 'b', type: 'string' }])
    for (const id of ['x', 'y', 'z']) await write(source, id, { a: '1', b: '2' })
    const call = await forkOf('f')
    await write(call, 'y', { a: 'own', b: 'own' })
    expectOk(await call('PATCH', '/tables/t/columns/a', { body: { name: 'c' } }))
    expectOk(await call('DELETE', '/tables/t/columns/b'))
    expectOk(await add(call, { name: 'b', type: 'int' }))
    expectOk(await add(call, { name: 'n', type: 'int', notNull: true, defaultValue: '7' }))
    expect(await values(call, 'x')).toEqual({ c: '1', n: 7 })
    expect(await values(call, 'y')).toEqual({ c: 'own', n: 7 })
    expectOk(await call('PATCH', '/tables/t/data/x', { body: { b: 5 } }))
    expect(await values(call, 'x')).toEqual({ c: '1', b: 5, n: 7 })
    expectOk(await call('PATCH', '/tables/t/data/z', { body: { n: 8 } }))
    expect(await values(call, 'z')).toEqual({ c: '1', n: 8 })
    for (const id of ['x', 'y', 'z']) expect(await values(source, id)).toEqual({ a: '1', b: '2' })
  })

  it('add a unique column to inherited records', async () => {
    const { source, fork: forkOf } = await open([A])
    for (const id of ['x', 'y']) await write(source, id, {})
    const call = await forkOf('f')
    expectOk(await add(call, { name: 'u', type: 'int', unique: true }))
    expectOk(await call('PATCH', '/tables/t/data/x', { body: { u: 1 } }))
    expect((await call('PATCH', '/tables/t/data/y', { body: { u: 1 } })).status).toBe(400)
    expect((await call('POST', '/tables/t/data', { body: { u: 1 } })).status).toBe(400)
    const bulk = (records: object[]) => call('POST', '/tables/t/bulk', { body: { records } })
    expect((await bulk([{ u: 1 }])).status).toBe(400)
    expectOk(await bulk([{ u: 2 }]))
    const second = await forkOf('g', 'f')
    expect((await second('POST', '/tables/t/data', { body: { u: 2 } })).status).toBe(400)
    expect((await second('POST', '/tables/t/data', { body: { u: 3 } })).status).toBe(201)
  })

  it('count inherited records that would have no value', async () => {
    const { source, fork: forkOf } = await open([A])
    for (const id of ['x', 'y', 'z']) await write(source, id, {})
    const call = await forkOf('f')
    await call('DELETE', '/tables/t/data/x')
    await write(call, 'w', {})
    const column = { name: 'n', type: 'int', notNull: true }
    const answer = await add(call, column)
    expect(answer.body.message).toMatch(/: 3 records would have no value$/)
    for (const id of ['y', 'z', 'w']) await call('DELETE', `/tables/t/data/${id}`)
    expectOk(await add(call, column))
    expect((await add(source, column)).status).toBe(400)
  })

  it('drop a table with inherited records, and one of the same name starts empty', async () => {
    const { source, fork: forkOf } = await open([A])
    await write(source, 'x', { a: '1' })
    const call = await forkOf('f')
    expectOk(await call('DELETE', '/tables/t'))
    expectOk(await call('PUT', '/tables/t'))
    expectOk(await add(call, A))
    expect((await call('GET', '/tables/t/data/x')).status).toBe(404)
    await write(call, 'x', { a: '2' })
    expect(await values(source, 'x')).toEqual({ a: '1' })
  })

  it('on every level of forks hold for the levels below', async () => {
    const { source, fork: forkOf } = await open([A])
    await write(source, 'x', { a: '1' })
    const first = await forkOf('first')
    expectOk(await add(first, { name: 'n', type: 'int', notNull: true, defaultValue: '1' }))
    const second = await forkOf('second', 'first')
    expectOk(await add(first, { name: 'later', type: 'int', notNull: true, defaultValue: '9' }))
    expectOk(await add(second, { name: 'm', type: 'int', notNull: true, defaultValue: '2' }))
    expect(await values(second, 'x')).toEqual({ a: '1', n: 1, m: 2 })
    await write(first, 'x', { a: 'first', n: 5 })
    expect(await values(second, 'x')).toEqual({ a: '1', n: 1, m: 2 })
    const third = await forkOf('third', 'second')
    expectOk(await third('PATCH', '/tables/t/columns/m', { body: { name: 'renamed' } }))
    expectOk(await second('DELETE', '/tables/t/columns/n'))
    expect(await values(third, 'x')).toEqual({ a: '1', n: 1, renamed: 2 })
    expectOk(await third('PATCH', '/tables/t/data/x', { body: { a: 'third' } }))
    expect(await values(third, 'x')).toEqual({ a: 'third', n: 1, renamed: 2 })
    expect(await values(second, 'x')).toEqual({ a: '1', m: 2 })
  })
})

describe('random transactions in forks', () => {
  it(
    'do the same on inherited records as one operation after the other would',
    async () => {
      const source = await createTables(service, 'model', MODEL_TABLES)
      const initial = await startOver(source, EMPTY_STATE)
      let number = 0
      await fc.assert(
        fc.asyncProperty(modelOperations, modelOperations, async (first, second) => {
          const call = branchCall(service, 'model', { branch: `m${++number}` })
          expectOk(await call('PUT', ''))
          const state = await expectSameAsModel(call, initial, first)
          await expectSameAsModel(call, state, second)
          expectOk(await call('DELETE', ''))
        }),
        { numRuns: STEPS / 5, seed: SEED },
      )
      await expectState(source, initial)
    },
    STEPS_TIMEOUT_MS,
  )
})
