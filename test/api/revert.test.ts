import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
/** A process that compares most merges without locks. */
let large: TestService
let number = 0

beforeAll(async () => {
  const limits = { automaticCheckpointsMax: 20 }
  service = await createTestService({ limits })
  large = await createTestService({
    url: service.url,
    limits: { ...limits, mergeLockedRowsMax: 1 },
  })
})
afterAll(async () => {
  await large.close()
  await service.close()
})

const IDS = ['a', 'b', 'c', 'd', 'e', 'f']

/** The records `a`, `b` and `c` on `main`, and the fork `dev`, which has changed `a`, deleted `b` and added `d`. */
async function open(via = service): Promise<TestBranches> {
  const created = await TestBranches.create(service, `revert${++number}`, {
    items: [
      { name: 'name', type: 'string' },
      { name: 'price', type: 'int' },
    ],
    notes: [{ name: 'text', type: 'string' }],
  })
  const branches = created.through(via)
  for (const [index, id] of ['a', 'b', 'c'].entries()) {
    await branches.put('main', 'items', id, { name: id, price: index + 1 })
    await branches.put('main', 'notes', id, { text: id })
  }
  await branches.fork('dev')
  await branches.patch('dev', 'items', 'a', { price: 10 })
  await branches.remove('dev', 'items', 'b')
  await branches.put('dev', 'items', 'd', { name: 'd', price: 4 })
  return branches
}

const BEFORE = { a: 1, b: 2, c: 3 }
const MERGED = { a: 10, c: 3, d: 4 }

/** The prices on a branch by id. */
async function prices(branches: TestBranches, branch = 'main'): Promise<Record<string, unknown>> {
  const records = await branches.read(branch, 'items', IDS)
  return Object.fromEntries(
    Object.entries(records).map(([id, record]) => [id, (record as { price?: number }).price]),
  )
}

const reverting = (branches: TestBranches, body: object, branch = 'main') =>
  branches.call(branch, 'POST', '/revert', body)

const revert = async (branches: TestBranches, body: object, branch = 'main') =>
  expectOk(await reverting(branches, body, branch)).body

/** The versions of the records on `main` by id. */
async function versionsOf(branches: TestBranches): Promise<Record<string, unknown>> {
  const found = await Promise.all(IDS.map((id) => branches.record('main', 'items', id)))
  return Object.fromEntries(
    found.flatMap((record) => (record ? [[record.id, record.service.version]] : [])),
  )
}

/** The newest entry of a kind. */
const newest = async (branches: TestBranches, kind: string, branch = 'main') =>
  expectOk(await branches.call(branch, 'GET', `/log?kind=${kind}&size=1`)).body.entries[0]

