import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { TYPE_COLUMNS, TYPE_VALUES } from '../support/every-type.js'
import { createDatabase, createKey } from '../support/people.js'
import { LONG } from '../support/random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk, TIME } from '../support/tables.js'

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService({ limits: { tablesPerBranchMax: 12, columnsPerTableMax: 30 } })
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'price', type: 'int' },
]

/** Creates a database with three records on `main` and a fork `dev`. */
async function open(more: Readonly<Record<string, readonly Column[]>> = {}) {
  const branches = await TestBranches.create(service, `merge${++number}`, { items: ITEMS, ...more })
  await branches.bulk('main', 'items', [
    { id: 'a', name: 'A', price: 1 },
    { id: 'b', name: 'B', price: 2 },
    { id: 'c', name: 'C', price: 3 },
  ])
  await branches.fork('dev')
  return branches
}

const IDS = ['a', 'b', 'c', 'd', 'e', 'f']
const items = (branches: TestBranches, branch: string) => branches.read(branch, 'items', IDS)
const nothing = { inserted: 0, updated: 0, deleted: 0 }
const conflictsOf = (answer: Answer) => {
  expect([answer.status, answer.body.code], JSON.stringify(answer.body)).toEqual([
    409,
    'merge_conflict',
  ])
  expect(answer.body.message).toMatch(/conflicts?; nothing was merged$/)
  return answer.body.conflicts
}
const column = (name: string, more: Partial<Column> = {}) => ({
  addColumn: { table: 'items', column: { name, type: 'string' as const, ...more } },
})

describe('a merge', () => {
  it('brings inserted, updated and deleted records into the source', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.remove('dev', 'items', 'b')
    await branches.put('dev', 'items', 'd', { name: 'D' })
    expect(await branches.merge('dev')).toEqual({
      merged: true,
      entry: expect.any(String),
      from: 'dev',
      into: 'main',
      schema: { operations: [] },
      tables: [{ name: 'items', inserted: 1, updated: 1, deleted: 1 }],
      conflicts: [],
      conflictCount: 0,
      conflictTables: [],
      dataLoss: [],
    })
    const merged = { a: { name: 'A', price: 10 }, c: { name: 'C', price: 3 }, d: { name: 'D' } }
    expect(await items(branches, 'main')).toEqual(merged)
    expect(await items(branches, 'dev')).toEqual(merged)
  })

  it('is shown in the list of branches, with the time of the last one between two branches', async () => {
    const branches = await open()
    const list = async (key?: string) => {
      const path = `${service.workspace}/dbs/merge${number}`
      const { body } = expectOk(await service.call('GET', path, key === undefined ? {} : { key }))
      return Object.fromEntries(
        body.branches.map((one: { name: string; merges?: unknown }) => [one.name, one.merges]),
      )
    }
    expect(await list()).toEqual({ main: undefined, dev: undefined })
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.merge('dev')
    const first = await list()
    expect(first).toEqual({
      main: [{ from: 'dev', at: expect.stringMatching(TIME) }],
      dev: undefined,
    })
    await branches.put('dev', 'items', 'e', { name: 'E' })
    await branches.merge('dev')
    const second = await list()
    expect(second.main).toHaveLength(1)
    expect(second.main[0].at > first.main[0].at).toBe(true)
    // A key that cannot see a branch learns nothing of its merges.
    const fields = { scope: { branches: ['main'] } }
    const key = await createKey(service, `main-only-${number}`, { fields })
    expect(await list(key)).toEqual({ main: undefined })
  })

  it('leaves what only the target changed, and takes columns of one record from both', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('main', 'items', 'a', { name: 'Main' })
    await branches.patch('main', 'items', 'b', { price: 20 })
    await branches.put('main', 'items', 'e', { name: 'E' })
    await branches.remove('main', 'items', 'c')
    expect((await branches.merge('dev')).tables).toEqual([
      { name: 'items', ...nothing, updated: 1 },
    ])
    expect(await items(branches, 'main')).toEqual({
      a: { name: 'Main', price: 10 },
      b: { name: 'B', price: 20 },
      e: { name: 'E' },
    })
    // The merge leaves the merged branch unchanged.
    expect(await items(branches, 'dev')).toEqual({
      a: { name: 'A', price: 10 },
      b: { name: 'B', price: 2 },
      c: { name: 'C', price: 3 },
    })
  })

  it('of the same done on both sides changes nothing', async () => {
    const branches = await open()
    for (const branch of ['main', 'dev']) {
      await branches.patch(branch, 'items', 'a', { price: 10 })
      await branches.remove(branch, 'items', 'b')
      await branches.put(branch, 'items', 'd', { name: 'D' })
    }
    const before = await branches.record('main', 'items', 'a')
    expect((await branches.merge('dev')).tables).toEqual([{ name: 'items', ...nothing }])
    expect(await branches.record('main', 'items', 'a')).toEqual(before)
  })

  it('takes 0 and -0 of a float for the same number, as a difference and filters do', async () => {
    const branches = await open({ points: [{ name: 'x', type: 'float' }] })
    await branches.put('main', 'points', 'a', { x: 1 })
    await branches.put('main', 'points', 'b', { x: 0 })
    await branches.fork('next')
    await branches.patch('main', 'points', 'a', { x: 0 })
    for (const id of ['a', 'b']) {
      await branches.patch('next', 'points', id, { x: 0 })
      await branches.patch('next', 'points', id, { x: { $multiply: -1 } })
    }
    const negative = { a: { x: -0 }, b: { x: -0 } }
    expect(await branches.read('next', 'points', IDS)).toEqual(negative)
    const { tables } = await branches.diff('next')
    expect(tables).toMatchObject([{ name: 'points', updated: 1, changes: [{ id: 'a' }] }])
    const merged = await branches.merge('next')
    expect([merged.merged, merged.tables]).toEqual([true, [{ name: 'points', ...nothing }]])
    expect(await branches.read('main', 'points', IDS)).toEqual({ a: { x: 0 }, b: { x: 0 } })
    expect(await branches.read('next', 'points', IDS)).toEqual(negative)
  })

  it('of nothing says so, and makes no heap', async () => {
    const branches = await open()
    expect(await branches.pull('dev')).toMatchObject({ merged: false, conflictCount: 0 })
    expect(await branches.merge('dev')).toMatchObject({ merged: false, conflictCount: 0 })
    const { body } = await branches.call('dev', 'GET', '/stats')
    expect(body.bytes.owned).toBe(0)
  })

  it('that only gets back what it brought says so', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.remove('dev', 'items', 'b')
    expect(await branches.merge('dev')).toMatchObject({ merged: true })
    expect(await branches.pull('dev')).toMatchObject({ merged: false, tables: [{ ...nothing }] })
    await branches.patch('main', 'items', 'c', { price: 30 })
    expect(await branches.pull('dev')).toMatchObject({ merged: true })
    expect(await branches.pull('dev')).toMatchObject({ merged: false })
    expect(await branches.merge('dev')).toMatchObject({ merged: false })
  })

  it('of nothing says so, also beside a table that was left out', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    await branches.patch('main', 'items', 'a', { price: 10 })
    await branches.put('main', 'notes', 'n', { text: 'N' })
    const skip = { tables: { notes: { mode: 'skip' } } }
    expect(await branches.pull('dev', skip)).toMatchObject({ merged: true })
    expect(await branches.pull('dev', skip)).toMatchObject({ merged: false })
    // The table that was left out is new.
    expect(await branches.pull('dev')).toMatchObject({ merged: true })
    expect(await branches.pull('dev')).toMatchObject({ merged: false })
    expect(await branches.read('dev', 'notes', ['n'])).toEqual({ n: { text: 'N' } })
  })

  it('of a schema without rows is applied, although no record is new', async () => {
    const branches = await open()
    await branches.edit('main', { removeColumn: { table: 'items', column: 'price' } })
    const options = { tables: { items: { mode: 'schema' } }, allowDataLoss: true }
    expect(await branches.pull('dev', options)).toMatchObject({ merged: true })
    expect(await branches.schema('dev')).toEqual({ items: ['name'] })
    expect(await branches.pull('dev', options)).toMatchObject({ merged: false })
  })

  it('raises the version of updated records, keeps when they were made, and starts new ones', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('dev', 'items', 'a', { price: 11 })
    await branches.patch('dev', 'items', 'a', { price: 12 })
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.patch('dev', 'items', 'd', { name: 'D2' })
    const [a, b] = [
      await branches.record('main', 'items', 'a'),
      await branches.record('main', 'items', 'b'),
    ]
    const { body } = await branches.call('dev', 'GET', '/tables/items/data/d')
    await branches.merge('dev')
    const merged = await branches.record('main', 'items', 'a')
    expect(merged.service).toMatchObject({ version: 1, createdAt: a.service.createdAt })
    expect(Date.parse(merged.service.updatedAt)).toBeGreaterThan(Date.parse(a.service.updatedAt))
    expect(await branches.record('main', 'items', 'b')).toEqual(b)
    const inserted = await branches.record('main', 'items', 'd')
    expect(inserted.service.version).toBe(0)
    expect(Date.parse(inserted.service.createdAt)).toBeGreaterThan(
      Date.parse(body.service.createdAt),
    )
  })

  it('takes every type of value as it is', async () => {
    const branches = await open({ types: TYPE_COLUMNS })
    const full = TYPE_VALUES
    const records = {
      full,
      empty: {},
      bare: { multiple: [], object: {}, json: null },
      hollow: { object: { inner: {} } },
    }
    for (const [id, record] of Object.entries(records)) {
      await branches.put('dev', 'types', id, record)
    }
    const ids = Object.keys(records)
    const read = await branches.read('dev', 'types', ids)
    await branches.merge('dev')
    expect(await branches.read('main', 'types', ids)).toEqual(read)
    // Repeat with updates instead of inserts, into a fork.
    await branches.fork('next')
    await branches.put('dev', 'types', 'empty', { ...full, string: 'another' })
    await branches.put('dev', 'types', 'full', {})
    const updated = await branches.read('dev', 'types', ids)
    await branches.merge('dev', { into: 'next' })
    expect(await branches.read('next', 'types', ids)).toEqual(updated)
    await branches.merge('dev')
    expect(await branches.read('main', 'types', ids)).toEqual(updated)
    const { tables } = await branches.diff('next', '?against=main&table=types')
    expect(tables).toMatchObject([nothing])
  })

  it('of thousands of records goes page by page', async () => {
    const branches = await open()
    const rows = Array.from({ length: 2500 }, (_, index) => ({ id: `n${index}`, price: index }))
    await branches.bulk('main', 'items', rows.slice(0, 1500))
    await branches.fork('big')
    await branches.bulk('big', 'items', rows.slice(1500))
    for (const start of [0, 1000]) {
      const operations = rows
        .slice(start, Math.min(start + 1000, 1500))
        .map(({ id }) => ({ update: { table: 'items', id, fields: { name: 'big' } } }))
      expectOk(await branches.call('big', 'POST', '/transaction', { operations }))
    }
    const { tables } = await branches.merge('big')
    expect(tables).toEqual([{ name: 'items', inserted: 1000, updated: 1500, deleted: 0 }])
    expect((await branches.diff('big', '?against=main')).tables).toMatchObject([{ ...nothing }])
  })
})

