import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type * as Branches from '@offshoot/contract/branch-changes'
import { ERROR_CODES } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import type {
  MergeConflict as ConflictOfContract,
  Resolution as ResolutionOfContract,
} from '@offshoot/contract/merge-conflicts'
import type { Schema } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from 'vitest'
import {
  type Client,
  createClient,
  type DateTime,
  type Files,
  InsertManyError,
  type InsertManyProgress,
  type Json,
  type Link,
  type MergeConflict,
  type MergeResult,
  OffshootError,
  type File as OneFile,
  type Resolution,
  resolutionOf,
  type SchemaDefinition,
  type SchemaOperation as SchemaOperationOfClient,
  SERVICE_ERROR_CODES,
  type WithDefault,
} from '../../packages/client/src/index.js'
import { CuttingProxy } from '../support/cutting-proxy.js'
import { createTestService, type TestService } from '../support/service.js'

interface Shop {
  teams: { name: string; motto: string | null }
  users: {
    email: string
    name: string | null
    age: WithDefault<number>
    active: boolean | null
    tags: string[] | null
    joined: DateTime | null
    team: Link<'teams'> | null
    address: { city: string | null; zip: string | null } | null
    settings: Json<{ theme: string }> | null
    photo: OneFile | null
    papers: Files
  }
}

const SHOP: readonly SchemaOperationOfClient[] = [
  { addTable: { table: 'teams' } },
  { addColumn: { table: 'teams', column: { name: 'name', type: 'string', notNull: true } } },
  { addColumn: { table: 'teams', column: { name: 'motto', type: 'text' } } },
  { addTable: { table: 'users' } },
  ...(
    [
      { name: 'email', type: 'email', unique: true, notNull: true },
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int', notNull: true, defaultValue: '18' },
      { name: 'active', type: 'bool' },
      { name: 'tags', type: 'multiple' },
      { name: 'joined', type: 'datetime' },
      { name: 'team', type: 'link', link: { table: 'teams' } },
      {
        name: 'address',
        type: 'object',
        columns: [
          { name: 'city', type: 'string' },
          { name: 'zip', type: 'string' },
        ],
      },
      { name: 'settings', type: 'json' },
      { name: 'photo', type: 'file' },
      { name: 'papers', type: 'file[]' },
    ] as const
  ).map((column) => ({ addColumn: { table: 'users', column } })),
]

let service: TestService
let url: string
let databases = 0

beforeAll(async () => {
  service = await createTestService()
  url = await service.app.listen({ port: 0, host: '127.0.0.1' })
})
afterAll(() => service.close())

/** A client of a new database with the tables of the shop. */
async function createShop(
  options: { url?: string; retries?: number; fetch?: typeof fetch } = {},
): Promise<Client<Shop>> {
  const database = `shop${databases++}`
  const client = createClient<Shop>({
    url,
    apiKey: service.key,
    workspace: service.workspaceId,
    database,
    branch: 'main',
    ...options,
  })
  await client.account.createDatabase(service.workspaceId, database)
  await client.branch().applySchema(SHOP)
  return client
}

/** Returns the error of a call that must fail. */
async function errorOf(call: Promise<unknown>): Promise<OffshootError> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(OffshootError)
  return error as OffshootError
}

describe('records', () => {
  it('are created, read, updated, replaced, upserted and deleted', async () => {
    const users = (await createShop()).table('users')
    const created = await users.create({ id: 'ada', email: 'ada@example.com', tags: ['a', 'b'] })
    expect(created).toEqual({ id: 'ada', service: expect.objectContaining({ version: 0 }) })
    await users.update('ada', { name: 'Ada', age: { $increment: 2 } }, { ifVersion: 0 })
    expect(await users.read('ada')).toMatchObject({
      id: 'ada',
      email: 'ada@example.com',
      name: 'Ada',
      age: 20,
      tags: ['a', 'b'],
      papers: [],
      service: { version: 1 },
    })
    await users.replace('ada', { email: 'ada@example.com' })
    expect((await users.read('ada'))?.name).toBeUndefined()
    await users.upsert('grace', { email: 'grace@example.com', joined: new Date(0) })
    expect((await users.read('grace'))?.joined).toBe('1970-01-01T00:00:00.000Z')
    expect(await users.delete('ada')).toBe(true)
    expect(await users.delete('ada')).toBe(false)
    expect(await users.read('ada')).toBeUndefined()
  })

  it('are not overwritten if someone else has changed them', async () => {
    const users = (await createShop()).table('users')
    await users.create({ id: 'ada', email: 'ada@example.com' })
    await users.update('ada', { name: 'A' })
    const error = await errorOf(users.update('ada', { name: 'B' }, { ifVersion: 0 }))
    expect(error).toMatchObject({ code: 'version_conflict', status: 422 })
    expect(error.requestId).toMatch(/^req_/)
  })

  it('are created only once under an id', async () => {
    const users = (await createShop()).table('users')
    await users.create({ id: 'ada', email: 'ada@example.com' })
    const error = await errorOf(users.create({ id: 'ada', email: 'other@example.com' }))
    expect(error).toMatchObject({ code: 'unique_violation', status: 400 })
    expect(error.message).toContain('column [id]: is not unique')
  })

  it('have the columns that were chosen, through links and objects', async () => {
    const client = await createShop()
    await client.table('teams').create({ id: 'core', name: 'Core', motto: 'on' })
    const users = client.table('users')
    await users.create({
      id: 'ada',
      email: 'ada@example.com',
      team: 'core',
      address: { city: 'London', zip: 'N1' },
    })
    const listed = await users.read('ada', { columns: ['email', 'team'] })
    expectTypeOf(listed).toExtend<{ email: string; team?: { name: string } } | undefined>()
    expect(listed).toMatchObject({ email: 'ada@example.com', team: { id: 'core', name: 'Core' } })
    const chosen = await users.read('ada', {
      columns: { team: { name: true }, address: { city: true } },
    })
    expectTypeOf(chosen?.team?.name).toEqualTypeOf<string | undefined>()
    expectTypeOf(chosen).not.toExtend<{ email: string } | undefined>()
    expect(chosen?.team).toMatchObject({ id: 'core', name: 'Core' })
    expect(chosen?.team).not.toHaveProperty('motto')
    expect(chosen?.address).toEqual({ city: 'London' })
    const whole = await users.read('ada')
    expect(whole?.team).toEqual({ id: 'core' })
  })
})

