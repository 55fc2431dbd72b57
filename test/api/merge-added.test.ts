import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { LONG } from '../support/random.js'
import { type Decision, reviewed } from '../support/reviewed.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * Tables and columns that one side, or both sides, have added since the base. Each test runs with pinned states, as for
 * many rows, and in the long form with locked branches, too. The random models merge in both ways.
 */

type Way = 'locked' | 'pinned'
const WAYS: readonly Way[] = LONG ? ['locked', 'pinned'] : ['pinned']

const services = new Map<Way, TestService>()
let number = 0

beforeAll(async () => {
  services.set('locked', await createTestService())
  services.set('pinned', await createTestService({ limits: { mergeLockedRowsMax: 0 } }))
})
afterAll(async () => {
  for (const service of services.values()) await service.close()
})

const NOTES: readonly Column[] = [
  { name: 'text', type: 'string' },
  { name: 'old', type: 'int' },
]

function create(way: Way, tables: Readonly<Record<string, readonly Column[]>> = { notes: NOTES }) {
  const service = services.get(way)
  if (service === undefined) throw new Error('the service must have started')
  return TestBranches.create(service, `added${++number}`, tables)
}

/** Adds the tokens of what a dry run shows to the resolutions of a request. */
async function withTokens(
  branches: TestBranches,
  options: object,
  action: 'merge' | 'pull' = 'merge',
) {
  const { resolutions } = options as { readonly resolutions?: readonly Decision[] }
  if (resolutions === undefined) return options
  const decisions = resolutions.map((each) => ({ ...each }))
  return { ...options, resolutions: await reviewed(branches, decisions, { action }) }
}

const D: Column = { name: 'd', type: 'int', notNull: true, defaultValue: '7' }
const E: Column = { name: 'e', type: 'string' }
const addColumn = (column: Column, table = 'notes') => ({ addColumn: { table, column } })
const removeColumn = (column: string, table = 'notes') => ({ removeColumn: { table, column } })

describe.each(WAYS)('a record that both sides have inserted, with %s branches', (way) => {
  /** `main` has two columns that its fork `dev` does not have, and both have the record `same`. */
  async function open(dev: object = { text: 'a' }) {
    const branches = await create(way)
    await branches.fork('dev')
    await branches.edit('main', addColumn(D), addColumn(E))
    await branches.put('main', 'notes', 'same', { text: 'a', d: 8, e: 'kept' })
    await branches.put('dev', 'notes', 'same', dev as Record<string, unknown>)
    return branches
  }
  const WHOLE = { text: 'a', d: 8, e: 'kept' }

  it('has the values of columns that only one side has, in both directions', async () => {
    for (const direction of ['pull', 'merge'] as const) {
      const branches = await open()
      expect(await branches[direction]('dev')).toMatchObject({ merged: true, conflictCount: 0 })
      const target = direction === 'pull' ? 'dev' : 'main'
      expect(await branches.read(target, 'notes', ['same'])).toEqual({ same: WHOLE })
    }
  })

  it('is in conflict about the columns that both sides have, in both directions', async () => {
    const branches = await open({ text: 'b' })
    for (const answer of [await branches.pulling('dev'), await branches.merging('dev')]) {
      expect(answer).toMatchObject({ status: 409, body: { conflictCount: 1 } })
      const [conflict] = answer.body.conflicts
      expect(conflict).toMatchObject({ kind: 'bothInserted', id: 'same' })
      expect(Object.keys(conflict.columns)).toEqual(['text'])
    }
  })

  it.each([
    ['ours', { strategy: 'ours' }, 'b'],
    ['theirs', { strategy: 'theirs' }, 'a'],
    ['ours for the record', { resolutions: [{ table: 'notes', id: 'same', take: 'ours' }] }, 'b'],
    [
      'theirs for the record',
      { resolutions: [{ table: 'notes', id: 'same', take: 'theirs' }] },
      'a',
    ],
    [
      'a value for the column',
      { resolutions: [{ table: 'notes', id: 'same', columns: { text: { value: 'c' } } }] },
      'c',
    ],
  ])('keeps the values of the source if a pull decides by %s', async (_name, options, text) => {
    const branches = await open({ text: 'b' })
    await branches.pull('dev', await withTokens(branches, options, 'pull'))
    expect(await branches.read('dev', 'notes', ['same'])).toEqual({ same: { ...WHOLE, text } })
    await branches.merge('dev')
    expect(await branches.read('main', 'notes', ['same'])).toEqual({ same: { ...WHOLE, text } })
  })

  it.each([
    ['ours', 'a'],
    ['theirs', 'b'],
  ])('keeps the values of the target if a merge decides by %s', async (strategy, text) => {
    const branches = await open({ text: 'b' })
    await branches.merge('dev', { strategy })
    expect(await branches.read('main', 'notes', ['same'])).toEqual({ same: { ...WHOLE, text } })
    await branches.pull('dev')
    expect(await branches.read('dev', 'notes', ['same'])).toEqual({ same: { ...WHOLE, text } })
  })

  it('is not in conflict about a column that one side has dropped', async () => {
    for (const direction of ['pull', 'merge'] as const) {
      const branches = await create(way)
      await branches.fork('dev')
      await branches.edit('main', removeColumn('old'))
      await branches.put('main', 'notes', 'same', { text: 'a' })
      await branches.put('dev', 'notes', 'same', { text: 'a' })
      expect(await branches[direction]('dev')).toMatchObject({ merged: true, conflictCount: 0 })
      const target = direction === 'pull' ? 'dev' : 'main'
      expect(await branches.read(target, 'notes', ['same'])).toEqual({ same: { text: 'a' } })
    }
  })

  it('keeps its value in a column that the other side has dropped and the target keeps', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    await branches.edit('main', removeColumn('old'))
    await branches.put('main', 'notes', 'same', { text: 'a' })
    await branches.put('dev', 'notes', 'same', { text: 'a', old: 3 })
    expect(await branches.pulling('dev')).toMatchObject({ status: 409, body: { conflictCount: 1 } })
    await branches.pull('dev', { strategy: 'ours' })
    expect(await branches.read('dev', 'notes', ['same'])).toEqual({ same: { text: 'a', old: 3 } })
  })
})