describe('records that are too large for one page', () => {
  it('are compared and merged all the same', async () => {
    const branches = await TestBranches.create(service, 'large', {
      items: [{ name: 'text', type: 'text' }],
    })
    await branches.put('main', 'items', 'i00', { text: 'old' })
    await branches.fork('dev')
    // Together, the records are larger than a page.
    const records = Array.from({ length: 12 }, (_, index) => {
      return { id: `i${String(index).padStart(2, '0')}`, text: 'x'.repeat(900_000) }
    })
    await branches.bulk('dev', 'items', records.slice(1))
    await branches.put('dev', 'items', 'i00', { text: records[0]?.text })
    const { body } = expectOk(await branches.call('dev', 'GET', '/diff?size=11'))
    expect(body.tables[0]).toMatchObject({ inserted: 11, updated: 1, more: true, cursor: 'i10' })
    expect(body.tables[0].changes.length).toBe(11)
    const tables = [{ name: 'items', inserted: 11, updated: 1, deleted: 0 }]
    expect(await branches.merge('dev')).toMatchObject({ merged: true, tables })
    for (const { id, text } of records) {
      expect((await branches.record('main', 'items', id))?.text === text, id).toBe(true)
    }
  })
})

describe('conflicts', () => {
  it('of values are listed with what each side has, and nothing is merged', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10, name: 'Dev' })
    await branches.patch('main', 'items', 'a', { price: 11 })
    await branches.patch('dev', 'items', 'b', { price: 20 })
    const before = await items(branches, 'main')
    const answer = await branches.merging('dev')
    expect(conflictsOf(answer)).toEqual([
      {
        table: 'items',
        id: 'a',
        kind: 'bothUpdated',
        token: expect.any(String),
        columns: { price: { base: 1, ours: 11, theirs: 10 } },
      },
    ])
    expect(answer.body.conflictCount).toBe(1)
    expect(answer.body.conflictTables).toMatchObject([{ name: 'items', conflicts: 1 }])
    expect(answer.body.message).toBe(
      'branch [dev] cannot be merged into [main]: 1 conflict; nothing was merged',
    )
    expect(await items(branches, 'main')).toEqual(before)
  })

  it('of inserts and deletions are listed with the whole records', async () => {
    const branches = await open()
    await branches.put('dev', 'items', 'd', { name: 'Dev', price: 4 })
    await branches.put('main', 'items', 'd', { name: 'Main', price: 4 })
    await branches.remove('dev', 'items', 'a')
    await branches.patch('main', 'items', 'a', { price: 10 })
    await branches.remove('main', 'items', 'b')
    await branches.patch('dev', 'items', 'b', { price: 20 })
    const conflicts = conflictsOf(await branches.merging('dev'))
    expect(conflicts).toEqual([
      {
        table: 'items',
        id: 'a',
        kind: 'deletedThere',
        token: expect.any(String),
        base: { name: 'A', price: 1 },
        ours: { name: 'A', price: 10 },
        theirs: null,
      },
      {
        table: 'items',
        id: 'b',
        kind: 'deletedHere',
        token: expect.any(String),
        base: { name: 'B', price: 2 },
        ours: null,
        theirs: { name: 'B', price: 20 },
      },
      {
        table: 'items',
        id: 'd',
        kind: 'bothInserted',
        token: expect.any(String),
        columns: { name: { base: null, ours: 'Main', theirs: 'Dev' } },
      },
    ])
  })

  it.each([
    [
      'ours',
      {
        a: { name: 'A', price: 10 },
        c: { name: 'C', price: 30 },
        d: { name: 'Main', price: 4 },
        e: { name: 'E' },
      },
    ],
    [
      'theirs',
      {
        b: { name: 'B', price: 20 },
        c: { name: 'C', price: 31 },
        d: { name: 'Dev', price: 4 },
        e: { name: 'E' },
      },
    ],
  ])('are settled by the strategy %s', async (strategy, expected) => {
    const branches = await open()
    await branches.put('dev', 'items', 'd', { name: 'Dev', price: 4 })
    await branches.put('main', 'items', 'd', { name: 'Main', price: 4 })
    await branches.remove('dev', 'items', 'a')
    await branches.patch('main', 'items', 'a', { price: 10 })
    await branches.remove('main', 'items', 'b')
    await branches.patch('dev', 'items', 'b', { price: 20 })
    await branches.patch('main', 'items', 'c', { price: 30 })
    await branches.patch('dev', 'items', 'c', { price: 31 })
    // Changes without a conflict are merged whatever the strategy.
    await branches.put('dev', 'items', 'e', { name: 'E' })
    expect(await branches.merge('dev', { strategy })).toMatchObject({ conflictCount: 0 })
    expect(await items(branches, 'main')).toEqual(expected)
  })

  it('of one record that is only settled by columns keep the other columns of both', async () => {
    const branches = await open({ wide: 'abcd'.split('').map((name) => ({ name, type: 'int' })) })
    await branches.put('main', 'wide', 'w', { a: 0, b: 0, c: 0, d: 0 })
    await branches.fork('other')
    await branches.patch('other', 'wide', 'w', { a: 1, b: 1 })
    await branches.patch('main', 'wide', 'w', { b: 2, c: 2 })
    await branches.merge('other', { strategy: 'theirs' })
    expect(await branches.read('main', 'wide', ['w'])).toEqual({ w: { a: 1, b: 1, c: 2, d: 0 } })
  })

  it('are settled for each table by its own strategy', async () => {
    const branches = await open({ others: ITEMS })
    await branches.put('main', 'others', 'o', { price: 1 })
    await branches.fork('two')
    for (const table of ['items', 'others']) {
      const id = table === 'items' ? 'a' : 'o'
      await branches.patch('two', table, id, { price: 10 })
      await branches.patch('main', table, id, { price: 11 })
    }
    expect(conflictsOf(await branches.merging('two'))).toHaveLength(2)
    const tables = { items: { strategy: 'theirs' } }
    expect(conflictsOf(await branches.merging('two', { tables }))).toMatchObject([
      { table: 'others' },
    ])
    await branches.merge('two', { strategy: 'ours', tables })
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { name: 'A', price: 10 } })
    expect(await branches.read('main', 'others', ['o'])).toEqual({ o: { price: 11 } })
  })

  it('are counted all, and listed up to a hundred for each table', async () => {
    const branches = await open()
    const rows = Array.from({ length: 130 }, (_, index) => ({ id: `n${index}`, price: 0 }))
    await branches.bulk('main', 'items', rows)
    await branches.fork('many')
    for (const [branch, price] of [
      ['main', 1],
      ['many', 2],
    ] as const) {
      const operations = rows.map(({ id }) => ({
        update: { table: 'items', id, fields: { price } },
      }))
      expectOk(await branches.call(branch, 'POST', '/transaction', { operations }))
    }
    const { body } = await branches.merging('many')
    expect(body.conflictCount).toBe(130)
    expect(body.conflicts).toHaveLength(100)
    expect(body.message).toContain('130 conflicts')
  })

  it('of objects are about what is in them, and about the whole once it comes or goes', async () => {
    const place: Column = {
      name: 'place',
      type: 'object',
      columns: [
        { name: 'city', type: 'string' },
        { name: 'street', type: 'string' },
      ],
    }
    const branches = await open({ homes: [place] })
    await branches.put('main', 'homes', 'moved', { place: { city: 'Rome', street: 'Via' } })
    await branches.put('main', 'homes', 'gone', { place: { city: 'Rome' } })
    await branches.put('main', 'homes', 'found', {})
    await branches.fork('other')
    await branches.patch('other', 'homes', 'moved', { place: { city: 'Oslo', street: 'Via' } })
    await branches.patch('main', 'homes', 'moved', { place: { city: 'Rome', street: 'Corso' } })
    await branches.patch('other', 'homes', 'gone', { place: { city: 'Rome', street: 'Via' } })
    await branches.patch('main', 'homes', 'gone', { place: null })
    await branches.patch('other', 'homes', 'found', { place: { city: 'Oslo' } })
    await branches.patch('main', 'homes', 'found', { place: { street: 'Corso' } })
    expect(conflictsOf(await branches.merging('other'))).toEqual([
      {
        table: 'homes',
        id: 'found',
        kind: 'bothUpdated',
        token: expect.any(String),
        columns: {
          'place.city': { base: null, ours: null, theirs: 'Oslo' },
          'place.street': { base: null, ours: 'Corso', theirs: null },
        },
      },
      {
        table: 'homes',
        id: 'gone',
        kind: 'bothUpdated',
        token: expect.any(String),
        columns: {
          place: {
            base: { city: 'Rome' },
            ours: null,
            theirs: { city: 'Rome', street: 'Via' },
          },
        },
      },
    ])
    await branches.merge('other', { strategy: 'theirs' })
    expect(await branches.read('main', 'homes', ['moved', 'gone', 'found'])).toEqual({
      moved: { place: { city: 'Oslo', street: 'Corso' } },
      gone: { place: { city: 'Rome', street: 'Via' } },
      found: { place: { city: 'Oslo' } },
    })
  })
})

