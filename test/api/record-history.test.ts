import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { restoreDatabase } from '../../packages/server/src/backup/restore-database.js'
import { inChunks, makeArchive, openForBackup } from '../support/archive.js'
import { TestBranches } from '../support/branches.js'
import { TYPE_COLUMNS, TYPE_VALUES } from '../support/every-type.js'
import { createTestService, REGIONS, type TestService } from '../support/service.js'
import { expectOk, TIME } from '../support/tables.js'
import { openWire } from '../support/wire-clients.js'

let service: TestService
/** A process that compares most merges without locks, and publishes most of their rows as layers. */
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

type Values = Readonly<Record<string, unknown>>

const COLUMNS = [
  { name: 'name', type: 'string' },
  { name: 'price', type: 'int' },
] as const

/** A database whose table `items` keeps versions, and `plain` does not. */
async function open(via = service): Promise<TestBranches> {
  const created = await TestBranches.create(service, `history${++number}`, {
    items: COLUMNS,
    plain: COLUMNS,
  })
  await keep(created, '30d')
  return created.through(via)
}

const keep = async (branches: TestBranches, kept: string | null, branch = 'main') =>
  expectOk(
    await branches.call(branch, 'PATCH', '/tables/items', {
      history: kept === null ? null : { keep: kept },
    }),
  )

const reading = (branches: TestBranches, id: string, branch = 'main', query = '') =>
  branches.call(branch, 'GET', `/tables/items/data/${id}/history${query}`)

async function history(branches: TestBranches, id: string, branch = 'main', query = '') {
  return expectOk(await reading(branches, id, branch, query)).body
}

/** The versions of a record, newest first: the operation and the price. */
async function steps(branches: TestBranches, id: string, branch = 'main', query = '') {
  const { versions } = await history(branches, id, branch, query)
  return versions.map(
    ({ operation, record }: { operation: string; record: { price: number } | null }) =>
      `${operation} ${record?.price ?? ''}`.trim(),
  )
}

const restore = (branches: TestBranches, id: string, version: string, branch = 'main') =>
  branches.call(branch, 'POST', `/tables/items/data/${id}/history/${version}/restore`)

const transact = async (branches: TestBranches, operations: readonly object[]) =>
  expectOk(await branches.call('main', 'POST', '/transaction', { operations }))

const run = async (branches: TestBranches, statement: string) =>
  expectOk(await branches.call('main', 'POST', '/sql', { statement }))