/** A column with a default, which the records of the base get, too. */
const STATE: Column = { name: 'state', type: 'string', notNull: true, defaultValue: 'open' }

describe.each(WAYS)('a column that both sides have added, with %s branches', (way) => {
  /** `main` and its fork `dev` have added the same columns to a table with the records `a`, `b` and `c`. */
  async function open() {
    const branches = await create(way)
    const records = ['a', 'b', 'c'].map((id) => ({ id, text: id }))
    await branches.bulk('main', 'notes', records)
    await branches.fork('dev')
    await branches.fork('early')
    for (const branch of ['main', 'dev'])
      await branches.edit(branch, addColumn(E), addColumn(STATE))
    return branches
  }
  const rows = (branches: TestBranches, branch: string) =>
    branches.read(branch, 'notes', ['a', 'b', 'c', 'n'])
  const BOTH = { notes: ['text', 'old', 'e', 'state'] }
  const record = (text: string, more: object = {}) => ({ text, state: 'open', ...more })

  it('is one column, with the values of both sides', async () => {
    const branches = await open()
    await branches.patch('main', 'notes', 'a', { e: 'main', state: 'done' })
    await branches.patch('dev', 'notes', 'b', { e: 'dev' })
    await branches.put('dev', 'notes', 'n', { e: 'new', state: 'done' })
    expect(await branches.merge('dev')).toMatchObject({
      merged: true,
      schema: { operations: [] },
      tables: [{ name: 'notes', inserted: 1, updated: 1, deleted: 0 }],
    })
    const merged = {
      a: record('a', { e: 'main', state: 'done' }),
      b: record('b', { e: 'dev' }),
      c: record('c'),
      n: { e: 'new', state: 'done' },
    }
    expect(await branches.schema('main')).toEqual(BOTH)
    expect(await rows(branches, 'main')).toEqual(merged)
    expect(await branches.pull('dev')).toMatchObject({
      merged: true,
      schema: { operations: [] },
      tables: [{ name: 'notes', inserted: 0, updated: 1, deleted: 0 }],
    })
    expect(await rows(branches, 'dev')).toEqual(merged)
    expect(await branches.merge('dev')).toMatchObject({ merged: false })
    const { schema, tables } = await branches.diff('dev')
    expect(schema).toEqual({ operations: [] })
    expect(tables).toMatchObject([{ name: 'notes', inserted: 0, updated: 0, deleted: 0 }])
  })

  it('is in conflict if both sides gave a record different values in it', async () => {
    const branches = await open()
    await branches.patch('main', 'notes', 'a', { e: 'main' })
    await branches.patch('dev', 'notes', 'a', { e: 'dev' })
    for (const [answer, ours, theirs] of [
      [await branches.merging('dev'), 'main', 'dev'],
      [await branches.pulling('dev'), 'dev', 'main'],
    ] as const) {
      expect(answer).toMatchObject({ status: 409, body: { conflictCount: 1 } })
      expect(answer.body.conflicts).toMatchObject([
        { kind: 'bothUpdated', id: 'a', columns: { e: { base: null, ours, theirs } } },
      ])
    }
    await branches.merge('dev', { strategy: 'theirs' })
    expect((await rows(branches, 'main')).a).toEqual(record('a', { e: 'dev' }))
    // The decision is known to the next merge in the other direction.
    await branches.pull('dev')
    expect((await rows(branches, 'dev')).a).toEqual(record('a', { e: 'dev' }))
  })

  it('stays one column in later merges in both directions, after it was renamed, too', async () => {
    const branches = await open()
    await branches.merge('dev')
    await branches.edit('main', { renameColumn: { table: 'notes', oldName: 'e', newName: 'f' } })
    await branches.patch('dev', 'notes', 'a', { e: 'dev' })
    await branches.patch('main', 'notes', 'b', { f: 'main' })
    await branches.merge('dev')
    await branches.pull('dev')
    for (const branch of ['main', 'dev']) {
      expect(await branches.schema(branch)).toEqual({ notes: ['text', 'old', 'f', 'state'] })
      expect(await rows(branches, branch)).toEqual({
        a: record('a', { f: 'dev' }),
        b: record('b', { f: 'main' }),
        c: record('c'),
      })
    }
  })

  it('is removed from both by the side that removes it, and a change of it there is a conflict', async () => {
    for (const [remover, other] of [
      ['main', 'dev'],
      ['dev', 'main'],
    ] as const) {
      const branches = await open()
      await branches.merge('dev')
      await branches.edit(remover, removeColumn('e'))
      const [get, getting] =
        remover === 'main'
          ? [() => branches.pull('dev'), () => branches.pulling('dev')]
          : [() => branches.merge('dev'), () => branches.merging('dev')]
      await branches.patch(other, 'notes', 'a', { e: 'written' })
      expect(await getting()).toMatchObject({
        status: 409,
        body: { conflicts: [{ kind: 'schema', column: 'e', records: 1 }] },
      })
      await branches.patch(other, 'notes', 'a', { e: null })
      await get()
      expect(await branches.schema(other)).toEqual({ notes: ['text', 'old', 'state'] })
    }
  })

  it('keeps its values in forks of a target that has removed it, and merges again', async () => {
    const branches = await open()
    await branches.patch('main', 'notes', 'a', { e: 'main' })
    await branches.merge('dev')
    await branches.fork('before')
    await branches.edit('main', removeColumn('e'))
    await branches.fork('after')
    await branches.patch('dev', 'notes', 'a', { text: 'dev' })
    // This writes the record, of which the forks need the former version.
    expect(await branches.merge('dev')).toMatchObject({ tables: [{ name: 'notes', updated: 1 }] })
    expect(await rows(branches, 'main')).toMatchObject({ a: { text: 'dev', state: 'open' } })
    expect((await rows(branches, 'before')).a).toEqual(record('a', { e: 'main' }))
    expect((await rows(branches, 'after')).a).toEqual(record('a'))
    // A branch that still has the column as `main` had it gets the removal.
    await branches.pull('before', { allowDataLoss: true })
    expect((await rows(branches, 'before')).a).toEqual(record('dev'))
  })

  it('can be removed and added again', async () => {
    const branches = await open()
    await branches.merge('dev')
    await branches.patch('main', 'notes', 'a', { e: 'old' })
    await branches.edit('main', removeColumn('e'))
    await branches.edit('main', addColumn(E))
    await branches.patch('main', 'notes', 'b', { e: 'new' })
    await branches.pull('dev')
    expect(await rows(branches, 'dev')).toEqual({
      a: record('a'),
      b: record('b', { e: 'new' }),
      c: record('c'),
    })
    await branches.patch('dev', 'notes', 'c', { e: 'dev' })
    await branches.merge('dev')
    expect((await rows(branches, 'main')).c).toEqual(record('c', { e: 'dev' }))
  })

  it('is the same column on a branch that was forked before or after', async () => {
    const branches = await open()
    await branches.patch('dev', 'notes', 'a', { e: 'dev' })
    await branches.merge('dev')
    await branches.fork('late', 'dev')
    // A branch without the column gets it from one side, and meets that of the other.
    await branches.pull('early', { from: 'dev' })
    await branches.patch('early', 'notes', 'b', { e: 'early' })
    await branches.merge('early', { into: 'main' })
    await branches.pull('late', { from: 'main' })
    await branches.patch('late', 'notes', 'c', { e: 'late' })
    await branches.merge('late', { into: 'early' })
    await branches.pull('dev', { from: 'early' })
    for (const branch of ['dev', 'early', 'late']) {
      expect(await branches.schema(branch)).toEqual(BOTH)
      expect(await rows(branches, branch)).toEqual({
        a: record('a', { e: 'dev' }),
        b: record('b', { e: 'early' }),
        c: record('c', { e: 'late' }),
      })
    }
    expect(await branches.merge('dev')).toMatchObject({ tables: [{ name: 'notes', updated: 1 }] })
    expect((await rows(branches, 'main')).c).toEqual(record('c', { e: 'late' }))
  })

  it('has one base if both sides contain the same two branches', async () => {
    const branches = await create(way)
    await branches.bulk('main', 'notes', [{ id: 'a', text: 'a' }])
    for (const branch of ['one', 'two', 'left', 'right']) await branches.fork(branch)
    for (const branch of ['one', 'two']) {
      await branches.edit(branch, addColumn(E))
      await branches.put(branch, 'notes', branch, { e: branch })
    }
    for (const [branch, into] of [
      ['one', 'left'],
      ['two', 'left'],
      ['two', 'right'],
      ['one', 'right'],
    ] as const) {
      await branches.merge(branch, { into })
    }
    await branches.patch('left', 'notes', 'one', { e: 'left' })
    await branches.patch('right', 'notes', 'two', { e: 'right' })
    await branches.patch('right', 'notes', 'a', { e: 'right' })
    expect(await branches.merge('left', { into: 'right' })).toMatchObject({ conflictCount: 0 })
    expect(await branches.schema('right')).toEqual({ notes: ['text', 'old', 'e'] })
    expect(await branches.read('right', 'notes', ['a', 'one', 'two'])).toEqual({
      a: { text: 'a', e: 'right' },
      one: { e: 'left' },
      two: { e: 'right' },
    })
  })

  it('can be unique or an object', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    const code: Column = { name: 'code', type: 'string', unique: true }
    const nested = (...names: string[]): Column => ({
      name: 'place',
      type: 'object',
      columns: names.map((name) => ({ name, type: 'string' })),
    })
    await branches.edit('main', addColumn(code), addColumn(nested('city', 'street')))
    await branches.edit('dev', addColumn(code), addColumn(nested('street', 'city')))
    await branches.put('main', 'notes', 'a', { code: 'A', place: { city: 'main' } })
    await branches.put('dev', 'notes', 'a', { code: 'A', place: { city: 'main' } })
    await branches.put('dev', 'notes', 'b', { code: 'B', place: { street: 'dev' } })
    await branches.merge('dev')
    expect(await branches.read('main', 'notes', ['a', 'b'])).toEqual({
      a: { code: 'A', place: { city: 'main' } },
      b: { code: 'B', place: { street: 'dev' } },
    })
    await branches.put('dev', 'notes', 'c', { code: 'C' })
    await branches.put('main', 'notes', 'd', { code: 'C' })
    expect(await branches.merging('dev')).toMatchObject({
      status: 409,
      body: { conflicts: [{ kind: 'notUnique', column: 'code', ids: ['c', 'd'] }] },
    })
  })

  it('is left alone in a table that the merge skips', async () => {
    const branches = await open()
    const options = { tables: { notes: { mode: 'skip' } } }
    expect(await branches.merge('dev', options)).toMatchObject({ schema: { operations: [] } })
    await branches.patch('dev', 'notes', 'a', { e: 'dev' })
    await branches.merge('dev', { tables: { notes: { mode: 'schema' } } })
    expect((await rows(branches, 'main')).a).toEqual(record('a'))
    await branches.merge('dev')
    expect((await rows(branches, 'main')).a).toEqual(record('a', { e: 'dev' }))
  })
})

