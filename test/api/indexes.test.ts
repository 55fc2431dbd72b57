import { setTimeout as delay } from 'node:timers/promises'
import { LIMITS } from '@offshoot/contract/limits'
import type { Column } from '@offshoot/contract/schema'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { indexes } from '../../packages/server/src/postgres/migrations/004-indexes.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { listValidIndexes } from '../support/indexes.js'
import { until } from '../support/process.js'
import { Random } from '../support/seeded-random.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk, XATA_CLIENT } from '../support/tables.js'

let service: TestService
let second: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
  second = await createTestService({ url: service.url })
})
afterAll(async () => {
  await second.close()
  await service.close()
})

const COLUMNS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'age', type: 'int' },
  { name: 'email', type: 'email', unique: true },
  { name: 'friend', type: 'link', link: { table: 'people' } },
  { name: 'address', type: 'object', columns: [{ name: 'city', type: 'string' }] },
  { name: 'notes', type: 'text' },
]

const open = () => TestBranches.create(service, `indexes${++number}`, { people: COLUMNS })
const at = (column: string, table = 'people') => `/tables/${table}/columns/${column}/index`
const put = async (branches: TestBranches, column: string, branch = 'main') =>
  expectOk(await branches.call(branch, 'PUT', at(column))).body
const remove = async (branches: TestBranches, column: string, branch = 'main') =>
  expectOk(await branches.call(branch, 'DELETE', at(column)))
const list = async (branches: TestBranches, branch = 'main', table = 'people') =>
  expectOk(await branches.call(branch, 'GET', `/tables/${table}/indexes`)).body.indexes

const physical = (branches: TestBranches, branch = 'main') =>
  listValidIndexes(branches, { branch, kind: 'index' })

/**
 * Adds so many rows that an index is built in the background. Uses SQL, because the API would take
 * longer.
 */
async function fill(branches: TestBranches, name = "'Name ' || n"): Promise<string> {
  const [heap] = await service.database.query<{
    id: string
    databaseId: string
    columnIds: string[]
  }>(sql`
    select h.id, h.database_id as "databaseId", h.column_ids as "columnIds"
    from offshoot.heaps h
    join offshoot.databases d on d.id = h.database_id
    where d.name = ${branches.database}`)
  if (heap === undefined) throw new Error('a table has a heap')
  const client = await connect()
  const [first, second] = heap.columnIds
  await client.query(`
    insert into offshoot_db_${heap.databaseId}.heap_${heap.id} (id, epoch, c${first}, c${second})
    select 'r' || n, 1, ${name}, n % 100 from generate_series(1, 15000) n`)
  await client.end()
  return heap.id
}

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: service.url })
  await client.connect()
  return client
}

/** Waits until this many connections wait for a lock, or until `waiting` has settled. */
async function untilWaiting(count: number, waiting: Promise<unknown>): Promise<void> {
  let isOver = false
  const end = () => {
    isOver = true
  }
  waiting.then(end, end)
  while (!isOver) {
    const rows = await service.database.query(sql`
      select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`)
    if (rows.length >= count) return
    await delay(5)
  }
}

const LINK = { column: 'friend', origin: 'link', state: 'ready' }
const UNIQUE = { column: 'email', origin: 'unique', state: 'ready' }

