import { LIMITS } from '@offshoot/contract/limits'
import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { raw, sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { type Decision, reviewed } from '../support/reviewed.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'

/* Conflicts of a merge that are decided per table, per record and per column. */

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService({ limits: { mergeBytesMax: 2 * 1024 * 1024 } })
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'price', type: 'int' },
  { name: 'code', type: 'string', unique: true },
  { name: 'stock', type: 'int', notNull: true, defaultValue: '0' },
  {
    name: 'place',
    type: 'object',
    columns: [
      { name: 'city', type: 'string' },
      { name: 'street', type: 'string' },
    ],
  },
  { name: 'data', type: 'json' },
]

const IDS = ['a', 'b', 'c', 'd', 'e']

/** Creates a database with three records on `main` and a fork `dev`. */
async function open(more: Readonly<Record<string, readonly Column[]>> = {}) {
  const branches = await TestBranches.create(service, `settle${++number}`, {
    items: ITEMS,
    ...more,
  })
  await branches.bulk(
    'main',
    'items',
    ['a', 'b', 'c'].map((id, index) => ({ id, name: id, price: index + 1, stock: index })),
  )
  await branches.fork('dev')
  return branches
}

/** Creates conflicts: `a` in two columns, `b` deleted there, `c` deleted here, `d` created by both. */
async function contradict() {
  const branches = await open()
  await branches.patch('dev', 'items', 'a', { name: 'dev', price: 10, stock: 5 })
  await branches.patch('main', 'items', 'a', { name: 'main', price: 20 })
  await branches.remove('dev', 'items', 'b')
  await branches.patch('main', 'items', 'b', { price: 21 })
  await branches.patch('dev', 'items', 'c', { price: 12 })
  await branches.remove('main', 'items', 'c')
  await branches.put('dev', 'items', 'd', { name: 'dev', price: 13 })
  await branches.put('main', 'items', 'd', { name: 'main', price: 13 })
  return branches
}

const read = (branches: TestBranches, branch = 'main') => branches.read(branch, 'items', IDS)
/** Returns the heap of the only table on `main`. */
async function heapOfItems(branches: TestBranches): Promise<string> {
  const [row] = await service.database.query<{ name: string }>(sql`
    select format('offshoot_db_%s.heap_%s', h.database_id, h.id) as name
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${branches.database} and b.name = 'main' and b.deleted_at is null`)
  return row?.name ?? ''
}

/** The table in `conflictTables`, with another number of conflicts. */
const tableOf = async (branches: TestBranches, conflicts: number) => {
  const { conflictTables } = await branches.merge('dev', { dryRun: true })
  return { ...conflictTables[0], conflicts }
}
const refusalOf = ({ status, body }: Answer) => [status, body.code, body.message]