describe.each(WAYS)('a table that both sides have added, with %s branches', (way) => {
  const link = (name: string, table: string): Column => ({ name, type: 'link', link: { table } })
  const addTables = [
    { addTable: { table: 'teams' } },
    { addTable: { table: 'people' } },
    addColumn({ name: 'name', type: 'string' }, 'teams'),
    addColumn({ name: 'name', type: 'string' }, 'people'),
    addColumn(link('team', 'teams'), 'people'),
  ]

  it('is one table, with the records and the further columns of both sides', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    await branches.edit('main', ...addTables)
    await branches.edit(
      'dev',
      ...[...addTables].reverse().slice(-2).reverse(),
      ...addTables.slice(2),
    )
    await branches.edit('dev', addColumn({ name: 'size', type: 'int' }, 'teams'))
    await branches.edit('main', addColumn(link('lead', 'people'), 'teams'))
    await branches.put('main', 'teams', 't', { name: 'same' })
    await branches.put('dev', 'teams', 't', { name: 'same', size: 2 })
    await branches.put('main', 'people', 'm', { name: 'M', team: 't' })
    await branches.put('dev', 'people', 'd', { name: 'D', team: 't' })
    expect(await branches.merge('dev')).toMatchObject({
      schema: { operations: [{ addColumn: { table: 'teams', column: { name: 'size' } } }] },
    })
    await branches.pull('dev')
    for (const branch of ['main', 'dev']) {
      const schema = await branches.schema(branch)
      expect(schema.people).toEqual(['name', 'team'])
      expect([...(schema.teams ?? [])].sort()).toEqual(['lead', 'name', 'size'])
      expect(await branches.read(branch, 'teams', ['t'])).toEqual({ t: { name: 'same', size: 2 } })
      expect(await branches.read(branch, 'people', ['d', 'm'])).toEqual({
        d: { name: 'D', team: { id: 't' } },
        m: { name: 'M', team: { id: 't' } },
      })
    }
    await branches.patch('dev', 'teams', 't', { lead: 'd' })
    await branches.remove('dev', 'people', 'm')
    await branches.merge('dev')
    expect(await branches.read('main', 'teams', ['t'])).toMatchObject({ t: { lead: { id: 'd' } } })
    expect(await branches.record('main', 'people', 'm')).toBeUndefined()
    await branches.edit('main', { removeTable: { table: 'people' } }, removeColumn('lead', 'teams'))
    expect(await branches.pulling('dev')).toMatchObject({
      status: 409,
      body: { code: 'data_loss' },
    })
    await branches.pull('dev', { allowDataLoss: true })
    expect(Object.keys(await branches.schema('dev'))).toEqual(['notes', 'teams'])
  })

  it('has records that both sides inserted, which are in conflict if they differ', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    for (const branch of ['main', 'dev']) {
      await branches.edit(branch, ...addTables)
      await branches.put(branch, 'teams', 't', { name: branch })
    }
    const answer = await branches.merging('dev')
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'bothInserted', id: 't', columns: { name: { ours: 'main', theirs: 'dev' } } },
    ])
    const decided = { resolutions: [{ table: 'teams', id: 't', take: 'theirs' }] }
    await branches.merge('dev', await withTokens(branches, decided))
    expect(await branches.read('main', 'teams', ['t'])).toEqual({ t: { name: 'dev' } })
  })

  it('is compared as one table by a difference', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    for (const branch of ['main', 'dev']) await branches.edit(branch, ...addTables)
    await branches.put('main', 'teams', 't', { name: 'main' })
    await branches.put('dev', 'teams', 't', { name: 'dev' })
    const { schema, tables } = await branches.diff('dev', '?against=source')
    expect(schema).toEqual({ operations: [] })
    expect(tables.find(({ name }: { name: string }) => name === 'teams')).toMatchObject({
      updated: 1,
      changes: [{ id: 't', columns: { name: { from: 'main', to: 'dev' } } }],
    })
  })

  it('keeps its history if a merge leaves out its records', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    for (const branch of ['main', 'dev']) await branches.edit(branch, ...addTables)
    await branches.put('dev', 'teams', 't', { name: 'dev' })
    await branches.merge('dev', { tables: { teams: { mode: 'schema' } } })
    expect(await branches.record('main', 'teams', 't')).toBeUndefined()
    await branches.pull('dev', { tables: { teams: { mode: 'schema' } } })
    expect(await branches.record('dev', 'teams', 't')).toMatchObject({ name: 'dev' })
    await branches.merge('dev')
    expect(await branches.record('main', 'teams', 't')).toMatchObject({ name: 'dev' })
  })
})