describe('an index', () => {
  it('is there for links and unique columns, and for others when asked for', async () => {
    const branches = await open()
    expect(await list(branches)).toEqual([UNIQUE, LINK])
    const asked = { column: 'age', origin: 'asked', state: 'ready' }
    expect(await put(branches, 'age')).toEqual(asked)
    expect(await put(branches, 'age')).toEqual(asked)
    expect(await put(branches, 'address.city')).toMatchObject({ column: 'address.city' })
    expect(expectOk(await branches.call('main', 'GET', at('age'))).body).toEqual(asked)
    expect(await list(branches)).toEqual([
      asked,
      UNIQUE,
      LINK,
      { column: 'address.city', origin: 'asked', state: 'ready' },
    ])
    expect(await physical(branches)).toEqual([
      'heap age',
      'heap city',
      'heap friend',
      'past age',
      'past city',
      'past friend',
    ])
  })

  it('can be taken away, that of a link too, and asked for again', async () => {
    const branches = await open()
    await put(branches, 'age')
    for (const column of ['age', 'friend']) {
      expect((await remove(branches, column)).status).toBe(204)
      expect(await branches.call('main', 'DELETE', at(column))).toMatchObject({
        status: 404,
        body: {
          code: 'index_not_found',
          message: `table [people]: column [${column}]: has no index`,
        },
      })
    }
    await service.indexes.run()
    expect(await physical(branches)).toEqual([])
    expect(await put(branches, 'friend')).toEqual({ ...LINK, origin: 'asked' })
    expect(await physical(branches)).toEqual(['heap friend', 'past friend'])
  })

  it('of a unique column stays, whatever is asked', async () => {
    const branches = await open()
    expect(await put(branches, 'email')).toEqual(UNIQUE)
    expect(await branches.call('main', 'DELETE', at('email'))).toMatchObject({
      status: 400,
      body: {
        message: 'table [people]: column [email]: is unique, so its index cannot be deleted',
      },
    })
  })

  it.each([
    ['notes', 400, 'table [people]: column [notes]: a column of type [text] cannot be indexed'],
    [
      'address',
      400,
      'table [people]: column [address]: a column of type [object] cannot be indexed',
    ],
    ['nothing', 404, 'table [people]: column [nothing]: column not found'],
  ])('of column [%s] is refused', async (column, status, message) => {
    const branches = await open()
    expect(await branches.call('main', 'PUT', at(column))).toMatchObject({
      status,
      body: { message },
    })
    expect(await branches.call('main', 'GET', at('x', 'nowhere'))).toMatchObject({
      status: 404,
      body: { message: 'table [nowhere] not found' },
    })
    expect(await list(branches)).toEqual([UNIQUE, LINK])
  })

  it('can be asked for on as many columns as the limit says', async () => {
    const few = await createTestService({ url: service.url, limits: { indexesPerTableMax: 1 } })
    const branches = (await open()).through(few)
    await put(branches, 'age')
    await put(branches, 'age')
    expect(await branches.call('main', 'PUT', at('name'))).toMatchObject({
      status: 422,
      body: {
        code: 'limit_reached',
        message: 'table [people]: cannot have more than 1 requested indexes; delete one first',
      },
    })
    await remove(branches, 'age')
    await put(branches, 'name')
    await few.close()
    expect(LIMITS.indexesPerTableMax).toBe(32)
  })

  it('is no schema edit of a protected branch', async () => {
    const branches = await open()
    expectOk(await branches.call('main', 'PATCH', '', { protected: true }))
    for (const [method, column] of [
      ['PUT', 'age'],
      ['DELETE', 'friend'],
    ] as const) {
      expect(await branches.call('main', method, at(column))).toMatchObject({
        status: 409,
        body: { code: 'protected_branch' },
      })
    }
  })

  it('holds no text of more than 2400 bytes', async () => {
    const branches = await open()
    await put(branches, 'name')
    const long = (length: number) => '🌳'.repeat(length / 4)
    await branches.put('main', 'people', 'a'.repeat(255), { name: long(2400) })
    expect(
      await branches.call('main', 'PUT', '/tables/people/data/b', { name: long(2404) }),
    ).toMatchObject({
      status: 400,
      body: {
        message:
          'invalid record: column [name]: is longer than 2400 bytes, the limit of an indexed column',
      },
    })
    await remove(branches, 'name')
    await service.indexes.run()
    await branches.put('main', 'people', 'b', { name: randomText(4000) })
    expect(await branches.call('main', 'PUT', at('name'))).toMatchObject({
      status: 400,
      body: {
        code: 'invalid_schema',
        message: 'column [name]: cannot be indexed: a value is longer than 2400 bytes',
      },
    })
    expect(await list(branches)).toEqual([UNIQUE, LINK])
  })
})

