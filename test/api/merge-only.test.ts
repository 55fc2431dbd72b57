import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * A merge or pull of a part of a difference. Each test ends with merges of the whole, which must neither lose nor repeat
 * anything.
 */

let service: TestService
/** A process that compares most merges without locks. */
let large: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
  large = await createTestService({ url: service.url, limits: { mergeLockedRowsMax: 1 } })
})
afterAll(async () => {
  await large.close()
  await service.close()
})

const IDS = ['a', 'b', 'c', 'd', 'e']

/** The records `a`, `b` and `c` in three tables of `main`, and the fork `dev`, which has changed all of them. */
async function open(via = service): Promise<TestBranches> {
  const created = await TestBranches.create(service, `only${++number}`, {
    items: [
      { name: 'name', type: 'string' },
      { name: 'price', type: 'int' },
    ],
    users: [{ name: 'code', type: 'string', unique: true }],
    notes: [{ name: 'item', type: 'link', link: { table: 'items' } }],
  })
  const branches = created.through(via)
  for (const [index, id] of ['a', 'b', 'c'].entries()) {
    await branches.put('main', 'items', id, { name: id, price: index })
    await branches.put('main', 'users', id, { code: id })
    await branches.put('main', 'notes', id, { item: id })
  }
  await branches.fork('dev')
  await branches.patch('dev', 'items', 'a', { price: 10 })
  await branches.remove('dev', 'items', 'b')
  await branches.put('dev', 'items', 'd', { name: 'd', price: 4 })
  await branches.patch('dev', 'users', 'a', { code: 'new' })
  await branches.put('dev', 'users', 'd', { code: 'a' })
  await branches.put('dev', 'notes', 'd', { item: 'd' })
  await branches.remove('dev', 'notes', 'a')
  return branches
}

/** The tables of a branch with their records. */
async function content(branches: TestBranches, branch: string) {
  const found: Record<string, Record<string, unknown>> = {}
  for (const table of Object.keys(await branches.schema(branch)).sort()) {
    found[table] = await branches.read(branch, table, IDS)
  }
  return found
}

/** The numbers of changes by table, without tables that have none. */
async function changes(branches: TestBranches, branch = 'dev') {
  const { tables } = await branches.diff(branch)
  return Object.fromEntries(
    tables
      .map((table: { name: string; inserted: number; updated: number; deleted: number }) => [
        table.name,
        [table.inserted, table.updated, table.deleted],
      ])
      .filter(([, counts]: [string, number[]]) => counts.some((count) => count > 0)),
  )
}

const ALL = { items: [1, 1, 1], users: [1, 1, 0], notes: [1, 0, 1] }

/** Merges the whole in both directions, and requires that both branches are equal then and stay so. */
async function mergeAll(branches: TestBranches, branch = 'dev'): Promise<void> {
  await branches.merge(branch)
  await branches.pull(branch)
  expect(await content(branches, 'main')).toEqual(await content(branches, branch))
  const again = await branches.merge(branch, { dryRun: true })
  expect([again.schema.operations, again.conflictCount, again.dataLoss]).toEqual([[], 0, []])
  for (const table of again.tables) {
    expect(table).toMatchObject({ inserted: 0, updated: 0, deleted: 0 })
  }
  expect(await changes(branches, branch)).toEqual({})
}