describe.each(WAYS)('columns of one name and different definitions, with %s branches', (way) => {
  async function open() {
    const branches = await create(way)
    await branches.fork('dev')
    await branches.edit('main', addColumn({ name: 'size', type: 'int' }))
    await branches.edit('dev', addColumn({ name: 'size', type: 'string' }))
    await branches.put('main', 'notes', 'm', { size: 1 })
    await branches.put('dev', 'notes', 'd', { size: 'large' })
    return branches
  }
  const schemaOf = async (branches: TestBranches, branch: string) => {
    const { body } = await branches.call(branch, 'GET', '')
    const { columns } = body.schema.tables[0] as { columns: Column[] }
    return columns.slice(2).map(({ name, type }) => `${name} ${type}`)
  }
  const resolution = (decision: object) => ({
    resolutions: [{ table: 'notes', kind: 'schema', column: 'size', ...decision }],
  })

  it('are in conflict, which names both definitions', async () => {
    const branches = await open()
    const answer = await branches.merging('dev')
    expect(answer).toMatchObject({ status: 409, body: { conflictCount: 1 } })
    expect(answer.body.conflicts).toEqual([
      {
        table: 'notes',
        column: 'size',
        kind: 'schema',
        token: expect.any(String),
        takes: ['ours', 'theirs'],
        ours: { name: 'size', type: 'int' },
        theirs: { name: 'size', type: 'string' },
        message: expect.stringContaining('"type":"int"'),
      },
    ])
    expect(answer.body.conflicts[0].message).toContain('"type":"string"')
  })

  it.each([
    ['a strategy', { strategy: 'ours' }],
    ['a strategy for the table', { tables: { notes: { strategy: 'ours' } } }],
    ['a resolution', resolution({ take: 'ours' })],
  ])('can be decided for the target by %s', async (_name, options) => {
    const branches = await open()
    await branches.merge('dev', await withTokens(branches, options))
    expect(await schemaOf(branches, 'main')).toEqual(['size int'])
    expect(await branches.read('main', 'notes', ['m', 'd'])).toEqual({ m: { size: 1 }, d: {} })
    expect(await branches.pulling('dev')).toMatchObject({
      status: 409,
      body: { code: 'data_loss' },
    })
    await branches.pull('dev', { allowDataLoss: true })
    expect(await schemaOf(branches, 'dev')).toEqual(['size int'])
    expect(await branches.read('dev', 'notes', ['m', 'd'])).toEqual({ m: { size: 1 }, d: {} })
  })

  it.each([
    ['a strategy', { strategy: 'theirs' }],
    ['a resolution', resolution({ take: 'theirs' })],
  ])('can be decided for the merged branch by %s', async (_name, decision) => {
    const branches = await open()
    const options = await withTokens(branches, decision)
    expect(await branches.merging('dev', options)).toMatchObject({
      status: 409,
      body: { code: 'data_loss', dataLoss: [{ table: 'notes', column: 'size', records: 1 }] },
    })
    await branches.merge('dev', { ...options, allowDataLoss: true })
    expect(await schemaOf(branches, 'main')).toEqual(['size string'])
    const rows = { m: {}, d: { size: 'large' } }
    expect(await branches.read('main', 'notes', ['m', 'd'])).toEqual(rows)
    await branches.pull('dev')
    expect(await branches.read('dev', 'notes', ['m', 'd'])).toEqual(rows)
  })

  it('can both be kept under different names', async () => {
    const branches = await open()
    await branches.merge('dev', resolution({ rename: 'width' }))
    expect(await schemaOf(branches, 'main')).toEqual(['size int', 'width string'])
    await branches.patch('dev', 'notes', 'd', { size: 'small' })
    await branches.merge('dev')
    await branches.pull('dev')
    for (const branch of ['main', 'dev']) {
      expect((await schemaOf(branches, branch)).sort()).toEqual(['size int', 'width string'])
      expect(await branches.read(branch, 'notes', ['m', 'd'])).toEqual({
        m: { size: 1 },
        d: { width: 'small' },
      })
    }
  })

  it('can be in tables that are kept under different names', async () => {
    const branches = await create(way)
    await branches.fork('dev')
    for (const [branch, type] of [
      ['main', 'int'],
      ['dev', 'string'],
    ] as const) {
      await branches.edit(
        branch,
        { addTable: { table: 'logs' } },
        addColumn({ name: 'size', type }, 'logs'),
      )
    }
    expect((await branches.merging('dev')).body.conflicts).toMatchObject([
      { table: 'logs', column: 'size', takes: ['ours', 'theirs'] },
    ])
    await branches.put('dev', 'logs', 'd', { size: 'large' })
    const rename = { table: 'logs', kind: 'schema', rename: 'logs2' }
    await branches.merge('dev', { resolutions: [rename] })
    expect(await branches.schema('main')).toMatchObject({ logs: ['size'], logs2: ['size'] })
    expect(await branches.read('main', 'logs2', ['d'])).toEqual({ d: { size: 'large' } })
  })
})

