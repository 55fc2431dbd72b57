import { randomBytes } from 'node:crypto'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { onNode } from '../../packages/server/src/postgres/place.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { listValidIndexes } from '../support/indexes.js'
import { createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const COLUMNS: readonly Column[] = [
  { name: 'title', type: 'string' },
  { name: 'year', type: 'int' },
  { name: 'genres', type: 'multiple' },
  { name: 'facts', type: 'json' },
  { name: 'studio', type: 'object', columns: [{ name: 'city', type: 'text' }] },
  { name: 'embedding', type: 'vector', vector: { dimension: 2 } },
]
const WORDS = ['title', 'genres', 'facts', 'studio.city']

const open = () => TestBranches.create(service, `search${++number}`, { films: COLUMNS })
const AT = '/tables/films/searchIndex'
const put = async (branches: TestBranches, branch = 'main') =>
  expectOk(await branches.call(branch, 'PUT', AT)).body
const read = async (branches: TestBranches, branch = 'main') =>
  expectOk(await branches.call(branch, 'GET', AT)).body

const physical = (branches: TestBranches, branch = 'main') =>
  listValidIndexes(branches, { branch, kind: 'search' })
const ALL = ['city', 'facts', 'genres', 'title'].flatMap((name) => [`heap ${name}`, `past ${name}`])

/** Adds so many rows that an index is built in the background. */
async function fill(branches: TestBranches, count = 6000): Promise<void> {
  const records = Array.from({ length: count }, (_, index) => ({
    title: `Film number ${index} of ${'a long series '.repeat(10)}`,
  }))
  for (let at = 0; at < count; at += 1000) {
    await branches.bulk('main', 'films', records.slice(at, at + 1000))
  }
  await branches.put('main', 'films', 'wanted', { title: 'The wanted one', genres: ['Western'] })
}

const search = async (branches: TestBranches, query: string, branch = 'main') => {
  const found = await branches.call(branch, 'POST', '/tables/films/search', { query })
  return expectOk(found).body.records.map(({ id }: { id: string }) => id)
}

describe('a search index', () => {
  it('has all columns of its table that have words', async () => {
    const branches = await open()
    const index = { columns: WORDS, state: 'ready' }
    expect(await put(branches)).toEqual(index)
    expect(await put(branches)).toEqual(index)
    expect(await read(branches)).toEqual(index)
    expect(await physical(branches)).toEqual(ALL.toSorted())
  })

  it('is listed with the other indexes of its table while there is one', async () => {
    const branches = await open()
    const list = async () =>
      expectOk(await branches.call('main', 'GET', '/tables/films/indexes')).body
    expect(await list()).not.toHaveProperty('searchIndex')
    await put(branches)
    expect(await list()).toMatchObject({ searchIndex: { columns: WORDS, state: 'ready' } })
    expectOk(await branches.call('main', 'DELETE', AT))
    expect(await list()).not.toHaveProperty('searchIndex')
  })

  it('of a few long texts is made in the background too', async () => {
    const branches = await open()
    for (const id of ['a', 'b', 'c']) {
      const city = randomBytes(250_000).toString('hex')
      await branches.put('main', 'films', id, { studio: { city } })
    }
    expect(await put(branches)).toMatchObject({ state: 'building' })
    await service.indexes.run()
    expect(await read(branches)).toMatchObject({ state: 'ready' })
    expect(await physical(branches)).toEqual(ALL.toSorted())
  })

  it('has columns that are added later, and loses those that are removed', async () => {
    const branches = await open()
    await put(branches)
    await branches.edit(
      'main',
      { addColumn: { table: 'films', column: { name: 'plot', type: 'text' } } },
      { removeColumn: { table: 'films', column: 'facts' } },
    )
    await service.indexes.run()
    expect((await read(branches)).columns).toEqual(['title', 'genres', 'studio.city', 'plot'])
    expect(await physical(branches)).toContain('heap plot')
    expect(await physical(branches)).toHaveLength(8)
  })

  it('can be taken away, without the other indexes of its columns', async () => {
    const branches = await open()
    await put(branches)
    expectOk(await branches.call('main', 'PUT', '/tables/films/columns/title/index'))
    expect(await physical(branches)).toEqual(ALL.toSorted())
    expectOk(await branches.call('main', 'DELETE', AT))
    await service.indexes.run()
    expect(await physical(branches)).toEqual([])
    expect(await branches.call('main', 'GET', AT)).toMatchObject({
      status: 404,
      body: { code: 'index_not_found', message: 'table [films]: has no search index' },
    })
    expect((await branches.call('main', 'DELETE', AT)).status).toBe(404)
    const kept = await branches.call('main', 'GET', '/tables/films/columns/title/index')
    expect(kept.body).toMatchObject({ state: 'ready' })
    // In the other direction: removing the column index keeps the search index.
    await put(branches)
    expectOk(await branches.call('main', 'DELETE', '/tables/films/columns/title/index'))
    await service.indexes.run()
    expect(await physical(branches)).toEqual(ALL.toSorted())
    expect(await read(branches)).toMatchObject({ state: 'ready' })
  })

  it('is asked for by those who may write, on a branch that is not protected', async () => {
    const branches = await open()
    const key = await createKey(service, 'search-reader', { fields: { scope: { access: 'read' } } })
    const asReader = await branches.call('main', 'PUT', AT, undefined, { key })
    expect(asReader).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    expect((await branches.call('main', 'PUT', '/tables/nope/searchIndex')).status).toBe(404)
    expectOk(await branches.call('main', 'PATCH', '', { protected: true }))
    expect(await branches.call('main', 'PUT', AT)).toMatchObject({ status: 409 })
    expect((await branches.call('main', 'GET', AT)).status).toBe(404)
  })

  it('is no part of migrations', async () => {
    const branches = await open()
    const before = (await branches.call('main', 'GET', '')).body
    await put(branches)
    const { lastMigrationID, schema } = (await branches.call('main', 'GET', '')).body
    expect({ lastMigrationID, schema }).toEqual({
      lastMigrationID: before.lastMigrationID,
      schema: before.schema,
    })
  })
})

describe('a search index of many rows', () => {
  it('is made in the background, and then used', async () => {
    const branches = await open()
    await fill(branches)
    const [place] = await service.database.query<{ schema: string }>(sql`
      select 'offshoot_db_' || id as schema
      from offshoot.databases
      where name = ${branches.database}`)
    const { schema = '' } = place ?? {}
    const scans = async () => {
      // On a cluster, the number of the shard follows the name of an index.
      const statement = sql`
        select coalesce(sum(idx_scan), 0)::integer as scans
        from pg_stat_user_indexes
        where schemaname = ${schema} and indexrelname ~ '_search(_[0-9]+)?$'`
      const [row] = await service.database.query<{ scans: number }>(
        sql`${onNode(schema)} ${statement}`,
      )
      return row?.scans ?? 0
    }
    expect(await put(branches)).toEqual({ columns: WORDS, state: 'building' })
    expect(await search(branches, 'wanted')).toEqual(['wanted'])
    await service.indexes.run()
    expect(await read(branches)).toEqual({ columns: WORDS, state: 'ready' })
    expect(await search(branches, 'wanted')).toEqual(['wanted'])
    expect(await search(branches, 'western')).toEqual(['wanted'])
    expect(await search(branches, 'wonted')).toEqual(['wanted'])
    // PostgreSQL reports index statistics with a delay.
    await expect.poll(scans).toBeGreaterThan(0)
    await branches.put('main', 'films', 'new', { title: 'Also wanted' })
    expect((await search(branches, 'wanted')).toSorted()).toEqual(['new', 'wanted'])
  })
})

describe('on branches a search index', () => {
  it('comes with a fork, and with the heap that the fork gets', async () => {
    const branches = await open()
    await put(branches)
    await branches.put('main', 'films', 'a', { title: 'first' })
    await branches.fork('dev')
    expect(await read(branches, 'dev')).toEqual({ columns: WORDS, state: 'ready' })
    await branches.put('dev', 'films', 'b', { title: 'second first' })
    expect(await physical(branches, 'dev')).toEqual(ALL.toSorted())
    expect(await search(branches, 'first', 'dev')).toEqual(['a', 'b'])
  })

  it('says so when inherited rows are not in it', async () => {
    const branches = await open()
    await branches.put('main', 'films', 'a', { title: 'first' })
    await branches.fork('dev')
    expect(await put(branches, 'dev')).toEqual({
      columns: WORDS,
      state: 'ready',
      message: expect.stringContaining('until the branch that they come from has it too'),
    })
    expect((await branches.call('main', 'GET', AT)).status).toBe(404)
    expect(await search(branches, 'first', 'dev')).toEqual(['a'])
  })

  it('is carried by a merge and a pull, and is what the source has after a reset', async () => {
    const branches = await open()
    await branches.fork('dev')
    await put(branches, 'dev')
    await branches.merge('dev')
    await service.indexes.run()
    expect(await physical(branches)).toEqual(ALL.toSorted())
    expectOk(await branches.call('main', 'DELETE', AT))
    await branches.pull('dev')
    expect((await branches.call('dev', 'GET', AT)).status).toBe(404)
    await put(branches)
    await branches.reset('dev')
    expect(await read(branches, 'dev')).toMatchObject({ state: 'ready' })
  })

  it('goes with the branch', async () => {
    const branches = await open()
    await branches.fork('dev')
    await put(branches, 'dev')
    await branches.put('dev', 'films', 'a', { title: 'first' })
    expect(await physical(branches, 'dev')).toHaveLength(8)
    await branches.delete('dev')
    for (let round = 0; round < 3; round++) await runBackground(service)
    expect(await physical(branches, 'dev')).toEqual([])
  })
})