describe('the versions of a record', () => {
  it('say who did what and when, with the cells that differ', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { name: 'pen', price: 1 })
    await branches.patch('main', 'items', 'a', { price: 2 })
    await branches.patch('main', 'items', 'a', { name: null })
    await branches.remove('main', 'items', 'a')
    const { versions, meta } = await history(branches, 'a')
    expect(meta).toEqual({ cursor: versions[3].version, more: false })
    const by = { user: expect.stringMatching(/^usr_/), email: expect.any(String) }
    const known = { at: expect.stringMatching(TIME), key: expect.any(String), ...by }
    expect(versions).toEqual([
      { ...known, version: expect.any(String), operation: 'delete', record: null },
      {
        ...{ ...known, version: expect.any(String), operation: 'update' },
        record: { id: 'a', price: 2, service: expect.objectContaining({ version: 2 }) },
        changes: { name: { from: 'pen', to: null } },
      },
      {
        ...{ ...known, version: expect.any(String), operation: 'update' },
        record: { id: 'a', name: 'pen', price: 2, service: expect.anything() },
        changes: { price: { from: 1, to: 2 } },
      },
      {
        ...{ ...known, version: expect.any(String), operation: 'insert' },
        record: { id: 'a', name: 'pen', price: 1, service: expect.anything() },
      },
    ])
  })

  it('are read in pages, newest first', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 0 })
    for (const price of [1, 2, 3, 4]) await branches.patch('main', 'items', 'a', { price })
    const first = await history(branches, 'a', 'main', '?size=2')
    expect(first.versions.map(({ changes }: { changes: object }) => changes)).toEqual([
      { price: { from: 3, to: 4 } },
      { price: { from: 2, to: 3 } },
    ])
    expect(first.meta.more).toBe(true)
    const page = `?size=2&cursor=${first.meta.cursor}`
    const second = await history(branches, 'a', 'main', page)
    expect(second.versions[1].changes).toEqual({ price: { from: 0, to: 1 } })
    expect(second.meta.more).toBe(true)
    const last = await history(branches, 'a', 'main', `?size=2&cursor=${second.meta.cursor}`)
    expect(last.versions.map(({ operation }: { operation: string }) => operation)).toEqual([
      'insert',
    ])
    expect(last.meta.more).toBe(false)
  })

  it('are made by every way to write', async () => {
    const branches = await open()
    await branches.bulk('main', 'items', [{ id: 'a', price: 1 }])
    await transact(branches, [{ update: { table: 'items', id: 'a', fields: { price: 2 } } }])
    await run(branches, "update items set price = 3 where id = 'a'")
    expectOk(
      await branches.call('main', 'PATCH', '/tables/items/data', {
        filter: { price: 3 },
        set: { price: 4 },
      }),
    )
    expectOk(
      await branches.call('main', 'POST', '/tables/items/upsert', {
        records: [{ id: 'a', price: 5 }],
      }),
    )
    const headers = { 'content-type': 'application/x-ndjson' }
    expectOk(
      await branches.call(
        'main',
        'POST',
        '/tables/items/bulk?mode=atomic&existing=replace',
        '{"id":"a","price":6}\n{"id":"b","price":1}\n',
        { headers },
      ),
    )
    const wire = await openWire(service)
    const client = await wire.connect(`${branches.database}:main`)
    await client.query('begin')
    await client.query("update items set price = 7 where id = 'a'")
    await client.query('commit')
    await wire.close()
    await transact(branches, [{ delete: { table: 'items', id: 'a' } }])
    expect(await steps(branches, 'a')).toEqual([
      'delete',
      ...[7, 6, 5, 4, 3, 2].map((price) => `update ${price}`),
      'insert 1',
    ])
    const { versions } = await history(branches, 'a')
    for (const { key, user } of versions) expect([key, user]).not.toContain(undefined)
    expect(await steps(branches, 'b')).toEqual(['insert 1'])
  })

  it('are one for each record if a transaction exchanges unique values', async () => {
    const branches = await open()
    const column = { name: 'code', type: 'int', unique: true } as const
    await branches.edit('main', { addColumn: { table: 'items', column } })
    await branches.put('main', 'items', 'a', { price: 1, code: 1 })
    await branches.put('main', 'items', 'b', { price: 2, code: 2 })
    await branches.fork('dev')
    const exchange = [
      { update: { table: 'items', id: 'a', fields: { price: 2, code: 2 } } },
      { update: { table: 'items', id: 'b', fields: { price: 1, code: 1 } } },
    ]
    for (const branch of ['main', 'dev']) {
      expectOk(await branches.call(branch, 'POST', '/transaction', { operations: exchange }))
      expect(await steps(branches, 'a', branch)).toEqual(['update 2', 'insert 1'])
      expect(await steps(branches, 'b', branch)).toEqual(['update 1', 'insert 2'])
    }
  })

  it('are not made by a write that has failed', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    const failed = await branches.call('main', 'POST', '/transaction', {
      operations: [
        { update: { table: 'items', id: 'a', fields: { price: 2 } } },
        { insert: { table: 'items', record: { id: 'a' }, createOnly: true } },
      ],
    })
    expect(failed.status).toBe(400)
    expect(await steps(branches, 'a')).toEqual(['insert 1'])
  })

  it('have the values of every type', async () => {
    const branches = await TestBranches.create(service, `history${++number}`, {
      items: TYPE_COLUMNS.map((column) =>
        column.name === 'link' ? { ...column, link: { table: 'items' } } : column,
      ),
    })
    await keep(branches, '1h')
    await branches.put('main', 'items', 'all', TYPE_VALUES)
    const { service: _, ...before } = await branches.record('main', 'items', 'all')
    await branches.put('main', 'items', 'all', {})
    const { versions } = await history(branches, 'all')
    const { service: _metadata, ...kept } = versions[1].record
    expect(kept).toEqual(before)
    expect(Object.keys(versions[0].changes).sort()).toEqual(Object.keys(TYPE_VALUES).sort())
    expectOk(await restore(branches, 'all', versions[1].version))
    const { service: _now, ...restored } = await branches.record('main', 'items', 'all')
    expect(restored).toEqual(before)
  })

  it('begin with the state before the first change, if the table had records', async () => {
    const branches = await open()
    await keep(branches, null)
    await branches.put('main', 'items', 'a', { price: 1 })
    await keep(branches, '30d')
    expect(await steps(branches, 'a')).toEqual([])
    await branches.patch('main', 'items', 'a', { price: 2 })
    expect(await steps(branches, 'a')).toEqual(['update 2', 'insert 1'])
    const { versions } = await history(branches, 'a')
    expect(versions[0].changes).toEqual({ price: { from: 1, to: 2 } })
    expect(versions[1].user).toBe(undefined)
    expectOk(await restore(branches, 'a', versions[1].version))
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ price: 1 })
    expect(await history(branches, 'a', 'main', `?cursor=${versions[1].version}`)).toEqual({
      versions: [],
      meta: { more: false },
    })
  })

  it('are refused for a record that never existed, and for bad input', async () => {
    const branches = await open()
    expect((await reading(branches, 'none')).body.code).toBe('record_not_found')
    await branches.put('main', 'items', 'a', { price: 1 })
    for (const query of ['?size=0', '?size=201', '?cursor=x', '?cursor=1%27']) {
      expect((await reading(branches, 'a', 'main', query)).status).toBe(400)
    }
    expect((await history(branches, 'a', 'main', '?size=200')).versions).toHaveLength(1)
  })
})

