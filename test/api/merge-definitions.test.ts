import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Both sides of a merge have changed the definition of a column. Each of the changes is allowed, but not always both of them.
 */

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 20 } })
})
afterAll(() => service.close())

type Values = Readonly<Record<string, unknown>>

/** A database with a table on `main`, and the fork `dev`. */
async function open(
  columns: readonly Column[],
  records: Readonly<Record<string, Values>> = {},
): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `definitions${++number}`, { items: columns })
  for (const [id, values] of Object.entries(records)) {
    await branches.put('main', 'items', id, values)
  }
  await branches.fork('dev')
  return branches
}

async function altered(branches: TestBranches, branch: string, changes: Values, column = 'c') {
  const path = `/tables/items/columns/${column}`
  expectOk(await branches.call(branch, 'PATCH', path, changes))
}

async function columnsOf(branches: TestBranches, branch = 'main'): Promise<Column[]> {
  return expectOk(await branches.call(branch, 'GET', '/tables/items/columns')).body.columns
}

async function definition(branches: TestBranches, branch = 'main', name = 'c') {
  return (await columnsOf(branches, branch)).find((column) => column.name === name)
}

const kinds = (...values: string[]): Column => ({ name: 'c', type: 'enum', enum: { values } })
const TEXT: Column = { name: 'c', type: 'string' }
const NUMBER: Column = { name: 'c', type: 'int' }

describe('changes of a column that cannot be combined', () => {
  it.each<[string, Column, Values, Values, string]>([
    [
      'a default, and an enum without it',
      kinds('a', 'b'),
      { defaultValue: 'b' },
      { enum: { values: ['a'] } },
      'default value',
    ],
    [
      'a default, and a shorter length',
      TEXT,
      { defaultValue: 'long' },
      { maxLength: 2 },
      'default value',
    ],
    [
      'a default, and a smaller size',
      NUMBER,
      { defaultValue: '100000' },
      { bits: 16 },
      'default value',
    ],
    [
      'a default, and fewer digits',
      { name: 'c', type: 'decimal', decimal: { precision: 8, scale: 2 } },
      { defaultValue: '1234.50' },
      { decimal: { precision: 4, scale: 2 } },
      'default value',
    ],
    [
      'a default, and a rule that values are unique',
      TEXT,
      { defaultValue: 'x' },
      { unique: true },
      'a unique column cannot have a default value',
    ],
    [
      'a default, and generated values',
      TEXT,
      { defaultValue: 'x' },
      { generate: 'uuid' },
      'a column cannot have both fields [generate] and [defaultValue]',
    ],
    [
      'a length, and longer generated values',
      TEXT,
      { maxLength: 10 },
      { generate: 'uuid' },
      'values of [uuid] have 36 characters',
    ],
    [
      'generated values that repeat, and a rule that values are unique',
      TEXT,
      { generate: 'user' },
      { unique: true },
      '[user] is not possible for a unique column',
    ],
  ])('are a conflict that takes one of them: %s', async (_, column, one, other, fault) => {
    for (const [here, there] of [
      [one, other],
      [other, one],
    ]) {
      if (here === undefined || there === undefined) throw new Error('both changes must exist')
      const branches = await open([column], { a: {}, b: {} })
      await altered(branches, 'main', { ...here, description: 'Ours.' })
      await altered(branches, 'dev', there)
      const [ours, theirs] = [await definition(branches), await definition(branches, 'dev')]
      // Records are compared all the same.
      await branches.put('main', 'items', 'a', { c: column.type === 'string' ? 'y' : null })
      const { conflicts } = await branches.merge('dev', { dryRun: true })
      expect(conflicts).toMatchObject([
        { kind: 'schema', table: 'items', column: 'c', takes: ['ours', 'theirs'], ours, theirs },
      ])
      expect(conflicts[0].message).toContain(fault)
      expect(await branches.merging('dev')).toMatchObject({
        status: 409,
        body: { code: 'merge_conflict', conflicts },
      })
      expect(await definition(branches)).toEqual(ours)
      const { token } = conflicts[0]
      const resolution = (take: string) => ({
        resolutions: [{ table: 'items', kind: 'schema', column: 'c', take, token }],
      })
      await branches.fork('kept')
      await branches.merge('dev', { into: 'kept', ...resolution('ours') })
      expect(await definition(branches, 'kept')).toEqual(ours)
      await branches.merge('dev', resolution('theirs'))
      expect(await definition(branches)).toEqual(theirs)
    }
  })

  it('are decided by a strategy, too', async () => {
    const branches = await open([TEXT])
    await altered(branches, 'main', { defaultValue: 'x' })
    await altered(branches, 'dev', { unique: true })
    await branches.pull('dev', { strategy: 'ours' })
    expect(await definition(branches, 'dev')).toEqual({ ...TEXT, unique: true })
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await definition(branches)).toEqual({ ...TEXT, unique: true })
  })

  it('are those of a link and its name', async () => {
    const branches = await TestBranches.create(service, `definitions${++number}`, {
      teams: [],
      items: [{ name: 'c', type: 'link', link: { table: 'teams', onDelete: 'restrict' } }],
    })
    await branches.fork('dev')
    await altered(branches, 'main', { link: { constraint: 'of_team' } })
    await altered(branches, 'dev', { link: { onDelete: 'none' } })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', column: 'c', takes: ['ours', 'theirs'] }])
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await definition(branches)).toEqual({
      name: 'c',
      type: 'link',
      link: { table: 'teams' },
    })
  })
})