describe('queries', () => {
  async function createPeople() {
    const client = await createShop()
    const users = client.table('users')
    await users.insertMany(
      Array.from({ length: 25 }, (_, n) => ({ id: `u${n}`, email: `u${n}@example.com`, age: n })),
    )
    return users
  }

  it('return pages, all records, or the first one', async () => {
    const users = await createPeople()
    const query = users.query({ filter: { age: { $ge: 5 } }, sort: { age: 'asc' }, size: 8 })
    const page = await query.page()
    expect(page.records.map(({ age }) => age)).toEqual([5, 6, 7, 8, 9, 10, 11, 12])
    expect(page.hasMore).toBe(true)
    expect((await page.next())?.records[0]?.age).toBe(13)
    expect((await query.page(page.cursor)).records[0]?.age).toBe(13)
    expect((await query.all()).map(({ age }) => age)).toEqual(
      Array.from({ length: 20 }, (_, n) => n + 5),
    )
    expect((await query.first())?.age).toBe(5)
    const seen: number[] = []
    for await (const { age } of query) seen.push(age)
    expect(seen).toHaveLength(20)
    expect(await users.count({ age: { $lt: 5 } })).toBe(5)
    expect(await users.query({ filter: { id: 'nobody' } }).first()).toBeUndefined()
  })

  it('are checked by the compiler', async () => {
    const users = (await createShop()).table('users')
    // @ts-expect-error: there is no such column
    await errorOf(users.query({ filter: { nme: 'Ada' } }).page())
    // @ts-expect-error: the column is a number
    await errorOf(users.query({ filter: { age: 'old' } }).page())
    // @ts-expect-error: there is no such column
    await errorOf(users.create({ email: 'a@example.com', nme: 'Ada' }))
    // @ts-expect-error: the column must have a value
    await errorOf(users.create({ name: 'Ada' }))
    // @ts-expect-error: arithmetic needs a number
    await errorOf(users.update('ada', { name: { $increment: 1 } }))
  })

  it('summarise, aggregate and search', async () => {
    const users = await createPeople()
    const { summaries } = await users.summarize({ summaries: { oldest: { max: 'age' } } })
    expect(summaries).toEqual([{ oldest: 24 }])
    const { aggs } = await users.aggregate({ aggs: { total: { sum: { column: 'age' } } } })
    expect(aggs).toEqual({ total: 300 })
    const { records } = await users.search('u7', { fuzziness: 0 })
    expect(records.map(({ id }) => id)).toContain('u7')
  })
})