describe('resolutions', () => {
  it('decide each record as a whole, and the rest of the changes is merged', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', take: 'theirs' },
      { table: 'items', id: 'b', take: 'theirs' },
      { table: 'items', id: 'c', take: 'theirs' },
      { table: 'items', id: 'd', take: 'ours' },
    ])
    expect(await branches.merge('dev', { resolutions })).toMatchObject({
      merged: true,
      conflictCount: 0,
      tables: [{ name: 'items', inserted: 1, updated: 1, deleted: 1 }],
    })
    expect(await read(branches)).toMatchObject({
      a: { name: 'dev', price: 10, stock: 5 },
      c: { name: 'c', price: 12 },
      d: { name: 'main' },
    })
    expect(await branches.record('main', 'items', 'b')).toBeUndefined()
    // The decisions are part of the history.
    expect(await branches.merge('dev')).toMatchObject({ merged: false })
  })

  it('mean the same for a pull: ours is the branch that gets the changes', async () => {
    const branches = await contradict()
    const decisions = (take: string) =>
      ['a', 'b', 'c', 'd'].map((id) => ({ table: 'items', id, take }))
    const before = await read(branches, 'dev')
    const pull = { action: 'pull' } as const
    const resolutions = await reviewed(branches, decisions('ours'), pull)
    expect(await branches.pull('dev', { resolutions })).toMatchObject({ merged: true })
    expect(await read(branches, 'dev')).toEqual(before)
    const other = await contradict()
    await other.pull('dev', { resolutions: await reviewed(other, decisions('theirs'), pull) })
    expect(await read(other, 'dev')).toMatchObject({
      a: { name: 'main', price: 20, stock: 5 },
      b: { price: 21 },
      d: { name: 'main' },
    })
    expect(await other.record('dev', 'items', 'c')).toBeUndefined()
  })

  it('decide single columns, by a side or by a value', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', columns: { name: { take: 'ours' }, price: { value: 15 } } },
      { table: 'items', take: 'ours' },
    ])
    expect(await branches.merge('dev', { resolutions })).toMatchObject({ merged: true })
    expect(await read(branches)).toMatchObject({
      // Only `dev` has changed the stock.
      a: { name: 'main', price: 15, stock: 5 },
      b: { price: 21 },
      d: { name: 'main' },
    })
  })

  it('of a part of the columns leave the others in conflict', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', columns: { name: { take: 'theirs' } } },
      { table: 'items', id: 'b', take: 'ours' },
      { table: 'items', id: 'c', take: 'ours' },
      { table: 'items', id: 'd', take: 'theirs' },
    ])
    const left = await branches.merge('dev', { resolutions, dryRun: true })
    expect(left).toMatchObject({
      merged: false,
      conflictCount: 1,
      // The tokens do not depend on the other resolutions.
      conflictTables: [await tableOf(branches, 1)],
      conflicts: [{ id: 'a', kind: 'bothUpdated', token: resolutions[0]?.token }],
      tables: [{ name: 'items', updated: 1 }],
    })
    expect(left.conflicts[0].columns).toEqual({ price: { base: 1, ours: 20, theirs: 10 } })
    const before = await read(branches)
    expect((await branches.merging('dev', { resolutions })).body.code).toBe('merge_conflict')
    expect(await read(branches)).toEqual(before)
    // The decision about the table takes the rest of the record.
    const [{ token }] = left.conflictTables
    const rest = [...resolutions, { table: 'items', take: 'theirs', token }]
    await branches.merge('dev', { resolutions: rest })
    expect(await read(branches)).toMatchObject({ a: { name: 'dev', price: 10 } })
  })

  it.each(['ours', 'theirs'])('of a whole table do what the strategy %s does', async (take) => {
    const [one, other] = [await contradict(), await contradict()]
    const resolutions = await reviewed(one, [{ table: 'items', take }])
    const { entry: _, ...result } = await one.merge('dev', { resolutions })
    const { entry: __, ...wanted } = await other.merge('dev', { strategy: take })
    expect(result).toEqual(wanted)
    expect(await read(one)).toEqual(await read(other))
  })

  it('take precedence over the strategy', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', take: 'ours' },
      { table: 'items', id: 'd', columns: { name: { value: null } } },
    ])
    await branches.merge('dev', { strategy: 'theirs', resolutions })
    const { a, c, d } = await read(branches)
    expect(a).toMatchObject({ name: 'main', price: 20 })
    expect(c).toMatchObject({ price: 12 })
    expect(d).not.toHaveProperty('name')
  })

  it('decide objects as a whole, and what is in them', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { place: { city: 'Rome' } })
    await branches.patch('main', 'items', 'b', { place: { city: 'Rome' } })
    await branches.pull('dev')
    await branches.patch('dev', 'items', 'a', { place: { city: 'Oslo' } })
    await branches.patch('main', 'items', 'a', { place: { city: 'Bern' } })
    await branches.patch('dev', 'items', 'b', { place: { city: 'Oslo', street: 'Gate' } })
    await branches.patch('main', 'items', 'b', { place: null })
    await branches.put('dev', 'items', 'd', { place: { city: 'Oslo' }, data: [1] })
    await branches.put('main', 'items', 'd', { data: { x: 1 } })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts.map((conflict: MergeConflict) => Object.keys(conflict.columns ?? {}))).toEqual(
      [['place.city'], ['place'], ['place', 'data']],
    )
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', columns: { 'place.city': { value: 'Wien' } } },
      { table: 'items', id: 'b', columns: { place: { take: 'theirs' } } },
      {
        table: 'items',
        id: 'd',
        columns: { place: { value: { street: 'Ring' } }, data: { value: { y: [2] } } },
      },
    ])
    await branches.merge('dev', { resolutions })
    expect(await read(branches)).toMatchObject({
      a: { place: { city: 'Wien' } },
      b: { place: { city: 'Oslo', street: 'Gate' } },
      d: { place: { street: 'Ring' }, data: { y: [2] } },
    })
    expect((await read(branches)).d).not.toHaveProperty('place.city')
  })

  it('give records values that make them unique', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { code: 'X' })
    await branches.put('dev', 'items', 'd', { code: 'X' })
    await branches.put('dev', 'items', 'e', { code: 'Y' })
    const dry = await branches.merge('dev', { dryRun: true })
    expect(dry.conflicts).toMatchObject([{ kind: 'notUnique', ids: ['a', 'd'] }])
    const [{ tokens }] = dry.conflicts
    const give = (id: string, value: unknown) => ({
      table: 'items',
      id,
      columns: { code: { value } },
      token: tokens[id],
    })
    // A value that is taken as well is a conflict again.
    const taken = await branches.merging('dev', { resolutions: [give('d', 'Y')] })
    expect(taken.body.conflicts).toMatchObject([{ kind: 'notUnique', ids: ['d', 'e'] }])
    const notTaken = {
      table: 'items',
      id: 'e',
      columns: { code: { value: 'Z' } },
      token: taken.body.conflicts[0].tokens.e,
    }
    expect(
      await branches.merge('dev', { resolutions: [give('d', 'Y'), notTaken], dryRun: true }),
    ).toMatchObject({ conflictCount: 0 })
    expect(await branches.merge('dev', { resolutions: [give('a', 'W')] })).toMatchObject({
      merged: true,
      tables: [{ inserted: 2, updated: 1 }],
    })
    const { a, d } = await read(branches)
    expect([a, d]).toMatchObject([{ name: 'a', price: 1, code: 'W' }, { code: 'X' }])
  })

  it('give a value to a record that one side has deleted, if a strategy keeps it', async () => {
    const branches = await open()
    await branches.remove('main', 'items', 'c')
    await branches.patch('dev', 'items', 'c', { code: 'X' })
    await branches.patch('main', 'items', 'a', { code: 'X' })
    const rules = { tables: { items: { strategy: 'theirs' } } }
    const dry = await branches.merge('dev', { ...rules, dryRun: true })
    expect(dry.conflicts).toMatchObject([{ kind: 'notUnique', ids: ['a', 'c'] }])
    const given = {
      table: 'items',
      id: 'c',
      columns: { code: { value: 'Y' } },
      token: dry.conflicts[0].tokens.c,
    }
    const undecided = await branches.merging('dev', { resolutions: [given] })
    expect(undecided.body.message).toContain('use [take] instead of [columns]')
    const unneeded = await branches.merging('dev', {
      tables: { items: { strategy: 'ours' } },
      resolutions: [given],
    })
    expect(unneeded.body.message).toContain('column [code] of record [c] is not in conflict')
    expect(await branches.merge('dev', { ...rules, resolutions: [given] })).toMatchObject({
      merged: true,
    })
    expect(await read(branches)).toMatchObject({ a: { code: 'X' }, c: { code: 'Y' } })
  })

  it.each([
    ['main', 'deletedHere', 'theirs'],
    ['dev', 'deletedThere', 'ours'],
  ])('keep a record that %s has deleted, with other values', async (deleted, kind, take) => {
    const link = { table: 'teams', onDelete: 'cascade' } as const
    const branches = await TestBranches.create(service, `cascade-${deleted}`, {
      teams: [{ name: 'name', type: 'string' }],
      items: [
        { name: 'n', type: 'int' },
        { name: 's', type: 'string' },
        { name: 'team', type: 'link', link },
      ],
    })
    for (const id of ['t', 'u']) await branches.put('main', 'teams', id, { name: id })
    for (const id of ['a', 'b']) await branches.put('main', 'items', id, { n: 1, team: 't' })
    await branches.fork('dev')
    await branches.remove(deleted, 'teams', 't')
    const other = deleted === 'main' ? 'dev' : 'main'
    for (const id of ['a', 'b']) await branches.patch(other, 'items', id, { n: 2, s: 'kept' })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    const tokens: Record<string, string> = {}
    for (const { id, token } of conflicts) if (id !== undefined) tokens[id] = token
    expect(conflicts.slice(0, 2)).toMatchObject([{ kind, id: 'a' }, { kind }])
    const resolution = (id: string, columns: object) => ({
      ...{ table: 'items', id, take, columns },
      token: tokens[id],
    })
    const resolutions = [
      resolution('a', { team: { value: 'u' } }),
      resolution('b', { team: { value: null }, n: { value: 5 } }),
    ]
    expect(await branches.merge('dev', { resolutions, dryRun: true })).toMatchObject({
      conflictCount: 0,
    })
    await branches.merge('dev', { resolutions })
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual({
      a: { n: 2, s: 'kept', team: { id: 'u' } },
      b: { n: 5, s: 'kept' },
    })
  })

  it('take a side for all columns but those that get a value', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { name: 'ours', price: 11 })
    await branches.patch('dev', 'items', 'a', { name: 'theirs', price: 12 })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    const [{ token }] = conflicts
    const columns = { price: { value: 13 } }
    await branches.merge('dev', {
      resolutions: [{ table: 'items', id: 'a', take: 'theirs', columns, token }],
    })
    expect((await read(branches)).a).toMatchObject({ name: 'theirs', price: 13 })
  })

  it('give records the values that a new column requires', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    const column = { name: 'by', type: 'string', notNull: true } as const
    await branches.edit('dev', { addColumn: { table: 'notes', column } })
    await branches.put('main', 'notes', 'n', { text: 'N' })
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'notNull', ids: ['n'] }])
    const give = (value: unknown) => [
      {
        table: 'notes',
        id: 'n',
        columns: { by: { value } },
        token: conflicts[0].tokens.n,
      },
    ]
    expect(refusalOf(await branches.merging('dev', { resolutions: give(null) }))).toEqual([
      400,
      'invalid_resolution',
      'body: field [resolutions.0]: table [notes]: column [by]: cannot be null; nothing was merged',
    ])
    await branches.merge('dev', { resolutions: give('Ada') })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { text: 'N', by: 'Ada' } })
  })

  it('decide conflicts of the schema, of a table or a single column', async () => {
    const branches = await open()
    const rename = (newName: string) => ({
      renameColumn: { table: 'items', oldName: 'name', newName },
    })
    await branches.edit('dev', rename('title'), {
      removeColumn: { table: 'items', column: 'price' },
    })
    await branches.edit('main', rename('label'))
    await branches.patch('main', 'items', 'a', { price: 30 })
    await branches.patch('main', 'items', 'b', { stock: 7 })
    await branches.patch('dev', 'items', 'b', { stock: 8 })
    const dry = await branches.merge('dev', { dryRun: true })
    expect(dry.conflicts).toMatchObject([
      { kind: 'schema', column: 'label', takes: ['ours', 'theirs'] },
      { kind: 'schema', column: 'price', takes: ['ours', 'theirs'], records: 1 },
    ])
    const resolutions = await reviewed(branches, [
      { table: 'items', kind: 'schema', column: 'label', take: 'theirs' },
      { table: 'items', kind: 'schema', column: 'price', take: 'ours' },
    ])
    // Now the records can be compared.
    const left = await branches.merge('dev', { dryRun: true, resolutions })
    expect(left.conflicts).toMatchObject([{ id: 'b', columns: { stock: {} } }])
    const [{ token }] = left.conflicts
    const all = [...resolutions, { table: 'items', id: 'b', take: 'theirs', token }]
    expect(await branches.merge('dev', { resolutions: all })).toMatchObject({ merged: true })
    expect((await branches.schema('main')).items).toEqual([
      'title',
      'price',
      'code',
      'stock',
      'place',
      'data',
    ])
    expect(await read(branches)).toMatchObject({ a: { price: 30 }, b: { stock: 8 } })
  })

  it('decide about a removed table', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    await branches.edit('dev', { removeTable: { table: 'notes' } })
    await branches.put('main', 'notes', 'n', { text: 'N' })
    const settle = async (take: string) => ({
      resolutions: await reviewed(branches, [{ table: 'notes', kind: 'schema', take }]),
    })
    expect(refusalOf(await branches.merging('dev', await settle('theirs'))).slice(0, 2)).toEqual([
      409,
      'data_loss',
    ])
    expect(await branches.merge('dev', await settle('ours'))).toMatchObject({ merged: true })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { text: 'N' } })
  })
})