describe('the versions of a record on branches', () => {
  it('start with those of the source up to the fork', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.patch('main', 'items', 'a', { price: 2 })
    await branches.fork('dev')
    await branches.patch('main', 'items', 'a', { price: 3 })
    expect(await steps(branches, 'a', 'dev')).toEqual(['update 2', 'insert 1'])
    await branches.patch('dev', 'items', 'a', { price: 20 })
    await branches.remove('dev', 'items', 'a')
    expect(await steps(branches, 'a', 'dev')).toEqual([
      'delete',
      'update 20',
      'update 2',
      'insert 1',
    ])
    expect(await steps(branches, 'a')).toEqual(['update 3', 'update 2', 'insert 1'])
    await branches.remove('main', 'items', 'a')
    expect(await steps(branches, 'a', 'dev')).toHaveLength(4)
    expect(await steps(branches, 'a')).toHaveLength(4)
  })

  it('begin on a fork with what it has inherited', async () => {
    const branches = await open()
    await keep(branches, null)
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.put('main', 'items', 'b', { price: 1 })
    await branches.fork('dev')
    await keep(branches, '30d', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 2 })
    await branches.remove('dev', 'items', 'b')
    expect(await steps(branches, 'a', 'dev')).toEqual(['update 2', 'insert 1'])
    expect(await steps(branches, 'b', 'dev')).toEqual(['delete', 'insert 1'])
    const { versions } = await history(branches, 'b', 'dev')
    expectOk(await restore(branches, 'b', versions[1].version, 'dev'))
    expect(await branches.record('dev', 'items', 'b')).toMatchObject({ price: 1 })
    expect((await reading(branches, 'a')).body).toMatchObject({ versions: [] })
  })

  it.each(['small', 'large'])('have what a merge, a pull and a revert bring (%s)', async (size) => {
    const branches = await open(size === 'large' ? large : service)
    const ids = ['a', 'b', 'c', 'd', 'e']
    for (const id of ids) await branches.put('main', 'items', id, { price: 1 })
    await branches.fork('dev')
    for (const id of ids) await branches.patch('dev', 'items', id, { price: 2 })
    await branches.remove('dev', 'items', 'e')
    await branches.put('dev', 'items', 'f', { price: 1 })
    const { entry } = await branches.merge('dev')
    const merged = await history(branches, 'a')
    expect(merged.versions[0]).toMatchObject({
      operation: 'update',
      cause: 'merge',
      key: expect.any(String),
      changes: { price: { from: 1, to: 2 } },
    })
    expect(await steps(branches, 'e')).toEqual(['delete', 'insert 1'])
    expect(await steps(branches, 'f')).toEqual(['insert 1'])
    // Moving the rows of the merge to the heap changes nothing, nor does a write of another row.
    await branches.patch('main', 'items', 'b', { price: 3 })
    await runBackground(service)
    expect(await steps(branches, 'a')).toEqual(['update 2', 'insert 1'])
    expect(await steps(branches, 'b')).toEqual(['update 3', 'update 2', 'insert 1'])
    expectOk(await branches.call('main', 'POST', '/revert', { entry, strategy: 'ours' }))
    expect(await steps(branches, 'a')).toEqual(['update 1', 'update 2', 'insert 1'])
    expect((await history(branches, 'a')).versions[0].cause).toBe('revert')
    await branches.fork('other')
    await branches.patch('main', 'items', 'a', { price: 9 })
    await branches.pull('other')
    expect((await history(branches, 'a', 'other')).versions[0]).toMatchObject({
      cause: 'pull',
      record: { price: 9 },
    })
  })

  it('are those of the state that a branch is reset to, and the others stay at the checkpoint', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { price: 2 })
    await branches.reset('dev')
    expect(await steps(branches, 'a', 'dev')).toEqual(['insert 1'])
    const { checkpoints } = expectOk(await branches.call('dev', 'GET', '/checkpoints')).body
    expect(await steps(branches, 'a', 'dev', `?at=${checkpoints[0].id}`)).toEqual([
      'update 2',
      'insert 1',
    ])
  })

  it('show columns that were renamed, converted or added since as they are read now', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { name: '7', price: 1 })
    await branches.edit(
      'main',
      { renameColumn: { table: 'items', oldName: 'price', newName: 'cents' } },
      { alterColumn: { table: 'items', column: 'name', type: 'int' } },
    )
    await branches.patch('main', 'items', 'a', { cents: 2 })
    const { versions } = await history(branches, 'a')
    expect(versions.map(({ record }: { record: object }) => record)).toMatchObject([
      { name: 7, cents: 2 },
      { name: 7, cents: 1 },
    ])
  })

  it('are carried by merges of the schema', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.fork('dev')
    await keep(branches, '2h', 'dev')
    await branches.edit('dev', { addTable: { table: 'more', history: { keep: '1d' } } })
    await branches.merge('dev')
    const { schema } = expectOk(await branches.call('main', 'GET', '')).body
    expect(schema.tables.map((table: { history?: object }) => table.history)).toEqual([
      { keep: '2h' },
      undefined,
      { keep: '1d' },
    ])
    await branches.patch('main', 'items', 'a', { price: 2 })
    expect(await steps(branches, 'a')).toEqual(['update 2', 'insert 1'])
  })
})