/** Makes text of four bytes a character that compresses poorly. */
function randomText(bytes: number): string {
  const random = new Random(1)
  const characters = Array.from({ length: bytes / 4 }, () => 0x20000 + random.below(40_000))
  return String.fromCodePoint(...characters)
}

describe('an index of many rows', () => {
  it('is made in the background while records are written', async () => {
    const branches = await open()
    await fill(branches)
    const writing = Array.from({ length: 50 }, (_, index) =>
      branches.put('main', 'people', `new${index}`, { age: 1000 + index }),
    )
    expect(await put(branches, 'age')).toMatchObject({ state: 'building' })
    await Promise.all(writing)
    await service.indexes.run()
    expect(await branches.call('main', 'GET', at('age'))).toMatchObject({
      body: { state: 'ready' },
    })
    expect(await physical(branches)).toContain('heap age')
    const found = await branches.call('main', 'POST', '/tables/people/query', {
      filter: { age: { $ge: 1000 } },
      sort: { age: 'desc' },
      page: { size: 1 },
    })
    expect(found.body.records).toMatchObject([{ id: 'new49' }])
  })

  it('that was interrupted is made again by whoever comes next', async () => {
    const branches = await open()
    const heapId = await fill(branches)
    // Leave an invalid index, as a process does that is killed while it builds one.
    const [row] = await service.database.query<{ databaseId: string; columnIds: string[] }>(sql`
      select database_id as "databaseId", column_ids as "columnIds"
      from offshoot.heaps
      where id = ${heapId}`)
    const schema = `offshoot_db_${row?.databaseId}`
    const columnId = row?.columnIds[1] ?? ''
    const [index, table] = [ident(`heap_${heapId}_c${columnId}_index`), ident(`heap_${heapId}`)]
    const column = ident(`c${columnId}`)
    await service.database
      .query(sql`
        create unique index concurrently ${index} on ${ident(schema)}.${table} (${column})`)
      .catch(() => undefined)
    await put(branches, 'age')
    await service.indexes.run()
    await runBackground(second)
    await second.indexes.run()
    expect(await physical(branches)).toEqual(['heap age', 'heap friend', 'past age', 'past friend'])
    const [made] = await service.database.query<{ definition: string }>(sql`
      select pg_get_indexdef(${`${schema}.heap_${heapId}_c${columnId}_index`}::regclass) as definition`)
    expect(made?.definition).toContain(`(c${columnId}, id)`)
  })

  it('is made once, however many processes want to', async () => {
    const branches = await open()
    await fill(branches)
    await Promise.all(
      ['name', 'age', 'address.city'].map((column, index) =>
        put(index === 1 ? branches.through(second) : branches, column),
      ),
    )
    await Promise.all([service, second].map(({ indexes }) => indexes.run()))
    await service.indexes.run()
    expect((await list(branches)).map(({ state }: { state: string }) => state)).toEqual([
      'ready',
      'ready',
      'ready',
      'ready',
      'ready',
    ])
    expect(await physical(branches)).toHaveLength(8)
  })

  it('that is taken back while it is made is gone in the end', async () => {
    const branches = await open()
    await fill(branches)
    for (let round = 0; round < 3; round++) {
      await put(branches, 'age')
      await remove(branches, 'age')
    }
    await Promise.all([service, second].map(({ indexes }) => indexes.run()))
    await service.indexes.run()
    expect(await physical(branches)).toEqual(['heap friend', 'past friend'])
    expect(await list(branches)).toEqual([UNIQUE, LINK])
  })

  it('that is asked for again while it is dropped is there in the end', async () => {
    const branches = await open()
    const [heap] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select h.id, h.database_id as "databaseId"
      from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${branches.database}`)
    await put(branches, 'age')
    const [atWork, reader] = [await connect(), await connect()]
    // Two locks set the order: `atWork` delays the drop until the index is requested again, and
    // that request waits for `reader`.
    await atWork.query(`select pg_advisory_lock(6001002, hashint8(${heap?.id}))`)
    await remove(branches, 'age')
    await reader.query(
      `begin; lock table offshoot_db_${heap?.databaseId}.past_${heap?.id} in access share mode`,
    )
    const asked = put(branches, 'age')
    await untilWaiting(1, asked)
    await atWork.end()
    const dropping = second.indexes.run()
    await untilWaiting(2, dropping)
    await reader.end()
    await Promise.all([asked, dropping])
    await second.indexes.run()
    expect(await physical(branches)).toEqual(['heap age', 'heap friend', 'past age', 'past friend'])
  })

  it.each([
    ['a column is added', { addColumn: { table: 'people', column: { name: 'x', type: 'int' } } }],
    ['a unique column is removed', { removeColumn: { table: 'people', column: 'email' } }],
    ['the table is removed', { removeTable: { table: 'people' } }],
  ] as const)('gives way when %s, and is made afterwards', async (_what, operation) => {
    const branches = await open()
    await fill(branches)
    // CREATE INDEX CONCURRENTLY waits for transactions with older snapshots.
    const reader = await connect()
    await reader.query('begin isolation level repeatable read; select from pg_class limit 1')
    expect(await put(branches, 'age')).toMatchObject({ state: 'building' })
    const building = second.indexes.run()
    await untilWaiting(1, building)
    // The index cannot become ready before the reader ends, so the edit did not wait for it.
    await branches.edit('main', operation)
    await reader.end()
    await building
    await second.indexes.run()
    const isThere = !('removeTable' in operation)
    expect((await physical(branches)).includes('heap age')).toBe(isThere)
  })

  it('that cannot be made does not keep others from being made', async () => {
    const [stuck, branches] = [await open(), await open()]
    const heapId = await fill(stuck)
    await fill(branches)
    const [row] = await service.database.query<{ databaseId: string; columnIds: string[] }>(sql`
      select database_id as "databaseId", column_ids as "columnIds"
      from offshoot.heaps
      where id = ${heapId}`)
    const schema = `offshoot_db_${row?.databaseId}`
    const taken = ident(`heap_${heapId}_c${row?.columnIds[1]}_index`)
    await service.database.query(sql`create table ${ident(schema)}.${taken} ()`)
    for (const each of [stuck, branches]) await put(each, 'age')
    for (let round = 0; round < 2; round++) await second.indexes.run().catch(() => undefined)
    expect(await physical(branches)).toContain('heap age')
    expect((await list(stuck))[0]).toMatchObject({ column: 'age', state: 'building' })
    await service.database.query(sql`drop table ${ident(schema)}.${taken}`)
    await second.indexes.run()
    expect(await physical(stuck)).toContain('heap age')
  })

  it('is not made any longer than there is a process that wants it', async () => {
    const connection = await service.database.openLong()
    expect(await connection.query(sql`show client_connection_check_interval`)).toEqual([
      { client_connection_check_interval: '1s' },
    ])
    await connection.end()
  })

  it('fails when a value does not fit, says so, and can be tried again', async () => {
    const branches = await open()
    await fill(branches)
    await branches.put('main', 'people', 'long', { name: randomText(4000) })
    expect(await put(branches, 'name')).toMatchObject({ state: 'building' })
    await service.indexes.run()
    const failed = {
      column: 'name',
      origin: 'asked',
      state: 'failed',
      message: 'a value is longer than 2400 bytes',
    }
    expect((await list(branches))[0]).toEqual(failed)
    expect(await physical(branches)).toEqual(['heap friend', 'past friend'])
    await branches.put('main', 'people', 'long', { name: 'short' })
    expect(await put(branches, 'name')).toMatchObject({ state: 'building' })
    await service.indexes.run()
    expect((await list(branches))[0]).toMatchObject({ state: 'ready' })
  })
})

describe('with the schema an index', () => {
  it('survives a rename, and goes with its column and its table', async () => {
    const branches = await open()
    await put(branches, 'age')
    await put(branches, 'address.city')
    await branches.edit(
      'main',
      { renameColumn: { table: 'people', oldName: 'age', newName: 'years' } },
      { renameTable: { oldName: 'people', newName: 'persons' } },
    )
    expect(await list(branches, 'main', 'persons')).toMatchObject([
      { column: 'years', origin: 'asked', state: 'ready' },
      UNIQUE,
      LINK,
      { column: 'address.city' },
    ])
    await branches.edit(
      'main',
      { removeColumn: { table: 'persons', column: 'years' } },
      { removeColumn: { table: 'persons', column: 'address' } },
    )
    await service.indexes.run()
    expect(await list(branches, 'main', 'persons')).toEqual([UNIQUE, LINK])
    expect(await physical(branches)).toEqual(['heap friend', 'past friend'])
    await branches.edit('main', { removeTable: { table: 'persons' } })
    const left = await service.database.query(sql`select from offshoot.index_work`)
    expect(left).toEqual([])
  })

  it('is not seen by clients that would not know it: no field, no migration', async () => {
    const branches = await open()
    const schemaOf = async (headers = {}) => {
      const { body } = expectOk(await branches.call('main', 'GET', '', undefined, { headers }))
      return body
    }
    const before = await schemaOf(XATA_CLIENT)
    await put(branches, 'age')
    const after = await schemaOf(XATA_CLIENT)
    expect(after).toEqual(before)
    expect(await schemaOf()).toEqual(after)
    // Uploading a dumped schema is a no-op and keeps the indexes.
    const { body } = await branches.call('main', 'POST', '/schema/compare', {
      schema: after.schema,
    })
    expect(body.edits.operations).toEqual([])
    await branches.edit('main')
    expect(await list(branches)).toMatchObject([{ column: 'age', state: 'ready' }, UNIQUE, LINK])
  })

  it('comes with a link column that is added to a table with rows', async () => {
    const branches = await open()
    await fill(branches)
    await branches.edit('main', {
      addColumn: {
        table: 'people',
        column: { name: 'boss', type: 'link', link: { table: 'people' } },
      },
    })
    await runBackground(service)
    await service.indexes.run()
    expect(await physical(branches)).toEqual([
      'heap boss',
      'heap friend',
      'past boss',
      'past friend',
    ])
  })

  it('comes with the links of tables that are older than indexes', async () => {
    const branches = await open()
    const [heap] = await service.database.query<{ name: string; databaseId: string }>(sql`
      select c.relname as name, h.database_id as "databaseId"
      from pg_class c
      join offshoot.heaps h on c.relname ~ ('^heap_' || h.id || '_c[0-9]+_index$')
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${branches.database}`)
    await service.database.query(
      sql`drop index ${ident(`offshoot_db_${heap?.databaseId}`)}.${ident(heap?.name ?? '')}`,
    )
    await service.database.query(sql`drop table offshoot.index_work`)
    await service.database.pool.query(indexes)
    expect(await list(branches)).toMatchObject([UNIQUE, { ...LINK, state: 'building' }])
    await service.indexes.run()
    expect(await list(branches)).toEqual([UNIQUE, LINK])
    expect(await physical(branches)).toEqual(['heap friend', 'past friend'])
  })
})

describe('on branches an index', () => {
  it('comes with a fork, and with the heap that the fork gets', async () => {
    const branches = await open()
    await put(branches, 'age')
    await branches.put('main', 'people', 'a', { age: 1 })
    await branches.fork('dev')
    expect(await physical(branches, 'dev')).toEqual([])
    const asked = { column: 'age', origin: 'asked', state: 'ready' }
    expect(await list(branches, 'dev')).toEqual([asked, UNIQUE, LINK])
    await branches.put('dev', 'people', 'a', { age: 2 })
    expect(await physical(branches, 'dev')).toEqual([
      'heap age',
      'heap friend',
      'past age',
      'past friend',
    ])
  })

  it('is asked for and taken away on either side alone', async () => {
    const branches = await open()
    await branches.put('main', 'people', 'a', { age: 1 })
    await branches.fork('dev')
    expect(await put(branches, 'age', 'dev')).toEqual({
      column: 'age',
      origin: 'asked',
      state: 'ready',
      message: expect.stringContaining('until the branch that they come from has it too'),
    })
    expect(await list(branches)).toEqual([UNIQUE, LINK])
    await remove(branches, 'friend')
    await service.indexes.run()
    expect(await list(branches, 'dev')).toMatchObject([
      { column: 'age' },
      UNIQUE,
      { column: 'friend', message: expect.any(String) },
    ])
  })

  it('of a removed column stays for the forks that have the column, and no longer', async () => {
    const branches = await TestBranches.create(service, 'kept', {
      people: [
        { name: 'email', type: 'email', unique: true },
        { name: 'age', type: 'int' },
      ],
    })
    expectOk(await branches.call('main', 'PUT', '/tables/people/columns/age/index'))
    await branches.put('main', 'people', 'a', { email: 'a@x.test', age: 1 })
    const indexes = async () => {
      await service.indexes.run()
      const rows = await service.database.query<{ name: string }>(sql`
        select regexp_replace(c.relname, '^heap_[0-9]+_c[0-9]+_', '') as name
        from offshoot.heaps h
        join offshoot.databases d on d.id = h.database_id
        join pg_class c on c.relname ~ ('^heap_' || h.id || '_c[0-9]+_')
        where d.name = 'kept'
        order by 1`)
      return rows.map(({ name }) => name)
    }
    await branches.fork('dev')
    await branches.fork('deep', 'dev')
    const removed = ['email', 'age'].map((column) => ({
      removeColumn: { table: 'people', column },
    }))
    await branches.edit('main', ...removed)
    expect(await indexes()).toEqual(['index', 'unique'])
    await branches.put('main', 'people', 'b', {})
    await branches.put('main', 'people', 'c', {})
    await branches.edit('dev', ...removed)
    await branches.delete('dev')
    await runBackground(service)
    expect(await indexes()).toEqual(['index', 'unique'])
    const found = await branches.call('deep', 'POST', '/tables/people/query', {
      filter: { email: 'a@x.test' },
    })
    expect(found.body.records).toMatchObject([{ id: 'a', age: 1 }])
    await branches.delete('deep')
    await runBackground(service)
    expect(await indexes()).toEqual([])
    await branches.put('main', 'people', 'd', {})
  })

  it('of a removed unique column does not refuse a record that is created again', async () => {
    const branches = await TestBranches.create(service, 'again', {
      people: [{ name: 'email', type: 'email', unique: true }],
    })
    await branches.fork('dev')
    await branches.put('dev', 'people', 'a', { email: 'a@x.test' })
    await branches.remove('dev', 'people', 'a')
    await branches.put('dev', 'people', 'b', { email: 'a@x.test' })
    await branches.fork('reader', 'dev')
    await branches.edit('dev', { removeColumn: { table: 'people', column: 'email' } })
    await branches.put('dev', 'people', 'a', {})
    expect(await branches.read('dev', 'people', ['a', 'b'])).toEqual({ a: {}, b: {} })
    expect(await branches.read('reader', 'people', ['a', 'b'])).toEqual({
      b: { email: 'a@x.test' },
    })
  })

  it('is carried by a merge and a pull, without a migration if there is nothing else', async () => {
    const branches = await open()
    await branches.put('main', 'people', 'a', { age: 1 })
    await branches.fork('dev')
    await put(branches, 'age', 'dev')
    await put(branches, 'address.city', 'dev')
    await remove(branches, 'friend', 'dev')
    const head = async () => (await branches.call('main', 'GET', '')).body.lastMigrationID
    const before = await head()
    expect((await branches.merge('dev')).schema.operations).toEqual([])
    await service.indexes.run()
    expect(await head()).toBe(before)
    expect(await physical(branches)).toEqual(['heap age', 'heap city', 'past age', 'past city'])
    await remove(branches, 'age')
    await branches.pull('dev')
    expect((await list(branches, 'dev')).map(({ column }: { column: string }) => column)).toEqual([
      'email',
      'address.city',
    ])
  })

  it('comes along with a new column, and does not stand in the way of a removal', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.edit('dev', {
      addColumn: { table: 'people', column: { name: 'height', type: 'int' } },
    })
    await put(branches, 'height', 'dev')
    await branches.merge('dev')
    expect(await physical(branches)).toContain('heap height')
    // A new index is not a change of the table, so it does not conflict with its removal.
    await branches.edit(
      'dev',
      { removeColumn: { table: 'people', column: 'friend' } },
      { removeTable: { table: 'people' } },
    )
    await put(branches, 'age')
    await branches.merge('dev')
    expect(await branches.schema('main')).toEqual({})
  })

  it('is what the source has after a reset', async () => {
    const branches = await open()
    await branches.fork('dev')
    await put(branches, 'age', 'dev')
    await put(branches, 'name')
    await branches.put('dev', 'people', 'a', { age: 1 })
    await branches.reset('dev')
    expect((await list(branches, 'dev')).map(({ column }: { column: string }) => column)).toEqual([
      'name',
      'email',
      'friend',
    ])
    await branches.put('dev', 'people', 'a', { age: 1 })
    expect(await physical(branches, 'dev')).toContain('heap name')
  })

  it('goes with the branch', async () => {
    const branches = await open()
    await branches.fork('dev')
    await put(branches, 'age', 'dev')
    await branches.put('dev', 'people', 'a', { age: 1 })
    await branches.delete('dev')
    for (let round = 0; round < 3; round++) await runBackground(service)
    const left = await service.database.query(sql`
      select from pg_class c
      join offshoot.heaps h on c.relname like 'heap_' || h.id || '_c%'
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${branches.database} and c.relname like '%_index'`)
    expect(left).toHaveLength(1)
  })
})

describe('the build of an index of many rows', () => {
  const operationsOf = async (branches: TestBranches) =>
    expectOk(await branches.call('main', 'GET', '/operations')).body.operations

  /** Starts a build that waits for a reader, and returns its operation. */
  async function build() {
    const branches = await open()
    await fill(branches)
    const reader = await connect()
    await reader.query('begin isolation level repeatable read; select from pg_class limit 1')
    await put(branches, 'age')
    await until(async () => {
      const [operation] = await operationsOf(branches)
      return operation?.progress.step.includes('waiting for old snapshots') === true
    })
    const [operation] = await operationsOf(branches)
    return { branches, reader, operation }
  }

  const ended = async ({ id }: { id: string }) => {
    const read = async () => expectOk(await service.call('GET', `/operations/${id}`)).body
    await until(async () => (await read()).state !== 'running')
    return read()
  }

  it('is an operation of the branch with the progress that PostgreSQL reports', async () => {
    const { branches, reader, operation } = await build()
    expect(operation).toMatchObject({
      kind: 'index',
      state: 'running',
      database: branches.database,
      branch: 'main',
      progress: { step: 'column [age] of table [people]: waiting for old snapshots' },
    })
    await reader.end()
    expect(await ended(operation)).toMatchObject({ state: 'done' })
    expect(await operationsOf(branches)).toMatchObject([{ id: operation.id, state: 'done' }])
  })

  it('can be cancelled, and be asked for again', async () => {
    const { branches, reader, operation } = await build()
    expectOk(await service.call('POST', `/operations/${operation.id}/cancel`))
    expect(await ended(operation)).toMatchObject({
      state: 'cancelled',
      error: { code: 'operation_cancelled' },
    })
    await service.indexes.run()
    expect((await branches.call('main', 'GET', at('age'))).body).toMatchObject({
      state: 'failed',
      message: 'its build was cancelled',
    })
    await reader.end()
    await put(branches, 'age')
    await service.indexes.run()
    expect((await branches.call('main', 'GET', at('age'))).body).toMatchObject({ state: 'ready' })
  })

  it('fails as an operation if a value cannot be indexed', async () => {
    const branches = await open()
    const long = `(select string_agg(md5(i::text), '') from generate_series(1, 500) i)`
    await fill(branches, `case when n = 1 then ${long} else 'short' end`)
    await put(branches, 'name')
    await service.indexes.run()
    expect(await operationsOf(branches)).toMatchObject([
      {
        kind: 'index',
        state: 'failed',
        error: {
          code: 'invalid_schema',
          message:
            'column [name] of table [people]: cannot be indexed: a value is longer than 2400 bytes',
        },
      },
    ])
  })
})