describe('a resolution is refused, and nothing is merged,', () => {
  it.each(['main', 'dev'])('if the record has changed on %s since', async (branch) => {
    const branches = await contradict()
    const decided = await reviewed(branches, [{ table: 'items', id: 'a', take: 'theirs' }])
    await branches.patch(branch, 'items', 'a', { name: 'later' })
    const before = await read(branches)
    const resolutions = [
      ...decided,
      ...(await reviewed(branches, [{ table: 'items', take: 'ours' }])),
    ]
    for (const dryRun of [true, false]) {
      const answer = await branches.merging('dev', { resolutions, dryRun })
      expect(refusalOf(answer)).toEqual([
        409,
        'outdated_resolution',
        'body: field [resolutions.0]: record [a] of table [items] has changed since; nothing was merged',
      ])
      expect(answer.body.errors).toMatchObject([{ index: 0, status: 409 }])
    }
    expect(await read(branches)).toEqual(before)
  })

  it('if the record was deleted or created anew since', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', take: 'ours' },
      { table: 'items', id: 'c', take: 'ours' },
    ])
    await branches.remove('main', 'items', 'a')
    await branches.put('main', 'items', 'c', { name: 'again' })
    const { body } = await branches.merging('dev', { resolutions })
    expect(body.code).toBe('outdated_resolution')
    expect(body.errors).toMatchObject([{ index: 0 }, { index: 1 }])
  })

  it('if the record was deleted and created anew with other values, whatever its version is', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'd', take: 'theirs' },
      { table: 'items', take: 'ours' },
    ])
    const { version } = (await branches.record('main', 'items', 'd')).service
    await branches.remove('main', 'items', 'd')
    await branches.put('main', 'items', 'd', { name: 'again', price: 13 })
    await service.database.query(sql`
      update ${raw(await heapOfItems(branches))} set version = ${version}::integer where id = 'd'`)
    expect((await branches.record('main', 'items', 'd')).service.version).toBe(version)
    const { body } = await branches.merging('dev', { resolutions })
    expect(body.code).toBe('outdated_resolution')
    expect(body.errors).toMatchObject([{ index: 0 }, { index: 1 }])
    expect((await read(branches)).d).toMatchObject({ name: 'again' })
  })

  it('if the branch was reset to a state with other values', async () => {
    const branches = await contradict()
    await branches.fork('same', 'main')
    await branches.fork('other', 'main')
    await branches.patch('other', 'items', 'a', { name: 'other' })
    const decisions = [{ table: 'items', id: 'a', take: 'theirs' }]
    const resolutions = await reviewed(branches, decisions)
    await branches.reset('main', 'other')
    expect((await branches.merging('dev', { resolutions })).body.code).toBe('outdated_resolution')
    // What was reviewed is there again.
    await branches.reset('main', 'same')
    const [token] = (await reviewed(branches, decisions)).map((decided) => decided.token)
    expect(token).toBe(resolutions[0]?.token)
  })

  it('if columns have exchanged their names since', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', columns: { name: { take: 'ours' } } },
    ])
    const rename = (oldName: string, newName: string) => ({
      renameColumn: { table: 'items', oldName, newName },
    })
    await branches.edit('main', rename('name', 'x'), rename('price', 'name'), rename('x', 'price'))
    expect((await branches.merging('dev', { resolutions })).body.code).toBe('outdated_resolution')
  })

  it('if the schema was changed again, or further records would be lost with a removal', async () => {
    const branches = await open()
    const rename = (oldName: string, newName: string) => ({
      renameColumn: { table: 'items', oldName, newName },
    })
    await branches.edit('dev', rename('name', 'title'), {
      removeColumn: { table: 'items', column: 'price' },
    })
    await branches.edit('main', rename('name', 'label'))
    await branches.patch('main', 'items', 'a', { price: 30 })
    const resolutions = await reviewed(branches, [
      { table: 'items', kind: 'schema', column: 'label', take: 'theirs' },
      { table: 'items', kind: 'schema', column: 'price', take: 'theirs' },
    ])
    // The number of changed records stays the same.
    await branches.patch('main', 'items', 'a', { price: 31 })
    await branches.edit('dev', rename('title', 'heading'))
    const refused = await branches.merging('dev', { resolutions, allowDataLoss: true })
    expect(refusalOf(refused)).toEqual([
      409,
      'outdated_resolution',
      'body: field [resolutions.0]: the conflict of the schema of column [items.label] has changed since (and 1 more); nothing was merged',
    ])
    expect(refused.body.errors).toMatchObject([{ index: 0 }, { index: 1 }])
    expect(refused.body.conflicts).toMatchObject([{ column: 'label' }, { column: 'price' }])
    expect((await read(branches)).a).toMatchObject({ label: 'a', price: 31 })
  })

  const cases: readonly (readonly [string, Decision & Record<string, unknown>, string])[] = [
    ['an unknown table', { table: 'nothing', id: 'a', take: 'ours' }, 'table [nothing] not found'],
    ['a whole unknown table', { table: 'nothing', take: 'ours' }, 'table [nothing] not found'],
    [
      'the schema of an unknown column',
      { table: 'items', kind: 'schema', column: 'no', take: 'ours' },
      'column [items.no] not found',
    ],
    [
      'a schema without a conflict',
      { table: 'items', kind: 'schema', take: 'ours' },
      'the schema of table [items] is not in conflict',
    ],
    [
      'an unknown record',
      { table: 'items', id: 'nobody', take: 'ours' },
      'table [items]: record [nobody] not found on either branch',
    ],
    [
      'a record without a conflict',
      { table: 'items', id: 'e', take: 'ours' },
      'table [items]: record [e] is not in conflict',
    ],
    [
      'an unknown column',
      { table: 'items', id: 'a', columns: { no: { value: 1 } } },
      'table [items]: column [no] not found',
    ],
    [
      'a column without a conflict',
      { table: 'items', id: 'a', columns: { data: { take: 'ours' } } },
      'table [items]: column [data] of record [a] is not in conflict',
    ],
    [
      'a unique column without a conflict',
      { table: 'items', id: 'e', columns: { code: { value: 'Z' } } },
      'table [items]: column [code] of record [e] is not in conflict',
    ],
    [
      'columns of a deleted record',
      { table: 'items', id: 'b', columns: { price: { value: 1 } } },
      'table [items]: one side deleted record [b]; use [take] instead of [columns], or both to keep it with other values',
    ],
    [
      'a value of the wrong type',
      { table: 'items', id: 'a', columns: { price: { value: 'ten' } } },
      'table [items]: column [price]: expected a whole number, got a string',
    ],
    [
      'an operator instead of a value',
      { table: 'items', id: 'a', columns: { price: { value: { $increment: 1 } } } },
      'table [items]: column [price]: expected a whole number, got an object',
    ],
    [
      'both a side and a value',
      { table: 'items', id: 'a', columns: { price: { value: 1, take: 'ours' } } },
      'column [price]: either [take] or [value] is required',
    ],
    ['neither a side nor columns', { table: 'items', id: 'a' }, '[take] or [columns] is required'],
    [
      'columns of a record that is deleted',
      { table: 'items', id: 'b', take: 'theirs', columns: { price: { value: 1 } } },
      'table [items]: [take] deletes record [b], so it has no [columns]',
    ],
    [
      'a column of the side that has deleted the record',
      { table: 'items', id: 'b', take: 'ours', columns: { price: { take: 'theirs' } } },
      'table [items]: column [price]: the other side has no value; use [value]',
    ],
    ['nothing', { table: 'items' }, 'field [take] is required'],
    [
      'columns of no record',
      { table: 'items', columns: { price: { value: 1 } } },
      'field [columns] needs [id]',
    ],
    [
      'a column of no schema',
      { table: 'items', column: 'price', take: 'ours' },
      'field [column] needs [kind]',
    ],
    [
      'both a record and a schema',
      { table: 'items', id: 'a', kind: 'schema', take: 'ours' },
      'fields [kind] and [id] exclude each other',
    ],
  ]

  it('if it does not fit a conflict, with the reason', async () => {
    const branches = await contradict()
    // The token of a record that is not in conflict comes from a conflict with another one.
    await branches.put('dev', 'items', 'e', { name: 'new', code: 'E' })
    await branches.put('main', 'items', 'x', { code: 'E' })
    const decided = await reviewed(
      branches,
      cases.map(([, resolution]) => resolution),
    )
    await branches.patch('main', 'items', 'x', { code: 'F' })
    const before = await read(branches)
    for (const [index, [name, , message]] of cases.entries()) {
      const resolutions = decided.slice(index, index + 1)
      const answer = await branches.merging('dev', { resolutions })
      expect(refusalOf(answer), name).toEqual([
        400,
        'invalid_resolution',
        `body: field [resolutions.0]: ${message}; nothing was merged`,
      ])
      expect(answer.body.errors, name).toMatchObject([{ index: 0, status: 400 }])
    }
    const { body } = await branches.merging('dev', { resolutions: decided.slice(4, 7) })
    expect(body.message).toContain('(and 2 more)')
    expect(await read(branches)).toEqual(before)
  })

  it('if another one decides the same', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      { table: 'items', id: 'a', take: 'ours' },
      { table: 'items', id: 'a', columns: { price: { value: 1 } } },
    ])
    expect(refusalOf(await branches.merging('dev', { resolutions }))[2]).toBe(
      'body: field [resolutions.1]: decides the same as field [resolutions.0]; nothing was merged',
    )
  })

  it('if the table has no conflict that it could decide', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [
      ...['a', 'b', 'c', 'd'].map((id) => ({ table: 'items', id, take: 'ours' })),
      { table: 'items', take: 'ours' },
    ])
    expect(refusalOf(await branches.merging('dev', { resolutions }))[2]).toContain(
      'field [resolutions.4]: table [items] has no conflict of records that no other resolution decides',
    )
    const skipped = { tables: { items: { mode: 'skip' } } }
    const left = await branches.merging('dev', { ...skipped, resolutions: resolutions.slice(0, 1) })
    expect(refusalOf(left)[2]).toContain('table [items] is left out of the merge')
  })

  it('if there are more than the limit, or the body is larger', async () => {
    const branches = await contradict()
    const many = (count: number) =>
      Array.from({ length: count }, (_, index) => ({
        table: 'items',
        id: `n${index}`,
        take: 'ours',
        token: 'none',
      }))
    const fits = await branches.merging('dev', { resolutions: many(LIMITS.resolutionsMax) })
    expect([fits.status, fits.body.code]).toEqual([400, 'invalid_resolution'])
    expect(fits.body.errors).toHaveLength(1000)
    const over = await branches.merging('dev', { resolutions: many(LIMITS.resolutionsMax + 1) })
    expect([over.status, over.body.code]).toEqual([400, 'invalid_request'])
    const padded = (bytes: number) => {
      const columns = { name: { value: '' } }
      const body = { resolutions: [{ table: 'items', id: 'nobody', columns, token: 'none' }] }
      const text = JSON.stringify(body)
      return text.replace('"value":""', `"value":"${'x'.repeat(bytes - text.length)}"`)
    }
    const headers = { 'content-type': 'application/json' }
    const send = (bytes: number) =>
      branches.call('dev', 'POST', '/merge', padded(bytes), { headers })
    expect((await send(2 * 1024 * 1024)).body.code).toBe('invalid_resolution')
    expect((await send(2 * 1024 * 1024 + 1)).status).toBe(413)
  })
})