describe('restoring a version', () => {
  it('is an ordinary update, which makes a version', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { name: 'pen', price: 1 })
    await branches.put('main', 'items', 'a', { price: 2 })
    const { versions } = await history(branches, 'a')
    const answer = await restore(branches, 'a', versions[1].version)
    expect(answer.status).toBe(200)
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ name: 'pen', price: 1 })
    expect(await steps(branches, 'a')).toEqual(['update 1', 'update 2', 'insert 1'])
  })

  it('creates a deleted record again', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.remove('main', 'items', 'a')
    const { versions } = await history(branches, 'a')
    expect((await restore(branches, 'a', versions[0].version)).body.code).toBe('invalid_request')
    expect((await restore(branches, 'a', versions[1].version)).status).toBe(201)
    expect(await steps(branches, 'a')).toEqual(['insert 1', 'delete', 'insert 1'])
  })

  it('is refused with the column whose value does not convert, and versions show such values', async () => {
    const branches = await open()
    for (const name of ['12', 'n/a', '13']) await branches.put('main', 'items', 'a', { name })
    await branches.put('main', 'items', 'b', { name: 'none' })
    await branches.remove('main', 'items', 'b')
    await branches.edit(
      'main',
      { alterColumn: { table: 'items', column: 'name', type: 'int' } },
      { alterColumn: { table: 'items', column: 'name', type: 'string' } },
      {
        alterColumn: {
          table: 'items',
          column: 'name',
          type: 'decimal',
          decimal: { precision: 9, scale: 1 },
        },
      },
    )
    await branches.fork('dev')
    for (const branch of ['main', 'dev']) {
      await branches.put(branch, 'items', 'a', {})
      const { versions } = await history(branches, 'a', branch)
      expect(
        versions.map(({ record, unconverted }: { record: Values; unconverted?: object }) => [
          record.name ?? null,
          unconverted,
        ]),
      ).toEqual([
        [null, undefined],
        ['13.0', undefined],
        [null, { name: 'n/a' }],
        ['12.0', undefined],
      ])
      const refused = await restore(branches, 'a', versions[2].version, branch)
      expect([refused.status, refused.body.message]).toEqual([
        400,
        `table [items]: record [a]: version [${versions[2].version}]: column [name]: the value then, "n/a", does not convert to [decimal]; nothing was changed`,
      ])
      expect((await restore(branches, 'a', versions[3].version, branch)).status).toBe(200)
      expect(await branches.record(branch, 'items', 'a')).toMatchObject({ name: '12.0' })
      const removed = (await history(branches, 'b', branch)).versions
      expect(removed.map(({ unconverted }: { unconverted?: object }) => unconverted)).toEqual([
        undefined,
        { name: 'none' },
      ])
    }
  })

  it('has the values of a column again whose change of type was reverted', async () => {
    const branches = await open()
    for (const name of ['12', 'n/a', '13']) await branches.put('main', 'items', 'a', { name })
    const typed = await branches.call('main', 'PATCH', '/tables/items/columns/name', {
      type: 'int',
    })
    await branches.put('main', 'items', 'b', { name: 7 })
    await branches.put('main', 'items', 'b', { name: 8 })
    await branches.remove('main', 'items', 'b')
    const { entry } = expectOk(typed).body
    expectOk(await branches.call('main', 'POST', '/revert', { entry, allowDataLoss: true }))
    await branches.put('main', 'items', 'a', { name: '14' })
    const { versions } = await history(branches, 'a')
    const names = versions.map(({ record }: { record: Values }) => record.name)
    expect(names.slice(0, 1)).toEqual(['14'])
    expect(names.slice(-3)).toEqual(['13', 'n/a', '12'])
    expect((await restore(branches, 'a', versions.at(-2).version)).status).toBe(200)
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ name: 'n/a' })
    // Nothing connects the column with the one that had the values in between.
    const between = (await history(branches, 'b')).versions
    expect(between.map(({ record }: { record: Values | null }) => record?.name)).toEqual([
      undefined,
      undefined,
      undefined,
    ])
  })

  it('clears no column whose inherited value does not convert', async () => {
    const branches = await open()
    await keep(branches, null)
    await branches.put('main', 'items', 'a', { name: 'n/a', price: 1 })
    await branches.fork('dev')
    await keep(branches, '30d', 'dev')
    await branches.put('dev', 'items', 'a', { name: '7', price: 2 })
    await branches.edit('dev', { alterColumn: { table: 'items', column: 'name', type: 'int' } })
    const { versions } = await history(branches, 'a', 'dev')
    expect((await restore(branches, 'a', versions.at(-1).version, 'dev')).status).toBe(200)
    expect(await branches.read('dev', 'items', ['a'])).toEqual({ a: { name: 7, price: 1 } })
  })

  it('leaves columns as they are that the version does not have', async () => {
    const branches = await open()
    for (const name of ['1', 'x', '3']) await branches.put('main', 'items', 'a', { name, price: 1 })
    const columns = '/tables/items/columns'
    const length = { type: 'int', using: 'char_length(name)' }
    expectOk(await branches.call('main', 'PATCH', `${columns}/name`, length))
    expectOk(await branches.call('main', 'POST', columns, { name: 'note', type: 'string' }))
    await branches.put('main', 'items', 'a', { name: 5, price: 2, note: 'new' })
    const { versions } = await history(branches, 'a')
    expect((await restore(branches, 'a', versions.at(-2).version)).status).toBe(200)
    expect(await branches.read('main', 'items', ['a'])).toEqual({
      a: { name: 5, price: 1, note: 'new' },
    })
  })

  it('is refused for a version of another record, or of none', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.put('main', 'items', 'b', { price: 1 })
    const { versions } = await history(branches, 'a')
    for (const [id, version] of [
      ['b', versions[0].version],
      ['a', '1'],
      ['a', `${versions[0].version}b`],
    ]) {
      const answer = await restore(branches, id, version)
      expect([answer.status, answer.body.code]).toEqual([404, 'version_not_found'])
    }
    expect((await restore(branches, 'a', 'x')).status).toBe(400)
    expect(await steps(branches, 'a')).toEqual(['insert 1'])
  })
})