describe('many records', () => {
  /** Enough records that they are sent as a stream. */
  const MANY = 25_000
  const manyRows = (prefix: string, wrong?: number) =>
    Array.from({ length: MANY }, (_, n) => ({
      email: n === wrong ? 'not an address' : `${prefix}${n}@example.com`,
      name: 'x'.repeat(40),
    }))

  it('are inserted from any iterable, with progress', async () => {
    const users = (await createShop()).table('users')
    async function* rows() {
      yield* manyRows('n')
    }
    const progress: InsertManyProgress[] = []
    const entries: string[] = []
    const result = await users.insertMany(rows(), {
      onProgress: (now) => progress.push(now),
      onEntry: (entry) => entries.push(entry),
    })
    expect(result).toEqual({ inserted: MANY, updated: 0, skipped: 0, failed: 0, errors: [] })
    expect(entries).toEqual([expect.stringMatching(/^log_/)])
    expect(progress.length).toBeGreaterThan(10)
    // Nothing is stored before all is sent.
    expect(progress.slice(0, -1).every(({ inserted }) => inserted === 0)).toBe(true)
    expect(progress.at(-1)).toEqual({ sent: MANY, inserted: MANY, failed: 0 })
    expect(await users.count()).toBe(MANY)
    expect(await users.insertMany([])).toMatchObject({ inserted: 0 })
  })

  it('are inserted all or not at all, however many they are', async () => {
    const users = (await createShop()).table('users')
    const error = await errorOf(users.insertMany(manyRows('a', 15_000)))
    expect(await users.count()).toBe(0)
    expect(error).toBeInstanceOf(InsertManyError)
    expect(error).toMatchObject({
      ...{ code: 'invalid_record', message: '1 line is invalid; nothing was inserted' },
      ...{ inserted: 0, settled: 0, isCertain: true },
    })
    expect(error.errors).toEqual([expect.objectContaining({ index: 15_000, line: 15_001 })])
    const twice = [...manyRows('b'), { email: 'b7@example.com' }]
    expect((await errorOf(users.insertMany(twice))).errors).toEqual([
      expect.objectContaining({ index: MANY, line: MANY + 1 }),
    ])
    expect(await users.count()).toBe(0)
  })

  it('that are refused name their position among all records', async () => {
    const users = (await createShop()).table('users')
    const rows = Array.from({ length: 10 }, (_, n) => ({
      email: n === 7 ? 'not an address' : `r${n}@example.com`,
    }))
    const result = await users.insertMany(rows, { mode: 'partial', batchSize: 4 })
    expect(result).toMatchObject({ inserted: 9, failed: 1 })
    expect(result.errors).toEqual([expect.objectContaining({ index: 7, line: 8 })])
  })

  it('are not read to the end if the service refuses them early', async () => {
    const client = await createShop()
    let read = 0
    let isClosed = false
    async function* rows() {
      try {
        for (; read < 100 * MANY; read++) yield { email: `s${read}@example.com` }
      } finally {
        isClosed = true
      }
    }
    const nothing = client.table('nothing' as 'users')
    expect(await errorOf(nothing.insertMany(rows()))).toMatchObject({
      ...{ code: 'table_not_found', isCertain: true },
    })
    await expect.poll(() => isClosed).toBe(true)
    expect(read).toBeLessThan(100 * MANY)
  })

  it('whose iterable fails are not inserted, and its error is thrown', async () => {
    const users = (await createShop()).table('users')
    let attempts = 0
    const rows = async function* () {
      attempts++
      yield* manyRows('f')
      throw new Error('the source has failed')
    }
    await expect(users.insertMany(rows())).rejects.toThrow('the source has failed')
    await expect(users.insertMany(rows)).rejects.toThrow('the source has failed')
    expect(attempts).toBe(2)
    expect(await users.count()).toBe(0)
  })

  it('are not inserted if the caller cancels before all are sent', async () => {
    const users = (await createShop()).table('users')
    const controller = new AbortController()
    const error = await errorOf(
      users.insertMany(manyRows('c'), {
        signal: controller.signal,
        onProgress: ({ sent }) => sent > 20_000 && sent < MANY && controller.abort(),
      }),
    )
    expect(error).toMatchObject({
      ...{ code: 'cancelled', message: 'cancelled; nothing was inserted', isCertain: true },
    })
    expect(await users.count()).toBe(0)
  })

  it('can be cancelled while the next record is not there yet', async () => {
    const users = (await createShop()).table('users')
    const waiting = async function* () {
      for (let n = 0; n < 5; n++) yield { email: `w${n}@example.com` }
      await new Promise(() => undefined)
    }
    for (const mode of ['atomic', 'partial'] as const) {
      const controller = new AbortController()
      const options = { mode, batchSize: 2, signal: controller.signal }
      const inserting = errorOf(users.insertMany(waiting(), options))
      const stored = mode === 'atomic' ? 0 : 4
      await expect.poll(() => users.count()).toBe(stored)
      controller.abort()
      expect(await inserting).toMatchObject({
        ...{ code: 'cancelled', inserted: stored, settled: stored, isCertain: true },
      })
      expect(await users.count()).toBe(stored)
    }
  })
})

describe('a connection that is cut before the answer', () => {
  type Cut = readonly [name: string, change: (client: Client<Shop>) => Promise<unknown>]
  const email = 'ada@example.com'
  const users = (client: Client<Shop>) => client.table('users')
  const increment = 'update users set age = age + 1 where id = $1'
  const CUTS: readonly Cut[] = [
    ['create', (client) => users(client).create({ email: 'new@example.com' })],
    ['update', (client) => users(client).update('ada', { age: { $increment: 1 } })],
    ['replace', (client) => users(client).replace('ada', { email, age: 19 })],
    ['upsert', (client) => users(client).upsert('eve', { email: 'eve@example.com' })],
    ['delete', (client) => users(client).delete('ada')],
    ['sql', (client) => client.sql.run(increment, ['ada'])],
    ['sql.batch', (client) => client.sql.batch([{ statement: increment, params: ['ada'] }])],
    ['transaction', (client) => client.transaction([{ delete: { table: 'users', id: 'ada' } }])],
    ['insertMany', (client) => users(client).insertMany([{ email: 'one@example.com' }])],
    ['merge', (client) => client.branch('dev').merge()],
    ['pull', (client) => client.branch('dev').pull()],
    ['reset', (client) => client.branch('dev').reset()],
  ]

  /** Everything that a change can change. */
  const stateOf = async (client: Client<Shop>) => {
    const read = async (branch: string) =>
      (
        await client
          .branch(branch)
          .table('users')
          .query({ sort: { email: 'asc' } })
          .all()
      ).map(({ email, age, service }) => ({ email, age, version: service.version }))
    const merges = (await client.database.branches()).map((branch) => branch.merges?.length)
    return { main: await read('main'), dev: await read('dev'), merges }
  }

  it.each(CUTS)('lets %s take effect once, with its answer', async (_name, change) => {
    const proxy = await CuttingProxy.start({ host: '127.0.0.1', port: Number(new URL(url).port) })
    try {
      let sent = 0
      const client = await createShop({
        url: `http://127.0.0.1:${proxy.port}`,
        fetch: (...request) => {
          if (++sent === 2) proxy.heal()
          return fetch(...request)
        },
      })
      await users(client).create({ id: 'ada', email })
      await client.branch('main').fork('dev')
      await client.branch('dev').table('users').update('ada', { age: 20 })
      await users(client).create({ id: 'bob', email: 'bob@example.com' })
      // The same on an intact connection.
      const twin = await createShop()
      await users(twin).create({ id: 'ada', email })
      await twin.branch('main').fork('dev')
      await twin.branch('dev').table('users').update('ada', { age: 20 })
      await users(twin).create({ id: 'bob', email: 'bob@example.com' })
      const expected = shapeOf(await change(twin))
      sent = 0
      proxy.cutAfter('response', 0)
      expect(shapeOf(await change(client))).toEqual(expected)
      expect({ sent, cuts: proxy.cuts }).toEqual({ sent: 2, cuts: 1 })
      expect(shapeOf(await stateOf(client))).toEqual(shapeOf(await stateOf(twin)))
    } finally {
      await proxy.close()
    }
  })

  /** A value without what differs between two databases: generated ids, names and times. */
  function shapeOf(value: unknown): unknown {
    const text = JSON.stringify(value ?? null)
    return JSON.parse(
      text.replace(/shop\d+|(rec|bb|mig|log|cp)_\w+|\d{4}-\d\d-\d\dT[\d:.]+Z/g, '*'),
    )
  }
})

