import { LIMITS } from '@offshoot/contract/limits'
import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
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
const conflictOf = async (branches: TestBranches, id: string): Promise<MergeConflict> => {
  const { conflicts } = await branches.merge('dev', { dryRun: true })
  return conflicts.find((conflict: MergeConflict) => conflict.id === id)
}
const refusalOf = ({ status, body }: Answer) => [status, body.code, body.message]

describe('resolutions', () => {
  it('decide each record as a whole, and the rest of the changes is merged', async () => {
    const branches = await contradict()
    const resolutions = [
      { table: 'items', id: 'a', take: 'theirs' },
      { table: 'items', id: 'b', take: 'theirs' },
      { table: 'items', id: 'c', take: 'theirs' },
      { table: 'items', id: 'd', take: 'ours' },
    ]
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
    const resolutions = ['a', 'b', 'c', 'd'].map((id) => ({ table: 'items', id, take: 'ours' }))
    const before = await read(branches, 'dev')
    expect(await branches.pull('dev', { resolutions })).toMatchObject({ merged: true })
    expect(await read(branches, 'dev')).toEqual(before)
    const other = await contradict()
    await other.pull('dev', {
      resolutions: resolutions.map((resolution) => ({ ...resolution, take: 'theirs' })),
    })
    expect(await read(other, 'dev')).toMatchObject({
      a: { name: 'main', price: 20, stock: 5 },
      b: { price: 21 },
      d: { name: 'main' },
    })
    expect(await other.record('dev', 'items', 'c')).toBeUndefined()
  })

  it('decide single columns, by a side or by a value', async () => {
    const branches = await contradict()
    const { versions } = await conflictOf(branches, 'a')
    const resolutions = [
      {
        table: 'items',
        id: 'a',
        columns: { name: { take: 'ours' }, price: { value: 15 } },
        versions,
      },
      { table: 'items', take: 'ours' },
    ]
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
    const resolutions = [
      { table: 'items', id: 'a', columns: { name: { take: 'theirs' } } },
      { table: 'items', id: 'b', take: 'ours' },
      { table: 'items', id: 'c', take: 'ours' },
      { table: 'items', id: 'd', take: 'theirs' },
    ]
    const left = await branches.merge('dev', { resolutions, dryRun: true })
    expect(left).toMatchObject({
      merged: false,
      conflictCount: 1,
      conflictTables: [{ name: 'items', conflicts: 1 }],
      conflicts: [{ id: 'a', kind: 'bothUpdated' }],
      tables: [{ name: 'items', updated: 1 }],
    })
    expect(left.conflicts[0].columns).toEqual({ price: { base: 1, ours: 20, theirs: 10 } })
    const before = await read(branches)
    expect((await branches.merging('dev', { resolutions })).body.code).toBe('merge_conflict')
    expect(await read(branches)).toEqual(before)
    // The decision about the table takes the rest of the record.
    const rest = [...resolutions, { table: 'items', take: 'theirs' }]
    await branches.merge('dev', { resolutions: rest })
    expect(await read(branches)).toMatchObject({ a: { name: 'dev', price: 10 } })
  })

  it.each(['ours', 'theirs'])('of a whole table do what the strategy %s does', async (take) => {
    const [one, other] = [await contradict(), await contradict()]
    const result = await one.merge('dev', { resolutions: [{ table: 'items', take }] })
    expect(result).toEqual(await other.merge('dev', { strategy: take }))
    expect(await read(one)).toEqual(await read(other))
  })

  it('take precedence over the strategy', async () => {
    const branches = await contradict()
    const resolutions = [
      { table: 'items', id: 'a', take: 'ours' },
      { table: 'items', id: 'd', columns: { name: { value: null } } },
    ]
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
    const resolutions = [
      { table: 'items', id: 'a', columns: { 'place.city': { value: 'Wien' } } },
      { table: 'items', id: 'b', columns: { place: { take: 'theirs' } } },
      {
        table: 'items',
        id: 'd',
        columns: { place: { value: { street: 'Ring' } }, data: { value: { y: [2] } } },
      },
    ]
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
    const [{ versions }] = dry.conflicts
    const give = (id: string, value: unknown) => ({
      table: 'items',
      id,
      columns: { code: { value } },
      versions: versions[id],
    })
    // A value that is taken as well is a conflict again.
    const taken = await branches.merging('dev', { resolutions: [give('d', 'Y')] })
    expect(taken.body.conflicts).toMatchObject([{ kind: 'notUnique', ids: ['d', 'e'] }])
    const notTaken = { table: 'items', id: 'e', columns: { code: { value: 'Z' } } }
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
        versions: conflicts[0].versions.n,
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
    const resolutions = [
      { table: 'items', kind: 'schema', column: 'label', take: 'theirs' },
      { table: 'items', kind: 'schema', column: 'price', take: 'ours' },
    ]
    // Now the records can be compared.
    const left = await branches.merge('dev', { dryRun: true, resolutions })
    expect(left.conflicts).toMatchObject([{ id: 'b', columns: { stock: {} } }])
    const all = [...resolutions, { table: 'items', id: 'b', take: 'theirs' }]
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
    const settle = (take: string) => ({ resolutions: [{ table: 'notes', kind: 'schema', take }] })
    expect(refusalOf(await branches.merging('dev', settle('theirs'))).slice(0, 2)).toEqual([
      409,
      'data_loss',
    ])
    expect(await branches.merge('dev', settle('ours'))).toMatchObject({ merged: true })
    expect(await branches.read('main', 'notes', ['n'])).toEqual({ n: { text: 'N' } })
  })
})