describe('a table without a history', () => {
  it('shows the record at checkpoints and on other branches', async () => {
    const branches = await open()
    await keep(branches, null)
    await branches.put('main', 'items', 'a', { price: 1 })
    expectOk(await branches.call('main', 'POST', '/checkpoints', { name: 'one' }))
    await branches.patch('main', 'items', 'a', { price: 2 })
    expectOk(await branches.call('main', 'POST', '/checkpoints', { name: 'two' }))
    await branches.fork('dev')
    await branches.remove('main', 'items', 'a')
    const { versions, states, meta } = await history(branches, 'a')
    expect([versions, meta]).toEqual([[], { more: false }])
    expect(states.slice(0, 2)).toMatchObject([
      { checkpoint: { name: 'two' }, record: { id: 'a', price: 2 } },
      { checkpoint: { name: 'one' }, record: { id: 'a', price: 1 } },
    ])
    expect(states.at(-1)).toMatchObject({ branch: 'dev', record: { price: 2 } })
    expect((await history(branches, 'b')).states.at(-1)).toEqual({ branch: 'dev', record: null })
  })

  it('has no triggers and no table of versions', async () => {
    const branches = await open()
    await branches.put('main', 'plain', 'a', {})
    const { rows } = await service.database.pool.query(`
      select count(*)::integer as triggers, count(distinct tgrelid)::integer as tables
      from pg_trigger t join pg_class c on c.oid = t.tgrelid
      join pg_namespace n on n.oid = c.relnamespace
      join offshoot.databases d on n.nspname = 'offshoot_db_' || d.id
      where d.name = '${branches.database}'`)
    expect(rows).toEqual([{ triggers: 3, tables: 1 }])
  })
})

