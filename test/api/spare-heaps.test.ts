import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { SPARES_MAX, SPARES_OF_TABLE } from '../../packages/server/src/rows/heaps/spare-heaps.js'
import { makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase } from '../support/database.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/** Without these, PostgreSQL runs a subquery for each row instead of keeping its result. */
const OTHER_PLANS = [
  'enable_hashjoin',
  'enable_mergejoin',
  'enable_hashagg',
  'enable_sort',
  'enable_material',
  'enable_memoize',
]

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService({ spareHeapsMax: SPARES_MAX })
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string', unique: true },
  { name: 'price', type: 'int' },
]

async function open(tables: Record<string, readonly Column[]> = { items: ITEMS }, on = service) {
  const branches = await TestBranches.create(on, `spares${++number}`, tables)
  const [row] = await on.database.query<{ id: string }>(sql`
    select id from offshoot.databases where name = ${`spares${number}`}`)
  return { branches, databaseId: row?.id ?? '' }
}

async function listSpares(databaseId: string, on = service): Promise<string[]> {
  const rows = await on.database.query<{ id: string }>(sql`
    select heap_id::text as id from offshoot_work.spares
    where database_id = ${databaseId} order by heap_id`)
  return rows.map(({ id }) => id)
}

/** Waits until the database has some spare heaps, and returns their ids. */
async function untilSpares(databaseId: string, count: number, on = service): Promise<string[]> {
  await until(async () => (await listSpares(databaseId, on)).length >= count)
  return listSpares(databaseId, on)
}

async function heapsOf(databaseId: string, branch: string): Promise<string[]> {
  const rows = await service.database.query<{ id: string }>(sql`
    select h.id::text as id
    from offshoot.heaps h join offshoot.branches b on b.id = h.branch_id
    where b.database_id = ${databaseId} and b.name = ${branch} order by h.id`)
  return rows.map(({ id }) => id)
}