describe('a connection that breaks while many records are sent', () => {
  const RECORDS = 30_000
  function* rows() {
    for (let n = 0; n < RECORDS; n++) yield { email: `p${n}@example.com`, name: 'x'.repeat(40) }
  }

  async function withProxy<Result>(
    run: (proxy: CuttingProxy, client: Client<Shop>) => Promise<Result>,
  ): Promise<Result> {
    const proxy = await CuttingProxy.start({ host: '127.0.0.1', port: Number(new URL(url).port) })
    try {
      return await run(proxy, await createShop({ url: `http://127.0.0.1:${proxy.port}` }))
    } finally {
      await proxy.close()
    }
  }

  it('before all are sent inserts nothing, and the error says so', async () => {
    await withProxy(async (proxy, client) => {
      const users = client.table('users')
      proxy.cutAfter('request', 1024 * 1024)
      const unfinished = async function* () {
        yield* rows()
        // There is more to come.
        await new Promise(() => undefined)
      }
      const error = await errorOf(users.insertMany(unfinished()))
      expect(error).toMatchObject({ code: 'unreachable', isCertain: true })
      expect(error.message).toContain('nothing was inserted')
      proxy.heal()
      expect(await users.count()).toBe(0)
    })
  })

  it('before the answer leaves it open whether they are stored, and the error says so', async () => {
    await withProxy(async (proxy, client) => {
      const users = client.table('users')
      proxy.cutAfter('response', 0)
      const error = await errorOf(users.insertMany(rows()))
      expect(error).toMatchObject({ code: 'unreachable', isCertain: false })
      expect(error.message).toContain('it is not known whether the records were inserted')
      proxy.heal()
      expect(await users.count()).toBe(RECORDS)
    })
  })

  it('is no harm if the records can be read again: they are stored once', async () => {
    await withProxy(async (proxy, client) => {
      const users = client.table('users')
      let attempts = 0
      proxy.cutAfter('response', 0)
      const result = await users.insertMany(() => {
        if (++attempts === 2) proxy.heal()
        return rows()
      })
      expect(result).toMatchObject({ inserted: RECORDS })
      expect(attempts).toBe(2)
      expect(proxy.cuts).toBe(1)
      expect(await users.count()).toBe(RECORDS)
    })
  })

  it('leaves it open whether they are stored if they cannot be read again', async () => {
    await withProxy(async (proxy, client) => {
      let attempts = 0
      proxy.cutAfter('response', 0)
      const error = await errorOf(
        client.table('users').insertMany(() => {
          if (++attempts === 2) throw new Error('the file is gone')
          return rows()
        }),
      )
      expect(error).toMatchObject({ isCertain: false })
      expect(error.message).toContain('the file is gone; it is not known whether')
    })
  })

  it('in the mode `partial` leaves what was settled, and the error says how many', async () => {
    await withProxy(async (proxy, client) => {
      const users = client.table('users')
      const error = await errorOf(
        users.insertMany(rows(), {
          mode: 'partial',
          batchSize: 1000,
          onProgress: ({ sent }) => {
            if (sent === 3000) proxy.cutAfter('request', 0)
          },
        }),
      )
      expect(error).toMatchObject({ inserted: 3000, settled: 3000, isCertain: false })
      expect(error.message).toContain('of the first 3000 records, 3000 were inserted')
      proxy.heal()
      expect(await users.count()).toBe(3000)
    })
  })
})