describe.each(['small', 'large'])('a revert (%s)', (size) => {
  const opened = () => open(size === 'large' ? large : service)

  it('takes back a merge, and keeps what came later', async () => {
    const branches = await opened()
    const { entry } = await branches.merge('dev')
    expect(await prices(branches)).toEqual(MERGED)
    await branches.patch('main', 'items', 'a', { name: 'later' })
    await branches.patch('main', 'items', 'c', { price: 33 })
    await branches.put('main', 'items', 'e', { price: 5 })
    const preview = await revert(branches, { entry, dryRun: true })
    expect(preview).toMatchObject({ merged: false, conflicts: [] })
    expect(preview.tables[0]).toEqual({ name: 'items', inserted: 1, updated: 1, deleted: 1 })
    expect(await prices(branches)).toEqual({ ...MERGED, c: 33, e: 5 })
    const reverted = await revert(branches, { entry })
    expect(reverted).toMatchObject({ merged: true, into: 'main', tables: preview.tables })
    expect(await prices(branches)).toEqual({ a: 1, b: 2, c: 33, e: 5 })
    expect((await branches.record('main', 'items', 'a'))?.name).toBe('later')
    const logged = await newest(branches, 'revert')
    expect(logged).toMatchObject({
      id: reverted.entry,
      reverts: entry,
      checkpoint: expect.stringMatching(/^cp_/),
      after: expect.stringMatching(/^cp_/),
      counts: { inserted: 1, updated: 1, deleted: 1 },
    })
    const before = await branches.call('main', 'GET', `/diff?againstAt=${logged.checkpoint}`)
    expect(expectOk(before).body.tables[0]).toMatchObject({ inserted: 1, updated: 1, deleted: 1 })
    // There is nothing left to take back.
    expect((await revert(branches, { entry })).merged).toBe(false)
  })

  it('can be reverted, which brings the changes back', async () => {
    const branches = await opened()
    const { entry } = await branches.merge('dev')
    const first = await revert(branches, { entry })
    await branches.patch('main', 'items', 'c', { price: 33 })
    const second = await revert(branches, { entry: first.entry })
    expect(await prices(branches)).toEqual({ ...MERGED, c: 33 })
    await revert(branches, { entry: second.entry })
    expect(await prices(branches)).toEqual({ ...BEFORE, c: 33 })
  })

  it('is not undone by a later merge of the branch, only by a revert of the revert', async () => {
    const branches = await opened()
    const { entry } = await branches.merge('dev')
    const reverted = await revert(branches, { entry })
    expect((await branches.merge('dev')).merged).toBe(false)
    expect(await prices(branches)).toEqual(BEFORE)
    await branches.put('dev', 'items', 'f', { price: 6 })
    await branches.merge('dev')
    expect(await prices(branches)).toEqual({ ...BEFORE, f: 6 })
    // A fork of the merged branch has the same history.
    await branches.fork('again', 'dev')
    await branches.patch('again', 'items', 'c', { price: 30 })
    await branches.merge('again', { into: 'main' })
    expect(await prices(branches)).toEqual({ ...BEFORE, c: 30, f: 6 })
    // On the merged branch, the revert is a change like any other.
    await branches.pull('dev')
    expect(await prices(branches, 'dev')).toEqual({ ...BEFORE, c: 30, f: 6 })
    await revert(branches, { entry: reverted.entry })
    expect(await prices(branches)).toEqual({ ...MERGED, c: 30, f: 6 })
  })

  it('lists what was changed since as conflicts, and settles them as a merge does', async () => {
    const branches = await opened()
    const { entry } = await branches.merge('dev')
    await branches.patch('main', 'items', 'a', { price: 11 })
    await branches.remove('main', 'items', 'd')
    await branches.put('main', 'items', 'b', { price: 22 })
    const refused = await reverting(branches, { entry })
    expect([refused.status, refused.body.code]).toEqual([409, 'merge_conflict'])
    expect(refused.body.message).toContain(`entry [${entry}] cannot be reverted: 2 conflicts`)
    const { conflicts } = await revert(branches, { entry, dryRun: true })
    expect(conflicts).toMatchObject([
      { table: 'items', id: 'a', columns: { price: { base: 10, ours: 11, theirs: 1 } } },
      { table: 'items', id: 'b', kind: 'bothInserted' },
    ])
    expect(await prices(branches)).toEqual({ a: 11, b: 22, c: 3 })
    const resolutions = [
      { table: 'items', id: 'a', take: 'theirs', token: conflicts[0].token },
      { table: 'items', id: 'b', columns: {}, token: conflicts[1].token },
    ]
    const columns = Object.keys(conflicts[1].columns)
    resolutions[1] = {
      ...resolutions[1],
      columns: Object.fromEntries(columns.map((name) => [name, { take: 'ours' }])),
    } as never
    await revert(branches, { entry, resolutions })
    expect(await prices(branches)).toEqual({ a: 1, b: 22, c: 3 })
  })

  it('takes back a pull and a reset', async () => {
    const branches = await opened()
    await branches.patch('main', 'items', 'c', { price: 30 })
    const pulled = await branches.pull('dev')
    await branches.put('dev', 'items', 'e', { price: 5 })
    await revert(branches, { entry: pulled.entry }, 'dev')
    expect(await prices(branches, 'dev')).toEqual({ ...MERGED, e: 5 })
    const { body } = expectOk(await branches.call('dev', 'POST', '/reset', { to: 'main' }))
    await branches.put('dev', 'items', 'f', { price: 6 })
    expect(await prices(branches, 'dev')).toEqual({ ...BEFORE, c: 30, f: 6 })
    await revert(branches, { entry: body.entry }, 'dev')
    expect(await prices(branches, 'dev')).toEqual({ ...MERGED, e: 5, f: 6 })
    // The branch contains `main` since the reset, so the revert is a change of it.
    await branches.merge('dev')
    expect(await prices(branches)).toEqual({ ...MERGED, e: 5, f: 6 })
  })

  it('takes back what happened between two checkpoints', async () => {
    const branches = await opened()
    for (const name of ['one', 'two']) {
      await branches.call('main', 'POST', '/checkpoints', { name })
      await branches.patch('main', 'items', 'a', { price: name === 'one' ? 100 : 100 })
      await branches.remove('main', 'items', name === 'one' ? 'b' : 'c')
    }
    const reverted = await revert(branches, { from: 'one', to: 'two' })
    expect(reverted.tables[0]).toEqual({ name: 'items', inserted: 1, updated: 1, deleted: 0 })
    expect(await prices(branches)).toEqual({ a: 1, b: 2 })
    expect(await newest(branches, 'revert')).toMatchObject({
      fromCheckpoint: expect.stringMatching(/^cp_/),
      toCheckpoint: expect.stringMatching(/^cp_/),
    })
  })

  it('takes back only the named tables or records', async () => {
    const branches = await opened()
    await branches.patch('dev', 'notes', 'a', { text: 'dev' })
    const { entry } = await branches.merge('dev')
    await revert(branches, { entry, only: { records: [{ table: 'items', id: 'b' }] } })
    expect(await prices(branches)).toEqual({ ...MERGED, b: 2 })
    await revert(branches, { entry, only: { tables: ['notes'] } })
    expect((await branches.record('main', 'notes', 'a'))?.text).toBe('a')
    await revert(branches, { entry })
    expect(await prices(branches)).toEqual(BEFORE)
    expect((await branches.merge('dev')).merged).toBe(false)
  })

  it('takes back schema changes of a merge, by the rule of data loss', async () => {
    const branches = await opened()
    const schema = await branches.schema('main')
    await branches.edit('dev', { addTable: { table: 'tags' } })
    await branches.edit('dev', {
      addColumn: { table: 'items', column: { name: 'size', type: 'int' } },
    })
    await branches.edit('dev', {
      renameColumn: { table: 'items', oldName: 'name', newName: 'label' },
    })
    await branches.put('dev', 'tags', 'a', {})
    await branches.patch('dev', 'items', 'c', { size: 7 })
    const { entry } = await branches.merge('dev')
    await branches.put('main', 'items', 'e', { price: 5 })
    const refused = await reverting(branches, { entry })
    expect([refused.status, refused.body.code]).toEqual([409, 'data_loss'])
    const reverted = await revert(branches, { entry, allowDataLoss: true })
    expect(await branches.schema('main')).toEqual(schema)
    expect(await prices(branches)).toEqual({ ...BEFORE, e: 5 })
    // The merged branch does not bring the table and the column back.
    await branches.put('dev', 'items', 'f', { price: 6 })
    await branches.merge('dev')
    expect(await branches.schema('main')).toEqual(schema)
    // They come back with their values, and belong together with those of the merged branch again.
    await revert(branches, { entry: reverted.entry })
    expect(Object.keys(await branches.schema('main'))).toEqual(['items', 'notes', 'tags'])
    expect((await branches.record('main', 'items', 'c'))?.size).toBe(7)
    expect(await branches.read('main', 'tags', IDS)).toEqual({ a: {} })
    await branches.put('dev', 'tags', 'b', {})
    await branches.patch('dev', 'items', 'c', { size: 8 })
    await branches.merge('dev')
    expect((await branches.record('main', 'items', 'c'))?.size).toBe(8)
    expect(Object.keys(await branches.read('main', 'tags', IDS))).toEqual(['a', 'b'])
    await branches.patch('main', 'items', 'a', { size: 1 })
    await branches.pull('dev')
    expect((await branches.record('dev', 'items', 'a'))?.size).toBe(1)
    expect(await branches.schema('dev')).toEqual(await branches.schema('main'))
  })
})