describe('a dry run', () => {
  it('says what would happen and leaves everything as it is', async () => {
    const branches = await open()
    await branches.edit('dev', column('label'), { addTable: { table: 'notes' } })
    await branches.patch('dev', 'items', 'a', { price: 10, label: 'x' })
    await branches.remove('dev', 'items', 'b')
    const snapshot = async () => ({
      main: await branches.call('main', 'GET', ''),
      dev: await branches.call('dev', 'GET', ''),
      records: [await items(branches, 'main'), await items(branches, 'dev')],
      stats: (await branches.call('main', 'GET', '/stats')).body.bytes,
      catalogue: await service.database.query(sql`
        select b.name, b.epoch, b.stamp, b.version, b.deleted_at is null as live
        from offshoot.branches b
        join offshoot.databases d on d.id = b.database_id
        where d.name = ${branches.database}
        order by b.name, b.id`),
    })
    const comparable = async () => {
      const { main, dev, ...rest } = await snapshot()
      return { main: main.body, dev: dev.body, ...rest }
    }
    const before = await comparable()
    const dry = await branches.merge('dev', { dryRun: true })
    expect(await comparable()).toEqual(before)
    expect(dry).toMatchObject({
      merged: false,
      tables: [{ name: 'items', inserted: 0, updated: 1, deleted: 1 }, { name: 'notes' }],
    })
    const { merged: _dry, ...said } = dry
    const { merged: _done, entry: _entry, ...done } = await branches.merge('dev')
    expect(said).toEqual(done)
  })

  it('lists conflicts with a success', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('main', 'items', 'a', { price: 11 })
    const answer = await branches.merging('dev', { dryRun: true })
    expect(answer.status).toBe(200)
    expect(answer.body).toMatchObject({ merged: false, conflictCount: 1, conflicts: [{ id: 'a' }] })
    expect(await branches.merge('dev', { dryRun: true, strategy: 'theirs' })).toMatchObject({
      conflictCount: 0,
      tables: [{ updated: 1 }],
    })
  })

  it('of a pull is one too', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 10 })
    expect(await branches.pull('dev', { dryRun: true })).toMatchObject({ merged: false })
    expect((await branches.diff('dev')).tables).toEqual([])
    expect((await branches.pull('dev')).tables).toMatchObject([{ updated: 1 }])
  })
})