describe('a resolution is refused, and nothing is merged,', () => {
  it.each(['main', 'dev'])('if the record has changed on %s since', async (branch) => {
    const branches = await contradict()
    const { versions } = await conflictOf(branches, 'a')
    await branches.patch(branch, 'items', 'a', { name: 'later' })
    const before = await read(branches)
    const resolutions = [
      { table: 'items', id: 'a', take: 'theirs', versions },
      { table: 'items', take: 'ours' },
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
    const [a, c] = [await conflictOf(branches, 'a'), await conflictOf(branches, 'c')]
    await branches.remove('main', 'items', 'a')
    await branches.put('main', 'items', 'c', { name: 'again' })
    const resolutions = [
      { table: 'items', id: 'a', take: 'ours', versions: a.versions },
      { table: 'items', id: 'c', take: 'ours', versions: c.versions },
    ]
    const { body } = await branches.merging('dev', { resolutions })
    expect(body.code).toBe('outdated_resolution')
    expect(body.errors).toMatchObject([{ index: 0 }, { index: 1 }])
  })

  it('if it has the versions of another state of the branch', async () => {
    const branches = await contradict()
    const { versions } = await conflictOf(branches, 'a')
    await branches.fork('copy', 'main')
    await branches.patch('copy', 'items', 'a', { price: 4 })
    await branches.reset('main', 'copy')
    const resolutions = [{ table: 'items', id: 'a', take: 'ours', versions }]
    const { body } = await branches.merging('dev', { resolutions })
    expect(body.code).toBe('outdated_resolution')
  })

  const cases: readonly (readonly [string, object, string])[] = [
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
      'table [items]: one side deleted record [b]; use [take] instead of [columns]',
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
    [
      'neither a side nor columns',
      { table: 'items', id: 'a' },
      'either [take] or [columns] is required',
    ],
    [
      'both a side and columns',
      { table: 'items', id: 'a', take: 'ours', columns: { price: { value: 1 } } },
      'either [take] or [columns] is required',
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
    [
      'versions of no record',
      { table: 'items', take: 'ours', versions: { ours: 1, theirs: 1 } },
      'field [versions] needs [id]',
    ],
  ]

  it('if it does not fit a conflict, with the reason', async () => {
    const branches = await contradict()
    await branches.put('dev', 'items', 'e', { name: 'new' })
    const before = await read(branches)
    for (const [name, resolution, message] of cases) {
      const answer = await branches.merging('dev', { resolutions: [resolution] })
      expect(refusalOf(answer), name).toEqual([
        400,
        'invalid_resolution',
        `body: field [resolutions.0]: ${message}; nothing was merged`,
      ])
      expect(answer.body.errors, name).toMatchObject([{ index: 0, status: 400 }])
    }
    const several = cases.slice(4, 7).map(([, resolution]) => resolution)
    const { body } = await branches.merging('dev', { resolutions: several })
    expect(body.message).toContain('(and 2 more)')
    expect(await read(branches)).toEqual(before)
  })

  it('if another one decides the same', async () => {
    const branches = await contradict()
    const resolutions = [
      { table: 'items', id: 'a', take: 'ours' },
      { table: 'items', id: 'a', columns: { price: { value: 1 } } },
    ]
    expect(refusalOf(await branches.merging('dev', { resolutions }))[2]).toBe(
      'body: field [resolutions.1]: decides the same as field [resolutions.0]; nothing was merged',
    )
  })

  it('if the table has no conflict that it could decide', async () => {
    const branches = await contradict()
    const resolutions = [
      ...['a', 'b', 'c', 'd'].map((id) => ({ table: 'items', id, take: 'ours' })),
      { table: 'items', take: 'ours' },
    ]
    expect(refusalOf(await branches.merging('dev', { resolutions }))[2]).toContain(
      'field [resolutions.4]: table [items] has no conflict that no other resolution decides',
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
      }))
    const fits = await branches.merging('dev', { resolutions: many(LIMITS.resolutionsMax) })
    expect([fits.status, fits.body.code]).toEqual([400, 'invalid_resolution'])
    expect(fits.body.errors).toHaveLength(1000)
    const over = await branches.merging('dev', { resolutions: many(LIMITS.resolutionsMax + 1) })
    expect([over.status, over.body.code]).toEqual([400, 'invalid_request'])
    const padded = (bytes: number) => {
      const body = { resolutions: [{ table: 'items', id: 'a', columns: { name: { value: '' } } }] }
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
      { name: 'items', conflicts: 6 },
      { name: 'notes', conflicts: 5 },
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