/** Edits the schema of `main`. Returns the entry of the log. */
const edit = async (branches: TestBranches, operations: readonly object[]) => {
  const body = { edits: { operations }, allowDataLoss: true }
  return expectOk(await branches.call('main', 'POST', '/schema/apply', body)).body.entry
}

describe('a revert of a migration', () => {
  it('brings back a removed column with its values, also of records written since', async () => {
    const branches = await open()
    await branches.fork('old')
    const entry = await edit(branches, [{ removeColumn: { table: 'items', column: 'price' } }])
    await branches.patch('main', 'items', 'a', { name: 'later' })
    await branches.put('main', 'items', 'e', { name: 'e' })
    await branches.remove('main', 'items', 'c')
    await revert(branches, { entry })
    expect(await branches.read('main', 'items', IDS)).toEqual({
      a: { name: 'later', price: 1 },
      b: { name: 'b', price: 2 },
      e: { name: 'e' },
    })
    await branches.patch('main', 'items', 'b', { price: 20 })
    // A branch that has kept the column knows it again.
    await branches.patch('old', 'items', 'a', { price: 100 })
    await branches.merge('old')
    expect(await prices(branches)).toEqual({ a: 100, b: 20, e: undefined })
    await branches.pull('old')
    expect(await branches.read('old', 'items', IDS)).toEqual(
      await branches.read('main', 'items', IDS),
    )
  })

  it.each([
    ['table', { removeTable: { table: 'items' } }],
    ['column', { removeColumn: { table: 'items', column: 'price' } }],
  ])('is known to a reset that is taken back: a %s', async (_, removal) => {
    const branches = await open()
    await branches.fork('work')
    const body = { edits: { operations: [removal] }, allowDataLoss: true }
    const removed = expectOk(await branches.call('work', 'POST', '/schema/apply', body)).body
    await revert(branches, { entry: removed.entry }, 'work')
    await branches.patch('work', 'items', 'a', { price: 50 })
    const reset = expectOk(await branches.call('work', 'POST', '/reset', { to: 'main' })).body
    await branches.patch('work', 'items', 'b', { name: 'later' })
    await revert(branches, { entry: reset.entry }, 'work')
    expect(await branches.read('work', 'items', IDS)).toEqual({
      a: { name: 'a', price: 50 },
      b: { name: 'later', price: 2 },
      c: { name: 'c', price: 3 },
    })
  })

  it.each([
    ['table', { removeTable: { table: 'items' } }],
    ['column', { removeColumn: { table: 'items', column: 'price' } }],
  ])(
    'is known to a later revert, also after a reset that has lost it: a %s',
    async (_, removal) => {
      const branches = await open()
      for (const branch of ['work', 'bare']) await branches.fork(branch)
      const body = { edits: { operations: [removal] }, allowDataLoss: true }
      const remove = async (branch: string) =>
        expectOk(await branches.call(branch, 'POST', '/schema/apply', body)).body
      const checkpoint = async (name: string) =>
        expectOk(await branches.call('work', 'POST', '/checkpoints', { name }))
      await checkpoint('one')
      const removed = await remove('work')
      await revert(branches, { entry: removed.entry }, 'work')
      await checkpoint('two')
      await remove('bare')
      expectOk(await branches.call('work', 'POST', '/reset', { to: 'bare' }))
      // All that the two states differ in is a removal, and its revert.
      const schema = await branches.schema('work')
      await revert(branches, { from: 'one', to: 'two' }, 'work')
      expect(await branches.schema('work')).toEqual(schema)
    },
  )

  it('brings back an empty table or column as a new one, if only its schema is wanted', async () => {
    const branches = await open()
    await branches.fork('old')
    const entry = await edit(branches, [
      { removeColumn: { table: 'items', column: 'price' } },
      { removeTable: { table: 'notes' } },
    ])
    const tables = { items: { mode: 'schema' }, notes: { mode: 'schema' } }
    await revert(branches, { entry, tables })
    expect(await prices(branches)).toEqual({ a: undefined, b: undefined, c: undefined })
    expect(await branches.read('main', 'notes', IDS)).toEqual({})
    // The values and records are gone, and the difference tells it.
    const { body } = expectOk(await branches.call('main', 'GET', '/diff?against=old'))
    const kinds = body.schema.operations.map((operation: object) => Object.keys(operation)[0])
    const [added, removed] = [
      ['addColumn', 'addTable'],
      ['removeColumn', 'removeTable'],
    ]
    expect([...new Set(kinds)].sort()).toEqual([...added, ...removed])
    // A branch that has kept them loses them by a pull that says so, and not silently.
    const pull = await branches.call('old', 'POST', '/pull', { from: 'main' })
    expect([pull.status, pull.body.code]).toEqual([409, 'data_loss'])
  })

  it('brings back a removed table, with its unique values and links', async () => {
    const branches = await open()
    await branches.edit('main', {
      addColumn: { table: 'notes', column: { name: 'code', type: 'string', unique: true } },
    })
    await branches.edit('main', {
      addColumn: {
        table: 'notes',
        column: { name: 'item', type: 'link', link: { table: 'items' } },
      },
    })
    await branches.patch('main', 'notes', 'a', { code: 'x', item: 'a' })
    await branches.fork('old')
    const entry = await edit(branches, [{ removeTable: { table: 'notes' } }])
    await revert(branches, { entry })
    expect(await branches.read('main', 'notes', IDS)).toEqual({
      a: { text: 'a', code: 'x', item: { id: 'a' } },
      b: { text: 'b' },
      c: { text: 'c' },
    })
    const taken = await branches.call('main', 'PUT', '/tables/notes/data/z', { code: 'x' })
    expect(taken.status).toBe(400)
    await branches.put('old', 'notes', 'd', { text: 'd', code: 'y' })
    await branches.merge('old')
    expect((await branches.record('main', 'notes', 'd'))?.code).toBe('y')
    const again = await newest(branches, 'revert')
    await revert(branches, { entry: again.id, allowDataLoss: true, strategy: 'theirs' })
    expect(Object.keys(await branches.schema('main'))).toEqual(['items'])
  })

  it('reports a table of the same name that was made since', async () => {
    const branches = await open()
    const entry = await edit(branches, [{ removeTable: { table: 'notes' } }])
    await edit(branches, [
      { addTable: { table: 'notes' } },
      { addColumn: { table: 'notes', column: { name: 'text', type: 'string' } } },
    ])
    await branches.put('main', 'notes', 'd', { text: 'new' })
    await revert(branches, { entry })
    expect(await branches.read('main', 'notes', IDS)).toEqual({
      a: { text: 'a' },
      b: { text: 'b' },
      c: { text: 'c' },
      d: { text: 'new' },
    })
  })

  it('reports a column of the same name that was made since', async () => {
    const branches = await open()
    const entry = await edit(branches, [{ removeColumn: { table: 'items', column: 'price' } }])
    await edit(branches, [
      { addColumn: { table: 'items', column: { name: 'price', type: 'int' } } },
    ])
    await branches.patch('main', 'items', 'a', { price: 9 })
    const refused = await reverting(branches, { entry })
    expect(refused.body.conflicts).toMatchObject([
      { kind: 'schema', table: 'items', column: 'price', takes: ['ours', 'theirs'] },
    ])
    await revert(branches, { entry, strategy: 'theirs', allowDataLoss: true })
    expect(await prices(branches)).toEqual(BEFORE)
  })
})