describe('transactions', () => {
  it('return a typed result for each operation', async () => {
    const client = await createShop()
    await client.table('users').create({ id: 'ada', email: 'ada@example.com', name: 'Ada' })
    const [created, changed, read, deleted] = await client.transaction([
      { insert: { table: 'users', record: { id: 'grace', email: 'grace@example.com' } } },
      {
        update: {
          table: 'users',
          id: 'grace',
          fields: { age: { $increment: 1 } },
          columns: ['age'],
        },
      },
      { get: { table: 'users', id: 'ada', columns: ['name'] } },
      { delete: { table: 'users', id: 'ada' } },
    ])
    expectTypeOf(created.id).toEqualTypeOf<string>()
    expectTypeOf(changed.columns.age).toEqualTypeOf<number>()
    expectTypeOf(read.columns?.name).toEqualTypeOf<string | undefined>()
    expect(created).toMatchObject({ operation: 'insert', id: 'grace', rows: 1 })
    expect(changed.columns).toMatchObject({ age: 19 })
    expect(read.columns).toMatchObject({ name: 'Ada' })
    expect(deleted).toMatchObject({ operation: 'delete', rows: 1 })
  })

  it('apply nothing if one operation fails, and say which', async () => {
    const client = await createShop()
    const error = await errorOf(
      client.transaction([
        { insert: { table: 'users', record: { id: 'ada', email: 'ada@example.com' } } },
        { update: { table: 'users', id: 'nobody', fields: { name: 'x' } } },
      ]),
    )
    expect(error.errors?.map(({ index }) => index)).toEqual([1])
    expect(await client.table('users').read('ada')).toBeUndefined()
  })
})

describe('SQL', () => {
  it('takes the values of a template as parameters', async () => {
    const client = await createShop()
    await client.table('users').create({ id: 'ada', email: 'ada@example.com', name: "O'Hara" })
    const name = "O'Hara"
    const { records, total } = await client.sql<{ id: string }>`
      select id from users where name = ${name} and age >= ${18}`
    expect(records).toEqual([{ id: 'ada' }])
    expect(total).toBe(1)
    const [one, two] = await client.sql.batch([
      { statement: 'select 1 as n' },
      { statement: 'select $1::int + 1 as n', params: [1] },
    ])
    expect([one?.records, two?.records]).toEqual([[{ n: 1 }], [{ n: 2 }]])
  })
})

describe('the result of SQL', () => {
  it('is whole, however many rows it has', async () => {
    const client = await createShop()
    const { records, total } = await client.sql.run('select i from generate_series(1, 20161) i')
    expect(records).toHaveLength(20_161)
    expect(total).toBe(20_161)
    const [first, second] = await client.sql.batch([
      { statement: 'select i from generate_series(1, 1001) i' },
      { statement: 'select 1 as one' },
    ])
    expect(first?.records).toHaveLength(1001)
    expect(second?.records).toEqual([{ one: 1 }])
  })

  it('is an error if it is too large, and has a warning only for a caller that wants the first rows', async () => {
    const client = await createShop()
    const statement = `select i from generate_series(1, ${LIMITS.sqlRowsMax + 1}) i`
    expect(await errorOf(client.sql.run(statement))).toMatchObject({
      code: 'query_too_costly',
      message: expect.stringContaining(`more than ${LIMITS.sqlRowsMax} rows`),
    })
    const first = await client.sql.run(statement, [], { rowsMax: 5 })
    expect(first.records).toHaveLength(5)
    expect(first.warning).toContain('first 5 rows')
  })

  it('of a service that returns a part is an error', async () => {
    const part = { records: [{ i: 1 }], columns: [], total: 1, warning: 'there are more' }
    const { sql } = createClient({
      ...{ url, apiKey: 'k', database: 'shop', branch: 'main' },
      fetch: async (input) =>
        Response.json(String(input).endsWith('/batch') ? { results: [part] } : part),
    })
    const incomplete = { code: 'incomplete_result', message: 'there are more' }
    expect(await errorOf(sql.run('select i from t'))).toMatchObject(incomplete)
    expect(await errorOf(sql`select i from t`)).toMatchObject(incomplete)
    expect(await errorOf(sql.batch([{ statement: 'select i from t' }]))).toMatchObject(incomplete)
  })

  it('has exact numbers: those that JavaScript would round are texts', async () => {
    const { sql } = await createShop()
    const { records } = await sql`select
      9007199254740993::int8 as large,
      (-9223372036854775808)::int8 as least,
      9007199254740991::int8 as safe,
      count(*) as counted,
      12345678901234567890.123456789::numeric as long,
      1.10::numeric as short,
      1e400::numeric as huge,
jsonb_build_object('n', 9007199254740993, 'text', ${'9007199254740993 \\\\" 1'}::text) as document,
      array[9007199254740993, 1] as list,
      0.1::float8 + 0.2 as float,
      1e23::float8 as middle,
      5e-324::float8 as tiny,
      0.1::float4 as single,
      ${2n ** 62n}::int8 as given`
    expect(records).toEqual([
      {
        large: '9007199254740993',
        least: '-9223372036854775808',
        safe: 9007199254740991,
        counted: 1,
        long: '12345678901234567890.123456789',
        short: 1.1,
        huge: `1${'0'.repeat(400)}`,
        document: { n: '9007199254740993', text: '9007199254740993 \\\\" 1' },
        list: ['9007199254740993', 1],
        float: 0.1 + 0.2,
        middle: 1e23,
        tiny: 5e-324,
        single: 0.1,
        given: '4611686018427387904',
      },
    ])
    const [arrays] = await sql.arrays([{ statement: 'select 9007199254740993 as n' }])
    expect(arrays?.rows).toEqual([['9007199254740993']])
  })
})