describe('a merge of some tables', () => {
  it.each(['small', 'large'])(
    'takes their records, and leaves the rest for the next difference (%s)',
    async (size) => {
      const branches = await open(size === 'large' ? large : service)
      const [before, goal] = [await content(branches, 'main'), await content(branches, 'dev')]
      const only = { tables: ['items'] }
      const preview = await branches.merge('dev', { dryRun: true, only })
      expect(preview.tables).toEqual([{ name: 'items', inserted: 1, updated: 1, deleted: 1 }])
      expect(await content(branches, 'main')).toEqual(before)
      const merged = await branches.merge('dev', { only })
      expect(merged).toMatchObject({ merged: true, tables: preview.tables })
      expect(await content(branches, 'main')).toEqual({ ...before, items: goal.items })
      expect(await changes(branches)).toEqual({ users: ALL.users, notes: ALL.notes })
      const { body } = expectOk(await branches.call('main', 'GET', '/log?kind=merge'))
      expect(body.entries[0]).toMatchObject({ id: merged.entry, only, from: 'dev' })
      // Both sides go on with what was merged, and with what was not.
      await branches.patch('main', 'items', 'a', { name: 'main' })
      await branches.patch('dev', 'items', 'a', { price: 11 })
      await branches.patch('main', 'notes', 'c', { item: 'a' })
      await branches.merge('dev')
      expect(await content(branches, 'main')).toEqual({
        items: { ...goal.items, a: { name: 'main', price: 11 } },
        users: goal.users,
        notes: { ...goal.notes, c: { item: { id: 'a' } } },
      })
      await mergeAll(branches)
    },
  )

  it('works as a pull, and in turns', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'c', { price: 33 })
    await branches.patch('main', 'notes', 'c', { item: 'a' })
    await branches.pull('dev', { only: { tables: ['notes'] } })
    expect((await branches.read('dev', 'notes', ['c'])).c).toEqual({ item: { id: 'a' } })
    expect((await branches.read('dev', 'items', ['c'])).c).toMatchObject({ price: 2 })
    await branches.merge('dev', { only: { tables: ['users'] } })
    await branches.pull('dev', { only: { tables: ['items', 'users'] } })
    await branches.merge('dev', { only: { tables: ['items', 'notes'] } })
    expect(await content(branches, 'main')).toEqual(await content(branches, 'dev'))
    await mergeAll(branches)
  })

  it('brings the schema changes of these tables, and no others', async () => {
    const branches = await open()
    await branches.edit('dev', { addTable: { table: 'tags' } })
    await branches.edit('dev', {
      addColumn: { table: 'items', column: { name: 'size', type: 'int' } },
    })
    await branches.edit('dev', {
      addColumn: { table: 'notes', column: { name: 'text', type: 'string' } },
    })
    await branches.edit('dev', { renameTable: { oldName: 'users', newName: 'people' } })
    await branches.patch('dev', 'items', 'c', { size: 7 })
    await branches.put('dev', 'tags', 'a', {})
    await branches.merge('dev', { only: { tables: ['items'] } })
    expect(await branches.schema('main')).toEqual({
      items: ['name', 'price', 'size'],
      users: ['code'],
      notes: ['item'],
    })
    expect((await branches.read('main', 'items', ['c'])).c).toMatchObject({ size: 7 })
    // A table can be named as either branch calls it.
    await branches.merge('dev', { only: { tables: ['users', 'tags'] } })
    expect(Object.keys(await branches.schema('main')).sort()).toEqual([
      'items',
      'notes',
      'people',
      'tags',
    ])
    expect(await changes(branches)).toEqual({ notes: ALL.notes })
    await mergeAll(branches)
  })

  it('keeps the rule of a table that both sides name differently, whichever name has it', async () => {
    for (const named of ['items', 'goods']) {
      const branches = await open()
      await branches.edit('dev', { renameTable: { oldName: 'items', newName: 'goods' } })
      const before = await branches.read('main', 'items', IDS)
      expect(
        await branches.merge('dev', {
          only: { tables: ['items', 'goods'] },
          tables: { [named]: { mode: 'schema' } },
        }),
      ).toMatchObject({ merged: true })
      expect(await branches.read('main', 'goods', IDS)).toEqual(before)
      // The records are merged later, because they were left out.
      expect(await branches.merge('dev', {})).toMatchObject({ merged: true })
      expect(await branches.read('main', 'goods', IDS)).toMatchObject({ a: { price: 10 }, d: {} })
    }
  })

  it('removes a table or a column that the merged branch has removed, by the rule of data loss', async () => {
    const branches = await open()
    await branches.edit('dev', { removeTable: { table: 'notes' } })
    await branches.edit('dev', { removeColumn: { table: 'users', column: 'code' } })
    await branches.merge('dev', { only: { tables: ['items'] } })
    expect(Object.keys(await branches.schema('main'))).toContain('notes')
    const only = { tables: ['notes'] }
    const refused = await branches.merging('dev', { only })
    expect([refused.status, refused.body.code]).toEqual([409, 'data_loss'])
    await branches.merge('dev', { only, allowDataLoss: true })
    expect(await branches.schema('main')).toEqual({ items: ['name', 'price'], users: ['code'] })
    await branches.merge('dev', { allowDataLoss: true })
    await mergeAll(branches)
  })

  it('is refused if a link would lead to a table that was left out', async () => {
    const branches = await open()
    await branches.edit('dev', { addTable: { table: 'tags' } })
    await branches.edit('dev', {
      addColumn: { table: 'items', column: { name: 'tag', type: 'link', link: { table: 'tags' } } },
    })
    const refused = await branches.merging('dev', { only: { tables: ['items'] } })
    expect([refused.status, refused.body.code]).toEqual([409, 'merge_conflict'])
    expect(refused.body.conflicts[0].message).toContain('would not exist after the merge')
    await branches.merge('dev', { only: { tables: ['items', 'tags'] } })
    await mergeAll(branches)
  })

  it('lists only the conflicts of these tables, and settles them as usual', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 5 })
    await branches.patch('main', 'users', 'a', { code: 'mine' })
    const only = { tables: ['items'] }
    const preview = await branches.merge('dev', { dryRun: true, only })
    expect(preview.conflictTables).toMatchObject([{ name: 'items', conflicts: 1 }])
    const [{ token }] = preview.conflicts
    const resolutions = [{ table: 'items', id: 'a', take: 'theirs', token }]
    await branches.merge('dev', { only, resolutions })
    expect((await branches.read('main', 'items', ['a'])).a).toMatchObject({ price: 10 })
    const [conflict] = (await branches.merge('dev', { dryRun: true })).conflicts
    expect(conflict).toMatchObject({ table: 'users', id: 'a' })
    await branches.merge('dev', { strategy: 'ours' })
    expect((await branches.read('main', 'users', ['a'])).a).toEqual({ code: 'mine' })
  })
})