describe.each(['small', 'large'])('a revert that brings back a column (%s)', (size) => {
  const opened = () => open(size === 'large' ? large : service)
  const add = {
    addColumn: {
      table: 'items',
      column: { name: 'stock', type: 'int', notNull: true, defaultValue: '7' },
    },
  } as const
  const remove = (column: string) => ({ removeColumn: { table: 'items', column } })
  const toText = { alterColumn: { table: 'items', column: 'price', type: 'string' } } as const
  const read = (branches: TestBranches) => branches.read('main', 'items', IDS)

  it.each(['merge', 'edit'])(
    'does not update records that only get the default of the column (%s)',
    async (by) => {
      const branches = await opened()
      await branches.edit('main', add)
      await branches.patch('main', 'items', 'b', { stock: 8 })
      await branches.put('main', 'items', 'e', { stock: 7 })
      await branches.fork('next')
      const [before, versions] = [await read(branches), await versionsOf(branches)]
      await branches.edit('next', remove('stock'))
      const entry =
        by === 'edit'
          ? await edit(branches, [remove('stock')])
          : (await branches.merge('next', { allowDataLoss: true })).entry
      const preview = await revert(branches, { entry, dryRun: true })
      expect(preview.tables[0]).toEqual({ name: 'items', inserted: 0, updated: 1, deleted: 0 })
      const reverted = await revert(branches, { entry })
      expect(reverted.tables).toEqual(preview.tables)
      expect(await read(branches)).toEqual(before)
      expect(await versionsOf(branches)).toEqual({ ...versions, b: Number(versions.b) + 1 })
    },
  )

  it.each(['merge', 'checkpoints'])(
    'leaves a record deleted from which the change has only taken the column (%s)',
    async (by) => {
      const branches = await opened()
      const checkpoint = async (name: string) =>
        expectOk(await branches.call('main', 'POST', '/checkpoints', { name }))
      await branches.fork('next')
      await checkpoint('before')
      const changed = by === 'merge' ? 'next' : 'main'
      await branches.patch(changed, 'items', 'b', { name: 'changed' })
      await branches.edit(changed, remove('price'))
      const step =
        by === 'merge'
          ? { entry: (await branches.merge('next', { allowDataLoss: true })).entry }
          : { from: 'before', to: 'after' }
      await checkpoint('after')
      await branches.remove('main', 'items', 'b', 'c')
      const { conflicts } = await revert(branches, { ...step, dryRun: true })
      expect(conflicts).toMatchObject([{ kind: 'deletedHere', table: 'items', id: 'b' }])
      const { tables } = await revert(branches, { ...step, strategy: 'theirs' })
      expect(tables[0]).toEqual({ name: 'items', inserted: 1, updated: 1, deleted: 0 })
      expect(await read(branches)).toEqual({
        a: { name: 'a', price: 1 },
        b: { name: 'b', price: 2 },
      })
    },
  )

  it('leaves records without a value that had none, in spite of the default', async () => {
    const branches = await opened()
    await branches.edit('main', add)
    await branches.edit('main', {
      alterColumn: { table: 'items', column: 'stock', notNull: false },
    })
    await branches.patch('main', 'items', 'b', { stock: null })
    const before = await read(branches)
    const entry = await edit(branches, [remove('stock')])
    await revert(branches, { entry })
    expect(await read(branches)).toEqual(before)
  })

  it('brings back the values that it had after a change of its type', async () => {
    const branches = await opened()
    await branches.edit('main', toText)
    await branches.patch('main', 'items', 'a', { price: null })
    await branches.patch('main', 'items', 'b', { price: 'two' })
    await branches.put('main', 'items', 'e', { price: '3' })
    const before = await read(branches)
    const entry = await edit(branches, [remove('price')])
    await revert(branches, { entry })
    expect(await read(branches)).toEqual(before)
  })

  it('gives no value of a deleted record to a new one with its id', async () => {
    const branches = await opened()
    await branches.fork('next')
    await branches.patch('next', 'items', 'a', { price: 10 })
    await branches.patch('next', 'items', 'b', { price: 20 })
    await branches.edit('next', toText)
    await branches.remove('next', 'items', 'a')
    expectOk(await branches.call('next', 'DELETE', '/tables/items/data', { filter: { id: 'b' } }))
    const { body } = expectOk(
      await branches.call('next', 'POST', '/schema/apply', {
        edits: { operations: [remove('price')] },
        allowDataLoss: true,
      }),
    )
    for (const id of ['a', 'b']) await branches.put('next', 'items', id, { name: 'new' })
    await revert(branches, { entry: body.entry }, 'next')
    expect(await prices(branches, 'next')).toEqual({ c: '3' })
  })

  it('keeps later values of the column with its earlier type', async () => {
    const branches = await opened()
    await branches.fork('old')
    await branches.edit('main', toText)
    await branches.patch('main', 'items', 'b', { price: 'two' })
    const { body } = expectOk(await branches.call('main', 'POST', '/reset', { to: 'old' }))
    await branches.patch('main', 'items', 'a', { price: 100 })
    await revert(branches, { entry: body.entry })
    expect(await prices(branches)).toEqual({ a: '100', b: 'two', c: '3' })
  })
})

