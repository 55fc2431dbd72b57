import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'

/*
 * A table or column that one side removed, and that the other side has changed since the base.
 */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const TABLES: Readonly<Record<string, readonly Column[]>> = {
  items: [
    { name: 'name', type: 'string' },
    { name: 'size', type: 'object', columns: [{ name: 'width', type: 'int' }] },
    { name: 'price', type: 'int' },
  ],
  notes: [{ name: 'text', type: 'text' }],
}

/** Creates a database with records on `main` and a fork `dev`. */
async function open() {
  const branches = await TestBranches.create(service, `removed${++number}`, TABLES)
  await branches.bulk('main', 'items', [
    { id: 'a', name: 'A', size: { width: 1 }, price: 1 },
    { id: 'b', name: 'B', price: 2 },
  ])
  await branches.bulk('main', 'notes', [
    { id: 'n', text: 'N' },
    { id: 'm', text: 'M' },
  ])
  await branches.fork('dev')
  return branches
}

const conflictsOf = (answer: Answer) => {
  expect([answer.status, answer.body.code], JSON.stringify(answer.body)).toEqual([
    409,
    'merge_conflict',
  ])
  return answer.body.conflicts
}
const withoutTable = { removeTable: { table: 'notes' } }
const without = (column: string) => ({ removeColumn: { table: 'items', column } })
const REMOVED_THERE = 'was removed on the merged branch and changed on the target'
const REMOVED_HERE =
  'was removed on the target and changed on the merged branch; a merge cannot restore it'
const IDS = ['a', 'b', 'c', 'd', 'm', 'n', 'o']

describe('a table that one side removed and the other has written to', () => {
  it.each([
    ['dev', 'main', REMOVED_THERE, ['ours', 'theirs']],
    ['main', 'dev', REMOVED_HERE, ['ours']],
  ])(
    'is in conflict if %s removed it, with the records counted',
    async (removed, kept, message, takes) => {
      const branches = await open()
      await branches.edit(removed, withoutTable)
      await branches.patch(kept, 'notes', 'n', { text: 'changed' })
      await branches.put(kept, 'notes', 'o', { text: 'new' })
      // A deletion is in no contradiction to the removal, and a change that was undone is none.
      await branches.patch(kept, 'notes', 'm', { text: 'changed' })
      await branches.patch(kept, 'notes', 'm', { text: 'M' })
      const conflicts = [
        { table: 'notes', kind: 'schema', token: expect.any(String), message, takes, records: 2 },
      ]
      expect(await branches.merge('dev', { dryRun: true })).toMatchObject({
        conflicts,
        conflictCount: 1,
        dataLoss: [],
      })
      expect(conflictsOf(await branches.merging('dev', { allowDataLoss: true }))).toEqual(conflicts)
      expect(Object.keys(await branches.read(kept, 'notes', IDS))).toEqual(['m', 'n', 'o'])
    },
  )

  it('is no conflict if records were only deleted there', async () => {
    const branches = await open()
    await branches.edit('main', withoutTable)
    await branches.remove('dev', 'notes', 'n', 'm')
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    const other = await open()
    await other.edit('dev', withoutTable)
    await other.remove('main', 'notes', 'n', 'm')
    expect(await other.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(Object.keys(await other.schema('main'))).toEqual(['items'])
  })

  it('stays with the strategy ours, and goes with theirs if data may be lost', async () => {
    const branches = await open()
    await branches.edit('dev', withoutTable)
    await branches.patch('main', 'notes', 'n', { text: 'changed' })
    await branches.fork('other')
    await branches.merge('dev', { strategy: 'ours' })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { text: 'changed' } })
    // The conflict is settled: the next merge does not raise it again.
    await branches.patch('main', 'notes', 'n', { text: 'again' })
    await branches.patch('dev', 'items', 'a', { price: 5 })
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })

    const wish = { into: 'other', strategy: 'theirs' }
    const refused = await branches.merging('dev', wish)
    expect([refused.status, refused.body.code]).toEqual([409, 'data_loss'])
    await branches.merge('dev', { ...wish, allowDataLoss: true })
    expect(Object.keys(await branches.schema('other'))).toEqual(['items'])
  })

  it('stays removed with the strategy ours, if the target removed it', async () => {
    const branches = await open()
    await branches.edit('main', withoutTable)
    await branches.put('dev', 'notes', 'o', { text: 'new' })
    await branches.merge('dev', { strategy: 'ours' })
    expect(Object.keys(await branches.schema('main'))).toEqual(['items'])
    await branches.patch('dev', 'items', 'a', { price: 5 })
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
  })

  it('is left alone by a merge that skips it', async () => {
    const branches = await open()
    await branches.edit('dev', withoutTable)
    await branches.patch('main', 'notes', 'n', { text: 'changed' })
    const options = { tables: { notes: { mode: 'skip' } } }
    expect(await branches.merge('dev', options)).toMatchObject({ conflictCount: 0 })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { text: 'changed' } })
  })
})