describe('changes of an enum on both sides', () => {
  it.each<[string, string[], string[], string[], string[]]>([
    ['add values', ['a', 'b'], ['a', 'b', 'x'], ['a', 'b', 'y'], ['a', 'b', 'x', 'y']],
    ['add the same value', ['a'], ['a', 'x'], ['a', 'x'], ['a', 'x']],
    ['add some of the same values', ['a'], ['a', 'x', 'y'], ['a', 'x', 'z'], ['a', 'x', 'y', 'z']],
    [
      'add values at different places',
      ['a', 'b', 'c'],
      ['a', 'x', 'b', 'c'],
      ['y', 'a', 'b', 'z', 'c'],
      ['y', 'a', 'x', 'b', 'z', 'c'],
    ],
    ['add and remove values', ['a', 'b', 'c'], ['a', 'c'], ['a', 'b', 'c', 'd'], ['a', 'c', 'd']],
    ['remove different values', ['a', 'b', 'c'], ['a', 'b'], ['b', 'c'], ['b']],
    ['add a value and change the order', ['a', 'b'], ['a', 'b', 'c'], ['b', 'a'], ['b', 'a', 'c']],
    ['change the order and add a value', ['a', 'b'], ['b', 'a'], ['a', 'x', 'b'], ['b', 'a', 'x']],
  ])('%s', async (_, base, ours, theirs, merged) => {
    const branches = await open([kinds(...base)])
    await altered(branches, 'main', { enum: { values: ours } })
    await altered(branches, 'dev', { enum: { values: theirs } })
    for (const c of ours) await branches.put('main', 'items', `ours-${c}`, { c })
    for (const c of theirs) await branches.put('dev', 'items', `theirs-${c}`, { c })
    const lost = [...ours, ...theirs].filter((value) => !merged.includes(value))
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    if (lost.length > 0) {
      const ids = lost.flatMap((value) =>
        [`ours-${value}`, `theirs-${value}`].filter((id) =>
          (id.startsWith('ours') ? ours : theirs).includes(value),
        ),
      )
      expect(conflicts).toMatchObject([{ kind: 'limit', column: 'c', ids: ids.sort() }])
      for (const id of ids) {
        await branches.remove(id.startsWith('ours') ? 'main' : 'dev', 'items', id)
      }
    }
    await branches.merge('dev')
    expect(await definition(branches)).toEqual(kinds(...merged))
    await branches.pull('dev')
    expect(await definition(branches, 'dev')).toEqual(kinds(...merged))
    for (const c of merged) await branches.put('main', 'items', 'new', { c })
  })

  it.each<[string, string[], string[], string[]]>([
    ['order them differently', ['a', 'b', 'c'], ['b', 'a', 'c'], ['a', 'c', 'b']],
    ['remove all of them', ['a', 'b'], ['a'], ['b']],
  ])('are a conflict if they %s', async (_, base, ours, theirs) => {
    const branches = await open([kinds(...base)])
    await altered(branches, 'main', { enum: { values: ours } })
    await altered(branches, 'dev', { enum: { values: theirs } })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', column: 'c', takes: ['ours', 'theirs'] }])
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await definition(branches)).toEqual(kinds(...theirs))
  })
})

type Use = { readonly column: Column } | { readonly constraint: string; readonly rule: object }

/** Adds a computed column or a constraint that uses the column `c`. */
async function addUse(branches: TestBranches, branch: string, use: Use) {
  if ('column' in use) {
    await branches.edit(branch, { addColumn: { table: 'items', column: use.column } })
    return
  }
  const path = `/tables/items/constraints/${use.constraint}`
  expectOk(await branches.call(branch, 'PUT', path, use.rule))
}

async function uses(branches: TestBranches, branch = 'main') {
  const { body } = expectOk(await branches.call(branch, 'GET', ''))
  const { columns, constraints = [] } = body.schema.tables[0]
  return [
    ...columns.filter(({ computed }: Column) => computed).map(({ name }: Column) => name),
    ...constraints.map(({ name }: { name: string }) => name),
  ]
}