describe('schemas', () => {
  it('come along as one migration of the target', async () => {
    const branches = await open()
    await branches.edit(
      'dev',
      { renameColumn: { table: 'items', oldName: 'price', newName: 'cents' } },
      column('label'),
      { addTable: { table: 'notes' } },
      {
        addColumn: {
          table: 'notes',
          column: { name: 'item', type: 'link', link: { table: 'items' } },
        },
      },
    )
    await branches.patch('dev', 'items', 'a', { cents: 100, label: 'new' })
    await branches.put('dev', 'notes', 'n', { item: 'a' })
    await branches.patch('main', 'items', 'b', { price: 20 })
    const before = (await branches.call('main', 'GET', '')).body
    const { schema, tables } = await branches.merge('dev')
    expect(schema.operations).toEqual([
      { addTable: { table: 'notes' } },
      { renameColumn: { table: 'items', oldName: 'price', newName: 'cents' } },
      { addColumn: { table: 'items', column: { name: 'label', type: 'string' } } },
      {
        addColumn: {
          table: 'notes',
          column: { name: 'item', type: 'link', link: { table: 'items' } },
        },
      },
    ])
    expect(tables).toEqual([
      { name: 'items', ...nothing, updated: 1 },
      { name: 'notes', ...nothing, inserted: 1 },
    ])
    expect(await branches.schema('main')).toEqual(await branches.schema('dev'))
    expect(await items(branches, 'main')).toEqual({
      a: { name: 'A', cents: 100, label: 'new' },
      b: { name: 'B', cents: 20 },
      c: { name: 'C', cents: 3 },
    })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { item: { id: 'a' } } })
    const after = (await branches.call('main', 'GET', '')).body
    expect(after.version).toBe(before.version + 1)
    const history = await branches.call('main', 'POST', '/schema/history', {})
    expect(history.body.logs[0]).toMatchObject({
      id: after.lastMigrationID,
      parentID: before.lastMigrationID,
      title: 'merge',
      operations: schema.operations,
    })
    // A second merge has no schema edits left to apply.
    expect((await branches.merge('dev')).schema.operations).toEqual([])
    expect((await branches.call('main', 'GET', '')).body.version).toBe(after.version)
  })

  it('of a merge without edits leave the version of the branch', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    const { version } = (await branches.call('main', 'GET', '')).body
    await branches.merge('dev')
    expect((await branches.call('main', 'GET', '')).body.version).toBe(version)
  })

  it('take renames and edits of both sides together', async () => {
    const branches = await open()
    await branches.edit(
      'dev',
      { renameTable: { oldName: 'items', newName: 'goods' } },
      {
        addColumn: { table: 'goods', column: { name: 'there', type: 'int' } },
      },
    )
    await branches.edit(
      'main',
      { renameColumn: { table: 'items', oldName: 'name', newName: 'title' } },
      column('here', { type: 'int' }),
    )
    await branches.patch('dev', 'goods', 'a', { there: 1, name: 'Dev' })
    await branches.patch('main', 'items', 'a', { here: 2, price: 10 })
    await branches.merge('dev')
    expect(await branches.schema('main')).toEqual({ goods: ['title', 'price', 'here', 'there'] })
    expect(await branches.read('main', 'goods', ['a', 'b'])).toEqual({
      a: { title: 'Dev', price: 10, here: 2, there: 1 },
      b: { title: 'B', price: 2 },
    })
    await branches.pull('dev')
    expect(await branches.schema('dev')).toEqual({ goods: ['title', 'price', 'there', 'here'] })
    expect((await branches.diff('dev', '?against=main')).tables).toMatchObject([{ ...nothing }])
  })

  it('drop columns and tables, and what is in them', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    await branches.put('main', 'notes', 'n', { text: 'x' })
    await branches.fork('kept')
    await branches.edit(
      'dev',
      { removeColumn: { table: 'items', column: 'name' } },
      { removeTable: { table: 'notes' } },
    )
    await branches.merge('dev', { strategy: 'theirs', allowDataLoss: true })
    expect(await branches.schema('main')).toEqual({ items: ['price'] })
    expect(await items(branches, 'main')).toEqual({
      a: { price: 1 },
      b: { price: 2 },
      c: { price: 3 },
    })
    // A fork from before the merge still has them.
    expect(await branches.read('kept', 'notes', ['n'])).toEqual({ n: { text: 'x' } })
    expect(await branches.read('kept', 'items', ['a'])).toEqual({ a: { name: 'A', price: 1 } })
  })

  it('of a column that both sides dropped and one changed before go on without it', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { name: 'Dev' })
    await branches.patch('main', 'items', 'a', { name: 'Main' })
    for (const branch of ['main', 'dev']) {
      await branches.edit(branch, { removeColumn: { table: 'items', column: 'name' } })
    }
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.merge('dev')
    expect(await items(branches, 'main')).toMatchObject({ a: { price: 10 } })
  })

  it('fill a new column that must have a value, in records of both sides', async () => {
    const branches = await open()
    await branches.edit('dev', column('size', { type: 'int', notNull: true, defaultValue: '5' }))
    await branches.put('main', 'items', 'd', { name: 'D' })
    await branches.put('dev', 'items', 'e', { name: 'E', size: 6 })
    await branches.patch('dev', 'items', 'a', { size: 7 })
    await branches.fork('below', 'main')
    await branches.merge('dev')
    const merged = await items(branches, 'main')
    expect(merged).toEqual({
      a: { name: 'A', price: 1, size: 7 },
      b: { name: 'B', price: 2, size: 5 },
      c: { name: 'C', price: 3, size: 5 },
      d: { name: 'D', size: 5 },
      e: { name: 'E', size: 6 },
    })
    await branches.merge('dev', { into: 'below' })
    expect(await items(branches, 'below')).toEqual(merged)
    // In the other direction: merge records of a branch that lacks the column.
    await branches.fork('old', 'below')
    await branches.edit('below', column('mark', { notNull: true, defaultValue: 'm' }))
    await branches.put('old', 'items', 'f', { name: 'F' })
    await branches.merge('old')
    expect(await branches.read('below', 'items', ['f', 'a'])).toEqual({
      f: { name: 'F', size: 5, mark: 'm' },
      a: { name: 'A', price: 1, size: 7, mark: 'm' },
    })
  })

  it('are refused when a record would miss a value that it must have', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    const required = {
      addColumn: { table: 'notes', column: { name: 'by', type: 'string', notNull: true } },
    } as const
    await branches.edit('dev', required)
    await branches.put('main', 'notes', 'n', { text: 'no one' })
    expect(conflictsOf(await branches.merging('dev'))).toEqual([
      {
        table: 'notes',
        column: 'by',
        kind: 'notNull',
        ids: ['n'],
        tokens: { n: expect.any(String) },
        records: 1,
        message: 'column [by]: is required; 1 record would have no value after the merge',
      },
    ])
    expect(await branches.merge('dev', { dryRun: true })).toMatchObject({ conflictCount: 1 })
    const here = conflictsOf(await branches.pulling('dev'))
    expect(here).toMatchObject([{ table: 'notes', column: 'by', kind: 'notNull' }])
    expect(await branches.schema('main')).toMatchObject({ notes: ['text'] })
    await branches.remove('main', 'notes', 'n')
    await branches.merge('dev')
    expect(await branches.schema('main')).toMatchObject({ notes: ['text', 'by'] })
  })

  it('with different things of one name are in conflict, whatever the strategy', async () => {
    const branches = await open()
    // The target has given an old column the name of a new one. The names of the tables differ in case.
    await branches.edit(
      'main',
      { renameColumn: { table: 'items', oldName: 'price', newName: 'label' } },
      { addTable: { table: 'notes' } },
    )
    await branches.edit('dev', column('label'), { addTable: { table: 'Notes' } })
    const rename = 'rename one of them first, or give that of the merged branch another name'
    for (const strategy of ['fail', 'ours', 'theirs']) {
      expect(conflictsOf(await branches.merging('dev', { strategy }))).toEqual([
        {
          table: 'items',
          column: 'label',
          kind: 'schema',
          token: expect.any(String),
          message: `two different columns have this name; ${rename}`,
          takes: [],
        },
        {
          table: 'Notes',
          kind: 'schema',
          token: expect.any(String),
          message: `two different tables have this name; ${rename}`,
          takes: [],
        },
      ])
    }
    await branches.edit(
      'dev',
      { renameTable: { oldName: 'Notes', newName: 'memos' } },
      { renameColumn: { table: 'items', oldName: 'label', newName: 'tag' } },
    )
    await branches.merge('dev')
    expect(await branches.schema('main')).toEqual({
      items: ['name', 'label', 'tag'],
      notes: [],
      memos: [],
    })
  })

  it.each([
    ['ours', 'mine'],
    ['theirs', 'yours'],
  ])('with two new names for one thing go by the strategy %s', async (strategy, name) => {
    const branches = await open()
    await branches.edit('main', {
      renameColumn: { table: 'items', oldName: 'name', newName: 'mine' },
    })
    await branches.edit('dev', {
      renameColumn: { table: 'items', oldName: 'name', newName: 'yours' },
    })
    expect(conflictsOf(await branches.merging('dev'))).toEqual([
      {
        table: 'items',
        column: 'mine',
        kind: 'schema',
        token: expect.any(String),
        message: 'was renamed to [yours] on the merged branch and to [mine] on the target',
        takes: ['ours', 'theirs'],
      },
    ])
    await branches.merge('dev', { strategy })
    expect(await branches.schema('main')).toEqual({ items: [name, 'price'] })
  })

  it('with a table removed there and changed here are in conflict', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    await branches.put('main', 'notes', 'n', { text: 'x' })
    await branches.edit('dev', { removeTable: { table: 'notes' } })
    await branches.edit('main', {
      renameColumn: { table: 'notes', oldName: 'text', newName: 'body' },
    })
    expect(conflictsOf(await branches.merging('dev'))).toMatchObject([
      {
        table: 'notes',
        message: 'was removed on the merged branch and changed on the target',
        records: 1,
      },
    ])
    await branches.fork('theirs')
    await branches.merge('dev', { into: 'theirs', strategy: 'theirs', allowDataLoss: true })
    expect(Object.keys(await branches.schema('theirs'))).toEqual(['items'])
    await branches.merge('dev', { strategy: 'ours' })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { body: 'x' } })
    // The conflict is settled: the table stays on `main`, does not conflict again, and accepts
    // writes.
    await branches.put('main', 'notes', 'm', { body: 'y' })
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.merge('dev')
    expect(await branches.schema('main')).toMatchObject({ notes: ['body'] })
  })

  it('never bring back what the target has removed', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    await branches.put('main', 'notes', 'n', { text: 'x' })
    await branches.fork('reader')
    await branches.edit(
      'main',
      { removeTable: { table: 'notes' } },
      { removeColumn: { table: 'items', column: 'name' } },
    )
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.merge('dev')
    expect(await branches.schema('main')).toEqual({ items: ['price'] })
    expect(await items(branches, 'main')).toMatchObject({ a: { price: 10 } })
    await branches.edit('dev', {
      renameColumn: { table: 'items', oldName: 'name', newName: 'title' },
    })
    await branches.edit('dev', {
      addColumn: { table: 'notes', column: { name: 'by', type: 'string' } },
    })
    for (const strategy of ['fail', 'theirs']) {
      const message =
        'was removed on the target and changed on the merged branch; a merge cannot restore it'
      expect(conflictsOf(await branches.merging('dev', { strategy }))).toEqual([
        {
          table: 'items',
          column: 'title',
          kind: 'schema',
          token: expect.any(String),
          message,
          takes: ['ours'],
          records: 0,
        },
        {
          table: 'notes',
          kind: 'schema',
          token: expect.any(String),
          message,
          takes: ['ours'],
          records: 0,
        },
      ])
    }
    await branches.merge('dev', { strategy: 'ours' })
    expect(await branches.schema('main')).toEqual({ items: ['price'] })
  })

  it('never bring back what came from a third branch and was removed since', async () => {
    const branches = await open()
    await branches.fork('left')
    await branches.fork('right')
    await branches.edit('dev', column('label'), { addTable: { table: 'notes' } })
    await branches.patch('dev', 'items', 'a', { label: 'stale' })
    await branches.put('dev', 'notes', 'n', {})
    await branches.merge('dev', { into: 'left' })
    await branches.fork('reader', 'left')
    await branches.edit(
      'left',
      { removeColumn: { table: 'items', column: 'label' } },
      { removeTable: { table: 'notes' } },
    )
    await branches.merge('dev', { into: 'right' })
    await branches.delete('dev')
    await branches.merge('right', { into: 'left' })
    expect(await branches.schema('left')).toEqual({ items: ['name', 'price'] })
    expect(await branches.read('reader', 'items', ['a'])).toMatchObject({ a: { label: 'stale' } })
  })

  it('that would link to nothing are refused', async () => {
    const branches = await open({ notes: [] })
    await branches.edit('dev', { removeTable: { table: 'notes' } })
    await branches.edit('main', {
      addColumn: {
        table: 'items',
        column: { name: 'note', type: 'link', link: { table: 'notes' } },
      },
    })
    expect(conflictsOf(await branches.merging('dev'))).toEqual([
      {
        table: 'items',
        column: 'note',
        kind: 'schema',
        token: expect.any(String),
        message: 'links to a table that would not exist after the merge',
        takes: [],
      },
    ])
  })

  it('that would be over a limit are refused', async () => {
    const branches = await open()
    for (const branch of ['main', 'dev']) {
      await branches.edit(
        branch,
        ...Array.from({ length: 15 }, (_, index) => column(`${branch}${index}`)),
      )
    }
    expect(conflictsOf(await branches.merging('dev'))).toMatchObject([
      { table: 'items', message: 'a table cannot have more than 30 columns' },
    ])
    const tables = await open()
    for (const branch of ['main', 'dev']) {
      await tables.edit(
        branch,
        ...Array.from({ length: 7 }, (_, index) => ({ addTable: { table: `${branch}${index}` } })),
      )
    }
    expect(conflictsOf(await tables.merging('dev'))).toMatchObject([
      { message: 'a branch cannot have more than 12 tables' },
    ])
  })
})