describe('a column that one side removed and the other has written to', () => {
  it.each([
    ['dev', 'main', REMOVED_THERE, ['ours', 'theirs']],
    ['main', 'dev', REMOVED_HERE, ['ours']],
  ])(
    'is in conflict if %s removed it, with the records counted',
    async (removed, kept, message, takes) => {
      const branches = await open()
      await branches.edit(removed, without('name'), without('size'))
      await branches.patch(kept, 'items', 'a', { name: 'changed', size: { width: 2 } })
      await branches.put(kept, 'items', 'c', { name: 'new' })
      await branches.put(kept, 'items', 'd', { price: 4 })
      await branches.patch(kept, 'items', 'b', { price: 20 })
      const conflicts = [
        {
          table: 'items',
          column: 'name',
          kind: 'schema',
          token: expect.any(String),
          message,
          takes,
          records: 2,
        },
        {
          table: 'items',
          column: 'size',
          kind: 'schema',
          token: expect.any(String),
          message,
          takes,
          records: 1,
        },
      ]
      expect(await branches.merge('dev', { dryRun: true })).toMatchObject({
        conflicts,
        conflictCount: 2,
      })
      expect(conflictsOf(await branches.merging('dev', { allowDataLoss: true }))).toEqual(conflicts)
      expect(await branches.read(kept, 'items', ['a', 'c'])).toMatchObject({
        a: { name: 'changed', size: { width: 2 } },
        c: { name: 'new' },
      })
    },
  )

  it('goes without a conflict if the other side changed only other columns', async () => {
    const branches = await open()
    await branches.edit('dev', without('name'))
    await branches.patch('main', 'items', 'a', { price: 10 })
    await branches.put('main', 'items', 'c', { price: 3 })
    await branches.remove('main', 'items', 'b')
    const refused = await branches.merging('dev')
    expect(refused.body).toMatchObject({
      code: 'data_loss',
      dataLoss: [{ table: 'items', column: 'name', records: 1 }],
    })
    await branches.merge('dev', { allowDataLoss: true })
    expect(await branches.schema('main')).toMatchObject({ items: ['size', 'price'] })
  })

  it('stays with the strategy ours, and goes with theirs if data may be lost', async () => {
    const branches = await open()
    await branches.edit('dev', without('name'))
    await branches.patch('dev', 'items', 'b', { price: 20 })
    await branches.patch('main', 'items', 'a', { name: 'changed' })
    await branches.fork('other')
    await branches.merge('dev', { strategy: 'ours' })
    expect(await branches.read('main', 'items', ['a', 'b'])).toMatchObject({
      a: { name: 'changed' },
      b: { name: 'B', price: 20 },
    })
    await branches.patch('main', 'items', 'b', { name: 'again' })
    await branches.patch('dev', 'items', 'a', { price: 5 })
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })

    const wish = { into: 'other', strategy: 'theirs' }
    expect((await branches.merging('dev', wish)).body.code).toBe('data_loss')
    await branches.merge('dev', { ...wish, allowDataLoss: true })
    expect(await branches.schema('other')).toMatchObject({ items: ['size', 'price'] })
  })

  it('is shown beside the data that other removals would lose', async () => {
    const branches = await open()
    await branches.edit('dev', without('name'), withoutTable)
    await branches.patch('main', 'items', 'a', { name: 'changed' })
    expect(await branches.merge('dev', { dryRun: true })).toMatchObject({
      conflicts: [{ table: 'items', column: 'name', records: 1 }],
      dataLoss: [{ table: 'notes', records: 2 }],
    })
  })
})

describe('two branches that merged each other, where one kept what the other removed', () => {
  it('are in conflict about it', async () => {
    const branches = await open()
    await branches.fork('left')
    await branches.fork('right')
    await branches.edit('left', withoutTable, without('name'))
    await branches.patch('right', 'notes', 'n', { text: 'right' })
    await branches.patch('right', 'items', 'a', { name: 'right' })
    // Both contain both states, and decided differently.
    await branches.fork('left2', 'left')
    await branches.fork('right2', 'right')
    const wish = { strategy: 'ours', allowDataLoss: true }
    await branches.merge('right2', { ...wish, into: 'left' })
    await branches.merge('left2', { ...wish, into: 'right' })
    expect(await branches.read('right', 'notes', ['n'])).toEqual({ n: { text: 'right' } })
    for (const [from, into] of [
      ['left', 'right'],
      ['right', 'left'],
    ] as const) {
      const answer = await branches.merging(from, { into, allowDataLoss: true })
      expect(conflictsOf(answer)).toMatchObject([
        { table: 'items', column: 'name' },
        { table: 'notes' },
      ])
    }
  })
})