async function countTables(databaseId: string): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from pg_tables where schemaname = ${`offshoot_db_${databaseId}`}`)
  return row?.count ?? 0
}

describe('a merge into a fork that has written nothing', () => {
  it('takes a spare heap, and another one is created', async () => {
    const { branches, databaseId } = await open()
    await branches.bulk('main', 'items', [
      { id: 'a', name: 'A', price: 1 },
      { id: 'b', name: 'B', price: 2 },
    ])
    await branches.fork('target')
    await branches.fork('work', 'target')
    await branches.patch('work', 'items', 'a', { price: 10 })
    const spares = await untilSpares(databaseId, SPARES_OF_TABLE)
    await branches.merge('work', { into: 'target' })
    expect(spares).toContain((await heapsOf(databaseId, 'target'))[0])
    expect(await branches.record('target', 'items', 'a')).toMatchObject({ name: 'A', price: 10 })
    expect(await branches.record('target', 'items', 'b')).toMatchObject({ name: 'B', price: 2 })
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 1 })
    await until(async () => (await listSpares(databaseId)).some((id) => !spares.includes(id)))
    await expect(branches.put('target', 'items', 'c', { name: 'B' })).rejects.toThrow()
  })
})

describe('the first write of a fork', () => {
  it('takes a spare heap, which has the columns and rules of the table', async () => {
    const { branches, databaseId } = await open()
    await branches.bulk('main', 'items', [
      { id: 'a', name: 'A', price: 1 },
      { id: 'b', name: 'B', price: 2 },
    ])
    await branches.fork('one')
    await branches.patch('one', 'items', 'a', { price: 10 })
    const spares = await untilSpares(databaseId, SPARES_OF_TABLE)
    await branches.fork('two')
    await branches.patch('two', 'items', 'a', { price: 20 })
    expect(spares).toContain((await heapsOf(databaseId, 'two'))[0])
    expect(await branches.read('one', 'items', ['a'])).toMatchObject({ a: { price: 10 } })
    expect(await branches.read('two', 'items', ['a', 'b'])).toMatchObject({
      a: { name: 'A', price: 20 },
      b: { name: 'B', price: 2 },
    })
    await branches.put('two', 'items', 'c', { name: 'C' })
    const clash = await branches.call('two', 'PUT', '/tables/items/data/d', { name: 'C' })
    expect(clash.status).toBe(400)
    expectOk(await branches.call('two', 'POST', '/merge', {}))
    expect(await branches.read('main', 'items', ['a', 'c'])).toMatchObject({
      a: { price: 20 },
      c: { name: 'C' },
    })
  })

  it('goes to the new branch if another one had the name before', async () => {
    const { branches, databaseId } = await open()
    await branches.bulk('main', 'items', [{ id: 'a', name: 'A', price: 1 }])
    await branches.fork('one')
    await branches.patch('one', 'items', 'a', { price: 10 })
    const spares = await untilSpares(databaseId, SPARES_OF_TABLE)
    await branches.fork('two')
    await branches.record('two', 'items', 'a')
    await branches.delete('two')
    await branches.fork('two')
    await branches.patch('two', 'items', 'a', { price: 20 })
    expect(spares).toContain((await heapsOf(databaseId, 'two'))[0])
    expect(await branches.read('two', 'items', ['a'])).toMatchObject({ a: { price: 20 } })
  })

  it('reads the branch again if something else of it has changed meanwhile', async () => {
    const { branches, databaseId } = await open({ items: ITEMS, orders: ITEMS })
    await branches.bulk('main', 'items', [{ id: 'a', name: 'A', price: 1 }])
    await branches.fork('one')
    await branches.patch('one', 'items', 'a', { price: 10 })
    await untilSpares(databaseId, SPARES_OF_TABLE)
    await branches.fork('two')
    await branches.record('two', 'items', 'a')
    // Another process lets the branch write to a second table.
    const other = await createTestService({ url: service.url, spareHeapsMax: SPARES_MAX })
    try {
      await branches.through(other).put('two', 'orders', 'x', { name: 'X' })
      await branches.patch('two', 'items', 'a', { price: 20 })
      expect(await branches.record('two', 'orders', 'x')).toMatchObject({ name: 'X' })
      await branches.patch('two', 'orders', 'x', { price: 5 })
      expect(await branches.record('two', 'orders', 'x')).toMatchObject({ name: 'X', price: 5 })
      expect(await branches.record('two', 'items', 'a')).toMatchObject({ price: 20 })
    } finally {
      await other.close()
    }
  })

  it('takes no spare heap of another definition', async () => {
    const { branches, databaseId } = await open()
    await branches.fork('one')
    await branches.put('one', 'items', 'a', { name: 'A' })
    const spares = await untilSpares(databaseId, SPARES_OF_TABLE)
    await branches.fork('two')
    await branches.edit('two', {
      addColumn: { table: 'items', column: { name: 'label', type: 'string' } },
    })
    await branches.put('two', 'items', 'a', { name: 'A', label: 'new' })
    expect(spares).not.toContain((await heapsOf(databaseId, 'two'))[0])
    expect(await branches.read('two', 'items', ['a'])).toMatchObject({ a: { label: 'new' } })
  })

  it('takes a single spare heap, also if PostgreSQL runs subqueries for each row', async () => {
    const postgres = await createTestDatabase({ copiesCatalogue: true })
    const name = new URL(postgres.url).pathname.slice(1)
    for (const setting of OTHER_PLANS) {
      await postgres.pool.query(`alter database ${name} set ${setting} = off`)
    }
    const planned = await createTestService({ url: postgres.url, spareHeapsMax: SPARES_MAX })
    try {
      const { branches, databaseId } = await open(undefined, planned)
      await branches.fork('one')
      await branches.put('one', 'items', 'a', { name: 'A' })
      const spares = await untilSpares(databaseId, SPARES_OF_TABLE, planned)
      await branches.fork('two')
      await branches.put('two', 'items', 'a', { name: 'B' })
      expect(await branches.read('two', 'items', ['a'])).toMatchObject({ a: { name: 'B' } })
      expect(await listSpares(databaseId, planned)).toContain(spares[1])
    } finally {
      await planned.close()
      await postgres.close()
    }
  })

  it('never shares a spare heap with another branch', async () => {
    const { branches, databaseId } = await open()
    await branches.fork('first')
    await branches.put('first', 'items', 'a', { name: 'A' })
    await untilSpares(databaseId, SPARES_OF_TABLE)
    const names = Array.from({ length: 8 }, (_, index) => `fork${index}`)
    for (const name of names) await branches.fork(name)
    await Promise.all(names.map((name) => branches.put(name, 'items', 'a', { name })))
    const heaps = await Promise.all(names.map((name) => heapsOf(databaseId, name)))
    expect(new Set(heaps.flat()).size).toBe(names.length)
    for (const name of names) {
      expect(await branches.read(name, 'items', ['a'])).toMatchObject({ a: { name } })
    }
  })
})

describe('spare heaps', () => {
  it('are as many for each table as the limit says, again after all were taken', async () => {
    const { branches, databaseId } = await open({ items: [{ name: 'price', type: 'int' }] })
    for (const name of ['one', 'two']) {
      await service.database.query(sql`
        delete from offshoot_work.spares where database_id = ${databaseId}`)
      await branches.fork(name)
      await branches.put(name, 'items', 'a', { price: 1 })
      await service.storage.spares.untilRefilled()
      expect(await listSpares(databaseId)).toHaveLength(SPARES_OF_TABLE)
    }
  })

  it('are limited in each database', async () => {
    const tables = Object.fromEntries(
      Array.from({ length: SPARES_MAX }, (_, index) => [`t${index}`, ITEMS]),
    )
    const { branches, databaseId } = await open(tables)
    await branches.fork('one')
    const operations = Object.keys(tables).map((table) => ({
      insert: { table, record: { name: 'A' } },
    }))
    expectOk(await branches.call('one', 'POST', '/transaction', { operations }))
    await untilSpares(databaseId, SPARES_MAX)
    await branches.fork('two')
    expectOk(await branches.call('two', 'POST', '/transaction', { operations }))
    expect((await listSpares(databaseId)).length).toBeLessThanOrEqual(SPARES_MAX)
  })

  it('are dropped if nobody takes them', async () => {
    const { branches, databaseId } = await open()
    const before = await countTables(databaseId)
    await branches.fork('one')
    await branches.put('one', 'items', 'a', { name: 'A' })
    await untilSpares(databaseId, SPARES_OF_TABLE)
    await runBackground(service)
    expect(await listSpares(databaseId)).toHaveLength(SPARES_OF_TABLE)
    await service.database.query(sql`
      update offshoot_work.spares set kept_until = now() - interval '1 hour'
      where database_id = ${databaseId}`)
    await runBackground(service)
    expect(await listSpares(databaseId)).toEqual([])
    // The fork has a heap and a past.
    expect(await countTables(databaseId)).toBe(before + 2)
  })

  it('disappear with their database', async () => {
    const { branches, databaseId } = await open()
    await branches.fork('one')
    await branches.put('one', 'items', 'a', { name: 'A' })
    await untilSpares(databaseId, SPARES_OF_TABLE)
    const path = `/workspaces/${service.workspaceId}/dbs/spares${number}`
    expectOk(await service.call('DELETE', path, { key: service.key }))
    for (let round = 0; round < 3; round++) await runBackground(service)
    expect(await listSpares(databaseId)).toEqual([])
    expect(await countTables(databaseId)).toBe(0)
  })

  it('are no part of a backup', async () => {
    const { branches, databaseId } = await open()
    await branches.fork('one')
    await branches.put('one', 'items', 'a', { name: 'A' })
    const spares = await untilSpares(databaseId, SPARES_OF_TABLE)
    const database = openForBackup(service.url)
    const archive = await makeArchive({ database, blobs: service.files.blobs })
    await database.close()
    const [own] = await heapsOf(databaseId, 'one')
    expect(archive.includes(`offshoot_db_${databaseId}.heap_${own}/`)).toBe(true)
    for (const id of spares) {
      expect(archive.includes(`offshoot_db_${databaseId}.heap_${id}/`)).toBe(false)
    }
  })
})
