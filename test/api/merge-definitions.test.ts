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