const USES: [string, Use][] = [
  ['a computed column', { column: { name: 'use', type: 'int', computed: 'c * 2' } }],
  ['a check', { constraint: 'use', rule: { check: 'c > 0' } }],
  ['a unique constraint', { constraint: 'use', rule: { unique: ['c', 'd'] } }],
]
const CHANGES: [string, (branches: TestBranches, branch: string) => Promise<void>][] = [
  ['changes the type of', (branches, branch) => altered(branches, branch, { type: 'string' })],
  [
    'writes anew',
    (branches, branch) => altered(branches, branch, { type: 'string', using: "c || '!'" }),
  ],
  [
    'removes',
    (branches, branch) => branches.edit(branch, { removeColumn: { table: 'items', column: 'c' } }),
  ],
]

describe.each(USES)('%s that one side adds', (_kind, use) => {
  const place = 'column' in use ? { column: 'use' } : { constraint: 'use' }

  describe.each(CHANGES)('for a column that the other side %s', (changeName, change) => {
    const start = () =>
      open([NUMBER, { name: 'd', type: 'int' }], { a: { c: 1, d: 1 }, b: { c: 2, d: 2 } })
    const settled = (take: string, token: string) => ({
      resolutions: [{ table: 'items', kind: 'schema', ...place, take, token }],
      allowDataLoss: true,
    })

    it.each(['ours', 'theirs'])('is settled by %s on the side that adds it', async (take) => {
      const branches = await start()
      await addUse(branches, 'main', use)
      await change(branches, 'dev')
      const [before, there] = [await definition(branches), await definition(branches, 'dev')]
      const { conflicts } = await branches.merge('dev', { dryRun: true })
      expect(conflicts).toMatchObject([
        { kind: 'schema', table: 'items', ...place, takes: ['ours', 'theirs'], theirs: null },
      ])
      expect(conflicts[0].ours).toMatchObject({ name: 'use' })
      expect(await branches.merging('dev')).toMatchObject({ status: 409, body: { conflicts } })
      await branches.merge('dev', settled(take, conflicts[0].token))
      expect(await definition(branches)).toEqual(take === 'ours' ? before : there)
      expect(await uses(branches)).toEqual(take === 'ours' ? ['use'] : [])
      await branches.put('main', 'items', 'z', { d: 9 })
      if (changeName === 'writes anew') return
      // The other branch has no values of the column that the target has kept.
      await branches.pull('dev', { strategy: 'ours' })
      expect(await definition(branches, 'dev')).toEqual(there)
      expect(await uses(branches, 'dev')).toEqual([])
    })

    it('is left out by the side that changes it', async () => {
      const branches = await start()
      await addUse(branches, 'dev', use)
      await change(branches, 'main')
      const before = await definition(branches)
      const { conflicts } = await branches.merge('dev', { dryRun: true })
      expect(conflicts).toMatchObject([
        { kind: 'schema', table: 'items', ...place, takes: ['ours'], ours: null },
      ])
      expect(conflicts[0].theirs).toMatchObject({ name: 'use' })
      expect(await branches.merging('dev', { strategy: 'theirs' })).toMatchObject({ status: 409 })
      await branches.merge('dev', settled('ours', conflicts[0].token))
      expect(await definition(branches)).toEqual(before)
      expect(await uses(branches)).toEqual([])
      await branches.put('main', 'items', 'z', { d: 9 })
      await branches.pull('dev', { allowDataLoss: true, strategy: 'theirs' })
      expect(await definition(branches, 'dev')).toEqual(before)
      expect(await uses(branches, 'dev')).toEqual([])
    })
  })
})

/** The values of the column `c` by id. */
async function values(branches: TestBranches, branch = 'main') {
  const query = { columns: ['c'], page: { size: 100 } }
  const { body } = expectOk(await branches.call(branch, 'POST', '/tables/items/query', query))
  const records: { id: string; c?: unknown }[] = body.records
  return Object.fromEntries(records.map(({ id, c }) => [id, c ?? null]))
}

const DECIMAL = { type: 'decimal', decimal: { precision: 6, scale: 2 } }