describe('a resolution of a whole table', () => {
  const changes: readonly (readonly [string, (branches: TestBranches) => Promise<void>])[] = [
    ['a record in conflict is changed here', (b) => b.patch('main', 'items', 'a', { price: 99 })],
    ['a record in conflict is changed there', (b) => b.patch('dev', 'items', 'a', { price: 99 })],
    ['a record in conflict is deleted', (b) => b.remove('main', 'items', 'd')],
    ['another record gets into conflict', (b) => b.put('main', 'items', 'e', { name: 'here' })],
    ['a conflict is gone', (b) => b.patch('main', 'items', 'd', { name: 'dev' })],
  ]

  it.each(changes)('is refused, and the conflicts are listed again, if %s', async (_, change) => {
    const branches = await contradict()
    await branches.put('dev', 'items', 'e', { name: 'there' })
    const resolutions = await reviewed(branches, [{ table: 'items', take: 'theirs' }])
    await change(branches)
    const before = await read(branches)
    const now = await branches.merge('dev', { dryRun: true })
    const refused = await branches.merging('dev', { resolutions })
    expect(refusalOf(refused)).toEqual([
      409,
      'outdated_resolution',
      'body: field [resolutions.0]: the conflicts of table [items] have changed since; nothing was merged',
    ])
    expect(refused.body.errors).toMatchObject([{ index: 0, status: 409 }])
    const { conflicts, conflictCount, conflictTables } = refused.body
    expect({ conflicts, conflictCount, conflictTables }).toEqual({
      conflicts: now.conflicts,
      conflictCount: now.conflictCount,
      conflictTables: now.conflictTables,
    })
    expect(await read(branches)).toEqual(before)
    const again = await reviewed(branches, [{ table: 'items', take: 'theirs' }])
    expect(await branches.merge('dev', { resolutions: again })).toMatchObject({ merged: true })
  })

  it('is not affected by other records', async () => {
    const branches = await contradict()
    const resolutions = await reviewed(branches, [{ table: 'items', take: 'theirs' }])
    await branches.put('main', 'items', 'x', { name: 'x' })
    await branches.put('dev', 'items', 'y', { name: 'y' })
    expect(await branches.merge('dev', { resolutions })).toMatchObject({ merged: true })
    expect(await branches.read('main', 'items', ['a', 'x', 'y'])).toMatchObject({
      a: { name: 'dev', price: 10 },
      x: { name: 'x' },
      y: { name: 'y' },
    })
  })

  it.each([
    ['of the conflict', { table: 'items', id: 'a', take: 'ours' }],
    ['of the conflict', { table: 'items', id: 'a', columns: { name: { take: 'ours' } } }],
    ['of the conflict', { table: 'items', kind: 'schema', take: 'ours' }],
    ['of the table in [conflictTables]', { table: 'items', take: 'ours' }],
  ])('needs the token %s, as other resolutions do', async (where, resolution) => {
    const branches = await contradict()
    const { status, body } = await branches.merging('dev', { resolutions: [resolution] })
    expect([status, body.code]).toEqual([400, 'invalid_resolution'])
    expect(body.message).toContain(
      `body: field [resolutions.0]: field [token] is required; it repeats the [token] ${where}`,
    )
  })
})