describe('unique columns', () => {
  const users: readonly Column[] = [
    { name: 'email', type: 'email', unique: true },
    { name: 'name', type: 'string' },
  ]
  const at = (name: string) => `${name}@example.com`

  async function openUsers() {
    const branches = await TestBranches.create(service, `merge${++number}`, { users })
    await branches.bulk('main', 'users', [
      { id: 'a', email: at('a') },
      { id: 'b', email: at('b') },
      { id: 'c', email: at('c') },
    ])
    await branches.fork('dev')
    return branches
  }
  const emails = async (branches: TestBranches, branch: string) => {
    const found = await branches.read(branch, 'users', IDS)
    return Object.fromEntries(
      Object.entries(found).map(([id, record]) => [id, (record as { email?: string }).email]),
    )
  }

  it.each(['main', 'fork'])(
    'refuse the whole merge for a value that is taken, into %s',
    async (target) => {
      const branches = await openUsers()
      if (target === 'fork') await branches.fork('fork')
      await branches.put(target, 'users', 'd', { email: at('d') })
      await branches.put('dev', 'users', 'e', { email: at('d') })
      await branches.put('dev', 'users', 'f', { email: at('f') })
      const wish = { into: target }
      for (const strategy of ['fail', 'ours', 'theirs']) {
        const conflicts = conflictsOf(await branches.merging('dev', { ...wish, strategy }))
        expect(conflicts).toEqual([
          {
            table: 'users',
            column: 'email',
            kind: 'notUnique',
            ids: ['d', 'e'],
            tokens: { d: expect.any(String), e: expect.any(String) },
            value: at('d'),
            message: 'column [email]: is not unique after the merge',
          },
        ])
      }
      expect(await branches.merge('dev', { ...wish, dryRun: true })).toMatchObject({
        merged: false,
        conflictCount: 1,
        conflicts: [{ kind: 'notUnique' }],
      })
      expect(await emails(branches, target)).toEqual({
        a: at('a'),
        b: at('b'),
        c: at('c'),
        d: at('d'),
      })
      await branches.remove(target, 'users', 'd')
      await branches.merge('dev', wish)
      expect(Object.keys(await emails(branches, target))).toEqual(['a', 'b', 'c', 'e', 'f'])
    },
  )

  it('refuse a value that the target inherits, and take one that it has let go', async () => {
    const branches = await openUsers()
    await branches.fork('target')
    await branches.remove('dev', 'users', 'a')
    await branches.put('dev', 'users', 'd', { email: at('a') })
    // The target changes the record, so a merge with `ours` keeps it, and its unique value stays in
    // use.
    await branches.patch('target', 'users', 'a', { name: 'kept' })
    const wish = { into: 'target', strategy: 'ours' }
    expect(conflictsOf(await branches.merging('dev', wish))).toMatchObject([{ kind: 'notUnique' }])
    await branches.merge('dev', { ...wish, strategy: 'theirs' })
    expect(await emails(branches, 'target')).toEqual({ b: at('b'), c: at('c'), d: at('a') })
  })

  it.each(['main', 'fork'])(
    'let values pass from one record to another, into %s',
    async (target) => {
      const branches = await openUsers()
      if (target === 'fork') await branches.fork('fork')
      // `a` and `b` swap their values, and the new record takes the value of the deleted one.
      await branches.patch('dev', 'users', 'a', { email: null })
      await branches.patch('dev', 'users', 'b', { email: at('a') })
      await branches.patch('dev', 'users', 'a', { email: at('b') })
      await branches.remove('dev', 'users', 'c')
      await branches.put('dev', 'users', '0', { email: at('c') })
      const before = await branches.record(target, 'users', 'a')
      const { tables } = await branches.merge('dev', { into: target })
      expect(tables).toEqual([{ name: 'users', inserted: 1, updated: 2, deleted: 1 }])
      expect(await branches.read(target, 'users', ['0', 'a', 'b', 'c'])).toEqual({
        0: { email: at('c') },
        a: { email: at('b') },
        b: { email: at('a') },
      })
      const after = await branches.record(target, 'users', 'a')
      expect(after.service).toMatchObject({ version: 1, createdAt: before.service.createdAt })
      const taken = await branches.call(target, 'PUT', '/tables/users/data/x', { email: at('c') })
      expect(taken.status).toBe(400)
    },
  )

  it('let values pass between pages', async () => {
    const branches = await openUsers()
    const rows = Array.from({ length: 2200 }, (_, index) => ({
      id: `n${String(index).padStart(4, '0')}`,
      email: at(`n${index}`),
    }))
    await branches.bulk('main', 'users', rows)
    await branches.fork('shifted')
    await branches.fork('target')
    for (let start = 0; start < rows.length; start += 1000) {
      const part = rows.slice(start, start + 1000)
      const operations = part.map(({ id }) => ({
        update: { table: 'users', id, fields: { email: null } },
      }))
      expectOk(await branches.call('shifted', 'POST', '/transaction', { operations }))
    }
    for (let start = 0; start < rows.length; start += 400) {
      const operations = rows.slice(start, start + 400).map(({ id }, offset) => ({
        update: {
          table: 'users',
          id,
          fields: { email: rows[(start + offset + 1) % rows.length]?.email },
        },
      }))
      expectOk(await branches.call('shifted', 'POST', '/transaction', { operations }))
    }
    for (const target of ['main', 'target']) {
      const { tables } = await branches.merge('shifted', { into: target })
      expect(tables).toEqual([{ name: 'users', ...nothing, updated: 2200 }])
      expect((await branches.diff('shifted', `?against=${target}`)).tables).toMatchObject([nothing])
    }
  })

  it('that are new come along with their rule', async () => {
    const branches = await openUsers()
    await branches.edit('dev', {
      addColumn: { table: 'users', column: { name: 'code', type: 'int', unique: true } },
    })
    await branches.patch('dev', 'users', 'a', { code: 1 })
    await branches.fork('below')
    for (const target of ['main', 'below']) {
      await branches.merge('dev', { into: target })
      const answer = await branches.call(target, 'PATCH', '/tables/users/data/b', { code: 1 })
      expect(answer.body.message).toContain('is not unique')
    }
  })
})