describe.each(['small', 'large'])('a revert of a change that has filled a column (%s)', (size) => {
  const FILL = { notNull: true, fillNulls: true, defaultValue: '7' }

  /** The records `a`, `b` and `c`; `b` and `c` have got a price by the change. Returns the entry of the log. */
  async function filled(fork?: string): Promise<[TestBranches, string]> {
    const branches = await open(size === 'large' ? large : service)
    for (const id of ['b', 'c']) await branches.patch('main', 'items', id, { price: null })
    if (fork !== undefined) await branches.fork(fork)
    const path = '/tables/items/columns/price'
    const { body } = expectOk(await branches.call('main', 'PATCH', path, FILL))
    expect(await prices(branches)).toEqual({ a: 1, b: 7, c: 7 })
    return [branches, body.entry]
  }

  it('takes back the rule and the values that are still there, and keeps later writes', async () => {
    const [branches, entry] = await filled()
    await branches.patch('main', 'items', 'a', { price: 2 })
    await branches.patch('main', 'items', 'b', { name: 'later' })
    await branches.put('main', 'items', 'e', { price: 5 })
    const reverted = await revert(branches, { entry })
    expect(reverted.tables).toMatchObject([
      { name: 'items', inserted: 0, updated: 2, deleted: 0 },
      { name: 'notes' },
    ])
    expect(await branches.read('main', 'items', IDS)).toEqual({
      a: { name: 'a', price: 2 },
      b: { name: 'later' },
      c: { name: 'c' },
      e: { price: 5 },
    })
    await branches.put('main', 'items', 'f', {})
    const { body } = expectOk(await branches.call('main', 'GET', '/tables/items/columns/price'))
    expect(body).toEqual({ name: 'price', type: 'int' })
  })

  it('reports values that were filled and changed since, which the strategy decides', async () => {
    const [branches, entry] = await filled()
    await branches.patch('main', 'items', 'b', { price: 20 })
    const { conflicts } = await revert(branches, { entry, dryRun: true })
    expect(conflicts).toMatchObject([
      { kind: 'bothUpdated', id: 'b', columns: { price: { base: 7, ours: 20, theirs: null } } },
    ])
    await revert(branches, { entry, strategy: 'ours' })
    expect(await prices(branches)).toEqual({ a: 1, b: 20 })
  })

  it('takes nothing from forks, and their records get no value by it', async () => {
    const [branches, entry] = await filled('old')
    await branches.fork('new')
    await branches.patch('new', 'items', 'b', { name: 'new' })
    await branches.patch('main', 'items', 'a', { price: 2 })
    await revert(branches, { entry })
    expect(await prices(branches, 'new')).toEqual({ a: 1, b: 7, c: 7 })
    await branches.patch('old', 'items', 'b', { name: 'old' })
    await branches.patch('old', 'items', 'c', { price: 30 })
    await branches.put('old', 'items', 'e', { name: 'e' })
    await branches.merge('old')
    expect(await prices(branches)).toEqual({ a: 2, b: undefined, c: 30, e: undefined })
    await branches.put('old', 'items', 'f', {})
    await branches.pull('old')
    expect(await prices(branches, 'old')).toEqual({
      a: 2,
      b: undefined,
      c: 30,
      e: undefined,
      f: undefined,
    })
    expect(await branches.schema('old')).toEqual(await branches.schema('main'))
  })

  it('takes back values of records that the branch has inherited, and merges that', async () => {
    const branches = await open(size === 'large' ? large : service)
    await branches.patch('main', 'items', 'c', { price: null })
    await branches.fork('work')
    await branches.patch('work', 'items', 'b', { price: null })
    const path = '/tables/items/columns/price'
    const { entry } = expectOk(await branches.call('work', 'PATCH', path, FILL)).body
    await branches.patch('work', 'items', 'a', { price: 2 })
    await revert(branches, { entry }, 'work')
    const reverted = { a: 2, b: undefined, c: undefined }
    expect(await prices(branches, 'work')).toEqual(reverted)
    await branches.put('main', 'items', 'e', {})
    await branches.merge('work')
    expect(await prices(branches)).toEqual({ ...reverted, e: undefined })
  })

  it('can be reverted, and follows a later change of the type', async () => {
    const [branches, entry] = await filled()
    await branches.patch('main', 'items', 'a', { price: 2 })
    const reverted = await revert(branches, { entry })
    await revert(branches, { entry: reverted.entry })
    expect(await prices(branches)).toEqual({ a: 2, b: 7, c: 7 })
    const path = '/tables/items/columns/price'
    expectOk(await branches.call('main', 'PATCH', path, { type: 'string' }))
    await revert(branches, { entry })
    expect(await prices(branches)).toEqual({ a: '2', b: undefined, c: undefined })
  })
})