describe('a page of conflicts', () => {
  it('continues after the cursor of the previous one, through tables and kinds', async () => {
    const branches = await open({ notes: [{ name: 'text', type: 'text' }] })
    for (const [branch, name] of [
      ['main', 'here'],
      ['dev', 'there'],
    ] as const) {
      const records = Array.from({ length: 5 }, (_, index) => ({
        id: `n${index}`,
        name,
      }))
      await branches.bulk(branch, 'items', records)
      await branches.bulk(branch, 'items', [{ id: `u-${branch}`, code: 'X' }])
      await branches.bulk(
        branch,
        'notes',
        records.map(({ id }) => ({ id, text: name })),
      )
    }
    const whole = await branches.merge('dev', { dryRun: true })
    expect(whole.conflictCount).toBe(11)
    expect(whole.conflictTables).toEqual([
      { name: 'items', conflicts: 6, token: expect.any(String) },
      { name: 'notes', conflicts: 5, token: expect.any(String) },
    ])
    expect(whole.conflicts).toHaveLength(11)
    expect(whole.cursor).toBeUndefined()
    for (const size of [2, 5]) {
      const found: unknown[] = []
      for (let after: string | undefined; ; ) {
        const page = await branches.merge('dev', {
          dryRun: true,
          page: { size, ...(after === undefined ? {} : { after }) },
        })
        expect(page.conflictCount).toBe(11)
        found.push(...page.conflicts)
        after = page.cursor
        if (after === undefined) break
        expect(page.conflicts).toHaveLength(size)
      }
      expect(found).toEqual(whole.conflicts)
    }
    const counted = await branches.merge('dev', { dryRun: true, page: { size: 0 } })
    expect([counted.conflictCount, counted.conflicts, counted.cursor]).toEqual([11, [], undefined])
    const refused = await branches.merging('dev', { page: { size: 3 } })
    expect([refused.status, refused.body.conflicts]).toEqual([409, whole.conflicts.slice(0, 3)])
    expect(refused.body.cursor).toEqual(expect.any(String))
  })

  it('is refused with a cursor that is none, or without a dry run', async () => {
    const branches = await contradict()
    for (const after of [
      'x',
      '1:rows:a',
      '0:rows:\u0000',
      '0:schema:x',
      `0:schema:${'9'.repeat(20)}`,
    ]) {
      const answer = await branches.merging('dev', { dryRun: true, page: { after } })
      expect([answer.status, answer.body.code], after).toEqual([400, 'invalid_request'])
    }
    const { body } = await branches.merging('dev', { page: { after: 'x' } })
    expect(body.message).toBe('body: field [page.after]: needs [dryRun]')
    for (const size of [-1, LIMITS.pageSizeMax + 1]) {
      expect((await branches.merging('dev', { dryRun: true, page: { size } })).status).toBe(400)
    }
  })
})