describe('files', () => {
  it('are uploaded and downloaded as a blob or a stream', async () => {
    const users = (await createShop()).table('users')
    await users.create({ id: 'ada', email: 'ada@example.com' })
    const photo = users.file('ada', 'photo')
    expect(await photo.download()).toBeUndefined()
    const info = await photo.upload(new Blob(['hello'], { type: 'text/plain' }))
    expect(info).toMatchObject({ size: 5, mediaType: 'text/plain' })
    expect(await (await photo.download())?.text()).toBe('hello')
    const paper = users.file('ada', 'papers', 'letter')
    await paper.upload(new Blob(['Dear ', 'Charles']).stream(), { mediaType: 'text/plain' })
    const stream = await paper.stream()
    expect(await new Response(stream).text()).toBe('Dear Charles')
    expect((await users.read('ada'))?.papers).toHaveLength(1)
    await photo.delete()
    expect(await photo.download()).toBeUndefined()
  })
})

describe('branches', () => {
  it('are forked, compared, merged, pulled, reset and deleted', async () => {
    const client = await createShop()
    await client.table('users').create({ id: 'ada', email: 'ada@example.com', name: 'Ada' })
    const dev = await client.branch('main').fork('dev', { ttl: 3600 })
    await dev.table('users').update('ada', { name: 'Countess' })
    await dev.table('users').create({ id: 'grace', email: 'grace@example.com' })
    const changes = []
    for await (const change of dev.changes()) changes.push(change)
    expect(changes).toEqual([
      {
        table: 'users',
        change: 'updated',
        id: 'ada',
        columns: { name: { from: 'Ada', to: 'Countess' } },
      },
      expect.objectContaining({ table: 'users', change: 'inserted', id: 'grace' }),
    ])
    expect(await dev.merge({ dryRun: true })).toMatchObject({ merged: false, conflictCount: 0 })
    expect((await client.table('users').read('ada'))?.name).toBe('Ada')
    expect(await dev.merge()).toMatchObject({ merged: true, into: 'main' })
    expect((await client.table('users').read('ada'))?.name).toBe('Countess')
    await client.table('users').update('ada', { name: 'Lady' })
    expect(await dev.pull()).toMatchObject({ merged: true, from: 'main' })
    expect((await dev.table('users').read('ada'))?.name).toBe('Lady')
    await dev.table('users').delete('ada')
    await dev.reset()
    expect((await dev.table('users').read('ada'))?.name).toBe('Lady')
    expect((await dev.stats()).rows.inherited).toBe(2)
    await dev.update({ protected: true })
    expect((await client.database.branches()).map(({ name }) => name)).toEqual(['dev', 'main'])
    expect(await errorOf(dev.delete())).toMatchObject({ code: 'protected_branch' })
    await dev.update({ protected: false })
    await dev.delete()
    expect(await errorOf(dev.get())).toMatchObject({ code: 'branch_not_found', status: 404 })
  })

  it('list all changes, however many', async () => {
    const client = await createShop()
    const dev = await client.branch('main').fork('dev')
    await dev
      .table('users')
      .insertMany(
        Array.from({ length: 450 }, (_, n) => ({ id: `c${n}`, email: `c${n}@example.com` })),
      )
    await dev.table('teams').create({ id: 'core', name: 'Core' })
    const ids = new Set<string>()
    for await (const { table, id } of dev.changes()) ids.add(`${table}/${id}`)
    expect(ids.size).toBe(451)
  })

  it('that contradict each other are reported with their conflicts', async () => {
    const client = await createShop()
    const users = client.table('users')
    await users.create({ id: 'ada', email: 'ada@example.com', name: 'Ada' })
    const dev = await client.branch('main').fork('dev')
    await users.update('ada', { name: 'A' })
    await dev.table('users').update('ada', { name: 'B' })
    const error = await errorOf(dev.merge())
    expect(error.code).toBe('merge_conflict')
    expect(error.body.conflictCount).toBe(1)
    await dev.merge({ strategy: 'theirs' })
    expect((await users.read('ada'))?.name).toBe('B')
  })

  it('are settled conflict by conflict, with the tokens of what was shown', async () => {
    const client = await createShop()
    const users = client.table('users')
    for (const id of ['ada', 'bob']) await users.create({ id, email: `${id}@example.com` })
    const dev = await client.branch('main').fork('dev')
    for (const id of ['ada', 'bob']) {
      await users.update(id, { name: 'ours' })
      await dev.table('users').update(id, { name: 'theirs' })
    }
    const resolutions: Resolution[] = []
    for await (const conflict of dev.mergeConflicts()) {
      if (conflict.kind !== 'bothUpdated') throw new Error(conflict.kind)
      expect(conflict.columns.name).toEqual({ base: null, ours: 'ours', theirs: 'theirs' })
      resolutions.push(
        conflict.id === 'ada'
          ? resolutionOf(conflict, 'theirs')
          : resolutionOf(conflict, { name: { value: 'both' } }),
      )
    }
    await users.update('bob', { name: 'later' })
    expect(await errorOf(dev.merge({ resolutions }))).toMatchObject({
      code: 'outdated_resolution',
      status: 409,
      errors: [{ index: 1 }],
    })
    const { value: bob } = await dev.mergeConflicts({ resolutions: resolutions.slice(0, 1) }).next()
    if (bob?.kind !== 'bothUpdated') throw new Error('bob must be in conflict')
    resolutions[1] = resolutionOf(bob, { name: { value: 'both' } })
    await dev.merge({ resolutions })
    expect((await users.read('ada'))?.name).toBe('theirs')
    expect((await users.read('bob'))?.name).toBe('both')
  })

  it('belong to branches of git', async () => {
    const { database } = await createShop()
    const { branch } = await database.resolveBranch({ gitBranch: 'feat/login', create: true })
    expect(await database.gitBranches()).toEqual([
      { gitBranch: 'feat/login', serviceBranch: branch },
    ])
    await database.unmapGitBranch('feat/login')
    expect(await database.gitBranches()).toEqual([])
    await database.setRules([{ pattern: 'preview-*', ttl: 60 }])
    expect(await database.rules()).toEqual([{ pattern: 'preview-*', ttl: 60 }])
  })
})