describe('rules for tables', () => {
  async function openTwo() {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    await branches.edit('dev', column('label'), {
      addColumn: { table: 'notes', column: { name: 'by', type: 'string' } },
    })
    await branches.patch('dev', 'items', 'a', { label: 'x', price: 10 })
    await branches.put('dev', 'notes', 'n', { text: 'new', by: 'me' })
    return branches
  }

  it('keep a table out, with its schema', async () => {
    const branches = await openTwo()
    const { tables } = await branches.merge('dev', { tables: { notes: { mode: 'skip' } } })
    expect(tables).toEqual([{ name: 'items', ...nothing, updated: 1 }])
    expect(await branches.schema('main')).toEqual({
      items: ['name', 'price', 'label'],
      notes: ['text'],
    })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({})
  })

  it('take the schema of a table without its records', async () => {
    const branches = await openTwo()
    await branches.merge('dev', { tables: { notes: { mode: 'schema' } } })
    expect(await branches.schema('main')).toMatchObject({ notes: ['text', 'by'] })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({})
  })

  it('take the schema of all tables without any records', async () => {
    const branches = await openTwo()
    await branches.edit('dev', { addTable: { table: 'drafts' } })
    const schema = { mode: 'schema' }
    const tables = { items: schema, notes: schema, drafts: schema }
    expect(await branches.merge('dev', { tables })).toMatchObject({ merged: true, tables: [] })
    expect(await branches.schema('main')).toEqual(await branches.schema('dev'))
    expect(await branches.read('main', 'notes', ['n'])).toEqual({})
    expect(await branches.merge('dev', { tables })).toMatchObject({ merged: false })
    expect(await branches.merge('dev')).toMatchObject({ merged: true })
    expect(await branches.read('main', 'notes', ['n'])).toMatchObject({ n: { by: 'me' } })
  })

  it.each(['skip', 'schema'])('of mode %s leave the rest for a later merge', async (mode) => {
    const branches = await openTwo()
    await branches.merge('dev', { tables: { notes: { mode } } })
    await branches.patch('dev', 'items', 'b', { price: 20 })
    const { tables } = await branches.merge('dev')
    expect(tables).toEqual([
      { name: 'items', ...nothing, updated: 1 },
      { name: 'notes', ...nothing, inserted: 1 },
    ])
    expect(await branches.schema('main')).toEqual(await branches.schema('dev'))
    expect((await branches.merge('dev')).tables.every((table: object) => 'inserted' in table)).toBe(
      true,
    )
    expect((await branches.diff('dev', '?against=main')).tables).toMatchObject([nothing, nothing])
  })

  it('may keep a new table out, again and again, and let it in later', async () => {
    const branches = await open()
    await branches.edit('dev', { addTable: { table: 'drafts' } })
    await branches.put('dev', 'drafts', 'd', {})
    for (const price of [10, 20]) {
      await branches.patch('dev', 'items', 'a', { price })
      await branches.merge('dev', { tables: { drafts: { mode: 'skip' } } })
      expect(Object.keys(await branches.schema('main'))).toEqual(['items'])
    }
    await branches.remove('main', 'items', 'a')
    const { tables } = await branches.merge('dev')
    expect(tables).toEqual([
      { name: 'items', ...nothing },
      { name: 'drafts', ...nothing, inserted: 1 },
    ])
  })

  it('know a table by its name on either side', async () => {
    for (const name of ['notes', 'memos']) {
      const branches = await openTwo()
      await branches.edit('dev', { renameTable: { oldName: 'notes', newName: 'memos' } })
      await branches.merge('dev', { tables: { [name]: { mode: 'skip' } } })
      expect(await branches.schema('main')).toMatchObject({ notes: ['text'] })
      expect(await branches.read('main', 'notes', ['n'])).toEqual({})
    }
  })
})

