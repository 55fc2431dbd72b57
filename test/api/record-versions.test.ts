import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

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

const TABLES = {
  items: [
    { name: 'n', type: 'int' },
    { name: 'text', type: 'text' },
  ],
} as const
const GENERATED = 'rec_00000000000000000001'
const path = (id: string, query = '') => `/tables/items/data/${id}${query}`

function open(): Promise<TestBranches> {
  return TestBranches.create(service, `versions${++number}`, TABLES)
}

async function versionOf(branches: TestBranches, branch: string, id: string): Promise<number> {
  return (await branches.record(branch, 'items', id)).service.version
}

type Write = (branches: TestBranches, branch: string, id: string) => Promise<unknown>

/** Sends a request to a branch, which must succeed. */
const request =
  (method: string, pathOf: (id: string) => string, bodyOf: (id: string) => unknown): Write =>
  async (branches, branch, id) =>
    expectOk(await branches.call(branch, method, pathOf(id), bodyOf(id)))

const transaction = (operationOf: (id: string) => object): Write =>
  request(
    'POST',
    () => '/transaction',
    (id) => ({ operations: [operationOf(id)] }),
  )

const stream =
  (fillings: readonly string[]): Write =>
  async (branches, branch, id) => {
    const lines = [...fillings.map((text) => ({ text })), { id, n: 9 }]
    const body = lines.map((line) => `${JSON.stringify(line)}\n`).join('')
    const headers = { 'content-type': 'application/x-ndjson' }
    expectOk(await branches.call(branch, 'POST', '/tables/items/bulk', body, { headers }))
  }

/** All ways to create a record under a given id. */
const CREATIONS: Readonly<Record<string, Write>> = {
  replace: request('PUT', path, () => ({ n: 9 })),
  'replace-version': request(
    'PUT',
    (id) => path(id, '?ifVersion=7'),
    () => ({ n: 9 }),
  ),
  create: request(
    'PUT',
    (id) => path(id, '?createOnly=true'),
    () => ({ n: 9 }),
  ),
  'create-in-body': request(
    'POST',
    () => '/tables/items/data',
    (id) => ({ id, n: 9 }),
  ),
  upsert: request('POST', path, () => ({ n: 9 })),
  bulk: request(
    'POST',
    () => '/tables/items/bulk',
    (id) => ({ records: [{ n: 0 }, { id, n: 9 }] }),
  ),
  [GENERATED]: request(
    'POST',
    () => '/tables/items/bulk',
    (id) => ({ records: [{ id, n: 9 }] }),
  ),
  'transaction-replace': transaction((id) => ({
    insert: { table: 'items', record: { id, n: 9 } },
  })),
  'transaction-create': transaction((id) => ({
    insert: { table: 'items', record: { id, n: 9 }, createOnly: true },
  })),
  'transaction-upsert': transaction((id) => ({
    update: { table: 'items', id, fields: { n: 9 }, upsert: true },
  })),
  sql: request(
    'POST',
    () => '/sql',
    (id) => ({ statement: 'insert into items (id, n) values ($1, 9)', params: [id] }),
  ),
  'sql-conflict': request(
    'POST',
    () => '/sql',
    (id) => ({
      statement:
        'insert into items (id, n) values ($1, 9) on conflict (id) do update set n = excluded.n',
      params: [id],
    }),
  ),
  stream: stream(['short']),
  // Longer than a stream that is held in memory.
  'long-stream': stream(new Array<string>(12).fill('x'.repeat(100_000))),
}
const IDS = Object.keys(CREATIONS)

/** Ways to delete records whose versions are above 0. Each returns the branch that had them. */
const DELETIONS: Readonly<Record<string, (branches: TestBranches) => Promise<string>>> = {
  'on a branch without forks': async (branches) => {
    await branches.remove('main', 'items', ...IDS)
    return 'main'
  },
  'on a branch with a fork': async (branches) => {
    await branches.fork('dev')
    await branches.remove('main', 'items', ...IDS)
    return 'main'
  },
  'on a fork that inherits them': async (branches) => {
    await branches.fork('dev')
    await branches.remove('dev', 'items', ...IDS)
    return 'dev'
  },
  'on a fork that has changed them': async (branches) => {
    await branches.fork('dev')
    for (const id of IDS) await branches.patch('dev', 'items', id, { n: 3 })
    await branches.fork('further', 'dev')
    await branches.remove('dev', 'items', ...IDS)
    return 'dev'
  },
  'on a fork of a fork': async (branches) => {
    await branches.fork('between')
    await branches.remove('between', 'items', ...IDS)
    await branches.fork('dev', 'between')
    return 'dev'
  },
  'by a merge': async (branches) => {
    await branches.fork('dev')
    await branches.remove('dev', 'items', ...IDS)
    await branches.merge('dev')
    return 'main'
  },
  'by a pull': async (branches) => {
    await branches.fork('dev')
    await branches.put('dev', 'items', 'own', { n: 1 })
    await branches.remove('main', 'items', ...IDS)
    await branches.pull('dev')
    return 'dev'
  },
  'by a reset': async (branches) => {
    await branches.fork('dev')
    for (const id of IDS) await branches.patch('dev', 'items', id, { n: 3 })
    await branches.remove('main', 'items', ...IDS)
    await branches.reset('dev')
    return 'dev'
  },
  'after a reset': async (branches) => {
    await branches.fork('dev')
    await branches.reset('dev')
    await branches.remove('dev', 'items', ...IDS)
    return 'dev'
  },
}