describe('a change of the type that the target has reverted', () => {
  /** Reverts the latest change of the schema of a branch. */
  async function revert(branches: TestBranches, branch = 'main') {
    const { body } = expectOk(await branches.call(branch, 'GET', '/log?size=1'))
    const entry = body.entries[0].id
    expectOk(await branches.call(branch, 'POST', '/revert', { entry }))
  }

  it.each<[string, Column, Values, unknown[], unknown[]]>([
    ['of another type', TEXT, { type: 'int' }, [55, 66], ['55', '66']],
    [
      'without empty values',
      TEXT,
      { notNull: true, defaultValue: 'none', fillNulls: true },
      ['x', 'y'],
      ['x', 'y'],
    ],
    [
      'with other digits',
      { name: 'c', ...DECIMAL } as Column,
      { decimal: { precision: 6, scale: 1 } },
      ['2.5', '3.5'],
      ['2.50', '3.50'],
    ],
  ])(
    'converts back what a fork has written to the column %s',
    async (_, column, changes, written, merged) => {
      const branches = await open([column], { a: { c: '1' }, b: { c: '1' }, c: {} })
      await altered(branches, 'main', changes)
      await branches.fork('fork')
      await revert(branches)
      const before = await values(branches)
      await branches.put('fork', 'items', 'a', { c: written[0] })
      await branches.put('fork', 'items', 'new', { c: written[1] })
      await branches.remove('fork', 'items', 'b')
      const { tables } = await branches.merge('fork', { dryRun: true })
      expect(tables).toEqual([{ name: 'items', inserted: 1, updated: 1, deleted: 1 }])
      expect(await branches.merge('fork')).toMatchObject({ merged: true, tables, dataLoss: [] })
      const { b: _b, ...kept } = before
      expect(await values(branches)).toEqual({ ...kept, a: merged[0], new: merged[1] })
      expect(await definition(branches)).toEqual(column)
      expect(await branches.merge('fork')).toMatchObject({ merged: false })
      // What is written later is merged, too.
      await branches.put('fork', 'items', 'a', { c: written[1] })
      await branches.merge('fork')
      expect((await values(branches)).a).toBe(merged[1])
    },
  )

  it('converts back what the branch has written that has made the change', async () => {
    const branches = await open([TEXT], { a: { c: '1' }, b: { c: '2' } })
    await altered(branches, 'dev', { type: 'int' })
    await branches.merge('dev')
    await revert(branches)
    await branches.put('main', 'items', 'b', { c: 'two' })
    await branches.put('dev', 'items', 'a', { c: 55 })
    const { tables } = await branches.diff('main', '?against=dev')
    expect(tables).toMatchObject([
      {
        changes: [
          { change: 'updated', id: 'a', columns: { c: { from: '55', to: '1' } } },
          { change: 'updated', id: 'b', columns: { c: { from: '2', to: 'two' } } },
        ],
      },
    ])
    await branches.merge('dev')
    expect(await values(branches)).toEqual({ a: '55', b: 'two' })
    await branches.put('dev', 'items', 'b', { c: 3 })
    expect((await branches.merging('dev')).body.conflicts).toMatchObject([
      { kind: 'bothUpdated', id: 'b', columns: { c: { base: '2', ours: 'two', theirs: '3' } } },
    ])
  })

  it.each([
    ['with the type', ['int', 'fork', 'revert', 'text']],
    ['without the type', ['fork', 'int', 'revert', 'text']],
    ['without the type, which has changed it before', ['fork', 'text', 'int', 'revert']],
  ])('gives way to another type of a fork %s', async (_fork, order) => {
    const branches = await open([TEXT], { a: { c: '1' }, b: { c: '2' } })
    const steps: Record<string, () => Promise<unknown>> = {
      fork: () => branches.fork('fork'),
      int: () => altered(branches, 'main', { type: 'int' }),
      revert: () => revert(branches),
      text: () => altered(branches, 'fork', { type: 'text' }),
    }
    for (const step of order) await steps[step]?.()
    await branches.put('main', 'items', 'a', { c: '9' })
    await branches.put('main', 'items', 'e', { c: 'seven' })
    await branches.put('fork', 'items', 'f', { c: '8' })
    // A fork that had the type has changed it, too.
    await branches.merge('fork', { strategy: 'theirs' })
    const merged = { a: '9', b: '2', e: 'seven', f: '8' }
    expect(await values(branches)).toEqual(merged)
    expect(await definition(branches)).toEqual({ name: 'c', type: 'text' })
    // The fork inherits rows from before the target brought the column back.
    const inherited = { a: '1', b: '2', f: '8' }
    expect(await values(branches, 'fork')).toEqual(inherited)
    await branches.fork('later', 'fork')
    expect(await values(branches, 'later')).toEqual(inherited)
    await branches.put('fork', 'items', 'b', { c: 'two' })
    await branches.put('main', 'items', 'f', { c: 'eight' })
    await branches.pull('fork')
    await branches.merge('fork')
    const last = { a: '9', b: 'two', e: 'seven', f: 'eight' }
    expect(await values(branches, 'fork')).toEqual(last)
    expect(await values(branches)).toEqual(last)
    expect(await values(branches, 'later')).toEqual(inherited)
  })

  it.each([
    ['target', 'fork', 'main'],
    ['merged branch', 'main', 'fork'],
  ])('is a conflict if the fork has removed the column, as the %s', async (_side, into, from) => {
    const branches = await open([TEXT], { a: { c: '1' } })
    await altered(branches, 'main', { type: 'int' })
    await branches.fork('fork')
    expectOk(await branches.call('fork', 'DELETE', '/tables/items/columns/c'))
    await revert(branches)
    await branches.put('main', 'items', 'a', { c: '77' })
    const { conflicts } = await branches.merge(from, { into, dryRun: true, allowDataLoss: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', table: 'items', column: 'c', records: 1 }])
  })

  it('is pulled by a fork with the type if the fork changes it back, too', async () => {
    const branches = await open([TEXT], { a: { c: '1.50' } })
    await altered(branches, 'main', { type: 'float' })
    await branches.fork('late')
    await revert(branches)
    expect((await branches.pulling('late')).body.conflicts).toMatchObject([
      {
        column: 'c',
        takes: ['ours'],
        message: expect.stringContaining('changed back to [string] on the merged branch'),
      },
    ])
    await altered(branches, 'late', { type: 'string' })
    await branches.pull('late')
    expect(await values(branches, 'late')).toEqual({ a: '1.50' })
  })

  it('is no reason to leave out the column in a difference with a branch that has the type', async () => {
    const branches = await open([TEXT], { a: { c: '1' }, b: { c: '2' } })
    await branches.fork('back')
    await altered(branches, 'back', { type: 'int' })
    await branches.fork('later', 'back')
    await revert(branches, 'back')
    await branches.put('back', 'items', 'b', { c: null })
    expect((await branches.diff('later', '?against=back')).tables).toMatchObject([
      { changes: [{ change: 'updated', id: 'b', columns: { c: { from: null, to: 2 } } }] },
    ])
  })

  it('takes values away again that records without one have got', async () => {
    const branches = await open([TEXT], { a: { c: '1' }, b: {}, d: {} })
    await altered(branches, 'dev', { notNull: true, fillNulls: true, defaultValue: '7' })
    await branches.merge('dev')
    await branches.put('main', 'items', 'd', { c: '8' })
    await revert(branches, 'dev')
    expect((await branches.merging('dev')).body.conflicts).toMatchObject([
      { kind: 'bothUpdated', id: 'd', columns: { c: { base: '7', ours: '8', theirs: null } } },
    ])
    const { tables } = await branches.merge('dev', { strategy: 'ours' })
    expect(tables).toEqual([{ name: 'items', inserted: 0, updated: 1, deleted: 0 }])
    expect(await definition(branches)).toEqual(TEXT)
    expect(await values(branches)).toEqual({ a: '1', b: null, d: '8' })
    await branches.pull('dev')
    expect(await values(branches, 'dev')).toEqual({ a: '1', b: null, d: '8' })
  })

  it('reports values that do not convert back', async () => {
    const branches = await open([NUMBER], { a: { c: 1 }, b: { c: 2 } })
    await altered(branches, 'main', { type: 'string' })
    await branches.fork('fork')
    await revert(branches)
    await branches.put('fork', 'items', 'a', { c: 'one' })
    const answer = await branches.merging('fork')
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'schema', table: 'items', column: 'c', records: 1 },
    ])
    expect(answer.body.conflicts[0].message).toContain(
      'of the merged branch does not convert to [int]: [a]',
    )
    await branches.put('fork', 'items', 'a', { c: '11' })
    await branches.merge('fork')
    expect(await values(branches)).toEqual({ a: 11, b: 2 })
  })
})