describe('a revert that is refused', () => {
  it('names an entry of the branch that has kept its states', async () => {
    const branches = await open()
    const merged = await branches.merge('dev')
    const bad: [object, number, string][] = [
      [{ entry: 'log_nothing' }, 404, 'entry_not_found'],
      [{ entry: (await newest(branches, 'fork', 'dev')).id }, 404, 'entry_not_found'],
      [{}, 400, 'invalid_request'],
      [{ entry: merged.entry, from: 'one' }, 400, 'invalid_request'],
      [{ from: 'one' }, 400, 'invalid_request'],
      [{ entry: 'a', from: 'one', to: 'two' }, 400, 'invalid_request'],
      [{ from: 'one', to: 'two' }, 404, 'checkpoint_not_found'],
      [{ entry: merged.entry, rows: true }, 400, 'invalid_request'],
    ]
    for (const [body, status, code] of bad) {
      const refused = await reverting(branches, body)
      expect([refused.status, refused.body.code]).toEqual([status, code])
    }
    const fork = await reverting(
      branches,
      { entry: (await newest(branches, 'fork', 'dev')).id },
      'dev',
    )
    expect([fork.status, fork.body.code]).toEqual([409, 'not_revertible'])
    for (const name of ['one', 'two']) {
      expectOk(await branches.call('main', 'POST', '/checkpoints', { name }))
    }
    const turned = await reverting(branches, { from: 'two', to: 'one' })
    expect([turned.status, turned.body.code]).toEqual([400, 'invalid_request'])
    expect(await prices(branches)).toEqual(MERGED)
  })

  it.each(['checkpoint', 'after'])('says that the state was deleted (%s)', async (state) => {
    const branches = await open()
    const { entry } = await branches.merge('dev')
    const { [state]: id } = await newest(branches, 'merge')
    expectOk(await branches.call('main', 'DELETE', `/checkpoints/${id}`))
    for (const dryRun of [true, false]) {
      const refused = await reverting(branches, { entry, dryRun })
      expect([refused.status, refused.body.code]).toEqual([409, 'state_collected'])
    }
    expect(await prices(branches)).toEqual(MERGED)
  })

  it('needs the right to write', async () => {
    const branches = await open()
    const { entry } = await branches.merge('dev')
    expect(
      (await branches.call('main', 'POST', '/revert', { entry }, { key: 'none' })).status,
    ).toBe(401)
  })

  it('is executed once for an idempotency key', async () => {
    const branches = await open()
    const { entry } = await branches.merge('dev')
    const headers = { 'idempotency-key': 'take-it-back' }
    const send = () => branches.call('main', 'POST', '/revert', { entry }, { headers })
    const first = expectOk(await send()).body
    await branches.patch('main', 'items', 'a', { price: 50 })
    expect(expectOk(await send()).body).toEqual(first)
    expect(await prices(branches)).toEqual({ ...BEFORE, a: 50 })
  })
})

