import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/** Two processes, because the caches of one must notice the resets of the other. */
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

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string', unique: true },
  { name: 'price', type: 'int' },
]
const IDS = ['a', 'b', 'c', 'd', 'e']

/** Counts the rows updated or deleted in this PostgreSQL database so far. */
async function rowsTouched(): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select (tup_updated + tup_deleted)::integer as count
    from pg_stat_database
    where datname = current_database()`)
  return row?.count ?? 0
}

/** Creates a database with records on `main` and a diverged fork `dev`. */
async function open() {
  const branches = await TestBranches.create(service, `reset${++number}`, { items: ITEMS })
  await branches.bulk('main', 'items', [
    { id: 'a', name: 'A', price: 1 },
    { id: 'b', name: 'B', price: 2 },
  ])
  await branches.fork('dev')
  await branches.patch('dev', 'items', 'a', { price: 10 })
  await branches.remove('dev', 'items', 'b')
  await branches.put('dev', 'items', 'c', { name: 'C' })
  await branches.edit(
    'dev',
    { addColumn: { table: 'items', column: { name: 'label', type: 'string' } } },
    { addTable: { table: 'notes' } },
  )
  await branches.put('dev', 'notes', 'n', {})
  return branches
}
const items = (branches: TestBranches, branch: string) => branches.read(branch, 'items', IDS)

describe('a reset', () => {
  it('returns a branch to the present state of its source, records and schema', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'b', { price: 20 })
    await branches.put('main', 'items', 'd', { name: 'D' })
    await branches.edit('main', {
      renameColumn: { table: 'items', oldName: 'price', newName: 'cents' },
    })
    const before = (await branches.call('dev', 'GET', '')).body
    const answer = await branches.call('dev', 'POST', '/reset')
    expect([answer.status, answer.body]).toEqual([
      200,
      {
        databaseName: branches.database,
        branchName: 'dev',
        status: 'completed',
        entry: expect.any(String),
      },
    ])
    expect(await items(branches, 'dev')).toEqual(await items(branches, 'main'))
    expect(await branches.schema('dev')).toEqual({ items: ['name', 'cents'] })
    const [main, dev] = [
      (await branches.call('main', 'GET', '')).body,
      (await branches.call('dev', 'GET', '')).body,
    ]
    expect(dev).toMatchObject({
      id: before.id,
      createdAt: before.createdAt,
      version: before.version + 1,
      lastMigrationID: main.lastMigrationID,
      startedFrom: { branchName: 'main', dbBranchID: main.id, migrationID: main.lastMigrationID },
    })
    expect((await branches.diff('dev')).tables).toEqual([])
    const { body } = await branches.call('dev', 'GET', '/stats')
    expect(body.rows).toEqual({ owned: 0, inherited: 3 })
  })

  it('is noticed by processes that know the branch', async () => {
    const branches = await open()
    const there = branches.through(second)
    await there.patch('dev', 'items', 'a', { price: 11 })
    await branches.reset('dev')
    expect(await items(there, 'dev')).toEqual({
      a: { name: 'A', price: 1 },
      b: { name: 'B', price: 2 },
    })
    expect((await there.call('dev', 'POST', '/tables/notes/data', {})).status).toBe(404)
    await there.patch('dev', 'items', 'a', { price: 12 })
    // A unique value that the branch had before the reset is free again.
    await branches.put('dev', 'items', 'e', { name: 'C' })
    expect(await items(branches, 'dev')).toEqual({
      a: { name: 'A', price: 12 },
      b: { name: 'B', price: 2 },
      e: { name: 'C' },
    })
    expect((await there.call('dev', 'PUT', '/tables/items/data/x', { name: 'B' })).status).toBe(400)
    await there.reset('dev')
    expect(await items(branches, 'dev')).toEqual({
      a: { name: 'A', price: 1 },
      b: { name: 'B', price: 2 },
    })
  })

  it('leaves forks of the branch, and forks of those, as they are', async () => {
    const branches = await open()
    await branches.fork('child', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 11 })
    await branches.fork('late', 'dev')
    await branches.fork('grandchild', 'child')
    await branches.patch('child', 'items', 'a', { price: 12 })
    const names = ['child', 'late', 'grandchild']
    const states = async (through = branches): Promise<Record<string, object>> =>
      Object.fromEntries(
        await Promise.all(names.map(async (name) => [name, await items(through, name)])),
      )
    const before = await states(branches.through(second))
    await branches.reset('dev')
    expect(await states()).toEqual(before)
    expect(await states(branches.through(second))).toEqual(before)
    await branches.patch('dev', 'items', 'a', { price: 99 })
    await branches.patch('main', 'items', 'a', { price: 98 })
    for (const name of names) await branches.patch(name, 'items', 'c', { price: 3 })
    for (const [name, records] of Object.entries(before)) {
      expect(await items(branches, name)).toEqual({ ...records, c: { name: 'C', price: 3 } })
      expect(await branches.read(name, 'notes', ['n'])).toEqual({ n: {} })
    }
    expect((await branches.diff('child', '?against=fork')).tables).toMatchObject([
      { name: 'items', updated: 2 },
    ])
    // A merge into `dev` would also bring what `dev` had before its reset.
    expect((await branches.diff('child')).tables).toMatchObject([
      { name: 'items', inserted: 1, updated: 1, deleted: 1 },
      { name: 'notes', inserted: 1 },
    ])
  })

  it('of a fork of a fork goes to the fork, also after that one was reset', async () => {
    const branches = await open()
    await branches.fork('deep', 'dev')
    await branches.patch('deep', 'items', 'a', { price: 13 })
    await branches.reset('deep')
    expect(await items(branches, 'deep')).toEqual(await items(branches, 'dev'))
    await branches.reset('dev')
    await branches.patch('dev', 'items', 'b', { price: 21 })
    await branches.reset('deep')
    expect(await items(branches, 'deep')).toEqual({
      a: { name: 'A', price: 1 },
      b: { name: 'B', price: 21 },
    })
  })

  it('can be done again and again', async () => {
    const branches = await open()
    for (let round = 1; round <= 5; round++) {
      await branches.put('dev', 'items', 'e', { name: `dev ${round}` })
      await branches.put('main', 'items', 'd', { name: `main ${round}` })
      if (round % 2 === 0) await branches.fork(`at${round}`, 'dev')
      await branches.reset('dev')
      expect(await items(branches, 'dev')).toMatchObject({ d: { name: `main ${round}` } })
      expect(await items(branches, 'dev')).not.toHaveProperty('e')
    }
    expect(await items(branches, 'at2')).toMatchObject({ e: { name: 'dev 2' } })
    expect(await items(branches, 'at4')).toMatchObject({
      e: { name: 'dev 4' },
      d: { name: 'main 3' },
    })
  })

  it('gives a branch that started without rows those of its source', async () => {
    const branches = await open()
    await branches.fork('empty', 'main', { data: false })
    await branches.put('empty', 'items', 'e', { name: 'E' })
    await branches.reset('empty')
    expect(await items(branches, 'empty')).toEqual(await items(branches, 'main'))
    await branches.patch('empty', 'items', 'a', { price: 14 })
    await branches.merge('empty')
    expect(await items(branches, 'main')).toMatchObject({ a: { price: 14 } })
  })

  it('keeps the git mapping, the metadata and the name of the branch', async () => {
    const branches = await open()
    const metadata = { repository: 'github.com/x/y', labels: ['one'] }
    await branches.call('dev', 'PUT', '/metadata', metadata)
    const mapping = `${service.workspace}/dbs/${branches.database}/gitBranches`
    await service.call('POST', mapping, { body: { gitBranch: 'feature', serviceBranch: 'dev' } })
    await branches.reset('dev')
    expect((await branches.call('dev', 'GET', '/metadata')).body).toEqual(metadata)
    const { body } = await service.call('GET', mapping)
    expect(body.mapping).toEqual([{ gitBranch: 'feature', serviceBranch: 'dev' }])
  })

  it('touches no more rows for a branch that has written a lot', async () => {
    const branches = await open()
    const touched: number[] = []
    // The first reset leaves the branch without storage. Creating it changes the catalogue of PostgreSQL, so
    // only the second and third are alike.
    for (const count of [10, 10, 10_000]) {
      const writer = await createTestService({ url: service.url })
      for (let start = 0; start < count; start += 10_000) {
        const records = Array.from({ length: Math.min(count, 10_000) }, (_, index) => ({
          id: `n${start + index}`,
          price: index,
        }))
        await branches.through(writer).bulk('dev', 'items', records)
      }
      // PostgreSQL reports the statistics of a connection at the latest when it closes, so writing
      // and the reset get their own connections.
      await writer.close()
      const other = await createTestService({ url: service.url })
      const before = await rowsTouched()
      expectOk(
        await other.call('POST', `${service.workspace}/db/${branches.database}:dev/reset`, {
          key: service.key,
        }),
      )
      await other.close()
      touched.push((await rowsTouched()) - before)
    }
    const [, few = 0, many = 0] = touched
    // Background work and statistics of PostgreSQL touch some rows, but not one for each record.
    expect(many).toBeLessThan(few + 1000)
  })
})

describe('a reset to a branch that the request names', () => {
  it('brings back a spoilt main from a fork that was taken before', async () => {
    const branches = await open()
    await branches.fork('before')
    await branches.fork('feature')
    await branches.put('feature', 'items', 'e', { name: 'E' })
    // The merge spoils `main`.
    await branches.merge('dev')
    await branches.fork('late')
    const before = (await branches.call('main', 'GET', '')).body
    expect(await items(branches, 'main')).toMatchObject({ a: { price: 10 } })
    await branches.reset('main', 'before')
    const restored = { a: { name: 'A', price: 1 }, b: { name: 'B', price: 2 } }
    expect(await items(branches.through(second), 'main')).toEqual(restored)
    expect(await branches.schema('main')).toEqual({ items: ['name', 'price'] })
    const { body } = await branches.call('main', 'GET', '')
    expect(body).toMatchObject({ id: before.id, version: before.version + 1 })
    expect(body).not.toHaveProperty('startedFrom')
    // Forks of the spoilt state keep it.
    expect(await items(branches, 'late')).toMatchObject({ a: { price: 10 } })
    // Work that started before the spoilt merge brings only itself.
    expect((await branches.merge('feature')).tables).toEqual([
      { name: 'items', inserted: 1, updated: 0, deleted: 0 },
    ])
    expect(await items(branches, 'main')).toEqual({ ...restored, e: { name: 'E' } })
    // `before` can be deleted, and `main` can be written, forked and merged as ever.
    await branches.delete('before')
    await runBackground(service)
    await branches.patch('main', 'items', 'b', { price: 21 })
    await branches.fork('next')
    await branches.put('next', 'items', 'd', { name: 'D' })
    await branches.merge('next')
    expect(await items(branches, 'main')).toMatchObject({ b: { price: 21 }, d: { name: 'D' } })
    // The spoilt merge is not part of the history any more, so it can be made again.
    expect(await branches.merge('dev', { strategy: 'theirs' })).toMatchObject({ merged: true })
    expect(await items(branches, 'main')).toMatchObject({ a: { price: 10 }, c: { name: 'C' } })
  })

  it('goes to its own fork, a sibling or a cousin, and keeps its source', async () => {
    const branches = await open()
    await branches.fork('child', 'dev')
    await branches.patch('child', 'items', 'a', { price: 30 })
    await branches.fork('sibling')
    await branches.put('sibling', 'items', 'e', { name: 'E' })
    for (const to of ['child', 'sibling', 'child', 'main']) {
      await branches.patch('dev', 'items', 'a', { price: 99 })
      await branches.reset('dev', to)
      expect(await items(branches, 'dev')).toEqual(await items(branches, to))
      expect(await branches.schema('dev')).toEqual(await branches.schema(to))
      expect((await branches.call('dev', 'GET', '')).body.startedFrom.branchName).toBe('main')
      const { tables } = await branches.diff('dev', `?against=${to}`)
      expect(tables.flatMap(({ changes }: { changes: unknown[] }) => changes)).toEqual([])
      expect((await branches.diff('dev', '?against=fork')).against.branch).toBe(to)
    }
    await branches.reset('dev', 'child')
    await branches.put('dev', 'items', 'd', { name: 'D' })
    // The difference from its source includes what it got by the reset.
    expect((await branches.diff('dev')).tables[0]).toMatchObject({
      name: 'items',
      inserted: 2,
      updated: 1,
      deleted: 1,
    })
    await branches.merge('dev')
    expect(await items(branches, 'main')).toEqual(await items(branches, 'dev'))
    expect(await branches.merge('child')).toMatchObject({ merged: false, into: 'dev' })
  })

  it('finds the bases of merges with forks from before and after', async () => {
    const branches = await open()
    await branches.fork('other')
    await branches.fork('early')
    await branches.patch('main', 'items', 'a', { price: 100 })
    await branches.fork('late')
    await branches.put('early', 'items', 'd', { name: 'D' })
    await branches.put('late', 'items', 'e', { name: 'E' })
    await branches.patch('other', 'items', 'b', { price: 20 })
    await branches.reset('main', 'other')
    await runBackground(service)
    await branches.merge('early', { into: 'main' })
    // `late` contains the price that the reset has discarded on `main`, and brings it back.
    await branches.merge('late', { into: 'main' })
    expect(await items(branches, 'main')).toEqual({
      a: { name: 'A', price: 100 },
      b: { name: 'B', price: 20 },
      d: { name: 'D' },
      e: { name: 'E' },
    })
    expect(await branches.pull('other', { from: 'main' })).toMatchObject({ merged: true })
    expect(await items(branches, 'other')).toEqual(await items(branches, 'main'))
    expect(await branches.pull('other', { from: 'main' })).toMatchObject({ merged: false })
  })

  it('says in a dry run what would be discarded, and changes nothing', async () => {
    const branches = await open()
    await branches.fork('before')
    await branches.put('main', 'items', 'e', { name: 'E' })
    const dry = (branch: string, body: object) =>
      branches.call(branch, 'POST', '/reset', { ...body, dryRun: true })
    expect(expectOk(await dry('main', { to: 'before' })).body).toMatchObject({
      branchName: 'main',
      difference: {
        branch: 'main',
        against: { branch: 'before', at: 'now' },
        tables: [{ name: 'items', inserted: 1, updated: 0, deleted: 0, changes: [] }],
      },
    })
    expect(await items(branches, 'main')).toMatchObject({ e: { name: 'E' } })
    await branches.fork('empty', 'main', { data: false })
    await branches.put('empty', 'items', 'x', { name: 'X' })
    expect(expectOk(await dry('empty', {})).body.difference.tables).toMatchObject([
      { name: 'items', inserted: 1, deleted: 3 },
    ])
    await branches.fork('guarded', 'main', { protected: true })
    expect((await dry('guarded', {})).body.code).toBe('protected_branch')
  })

  it.each([
    ['to itself', { to: 'dev' }, 400, 'invalid_request'],
    ['to an unknown branch', { to: 'nowhere' }, 404, 'branch_not_found'],
    ['to a name that is none', { to: '' }, 400, 'invalid_request'],
    ['with an unknown field', { into: 'main' }, 400, 'invalid_request'],
  ])('is refused %s', async (_name, body, status, code) => {
    const branches = await open()
    const answer = await branches.call('dev', 'POST', '/reset', body)
    expect([answer.status, answer.body.code]).toEqual([status, code])
    expect(await items(branches, 'dev')).toMatchObject({ a: { price: 10 } })
  })
})

describe('a reset is refused', () => {
  let branches: TestBranches

  beforeAll(async () => {
    branches = await open()
    await branches.fork('child', 'dev')
    await branches.fork('orphan', 'child')
    await branches.delete('child')
    await branches.fork('guarded', 'dev', { protected: true })
  })

  it.each([
    ['for an unknown branch', 'nowhere', 404, 'branch_not_found'],
    ['for a branch without a source', 'main', 409, 'no_source'],
    ['for a branch whose source is gone', 'orphan', 409, 'no_source'],
    ['for a protected branch', 'guarded', 409, 'protected_branch'],
  ])('%s', async (_name, branch, status, code) => {
    const answer = await branches.call(branch, 'POST', '/reset')
    expect([answer.status, answer.body.code]).toEqual([status, code])
  })

  it('without a key, with one that can only read, or one that does not reach both', async () => {
    const reader = await createKey(service, 'reset-reader', {
      fields: { scope: { access: 'read' } },
    })
    const narrow = await createKey(service, 'reset-dev', {
      fields: { scope: { branches: ['dev'] } },
    })
    const other = await createKey(service, 'reset-main', {
      fields: { scope: { branches: ['main'] } },
    })
    const call = (key: string | null) => branches.call('dev', 'POST', '/reset', undefined, { key })
    expect((await call(null)).status).toBe(401)
    expect((await call(reader)).body.code).toBe('key_scope')
    expect((await call(narrow)).body.code).toBe('no_source')
    expect((await call(other)).body.code).toBe('branch_not_found')
    expect(await items(branches, 'dev')).toMatchObject({ a: { price: 10 } })
  })
})