describe('a record that is created anew', () => {
  for (const [where, deleteAll] of Object.entries(DELETIONS)) {
    it(`starts at version 0, if its predecessor was deleted ${where}`, async () => {
      const branches = await open()
      await branches.bulk(
        'main',
        'items',
        IDS.map((id) => ({ id, n: 1 })),
      )
      for (const id of IDS) await branches.patch('main', 'items', id, { n: 2 })
      const branch = await deleteAll(branches)
      for (const [id, create] of Object.entries(CREATIONS)) {
        await create(branches, branch, id)
        for (const through of [branches, branches.through(second)]) {
          expect(await through.record(branch, 'items', id), id).toMatchObject({
            n: 9,
            service: { version: 0 },
          })
        }
        const patch = (ifVersion: number) =>
          branches.call(branch, 'PATCH', path(id, `?ifVersion=${ifVersion}`), { n: 5 })
        expect(expectOk(await patch(0)).body.service.version, id).toBe(1)
        expect([(await patch(0)).status, (await patch(2)).status]).toEqual([422, 422])
      }
    })
  }

  it('by a merge starts at version 0', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'x', { n: 1 })
    await branches.patch('main', 'items', 'x', { n: 2 })
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'x', { n: 9 })
    await branches.remove('main', 'items', 'x')
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await branches.record('main', 'items', 'x')).toMatchObject({
      n: 9,
      service: { version: 0 },
    })
  })
})

describe('the version of a record', () => {
  it('is inherited by forks, and is that of the source after a reset', async () => {
    const branches = await open()
    const others = branches.through(second)
    await branches.put('main', 'items', 'x', { n: 1 })
    await branches.fork('dev')
    for (const n of [2, 3]) await branches.patch('dev', 'items', 'x', { n })
    await branches.patch('main', 'items', 'x', { n: 4 })
    expect(await versionOf(others, 'dev', 'x')).toBe(2)
    await branches.reset('dev')
    for (const through of [branches, others]) {
      expect(await through.record('dev', 'items', 'x')).toMatchObject({
        n: 4,
        service: { version: 1 },
      })
      const stale = await through.call('dev', 'PATCH', path('x', '?ifVersion=2'), { n: 5 })
      expect([stale.status, stale.body.code]).toEqual([422, 'version_conflict'])
    }
    await branches.fork('copy', 'dev')
    expect(await versionOf(branches, 'copy', 'x')).toBe(1)
    const filter = { 'service.version': { $ge: 1 } }
    const query = await branches.call('dev', 'POST', '/tables/items/query', { filter })
    expect(query.body.records).toMatchObject([{ id: 'x', service: { version: 1 } }])
    const statement = 'select "service.version" from items where "service.version" > 0'
    const selected = await branches.call('dev', 'POST', '/sql', { statement })
    expect(selected.body.records).toEqual([{ 'service.version': 1 }])
  })

  it.each(['x', GENERATED])('of %s ends at 2147483647, until it is created anew', async (id) => {
    const branches = await open()
    await branches.put('main', 'items', id, { n: 1 })
    const [heap] = await service.database.query<{ id: string; databaseId: string }>(sql`
      select h.id, h.database_id as "databaseId"
      from offshoot.heaps h
      join offshoot.databases d on d.id = h.database_id
      where d.name = ${branches.database}`)
    await service.database.query(sql`
      update ${ident(`offshoot_db_${heap?.databaseId}`)}.${ident(`heap_${heap?.id}`)} set version = 2147483647 where id = ${id}`)
    expect(await versionOf(branches, 'main', id)).toBe(2 ** 31 - 1)
    const message =
      'invalid record: the versions of the record are used up; the last one is 2147483647; delete it and create it again'
    for (const method of ['PATCH', 'PUT', 'POST']) {
      const answer = await branches.call('main', method, path(id), { n: 2 })
      expect([answer.status, answer.body.message]).toEqual([400, message])
    }
    const operation = { update: { table: 'items', id, fields: { n: 2 } } }
    const failed = await branches.call('main', 'POST', '/transaction', { operations: [operation] })
    expect(failed.status).toBe(400)
    expect(await branches.record('main', 'items', id)).toMatchObject({ n: 1 })
    // A fork and a merge delete it like any other record.
    await branches.fork('dev')
    await branches.remove('dev', 'items', id)
    await branches.merge('dev')
    expect(await branches.record('main', 'items', id)).toBeUndefined()
    await branches.put('main', 'items', id, { n: 2 })
    expect(await versionOf(branches, 'main', id)).toBe(0)
  })
})