describe('a merge of some records', () => {
  const RECORDS = [
    { table: 'items', id: 'b' },
    { table: 'items', id: 'd' },
    { table: 'notes', id: 'd' },
  ]

  it.each(['small', 'large'])('inserts, updates and deletes them alone (%s)', async (size) => {
    const branches = await open(size === 'large' ? large : service)
    const [before, goal] = [await content(branches, 'main'), await content(branches, 'dev')]
    const only = { records: RECORDS }
    const preview = await branches.merge('dev', { dryRun: true, only })
    expect(preview.tables).toEqual([
      { name: 'items', inserted: 1, updated: 0, deleted: 1 },
      { name: 'notes', inserted: 1, updated: 0, deleted: 0 },
    ])
    const merged = await branches.merge('dev', { only })
    expect(merged).toMatchObject({ merged: true, tables: preview.tables })
    expect(await content(branches, 'main')).toEqual({
      ...before,
      items: { a: before.items?.a, c: before.items?.c, d: goal.items?.d },
      notes: { ...before.notes, d: goal.notes?.d },
    })
    // Nothing of it is recorded, so the difference is that of the fork.
    expect(await changes(branches)).toEqual(ALL)
    const { body } = expectOk(await branches.call('main', 'GET', '/log?kind=merge'))
    expect(body.entries[0]).toMatchObject({ id: merged.entry, only: { records: 3 } })
    const whole = await branches.merge('dev')
    expect(whole.tables).toEqual([
      { name: 'items', inserted: 0, updated: 1, deleted: 0 },
      { name: 'users', inserted: 1, updated: 1, deleted: 0 },
      { name: 'notes', inserted: 0, updated: 0, deleted: 1 },
    ])
    expect(await content(branches, 'main')).toEqual(goal)
    await mergeAll(branches)
  })

  it('does not hide later changes of the records on either side', async () => {
    const branches = await open()
    await branches.merge('dev', { only: { records: [{ table: 'items', id: 'a' }] } })
    await branches.patch('main', 'items', 'a', { name: 'main' })
    await branches.remove('main', 'items', 'c')
    await branches.pull('dev', { only: { records: [{ table: 'items', id: 'c' }] } })
    expect(await branches.read('dev', 'items', IDS)).toMatchObject({ a: { name: 'a', price: 10 } })
    expect(Object.keys(await branches.read('dev', 'items', IDS)).sort()).toEqual(['a', 'd'])
    await branches.merge('dev')
    expect(await branches.read('main', 'items', IDS)).toMatchObject({
      a: { name: 'main', price: 10 },
      d: { price: 4 },
    })
    await mergeAll(branches)
  })

  it('reports a record that was changed again after it was merged, as a cherry-picked one', async () => {
    const branches = await open()
    await branches.merge('dev', { only: { records: [{ table: 'items', id: 'a' }] } })
    await branches.patch('dev', 'items', 'a', { price: 11 })
    const refused = await branches.merging('dev')
    expect(refused.body.conflicts).toMatchObject([
      { table: 'items', id: 'a', columns: { price: { base: 0, ours: 10, theirs: 11 } } },
    ])
    await branches.merge('dev', { strategy: 'theirs' })
    await mergeAll(branches)
  })

  it('does nothing if they do not differ', async () => {
    const branches = await open()
    const only = { records: [{ table: 'items', id: 'c' }] }
    const merged = await branches.merge('dev', { only })
    expect(merged).toMatchObject({ merged: false, conflictCount: 0 })
    expect(merged.entry).toBeUndefined()
    await branches.merge('dev')
    await mergeAll(branches)
  })

  it('checks unique columns of the outcome', async () => {
    const branches = await open()
    const refused = await branches.merging('dev', {
      only: { records: [{ table: 'users', id: 'd' }] },
    })
    expect([refused.status, refused.body.conflicts[0]]).toMatchObject([
      409,
      { kind: 'notUnique', table: 'users', value: 'a' },
    ])
    const both = ['a', 'd'].map((id) => ({ table: 'users', id }))
    await branches.merge('dev', { only: { records: both } })
    await mergeAll(branches)
  })

  it('is refused while the schema of a table differs, and works after a merge of the schema', async () => {
    const branches = await open()
    await branches.edit('dev', {
      addColumn: { table: 'items', column: { name: 'size', type: 'int' } },
    })
    await branches.edit('dev', { addTable: { table: 'tags' } })
    await branches.patch('dev', 'items', 'a', { size: 3 })
    await branches.put('dev', 'tags', 'a', {})
    const only = { records: [{ table: 'items', id: 'a' }] }
    for (const dryRun of [true, false]) {
      const refused = await branches.merging('dev', { only, dryRun })
      expect([refused.status, refused.body.code]).toEqual([409, 'conflict'])
      expect(refused.body.message).toContain('table [items]')
    }
    const added = await branches.merging('dev', { only: { records: [{ table: 'tags', id: 'a' }] } })
    expect([added.status, added.body.code]).toEqual([409, 'conflict'])
    // The schema of a table whose records are not merged does not matter.
    await branches.merge('dev', { only: { records: [{ table: 'notes', id: 'a' }] } })
    await branches.merge('dev', {
      only: { tables: ['items'] },
      tables: { items: { mode: 'schema' } },
    })
    await branches.merge('dev', { only })
    expect(await branches.read('main', 'items', ['a', 'b'])).toMatchObject({
      a: { price: 10, size: 3 },
      b: { price: 1 },
    })
    await mergeAll(branches)
  })

  it('is refused if the target has removed the table, whether or not the records differ', async () => {
    const branches = await open()
    await branches.edit('main', { removeTable: { table: 'notes' } })
    const before = await content(branches, 'main')
    for (const id of ['a', 'c', 'none']) {
      const only = { records: [{ table: 'notes', id }] }
      for (const dryRun of [true, false]) {
        for (const strategy of ['fail', 'ours', 'theirs']) {
          const refused = await branches.merging('dev', { only, strategy, dryRun })
          expect([refused.status, refused.body.code]).toEqual([409, 'conflict'])
          expect(refused.body.message).toContain('table [notes]')
        }
      }
    }
    expect(await content(branches, 'main')).toEqual(before)
    await branches.merge('dev', { strategy: 'ours' })
    expect(Object.keys(await branches.schema('main')).sort()).toEqual(['items', 'users'])
  })
})