describe('a type that one side has changed and changed back', () => {
  const START = { a: { c: '1.50' }, b: { c: '2' }, d: { c: '4.50' } }

  async function changeBack(branches: TestBranches, branch: string, type = 'float') {
    await altered(branches, branch, { type })
    await altered(branches, branch, { type: 'string' })
  }

  it.each([
    ['target', 'dev', 'main'],
    ['merged branch', 'main', 'dev'],
  ])(
    'is a conflict if the %s has removed the column and the other has changed it',
    async (_side, changed, removed) => {
      const branches = await open([TEXT], START)
      await changeBack(branches, changed)
      expectOk(await branches.call(removed, 'DELETE', '/tables/items/columns/c'))
      const unchanged = await branches.merge('dev', { dryRun: true, allowDataLoss: true })
      expect(unchanged.conflicts).toEqual([])
      await branches.put(changed, 'items', 'a', { c: '77' })
      await branches.put(changed, 'items', 'e', { c: '88' })
      const { conflicts } = await branches.merge('dev', { dryRun: true, allowDataLoss: true })
      expect(conflicts).toMatchObject([{ kind: 'schema', table: 'items', column: 'c' }])
      expect((await branches.merging('dev', { allowDataLoss: true })).status).toBe(409)
    },
  )

  it('leaves what only the other side has written as it is', async () => {
    const branches = await open([TEXT], START)
    await changeBack(branches, 'dev')
    expect(await values(branches, 'dev')).toEqual({ a: '1.5', b: '2', d: '4.5' })
    const changed = [
      { change: 'updated', id: 'a', columns: { c: { from: '1.50', to: '1.5' } } },
      { change: 'updated', id: 'd', columns: { c: { from: '4.50', to: '4.5' } } },
    ]
    const counts = { inserted: 0, updated: 2, deleted: 0 }
    for (const query of ['', '?against=main']) {
      expect(await branches.diff('dev', query)).toMatchObject({
        schema: { operations: [] },
        tables: [{ ...counts, changes: changed }],
      })
    }
    expect((await branches.diff('dev', '?size=0')).tables).toMatchObject([counts])
    await branches.put('main', 'items', 'd', { c: 'four' })
    await branches.put('main', 'items', 'e', { c: '9.50' })
    await branches.put('main', 'items', 'f', { c: 'abc' })
    const { tables, conflicts } = await branches.merge('dev', { dryRun: true })
    expect(tables).toEqual([{ name: 'items', inserted: 0, updated: 1, deleted: 0 }])
    expect(conflicts).toMatchObject([{ kind: 'bothUpdated', id: 'd' }])
    await branches.put('main', 'items', 'd', { c: '4.50' })
    const effect = { schema: { operations: [] }, tables: [{ ...tables[0], updated: 2 }] }
    expect(await branches.merge('dev')).toMatchObject({ merged: true, ...effect })
    expect(await values(branches)).toEqual({ a: '1.5', b: '2', d: '4.5', e: '9.50', f: 'abc' })
    expect((await branches.record('main', 'items', 'a')).service.version).toBe(1)
    expect((await branches.record('main', 'items', 'e')).service.version).toBe(0)
    expect(await branches.merge('dev')).toMatchObject({ merged: false })
    await branches.pull('dev')
    expect(await values(branches, 'dev')).toEqual(await values(branches))
    for (const [one, other] of [
      ['dev', 'main'],
      ['main', 'dev'],
    ] as const) {
      const { schema, tables } = await branches.diff(one, `?against=${other}`)
      expect(schema.operations).toEqual([])
      for (const table of tables)
        expect(table).toMatchObject({ inserted: 0, updated: 0, deleted: 0 })
    }
  })

  it.each([
    ['with others', ['b', 'x', 'y']],
    ['alone', []],
  ])('has changed values also if they are compared without locks, %s', async (_, ids) => {
    const limits = { automaticCheckpointsMax: 20, mergeLockedRowsMax: 1 }
    const large = await createTestService({ url: service.url, limits })
    try {
      const branches = (await open([TEXT], START)).through(large)
      await changeBack(branches, 'dev')
      const written = Object.fromEntries(ids.map((id) => [id, `${id}.0`]))
      for (const [id, c] of Object.entries(written)) await branches.put('dev', 'items', id, { c })
      await branches.put('main', 'items', 'e', { c: '9.50' })
      const { tables } = await branches.merge('dev')
      const counts = ids.length > 0 ? { inserted: 2, updated: 3 } : { inserted: 0, updated: 2 }
      expect(tables).toEqual([{ name: 'items', ...counts, deleted: 0 }])
      const merged = { a: '1.5', b: '2', d: '4.5', e: '9.50', ...written }
      expect(await values(branches)).toEqual(merged)
    } finally {
      await large.close()
    }
  })

  it('has changed values also for branches with several bases', async () => {
    const branches = await open([TEXT], START)
    await changeBack(branches, 'dev')
    await branches.put('dev', 'items', 'b', { c: '20' })
    await branches.put('main', 'items', 'e', { c: '9.50' })
    await branches.fork('left')
    await branches.fork('right', 'dev')
    await branches.merge('dev', { into: 'left' })
    await branches.merge('main', { into: 'right' })
    await branches.put('left', 'items', 'd', { c: '4.0' })
    await branches.put('right', 'items', 'f', { c: '5.0' })
    await branches.merge('right', { into: 'left' })
    await branches.merge('left', { into: 'right' })
    const merged = { a: '1.5', b: '20', d: '4.0', e: '9.50', f: '5.0' }
    expect(await values(branches, 'left')).toEqual(merged)
    expect(await values(branches, 'right')).toEqual(merged)
  })

  it('is no change of it on the target either', async () => {
    const branches = await open([TEXT], START)
    await changeBack(branches, 'main')
    await branches.put('dev', 'items', 'e', { c: '9.50' })
    await branches.put('dev', 'items', 'f', { c: 'abc' })
    await branches.merge('dev')
    expect(await values(branches)).toEqual({ a: '1.5', b: '2', d: '4.5', e: '9.50', f: 'abc' })
    await branches.pull('dev')
    expect(await values(branches, 'dev')).toEqual(await values(branches))
  })

  it('can be changed again by both, after merges in both directions', async () => {
    const branches = await open([TEXT], START)
    await changeBack(branches, 'dev')
    await altered(branches, 'dev', { description: 'A size.' })
    await branches.merge('dev')
    await altered(branches, 'main', { type: 'float' })
    await branches.put('dev', 'items', 'a', { c: '7.50' })
    await branches.put('main', 'items', 'b', { c: 8 })
    await branches.pull('dev')
    const merged = { a: 7.5, b: 8, d: 4.5 }
    expect(await values(branches, 'dev')).toEqual(merged)
    await branches.merge('dev')
    expect(await values(branches)).toEqual(merged)
    const changed = { name: 'c', type: 'float', description: 'A size.' }
    expect([await definition(branches), await definition(branches, 'dev')]).toEqual([
      changed,
      changed,
    ])
  })

  it('is a step for values of the other side if the type is another one in the end', async () => {
    const branches = await open([TEXT], { a: { c: '1' } })
    await altered(branches, 'dev', { type: 'int' })
    await altered(branches, 'dev', DECIMAL)
    await branches.put('main', 'items', 'b', { c: '9.9' })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', column: 'c', records: 1 }])
    expect(conflicts[0].message).toContain('does not convert to [decimal] by way of [int]: [b]')
    // The target can change the type itself, by a single step.
    await altered(branches, 'main', DECIMAL)
    await branches.merge('dev')
    expect(await values(branches)).toEqual({ a: '1.00', b: '9.90' })
  })

  it('takes constraints and computed columns along', async () => {
    const branches = await open([TEXT], START)
    const path = '/tables/items/constraints/given'
    expectOk(await branches.call('main', 'PUT', path, { check: 'c is not null' }))
    await branches.pull('dev')
    await changeBack(branches, 'dev')
    await addUse(branches, 'dev', { constraint: 'filled', rule: { check: "c <> ''" } })
    await addUse(branches, 'dev', { column: { name: 'use', type: 'string', computed: 'upper(c)' } })
    await branches.put('main', 'items', 'e', { c: '9.50' })
    await branches.merge('dev')
    expect(await uses(branches)).toEqual(['use', 'given', 'filled'])
    expect(await values(branches)).toEqual({ a: '1.5', b: '2', d: '4.5', e: '9.50' })
    for (const c of ['', null]) {
      expect((await branches.call('main', 'PUT', '/tables/items/data/z', { c })).status).toBe(400)
    }
  })
})