describe('a column that a branch has kept against its removal on the source', () => {
  /** Creates a fork `dev` that has pulled the removal of the column `name`, and kept the column. */
  async function openKept() {
    const branches = await open()
    await branches.edit('main', without('name'), without('size'))
    await branches.put('dev', 'items', 'c', { name: 'C', size: { width: 3 } })
    await branches.pull('dev', { strategy: 'ours' })
    return branches
  }
  const whole = { name: 'A', size: { width: 1 }, price: 1 }

  it('is no reason to keep records that only the source has changed', async () => {
    const branches = await openKept()
    await branches.remove('main', 'items', 'a')
    expect(await branches.pull('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(Object.keys(await branches.read('dev', 'items', IDS))).toEqual(['b', 'c'])
  })

  it('is no reason to keep records that the branch has got from the source meanwhile', async () => {
    const branches = await openKept()
    await branches.patch('main', 'items', 'a', { price: 5 })
    await branches.pull('dev')
    expect(await branches.read('dev', 'items', ['a'])).toEqual({ a: { ...whole, price: 5 } })
    await branches.patch('main', 'items', 'b', { price: 6 })
    await branches.remove('main', 'items', 'a', 'b')
    expect(await branches.pull('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(Object.keys(await branches.read('dev', 'items', IDS))).toEqual(['c'])
  })

  it('is in conflict where the branch has changed a record that the source has deleted', async () => {
    const branches = await openKept()
    await branches.patch('dev', 'items', 'a', { name: 'changed' })
    await branches.patch('dev', 'items', 'b', { size: { width: 2 } })
    await branches.remove('main', 'items', 'a', 'b')
    expect(conflictsOf(await branches.pulling('dev'))).toMatchObject([
      { kind: 'deletedThere', id: 'a' },
      { kind: 'deletedThere', id: 'b' },
    ])
  })

  it('is merged between two such branches like any other column', async () => {
    const branches = await open()
    await branches.fork('left')
    await branches.fork('right')
    await branches.edit('main', without('name'), without('size'))
    for (const branch of ['left', 'right']) {
      await branches.put(branch, 'items', 'c', { name: 'C', size: { width: 3 } })
      await branches.pull(branch, { strategy: 'ours' })
    }
    await branches.patch('left', 'items', 'a', { name: 'left' })
    await branches.patch('right', 'items', 'a', { size: { width: 7 } })
    expect(await branches.pull('right', { from: 'left' })).toMatchObject({ conflictCount: 0 })
    expect(await branches.read('right', 'items', ['a'])).toEqual({
      a: { name: 'left', size: { width: 7 }, price: 1 },
    })
  })

  it('gets all its values on a branch that has never had it', async () => {
    const branches = await TestBranches.create(service, `removed${++number}`, {
      items: [{ name: 'price', type: 'int' }],
    })
    await branches.bulk('main', 'items', [
      { id: 'a', price: 1 },
      { id: 'b', price: 2 },
    ])
    await branches.fork('other')
    const name: Column = { name: 'name', type: 'string' }
    const size: Column = { name: 'size', type: 'object', columns: [{ name: 'width', type: 'int' }] }
    for (const column of [name, size]) {
      await branches.edit('main', { addColumn: { table: 'items', column } })
    }
    await branches.patch('main', 'items', 'a', { name: 'A', size: { width: 1 } })
    await branches.patch('main', 'items', 'b', { name: 'B' })
    await branches.fork('dev')
    await branches.edit('main', without('name'), without('size'))
    await branches.pull('other', { from: 'main' })
    await branches.put('dev', 'items', 'c', { name: 'C', size: { width: 3 } })
    await branches.pull('dev', { strategy: 'ours' })
    await branches.remove('other', 'items', 'b')
    await branches.patch('other', 'items', 'a', { price: 5 })
    expect(await branches.merge('dev', { into: 'other' })).toMatchObject({ conflictCount: 0 })
    expect(await branches.read('other', 'items', IDS)).toEqual({
      a: { name: 'A', size: { width: 1 }, price: 5 },
      c: { name: 'C', size: { width: 3 } },
    })
  })
})

describe('a table or column that the merged branch has kept by an earlier decision', () => {
  it('is in conflict with its removal on the target, until the target decides too', async () => {
    const branches = await open()
    await branches.edit('main', withoutTable, without('name'))
    await branches.patch('dev', 'notes', 'n', { text: 'changed' })
    await branches.patch('dev', 'items', 'a', { name: 'changed' })
    // `dev` contains the removals from now on, and has decided against them.
    await branches.pull('dev', { strategy: 'ours' })
    const message =
      'was removed on the target and kept on the merged branch; a merge cannot restore it'
    expect(conflictsOf(await branches.merging('dev'))).toMatchObject([
      { table: 'items', column: 'name', message, records: 1 },
      { table: 'notes', message, records: 2 },
    ])
    expect(await branches.merge('dev', { strategy: 'ours' })).toMatchObject({ merged: true })
    expect(await branches.merge('dev')).toMatchObject({ merged: false, conflictCount: 0 })
    await branches.patch('dev', 'notes', 'n', { text: 'again' })
    expect(conflictsOf(await branches.merging('dev'))).toMatchObject([
      { table: 'notes', message: REMOVED_HERE, records: 1 },
    ])
  })
})

describe('a column that the merged branch has kept in place of a new one of the same name', () => {
  it('does not take the new one from a target that stays as it is', async () => {
    const branches = await open()
    const name: Column = { name: 'name', type: 'date' }
    await branches.edit('main', without('name'))
    await branches.edit('main', { addColumn: { table: 'items', column: name } })
    await branches.patch('main', 'items', 'a', { name: '2026-01-31' })
    await branches.patch('dev', 'items', 'a', { name: 'changed' })
    await branches.pull('dev', { strategy: 'ours' })
    expect(conflictsOf(await branches.merging('dev'))).toMatchObject([{ column: 'name' }])
    await branches.merge('dev', { strategy: 'ours' })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { name: '2026-01-31' } })
    await branches.merge('dev')
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { name: '2026-01-31' } })
    expect(await branches.read('dev', 'items', ['a'])).toMatchObject({ a: { name: 'changed' } })
  })
})