describe('a merge of a branch that has reverted a change of a type', () => {
  it.each([
    { taken: 'other tables', body: { only: { tables: ['other'] } } },
    { taken: 'the side of the target', body: { strategy: 'ours' } },
  ])('leaves the values of the target alone if only $taken is taken', async ({ body }) => {
    const branches = await TestBranches.create(service, `revert${++number}`, {
      items: [{ name: 'n', type: 'int' }],
      other: [],
    })
    await branches.put('main', 'items', 'a', { n: 1 })
    await branches.fork('changed')
    await branches.fork('back', 'changed')
    const changes = { type: 'string' }
    expectOk(await branches.call('changed', 'PATCH', '/tables/items/columns/n', changes))
    const pulled = expectOk(await branches.call('back', 'POST', '/pull', {}))
    const revert = { entry: pulled.body.entry, allowDataLoss: true }
    expectOk(await reverting(branches, revert, 'back'))
    await branches.put('back', 'other', 'x', {})
    expectOk(await branches.call('back', 'POST', '/merge', body))
    expect(await branches.read('changed', 'items', ['a'])).toMatchObject({ a: { n: '1' } })
    expect(await branches.read('back', 'items', ['a'])).toMatchObject({ a: { n: 1 } })
    expect(await branches.read('changed', 'other', ['x'])).toHaveProperty('x')
  })
})