it('takes a value for a column in conflict before the strategy, so that it breaks no rule', async () => {
  const branches = await open()
  await branches.patch('main', 'items', 'b', { code: 'taken' })
  await branches.patch('main', 'items', 'a', { code: 'main' })
  await branches.patch('dev', 'items', 'a', { code: 'taken' })
  const body = { into: 'main', strategy: 'theirs' }
  const listed = await branches.merging('dev', { ...body, dryRun: true })
  const [conflict] = listed.body.conflicts
  expect(conflict).toMatchObject({ kind: 'notUnique', column: 'code', ids: ['a', 'b'] })
  const resolve = (id: string, value: string | null) => ({
    table: 'items',
    id,
    token: conflict.tokens[id],
    columns: { code: { value } },
  })
  const both = [resolve('a', 'given'), resolve('b', null)]
  const refused = await branches.merging('dev', { ...body, resolutions: both })
  expect(refused).toMatchObject({ status: 400, body: { code: 'invalid_resolution' } })
  expect(refused.body.errors).toMatchObject([{ index: 1 }])
  await branches.merge('dev', { ...body, resolutions: both.slice(0, 1) })
  expect(await branches.read('main', 'items', ['a', 'b'])).toMatchObject({
    a: { code: 'given' },
    b: { code: 'taken' },
  })
})