describe('merges one after the other', () => {
  it('bring only what is new', async () => {
    const branches = await open()
    await branches.put('dev', 'items', 'd', { name: 'D', price: 4 })
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.merge('dev')
    // The target changes what it merged. The next merge neither conflicts with these changes nor
    // reverts them.
    await branches.remove('main', 'items', 'd')
    await branches.patch('main', 'items', 'a', { price: 11 })
    await branches.patch('dev', 'items', 'b', { price: 20 })
    expect((await branches.merge('dev')).tables).toEqual([
      { name: 'items', ...nothing, updated: 1 },
    ])
    expect(await items(branches, 'main')).toEqual({
      a: { name: 'A', price: 11 },
      b: { name: 'B', price: 20 },
      c: { name: 'C', price: 3 },
    })
    expect((await branches.merge('dev')).tables).toEqual([{ name: 'items', ...nothing }])
  })

  it('that were settled stay settled until one side changes again', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('main', 'items', 'a', { price: 11 })
    await branches.merge('dev', { strategy: 'ours' })
    expect((await branches.merge('dev')).conflictCount).toBe(0)
    await branches.patch('dev', 'items', 'a', { price: 12 })
    expect(conflictsOf(await branches.merging('dev'))).toMatchObject([
      { columns: { price: { base: 10, ours: 11, theirs: 12 } } },
    ])
  })

  it('go back and forth for as long as one likes', async () => {
    const branches = await open()
    await branches.fork('deep', 'dev')
    for (let round = 1; round <= (LONG ? 24 : 6); round++) {
      await branches.patch('dev', 'items', 'a', { price: round * 100 })
      await branches.patch('main', 'items', 'b', { price: round * 100 })
      await branches.patch('deep', 'items', 'c', { price: round * 100 })
      if (round % 3 === 0) await branches.put('deep', 'items', 'd', { name: `D${round}` })
      if (round % 3 === 1) await branches.put('main', 'items', 'e', { name: `E${round}` })
      if (round % 3 === 2) await branches.put('dev', 'items', 'e', { name: `F${round}` })
      await branches.merge('deep')
      await branches.pull('dev')
      await branches.merge('dev')
      await branches.pull('deep')
      const [main, dev, deep] = [
        await items(branches, 'main'),
        await items(branches, 'dev'),
        await items(branches, 'deep'),
      ]
      expect(dev).toEqual(main)
      expect(deep).toEqual(main)
      expect(main).toMatchObject({
        a: { price: round * 100 },
        b: { price: round * 100 },
        c: { price: round * 100 },
      })
      if (round % 4 === 0) await branches.remove('main', 'items', 'e')
      if (round % 4 === 0) await branches.pull('dev')
      if (round % 4 === 0) await branches.pull('deep')
    }
    await runBackground(service)
    const [merges] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count
      from offshoot.merges m
      join offshoot.branches b on b.id = m.into_branch_id
      join offshoot.databases d on d.id = b.database_id
      where d.name = ${branches.database}`)
    // At most one merge record per ordered pair of the three branches, however often they are
    // merged.
    expect(merges?.count).toBeLessThanOrEqual(6)
  })

  it('of a stack of branches know what came through the others', async () => {
    const branches = await open()
    await branches.fork('top', 'dev')
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.pull('top')
    await branches.patch('top', 'items', 'b', { price: 20 })
    await branches.merge('dev')
    // The target changes what it merged, and the branch below `top` is deleted, as is usual after a
    // merge.
    await branches.remove('main', 'items', 'd')
    await branches.patch('main', 'items', 'a', { price: 11 })
    await branches.delete('dev')
    expect(await branches.merge('top', { into: 'main' })).toMatchObject({
      tables: [{ name: 'items', ...nothing, updated: 1 }],
      conflictCount: 0,
    })
    expect(await items(branches, 'main')).toEqual({
      a: { name: 'A', price: 11 },
      b: { name: 'B', price: 20 },
      c: { name: 'C', price: 3 },
    })
  })

  it('through a branch that was deleted since are remembered', async () => {
    const branches = await open()
    await branches.fork('staging')
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.merge('dev', { into: 'staging' })
    await branches.merge('staging')
    await branches.delete('staging')
    await branches.remove('main', 'items', 'd')
    await branches.patch('dev', 'items', 'a', { price: 10 })
    expect((await branches.merge('dev')).tables).toEqual([
      { name: 'items', ...nothing, updated: 1 },
    ])
    expect(Object.keys(await items(branches, 'main'))).toEqual(['a', 'b', 'c'])
  })

  it('of siblings, and of a branch into its grandparent, find what they share', async () => {
    const branches = await open()
    await branches.fork('sibling')
    await branches.fork('deep', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('deep', 'items', 'b', { price: 20 })
    await branches.patch('sibling', 'items', 'c', { price: 30 })
    await branches.merge('sibling', { into: 'dev' })
    await branches.merge('deep', { into: 'main' })
    expect(await items(branches, 'main')).toMatchObject({
      a: { price: 1 },
      b: { price: 20 },
      c: { price: 3 },
    })
    expect(await items(branches, 'dev')).toMatchObject({
      a: { price: 10 },
      b: { price: 2 },
      c: { price: 30 },
    })
    await branches.pull('deep', { from: 'sibling' })
    expect(await items(branches, 'deep')).toMatchObject({
      a: { price: 1 },
      b: { price: 20 },
      c: { price: 30 },
    })
    await branches.merge('dev')
    expect(await items(branches, 'main')).toMatchObject({
      a: { price: 10 },
      b: { price: 20 },
      c: { price: 30 },
    })
  })

  it('are isolated: forks of the target from before do not change', async () => {
    const branches = await open()
    await branches.fork('before')
    await branches.fork('deep', 'before')
    const states = async () => [await items(branches, 'before'), await items(branches, 'deep')]
    const old = await states()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.remove('dev', 'items', 'b')
    await branches.edit('dev', { removeColumn: { table: 'items', column: 'name' } })
    await branches.merge('dev', { allowDataLoss: true })
    expect(await states()).toEqual(old)
    expect((await branches.diff('before')).tables).toEqual([])
  })

  it('go on after a reset of either side', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.merge('dev')
    await branches.patch('dev', 'items', 'b', { price: 20 })
    await branches.patch('main', 'items', 'c', { price: 30 })
    await branches.reset('dev')
    await branches.patch('dev', 'items', 'c', { price: 31 })
    expect((await branches.merge('dev')).tables).toEqual([
      { name: 'items', ...nothing, updated: 1 },
    ])
    expect(await items(branches, 'main')).toMatchObject({
      a: { price: 10 },
      b: { price: 2 },
      c: { price: 31 },
    })
    // After the reset, the merge base of `deep` and `dev` is the earlier state that both share.
    await branches.patch('dev', 'items', 'a', { price: 12 })
    await branches.fork('deep', 'dev')
    await branches.patch('deep', 'items', 'b', { price: 21 })
    await branches.reset('dev')
    const { tables } = await branches.merge('deep')
    expect(tables).toEqual([{ name: 'items', ...nothing, updated: 2 }])
    expect(await items(branches, 'dev')).toMatchObject({
      a: { price: 12 },
      b: { price: 21 },
      c: { price: 31 },
    })
  })
})

describe('a pull', () => {
  it('takes what the source has done, and keeps what is new here', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 10 })
    await branches.remove('main', 'items', 'b')
    await branches.put('main', 'items', 'd', { name: 'D' })
    await branches.edit('main', column('label'))
    await branches.patch('dev', 'items', 'c', { price: 30 })
    expect(await branches.pull('dev')).toMatchObject({
      merged: true,
      from: 'main',
      into: 'dev',
      tables: [{ name: 'items', inserted: 1, updated: 1, deleted: 1 }],
    })
    expect(await items(branches, 'dev')).toEqual({
      a: { name: 'A', price: 10 },
      c: { name: 'C', price: 30 },
      d: { name: 'D' },
    })
    expect(await items(branches, 'main')).toMatchObject({ c: { price: 3 } })
    expect(await branches.schema('dev')).toEqual({ items: ['name', 'price', 'label'] })
  })

  it('from another branch takes it from there', async () => {
    const branches = await open()
    await branches.fork('other')
    await branches.patch('other', 'items', 'a', { price: 10 })
    expect(await branches.pull('dev', { from: 'other' })).toMatchObject({
      from: 'other',
      into: 'dev',
    })
    expect(await items(branches, 'dev')).toMatchObject({ a: { price: 10 } })
  })
})

describe('a merge or pull is refused', () => {
  let branches: TestBranches

  beforeAll(async () => {
    branches = await open()
    await branches.fork('empty', 'main', { data: false })
    await branches.fork('child', 'dev')
    await branches.fork('orphan', 'child')
    await branches.delete('child')
    await createDatabase(service, 'merge-away', { branchName: 'away' })
  })

  it.each([
    ['for an unknown branch', 'nowhere', {}, 404, 'branch_not_found'],
    ['with an unknown branch', 'dev', { other: 'nowhere' }, 404, 'branch_not_found'],
    ['with a branch of another database', 'dev', { other: 'away' }, 404, 'branch_not_found'],
    ['for a branch without a source', 'main', {}, 409, 'no_source'],
    ['for a branch whose source is gone', 'orphan', {}, 409, 'no_source'],
    ['with itself', 'dev', { other: 'dev' }, 400, 'invalid_request'],
    [
      'with a branch that has nothing in common',
      'empty',
      { other: 'dev' },
      409,
      'unrelated_branches',
    ],
    ['with a source that has nothing in common', 'empty', {}, 409, 'unrelated_branches'],
    [
      'for an unknown table',
      'dev',
      { tables: { nothing: { mode: 'skip' } } },
      400,
      'invalid_request',
    ],
    ['for an unknown strategy', 'dev', { strategy: 'mine' }, 400, 'invalid_request'],
    ['for an unknown mode', 'dev', { tables: { items: { mode: 'all' } } }, 400, 'invalid_request'],
    ['for an unknown field', 'dev', { force: true }, 400, 'invalid_request'],
    [
      'for an unknown field of a table',
      'dev',
      { tables: { items: { force: true } } },
      400,
      'invalid_request',
    ],
    ['for a dry run that is no boolean', 'dev', { dryRun: 'yes' }, 400, 'invalid_request'],
    ['for a name that is none', 'dev', { other: 'not a name' }, 400, 'invalid_request'],
  ] as const)('%s', async (_name, branch, wish, status, code) => {
    const { other, ...rest } = { other: undefined, ...wish }
    for (const [path, field] of [
      ['/merge', 'into'],
      ['/pull', 'from'],
    ] as const) {
      const body = { ...rest, ...(other === undefined ? {} : { [field]: other }) }
      const answer = await branches.call(branch, 'POST', path, body)
      expect([path, answer.status, answer.body.code]).toEqual([path, status, code])
    }
  })

  it('for the field of the other one', async () => {
    expect((await branches.merging('dev', { from: 'main' })).status).toBe(400)
    expect((await branches.pulling('dev', { into: 'main' })).status).toBe(400)
  })

  it('names the table that it does not know', async () => {
    const { body } = await branches.merging('dev', { tables: { nothing: {} } })
    expect(body.message).toBe('body: field [tables.nothing]: table [nothing] not found')
  })

  it('without a key, with one that can only read, or one that does not reach both', async () => {
    const reader = await createKey(service, 'merge-reader', {
      fields: { scope: { access: 'read' } },
    })
    const narrow = await createKey(service, 'merge-dev', {
      fields: { scope: { branches: ['dev'] } },
    })
    for (const path of ['/merge', '/pull']) {
      const field = path === '/merge' ? 'into' : 'from'
      const call = (key: string | null, body?: unknown) =>
        branches.call('dev', 'POST', path, body, { key })
      expect((await call(null)).status).toBe(401)
      expect((await call(reader)).body.code).toBe('key_scope')
      expect((await call(reader, { dryRun: true })).body.code).toBe('key_scope')
      expect((await call(narrow)).body.code).toBe('no_source')
      expect((await call(narrow, { [field]: 'main' })).body.code).toBe('branch_not_found')
    }
  })

  it('takes no body and an empty one for the defaults', async () => {
    for (const body of [undefined, {}]) {
      expect((await branches.merging('dev', body)).status).toBe(200)
      expect((await branches.pulling('dev', body)).status).toBe(200)
    }
  })

  it('never because the target is protected: a merge is how its schema changes', async () => {
    const guarded = await open()
    await guarded.call('main', 'PATCH', '', { protected: true })
    await guarded.edit('dev', column('label'))
    await guarded.merge('dev')
    expect(await guarded.schema('main')).toEqual({ items: ['name', 'price', 'label'] })
  })
})

describe('a database with merges', () => {
  it('is deleted with them', async () => {
    const branches = await open()
    for (let round = 0; round < 3; round++) {
      await branches.patch('dev', 'items', 'a', { price: round })
      await branches.merge('dev')
      await branches.pull('dev')
    }
    const url = `/workspaces/${service.workspaceId}/dbs/${branches.database}`
    expect((await service.call('DELETE', url)).status).toBe(200)
  })
})