describe('how long versions are kept', () => {
  it.each([
    ['3650d', 200],
    ['3651d', 400],
    ['87600h', 200],
    ['87601h', 400],
    ['0d', 400],
    ['30', 400],
  ])('is at most ten years: %s', async (kept, status) => {
    const branches = await open()
    const answer = await branches.call('main', 'PATCH', '/tables/items', {
      history: { keep: kept },
    })
    expect(answer.status).toBe(status)
  })

  it('is set with a new table, too', async () => {
    const branches = await open()
    expectOk(await branches.call('main', 'PUT', '/tables/kept', { history: { keep: '1d' } }))
    const { schema } = expectOk(await branches.call('main', 'GET', '')).body
    expect(schema.tables.at(-1)).toMatchObject({ name: 'kept', history: { keep: '1d' } })
  })

  it('ends after their replacement', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.patch('main', 'items', 'a', { price: 2 })
    await branches.patch('main', 'items', 'a', { price: 3 })
    await branches.put('main', 'items', 'b', { price: 1 })
    await age(branches, 40, `new_row @> '{"version": 0}'`)
    await age(branches, 31, `new_row @> '{"version": 1}'`)
    await age(branches, 29, `new_row @> '{"version": 2}'`)
    await collect()
    expect(await steps(branches, 'a')).toEqual(['update 3', 'update 2', 'insert 1'])
    const { rows } = await versionRows(branches)
    // The state that was replaced 29 days ago is kept; the one before it was replaced 31 days ago.
    expect(rows.map(({ id, version }) => `${id} ${version}`)).toEqual(['a 1', 'a 2'])
    expect(await steps(branches, 'b')).toEqual([])
    await branches.patch('main', 'items', 'b', { price: 2 })
    expect(await steps(branches, 'b')).toEqual(['update 2', 'insert 1'])
  })

  it('ends with the history of the table', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await keep(branches, null)
    await branches.patch('main', 'items', 'a', { price: 2 })
    await collect()
    expect(await tablesOf(branches)).toEqual([])
    await keep(branches, '30d')
    await branches.patch('main', 'items', 'a', { price: 3 })
    expect(await steps(branches, 'a')).toEqual(['update 3', 'update 2'])
  })

  it('ends with the branch and the database', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { price: 2 })
    expect(await tablesOf(branches)).toHaveLength(2)
    await branches.delete('dev')
    await collect()
    expect(await tablesOf(branches)).toHaveLength(1)
  })
})