describe('a change of the type on one side', () => {
  it.each<[string, Values, Values]>([
    ['a description', { description: 'D' }, { description: 'D' }],
    ['a default that converts', { defaultValue: '7' }, { defaultValue: '7' }],
    ['a rule that values are required', { notNull: true }, { notNull: true }],
    ['a rule that values are unique', { unique: true }, { unique: true }],
  ])('is combined with %s on the other', async (_, changes, added) => {
    for (const [typed, other] of [
      ['dev', 'main'],
      ['main', 'dev'],
    ] as const) {
      const branches = await open([TEXT], { a: { c: '1' }, b: { c: '2' } })
      await altered(branches, other, changes)
      await altered(branches, typed, { type: 'int' })
      await branches.put('dev', 'items', 'a', { c: typed === 'dev' ? 5 : '5' })
      await branches.put('main', 'items', 'new', { c: typed === 'main' ? 88 : '88' })
      await branches.merge('dev')
      expect(await values(branches)).toEqual({ a: 5, b: 2, new: 88 })
      expect(await definition(branches)).toEqual({ ...NUMBER, ...added })
      await branches.pull('dev')
      expect(await values(branches, 'dev')).toEqual({ a: 5, b: 2, new: 88 })
    }
  })

  it.each<[string, Values]>([
    ['a default that does not convert', { defaultValue: 'none' }],
    ['a length', { maxLength: 5 }],
  ])('excludes %s on the other, and loses no values by the decision', async (_, changes) => {
    const start = async () => {
      const branches = await open([TEXT], { a: { c: '1' }, b: { c: '2' } })
      await altered(branches, 'main', changes)
      await altered(branches, 'dev', { type: 'int' })
      await branches.put('dev', 'items', 'a', { c: 5 })
      await branches.put('dev', 'items', 'new', { c: 88 })
      await branches.put('main', 'items', 'b', { c: '3' })
      const { conflicts } = await branches.merge('dev', { dryRun: true })
      expect(conflicts).toMatchObject([{ kind: 'schema', column: 'c', takes: ['ours', 'theirs'] }])
      return branches
    }
    const kept = await start()
    const merged = await kept.merge('dev', { strategy: 'ours' })
    expect(merged.tables).toEqual([{ name: 'items', inserted: 1, updated: 1, deleted: 0 }])
    expect(await values(kept)).toEqual({ a: '5', b: '3', new: '88' })
    expect(await definition(kept)).toEqual({ ...TEXT, ...changes })
    // The decision stays, and later values are merged.
    await kept.put('dev', 'items', 'new', { c: 89 })
    await kept.merge('dev')
    expect((await values(kept)).new).toBe('89')
    const taken = await start()
    await taken.merge('dev', { strategy: 'theirs' })
    expect(await values(taken)).toEqual({ a: 5, b: 3, new: 88 })
    expect(await definition(taken)).toEqual(NUMBER)
  })

  it('changes no values by its conversion alone, if the target keeps its type', async () => {
    const more: Column = { name: 'd', type: 'int' }
    for (const type of [DECIMAL, { type: 'multiple' }]) {
      const branches = await open([TEXT, more], { a: { c: '1.5' }, b: { c: '2' }, e: { c: '3' } })
      await altered(branches, 'main', { maxLength: 5 })
      await altered(branches, 'dev', type)
      for (const id of ['a', 'b']) await branches.patch('dev', 'items', id, { d: 1 })
      await branches.put('main', 'items', 'b', { c: '2.5' })
      await branches.patch('dev', 'items', 'e', { c: null })
      await branches.merge('dev', { strategy: 'ours' })
      expect(await branches.read('main', 'items', ['a', 'b', 'e'])).toEqual({
        ...{ a: { c: '1.5', d: 1 }, b: { c: '2.5', d: 1 }, e: {} },
      })
    }
  })

  it('loses no values if a constraint of the target keeps the column', async () => {
    const branches = await open([NUMBER], { a: { c: 1 } })
    await addUse(branches, 'main', { constraint: 'use', rule: { check: 'c > 0' } })
    await altered(branches, 'dev', { type: 'string' })
    await branches.put('dev', 'items', 'a', { c: '5' })
    await branches.put('dev', 'items', 'b', { c: 'six' })
    const { body } = await branches.merging('dev', { strategy: 'ours' })
    expect(body.conflicts).toMatchObject([{ kind: 'schema', column: 'c', records: 1 }])
    await branches.put('dev', 'items', 'b', { c: '6' })
    await branches.merge('dev', { strategy: 'ours' })
    expect(await values(branches)).toEqual({ a: 5, b: 6 })
    expect(await uses(branches)).toEqual(['use'])
  })

  it('leaves the column to the side that has changed it, if the other one cannot follow', async () => {
    const branches = await open([TEXT], { a: { c: '1' } })
    await altered(branches, 'main', { type: 'int' })
    await altered(branches, 'dev', { defaultValue: 'none' })
    await branches.put('dev', 'items', 'a', { c: '5' })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', column: 'c', takes: ['ours'] }])
    expect((await branches.merging('dev', { strategy: 'theirs' })).status).toBe(409)
    await branches.merge('dev', { strategy: 'ours' })
    expect(await values(branches)).toEqual({ a: 5 })
  })
})