describe('the part that a request names', () => {
  it('is either a list of tables or a list of records, of tables that exist', async () => {
    const branches = await open()
    const before = await content(branches, 'main')
    const record = { table: 'items', id: 'a' }
    const bad: [object, string][] = [
      [{ only: {} }, '[only]'],
      [{ only: { tables: ['items'], records: [record] } }, '[only]'],
      [{ only: { tables: [] } }, 'only'],
      [{ only: { tables: ['items', 'nothing'] } }, '[only.tables.1]'],
      [{ only: { records: [record, { table: 'nothing', id: 'a' }] } }, '[only.records.1.table]'],
      [{ only: { tables: ['items'] }, tables: { users: { mode: 'skip' } } }, '[tables.users]'],
      [{ only: { tables: ['items'], rows: [] } }, 'rows'],
    ]
    for (const [body, field] of bad) {
      for (const action of ['merge', 'pull']) {
        const refused = await branches.call('dev', 'POST', `/${action}`, body)
        expect([refused.status, refused.body.code]).toEqual([400, 'invalid_request'])
        expect(refused.body.message).toContain(field)
      }
    }
    expect(await content(branches, 'main')).toEqual(before)
  })

  it('has at most as many tables or records as the limit', async () => {
    const branches = await open()
    const many = (count: number) => ({
      records: Array.from({ length: count }, (_, index) => ({
        table: 'items',
        id: index === 0 ? 'a' : `none${index}`,
      })),
    })
    const over = await branches.merging('dev', { only: many(LIMITS.onlyMax + 1) })
    expect([over.status, over.body.code]).toEqual([400, 'invalid_request'])
    const tables = Array.from({ length: LIMITS.onlyMax + 1 }, () => 'items')
    expect((await branches.merging('dev', { only: { tables } })).status).toBe(400)
    const merged = await branches.merge('dev', { only: many(LIMITS.onlyMax) })
    expect(merged.tables).toEqual([{ name: 'items', inserted: 0, updated: 1, deleted: 0 }])
    await branches.merge('dev', { only: { tables: tables.slice(1) } })
    expect(await changes(branches)).toEqual({ users: ALL.users, notes: ALL.notes })
  })
})