it('a conflict of columns whose definitions are written alike names what differs', async () => {
  const branches = await create('pinned')
  await branches.fork('dev')
  const rename = (oldName: string, newName: string) => ({
    renameColumn: { table: 'notes', oldName, newName },
  })
  const sum: Column = { name: 'sum', type: 'int', computed: 'old + 1' }
  const to: Column = { name: 'to', type: 'link', link: { table: 'people' } }
  await branches.edit('main', { addTable: { table: 'people', idType: 'int' } }, addColumn(to))
  await branches.edit('main', addColumn(sum))
  await branches.edit('dev', { addTable: { table: 'people' } }, addColumn(to))
  await branches.edit('dev', rename('old', 'older'), addColumn({ name: 'old', type: 'int' }))
  await branches.edit('dev', addColumn(sum))
  const { conflicts } = await branches.merge('dev', { dryRun: true })
  const other = (what: string, definition: object) =>
    `both sides have added this column, with the same definition, but ${what} of the target is another one than that of this ` +
    `name on the merged branch: ${JSON.stringify(definition)}; take one of them, or give that of the merged branch another name`
  expect(conflicts).toMatchObject([
    { column: 'to', message: other('table [people]', to) },
    { column: 'sum', message: other('column [old]', sum) },
    { table: 'people' },
  ])
})