describe('different changes of the type on both sides', () => {
  it('lose no values of the merged branch if the target keeps its type', async () => {
    const branches = await open([TEXT], { a: { c: '1' }, b: { c: '2' }, d: { c: '3.5' } })
    await branches.put('main', 'items', 'd', { c: '4' })
    await altered(branches, 'main', { type: 'int' })
    await altered(branches, 'dev', { type: 'float' })
    await branches.put('dev', 'items', 'a', { c: 5 })
    await branches.put('dev', 'items', 'new', { c: 8.5 })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([
      { kind: 'schema', column: 'c', takes: ['ours', 'theirs'] },
      { kind: 'schema', column: 'c', takes: [], records: 1 },
    ])
    expect(conflicts[0].message).toContain('both sides have changed the type of this column')
    expect(conflicts[1].message).toContain('of the merged branch does not convert to [int]: [new]')
    expect((await branches.merging('dev', { strategy: 'ours' })).status).toBe(409)
    await branches.put('dev', 'items', 'new', { c: 8 })
    await branches.merge('dev', { strategy: 'ours' })
    expect(await values(branches)).toEqual({ a: 5, b: 2, d: 4, new: 8 })
    expect(await definition(branches)).toEqual(NUMBER)
  })

  it('need leave to lose those of the target if it takes the other type', async () => {
    const branches = await open([TEXT], { a: { c: '1' } })
    await altered(branches, 'main', { type: 'int' })
    await altered(branches, 'dev', { type: 'float' })
    expect((await branches.merging('dev', { strategy: 'theirs' })).body).toMatchObject({
      code: 'data_loss',
      dataLoss: [{ table: 'items', column: 'c', records: 1 }],
    })
  })
})