describe('a backup of a database', () => {
  it('has the versions, and they go on after a restore', async () => {
    const branches = await open()
    await branches.put('main', 'items', 'a', { price: 1 })
    await branches.patch('main', 'items', 'a', { price: 2 })
    const database = openForBackup(service.url)
    const { blobs } = service.files
    const archive = await makeArchive({ database, blobs, only: { name: branches.database } })
    const as = `${branches.database}-copy`
    await restoreDatabase({
      ...{ database, blobs, as, name: branches.database, source: inChunks(archive) },
      regions: REGIONS,
      limits: { ...LIMITS, databasesPerWorkspaceMax: 1000 },
      onProgress: () => undefined,
      holdTimeoutMs: 60_000,
    })
    await database.close()
    const copy = new TestBranches(service, as)
    expect(await history(copy, 'a')).toEqual(await history(branches, 'a'))
    await copy.patch('main', 'items', 'a', { price: 3 })
    expect(await steps(copy, 'a')).toEqual(['update 3', 'update 2', 'insert 1'])
    expect(await steps(branches, 'a')).toHaveLength(2)
  })
})

/** Makes versions of a branch older. */
async function age(branches: TestBranches, days: number, condition: string): Promise<void> {
  const [table] = await tablesOf(branches)
  await service.database.pool.query(
    `update ${table} set at = at - interval '${days} days' where ${condition}`,
  )
}

async function versionRows(branches: TestBranches) {
  const [table] = await tablesOf(branches)
  return service.database.pool.query(
    `select id, new_row ->> 'version' as version from ${table} order by at`,
  )
}

/** The tables of versions of a database. */
async function tablesOf(branches: TestBranches): Promise<string[]> {
  const { rows } = await service.database.pool.query(`
    select t.schemaname || '.' || t.tablename as name
    from pg_tables t join offshoot.databases d on t.schemaname = 'offshoot_db_' || d.id
    where d.name = '${branches.database}' and t.tablename ~ '^versions_'
      and not exists (
        select from offshoot_work.spares s where t.tablename = 'versions_' || s.heap_id
      )
    order by t.tablename`)
  return rows.map(({ name }) => name)
}

/** Runs the background until it has collected what it can. */
async function collect(): Promise<void> {
  for (let round = 0; round < 4; round++) await runBackground(service)
}