describe('a resolution with a new name', () => {
  it.each([
    ['needs [kind]', { table: 'notes', column: 'e', rename: 'f' }, 'field [column] needs [kind]'],
    ['needs [kind] for a table', { table: 'notes', rename: 'f' }, 'field [rename] needs [kind]'],
    [
      'excludes [take]',
      { table: 'notes', kind: 'schema', column: 'e', rename: 'f', take: 'ours' },
      'fields [rename] and [take] exclude each other',
    ],
    [
      'must name a column of the merged branch',
      { table: 'notes', kind: 'schema', column: 'none', rename: 'f' },
      'column [notes.none] not found on the merged branch',
    ],
    [
      'must decide a conflict',
      { table: 'notes', kind: 'schema', column: 'text', rename: 'f' },
      'the name of column [notes.text] is not in conflict',
    ],
    [
      'must decide a conflict about a table',
      { table: 'notes', kind: 'schema', rename: 'f' },
      'the name of table [notes] is not in conflict',
    ],
    [
      'cannot use a reserved name',
      { table: 'notes', kind: 'schema', column: 'e', rename: 'id' },
      'field [rename]: name is reserved',
    ],
  ])('%s', async (_name, resolution, message) => {
    const branches = await create('locked')
    await branches.fork('dev')
    for (const branch of ['main', 'dev']) await branches.edit(branch, addColumn(E))
    expect(await branches.merging('dev', { resolutions: [resolution] })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(message) },
    })
  })

  it('is refused if the name is taken', async () => {
    const branches = await create('locked')
    await branches.fork('dev')
    for (const branch of ['main', 'dev']) await branches.edit(branch, addColumn(E))
    const rename = { table: 'notes', kind: 'schema', column: 'e', rename: 'text' }
    const answer = await branches.merging('dev', { resolutions: [rename] })
    expect(answer).toMatchObject({ status: 409, body: { conflictCount: 1 } })
    await branches.merge('dev', { resolutions: [{ ...rename, rename: 'f' }] })
    expect(await branches.schema('main')).toEqual({ notes: ['text', 'old', 'e', 'f'] })
  })
})