describe('a table or column that a branch has kept, and another branch has decided against', () => {
  it('is in conflict with later changes, if the branches have several bases', async () => {
    const branches = await open()
    await branches.fork('other')
    await branches.edit('main', withoutTable, without('name'))
    await branches.patch('dev', 'notes', 'n', { text: 'changed' })
    await branches.patch('dev', 'items', 'a', { name: 'changed' })
    const wish = { strategy: 'ours', allowDataLoss: true }
    // `dev` keeps them, and `other` decides against them although it knows of that.
    await branches.pull('dev', wish)
    await branches.pull('other', { allowDataLoss: true })
    await branches.pull('other', { ...wish, from: 'dev' })
    // From now on, `dev` and `other` have in common a state of `main` and a state of `dev`.
    await branches.put('main', 'items', 'c', { price: 3 })
    await branches.pull('dev')
    const pull = () => branches.pulling('dev', { from: 'other', allowDataLoss: true, dryRun: true })
    // Without a change since, the decision of `other` holds.
    expect((await pull()).body).toMatchObject({
      conflictCount: 0,
      dataLoss: [{ column: 'name' }, { table: 'notes' }],
    })
    await branches.patch('dev', 'items', 'b', { name: 'new' })
    await branches.patch('dev', 'notes', 'm', { text: 'new' })
    expect((await pull()).body.conflicts).toMatchObject([
      { table: 'items', column: 'name', message: REMOVED_THERE, records: 1 },
      { table: 'notes', message: REMOVED_THERE, records: 1 },
    ])
  })
})

describe('a removal that only one of several bases has', () => {
  /**
   * Creates `main`, which has removed `name`, and `dev`, which has pulled that. Both have got a table from a branch
   * that still has the column, so they have two bases.
   */
  async function openTwoBases() {
    const branches = await open()
    await branches.fork('extra')
    await branches.edit('extra', { addTable: { table: 'extras' } })
    await branches.fork('extra2', 'extra')
    await branches.edit('main', without('name'))
    await branches.pull('dev', { from: 'extra2' })
    return branches
  }

  it('counts, if the other base has not changed what was removed', async () => {
    const branches = await openTwoBases()
    await branches.edit('dev', { removeTable: { table: 'items' } })
    await branches.pull('dev', { strategy: 'ours' })
    await branches.merge('extra', { into: 'main' })
    // `main` has removed the column before the last pull, and has not changed the table since.
    expect(await branches.pull('dev')).toMatchObject({ conflictCount: 0, conflicts: [] })
    expect(await branches.schema('dev')).toEqual({ notes: ['text'], extras: [] })
  })

  it('is undecided, if the other base has changed a record there', async () => {
    const branches = await open()
    await branches.fork('extra')
    await branches.patch('extra', 'items', 'a', { name: 'changed' })
    await branches.fork('extra2', 'extra')
    await branches.edit('main', without('name'))
    await branches.pull('dev', { from: 'extra2' })
    const wish = { strategy: 'ours', allowDataLoss: true }
    await branches.pull('dev', wish)
    await branches.merge('extra', { ...wish, into: 'main' })
    // `dev` has kept the column and `main` has not, after both knew of both changes.
    expect(conflictsOf(await branches.pulling('dev', { allowDataLoss: true }))).toMatchObject([
      { table: 'items', column: 'name', message: REMOVED_THERE },
    ])
  })
})