describe('the account', () => {
  it('lists workspaces and databases, and creates keys that work', async () => {
    const client = await createShop()
    const { account } = client
    expect((await account.workspaces()).map(({ id }) => id)).toContain(service.workspaceId)
    const names = (await account.databases(service.workspaceId)).map(({ name }) => name)
    expect(names).toContain(client.database.name)
    const { key } = await account.createKey('reader', { scope: { access: 'read' } })
    const reader = createClient<Shop>({
      url,
      apiKey: key,
      workspace: service.workspaceId,
      database: client.database.name,
      branch: 'main',
    })
    expect(await reader.table('users').count()).toBe(0)
    const error = await errorOf(reader.table('users').create({ email: 'a@example.com' }))
    expect(error).toMatchObject({ code: 'key_scope', status: 403 })
    await account.deleteKey('reader')
    expect(await errorOf(reader.table('users').count())).toMatchObject({ code: 'invalid_api_key' })
    await account.deleteDatabase(service.workspaceId, client.database.name)
    expect(await errorOf(client.table('users').count())).toMatchObject({
      code: 'database_not_found',
    })
  })
})

/** Forwards requests to the service. `lose` decides which answers are lost on the way back. */
async function startLossyProxy(lose: (url: string) => boolean): Promise<{
  url: string
  received: string[]
  close(): void
}> {
  const received: string[] = []
  const proxy: Server = createServer(async (request, response) => {
    received.push(`${request.method} ${request.url}`)
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const { host: _host, connection: _connection, ...headers } = request.headers
    const answer = await fetch(`${url}${request.url}`, {
      method: request.method ?? 'GET',
      headers: headers as Record<string, string>,
      ...(chunks.length === 0 ? {} : { body: Buffer.concat(chunks) }),
    })
    const body = Buffer.from(await answer.arrayBuffer())
    if (lose(request.url ?? '')) request.socket.destroy()
    else {
      response.writeHead(answer.status, {
        'content-type': answer.headers.get('content-type') ?? 'text/plain',
      })
      response.end(body)
    }
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, received, close: () => proxy.close() }
}

describe('a lost answer', () => {
  it('of a transaction or a bulk insert is asked for again, and nothing is applied twice', async () => {
    const direct = await createShop()
    const lost = new Set<string>()
    const proxy = await startLossyProxy((path) => {
      const action = /\/(bulk|transaction)/.exec(path)?.[1]
      if (action === undefined || lost.has(action)) return false
      lost.add(action)
      return true
    })
    try {
      const client = createClient<Shop>({
        url: proxy.url,
        apiKey: service.key,
        workspace: service.workspaceId,
        database: direct.database.name,
        branch: 'main',
      })
      await client.transaction([
        { insert: { table: 'teams', record: { name: 'Core' } } },
        { insert: { table: 'teams', record: { name: 'Edge' } } },
      ])
      await client.table('users').insertMany([{ email: 'ada@example.com' }])
      expect(lost).toEqual(new Set(['transaction', 'bulk']))
      expect(await direct.table('teams').count()).toBe(2)
      expect(await direct.table('users').count()).toBe(1)
    } finally {
      proxy.close()
    }
  })

  it('of a change without an idempotency key is an error, because it may have been applied', async () => {
    const direct = await createShop()
    const proxy = await startLossyProxy((path) => path.endsWith(':main'))
    try {
      const client = createClient<Shop>({
        url: proxy.url,
        apiKey: service.key,
        workspace: service.workspaceId,
        database: direct.database.name,
        branch: 'main',
      })
      const error = await errorOf(client.branch('main').update({ protected: false }))
      expect(error).toMatchObject({ code: 'unreachable', status: 0 })
      expect(proxy.received.filter((request) => request.endsWith(':main'))).toHaveLength(1)
    } finally {
      proxy.close()
    }
  })

  it('of a new record is asked for again, and the record is created once', async () => {
    const direct = await createShop()
    let isLost = true
    const proxy = await startLossyProxy((path) => {
      const loses = isLost && path.endsWith('/data')
      if (loses) isLost = false
      return loses
    })
    try {
      const client = createClient<Shop>({
        url: proxy.url,
        apiKey: service.key,
        workspace: service.workspaceId,
        database: direct.database.name,
        branch: 'main',
      })
      const record = { id: 'ada', email: 'ada@example.com' }
      expect(await client.table('users').create(record)).toMatchObject({ id: 'ada' })
      expect(proxy.received.filter((request) => request.endsWith('/data'))).toHaveLength(2)
      expect(await direct.table('users').count()).toBe(1)
    } finally {
      proxy.close()
    }
  })
})

describe('an answer that asks for patience', () => {
  it('is followed by another attempt after the time that it names', async () => {
    let attempts = 0
    const busy = createServer((_request, response) => {
      attempts++
      if (attempts < 3) {
        response.writeHead(429, { 'retry-after': '0' })
        response.end(JSON.stringify({ id: 'req_1', code: 'rate_limited', message: 'slow down' }))
      } else response.end('{"records":[],"meta":{"page":{"cursor":"c","more":false}}}')
    })
    await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
    const { port } = busy.address() as AddressInfo
    const options = {
      apiKey: 'k',
      database: 'shop',
      branch: 'main',
      url: `http://127.0.0.1:${port}`,
    }
    try {
      expect(await createClient(options).table('users').query().all()).toEqual([])
      expect(attempts).toBe(3)
      attempts = 0
      const error = await errorOf(
        createClient({ ...options, retries: 1 })
          .table('users')
          .query()
          .all(),
      )
      expect(error).toMatchObject({ code: 'rate_limited', status: 429 })
      expect(attempts).toBe(2)
    } finally {
      busy.close()
    }
  })

  it('of more than a minute is an error at once', async () => {
    let attempts = 0
    const busy = createServer((_request, response) => {
      attempts++
      response.writeHead(503, { 'retry-after': '61' })
      response.end(JSON.stringify({ id: 'req_1', code: 'overloaded', message: 'later' }))
    })
    await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
    const { port } = busy.address() as AddressInfo
    const url = `http://127.0.0.1:${port}`
    const client = createClient({ url, apiKey: 'k', database: 'shop', branch: 'main' })
    expect(await errorOf(client.table('users').count())).toMatchObject({ code: 'overloaded' })
    expect(attempts).toBe(1)
    busy.close()
  })

  it('does not keep a cancelled request waiting', async () => {
    const busy = createServer((_request, response) => {
      response.writeHead(503, { 'retry-after': '50' })
      response.end(JSON.stringify({ id: 'req_1', code: 'overloaded', message: 'later' }))
    })
    await new Promise<void>((resolve) => busy.listen(0, '127.0.0.1', resolve))
    const { port } = busy.address() as AddressInfo
    const controller = new AbortController()
    busy.once('request', () => controller.abort(new Error('no longer needed')))
    const call = createClient({
      url: `http://127.0.0.1:${port}`,
      apiKey: 'k',
      database: 'shop',
      branch: 'main',
    })
      .table('users')
      .read('ada', { signal: controller.signal })
    await expect(call).rejects.toThrow('no longer needed')
    busy.close()
  })
})

describe('errors', () => {
  it('name the server that does not answer', async () => {
    const client = createClient({
      url: 'http://127.0.0.1:9',
      apiKey: 'k',
      database: 'shop',
      branch: 'main',
      retries: 0,
    })
    const error = await errorOf(client.table('users').count())
    expect(error.code).toBe('unreachable')
    expect(error.message).toContain('http://127.0.0.1:9')
  })

  it('tell a server that is not Offshoot', async () => {
    const other = createServer((_request, response) => response.writeHead(404).end('<h1>No</h1>'))
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
    const { port } = other.address() as AddressInfo
    const client = createClient({
      url: `http://127.0.0.1:${port}`,
      apiKey: 'k',
      database: 'shop',
      branch: 'main',
    })
    expect(await errorOf(client.table('users').count())).toMatchObject({
      code: 'unexpected_answer',
      status: 404,
    })
    other.close()
  })

  it('name the option that is missing', () => {
    const options = { url, apiKey: '', database: 'shop', branch: 'main' }
    expect(() => createClient(options)).toThrow('[apiKey]')
  })
})

type KeyOfUnion<Union> = Union extends unknown ? keyof Union : never

describe('the types of the client', () => {
  it('are those of the contract', () => {
    expect([...SERVICE_ERROR_CODES].sort()).toEqual(Object.keys(ERROR_CODES).sort())
    expectTypeOf<SchemaDefinition>().toExtend<Schema>()
    expectTypeOf<Schema>().toExtend<SchemaDefinition>()
    expectTypeOf<SchemaOperation>().toExtend<SchemaOperationOfClient>()
    expectTypeOf<SchemaOperationOfClient>().toExtend<SchemaOperation>()
    expectTypeOf<Resolution>().toExtend<ResolutionOfContract>()
    // The kinds of a conflict are one object in the contract, and several in the client.
    expectTypeOf<MergeConflict['kind']>().toEqualTypeOf<ConflictOfContract['kind']>()
    expectTypeOf<KeyOfUnion<MergeConflict>>().toEqualTypeOf<keyof ConflictOfContract>()
    type WithoutConflicts = Omit<MergeResult, 'conflicts'>
    const same = (result: Branches.MergeResult): WithoutConflicts => result
    expectTypeOf(same).returns.toEqualTypeOf<WithoutConflicts>()
  })
})
