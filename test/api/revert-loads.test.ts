import { PassThrough } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { INSERTED_ROWS_MAX } from '../../packages/server/src/data/records/stream-layer.js'
import { TestBranches } from '../support/branches.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
/** A process that keeps the states of loads of 3 to 5 records only. */
let bounded: TestService
let number = 0

beforeAll(async () => {
  const limits = { automaticCheckpointsMax: 20, revertibleRecordsMin: 1 }
  service = await createTestService({ limits })
  bounded = await createTestService({
    url: service.url,
    limits: { ...limits, revertibleRecordsMin: 3, revertibleRecordsLockedMax: 5 },
  })
})
afterAll(async () => {
  await bounded.close()
  await service.close()
})

type Price = { readonly id: string; readonly price: number; readonly text?: string }

/** The records `a` and `b` in one table, and another one that is empty. */
async function open(): Promise<TestBranches> {
  const columns = [
    { name: 'price', type: 'int' },
    { name: 'text', type: 'text' },
  ] as const
  const tables = { items: columns, fresh: columns }
  const branches = await TestBranches.create(service, `loads${++number}`, tables)
  await branches.put('main', 'items', 'a', { price: 1 })
  await branches.put('main', 'items', 'b', { price: 2 })
  return branches
}

const linesOf = (records: readonly object[]) =>
  records.map((record) => `${JSON.stringify(record)}\n`).join('')

const NDJSON = { 'content-type': 'application/x-ndjson' }

async function stream(
  branches: TestBranches,
  records: readonly object[],
  { table = 'items', query = '', branch = 'main' } = {},
): Promise<void> {
  const path = `/tables/${table}/bulk${query}`
  expectOk(await branches.call(branch, 'POST', path, linesOf(records), { headers: NDJSON }))
}

/** The prices in a table by id. */
async function prices(
  branches: TestBranches,
  { table = 'items', branch = 'main' } = {},
): Promise<Record<string, number>> {
  const query = { columns: ['price'], page: { size: 1000 } }
  const { body } = expectOk(await branches.call(branch, 'POST', `/tables/${table}/query`, query))
  return Object.fromEntries(body.records.map(({ id, price }: Price) => [id, price]))
}

/** The newest bulk load in the log. */
const newest = async (branches: TestBranches, branch = 'main') =>
  expectOk(await branches.call(branch, 'GET', '/log?kind=bulk&size=1')).body.entries[0]

const reverting = (branches: TestBranches, body: object, branch = 'main') =>
  branches.call(branch, 'POST', '/revert', body)

/** The ids of the tables that have the rows of a branch. */
async function heapsOf(branches: TestBranches, branch: string): Promise<string[]> {
  const { rows } = await service.database.pool.query(
    `select h.id
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.databases d on d.id = b.database_id
    where d.name = $1 and b.name = $2 and b.deleted_at is null and h.kind = 'heap'
    order by h.id`,
    [branches.database, branch],
  )
  return rows.map(({ id }) => id)
}

const LOADED: readonly Price[] = [
  { id: 'x', price: 10 },
  { id: 'y', price: 20 },
  { id: 'z', price: 30 },
]
/** More bytes than a stream may have that is held in memory. */
const LONG: readonly Price[] = Array.from({ length: 12 }, (_, index) => ({
  id: `long-${index}`,
  price: index,
  text: 'x'.repeat(100_000),
}))

describe.each(['main', 'fork'])('a revert of a bulk load (%s)', (branch) => {
  const opened = async () => {
    const branches = await open()
    if (branch !== 'main') await branches.fork(branch)
    return branches
  }

  const LOADS: [string, (branches: TestBranches) => Promise<void>, string[]][] = [
    ['a body', (branches) => branches.bulk(branch, 'items', LOADED), ['x', 'y', 'z']],
    ['a short stream', (branches) => stream(branches, LOADED, { branch }), ['x', 'y', 'z']],
    ['a long stream', (branches) => stream(branches, LONG, { branch }), LONG.map(({ id }) => id)],
    [
      'a stream that skips',
      (branches) =>
        stream(branches, [...LOADED, { id: 'a', price: 5 }], { branch, query: '?existing=skip' }),
      ['x', 'y', 'z'],
    ],
  ]

  it.each(LOADS)('takes back %s, and keeps what others wrote', async (_, load, ids) => {
    const branches = await opened()
    await load(branches)
    await branches.patch(branch, 'items', 'b', { price: 22 })
    await branches.put(branch, 'items', 'c', { price: 3 })
    const loaded = await prices(branches, { branch })
    expect(Object.keys(loaded).sort()).toEqual(['a', 'b', 'c', ...ids].sort())
    const { id: entry, ...logged } = await newest(branches, branch)
    expect(logged).toMatchObject({
      table: 'items',
      checkpoint: expect.stringMatching(/^cp_/),
      after: expect.stringMatching(/^cp_/),
      counts: { inserted: ids.length },
    })
    const reverted = expectOk(await reverting(branches, { entry }, branch)).body
    expect(reverted.tables).toContainEqual({
      name: 'items',
      ...{ inserted: 0, updated: 0, deleted: ids.length },
    })
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 22, c: 3 })
    // The revert can be reverted.
    expectOk(await reverting(branches, { entry: reverted.entry }, branch))
    expect(await prices(branches, { branch })).toEqual(loaded)
  })

  it('restores the records that a stream has replaced', async () => {
    const branches = await opened()
    const records = [{ id: 'a', price: 100 }, ...LOADED]
    await stream(branches, records, { branch, query: '?existing=replace' })
    await branches.patch(branch, 'items', 'b', { price: 22 })
    const { id: entry, counts } = await newest(branches, branch)
    expect(counts).toEqual({ inserted: 3, updated: 1 })
    expectOk(await reverting(branches, { entry }, branch))
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 22 })
  })

  it('reports records that were changed since as conflicts', async () => {
    const branches = await opened()
    await branches.bulk(branch, 'items', LOADED)
    await branches.patch(branch, 'items', 'x', { price: 11 })
    await branches.remove(branch, 'items', 'y')
    const { id: entry } = await newest(branches, branch)
    const refused = await reverting(branches, { entry }, branch)
    expect([refused.status, refused.body.code]).toEqual([409, 'merge_conflict'])
    expect(refused.body.conflicts).toMatchObject([{ table: 'items', id: 'x' }])
    expectOk(await reverting(branches, { entry, strategy: 'ours' }, branch))
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2, x: 11 })
  })

  it('takes back a long stream into an empty table, with what others write meanwhile kept', async () => {
    const branches = await opened()
    await branches.put(branch, 'fresh', 'gone', {})
    await branches.remove(branch, 'fresh', 'gone')
    const own = await heapsOf(branches, branch)
    const body = new PassThrough()
    const answer = service.app.inject({
      method: 'POST',
      url: `${service.workspace}/db/${branches.database}:${branch}/tables/fresh/bulk`,
      headers: { authorization: `Bearer ${service.key}`, ...NDJSON },
      payload: body,
    })
    body.write(linesOf(LONG))
    await until(async () => {
      const { rows } = await service.database.pool.query(
        `select from offshoot_work.spares where definition = 'layer'`,
      )
      return rows.length > 0
    })
    await branches.patch(branch, 'items', 'a', { price: 11 })
    body.end(linesOf(LOADED))
    expect((await answer).json()).toMatchObject({ inserted: LONG.length + LOADED.length })
    // The branch has taken the table that the stream has filled.
    if (branch === 'main') expect(await heapsOf(branches, branch)).not.toEqual(own)
    await branches.put(branch, 'fresh', 'own', { price: 4 })
    const { id: entry, checkpoint } = await newest(branches, branch)
    const before = await branches.call(branch, 'POST', `/tables/items/query?at=${checkpoint}`, {})
    expect(expectOk(before).body.records).toMatchObject([{ price: 11 }, { price: 2 }])
    expectOk(await reverting(branches, { entry }, branch))
    expect(await prices(branches, { branch, table: 'fresh' })).toEqual({ own: 4 })
    expect(await prices(branches, { branch })).toEqual({ a: 11, b: 2 })
  })

  it('takes back a stream of many records', async () => {
    const branches = await opened()
    const many = Array.from({ length: INSERTED_ROWS_MAX }, (_, n) => ({
      id: `many-${n}`,
      price: n,
    }))
    await stream(branches, [...LONG, ...many], { branch })
    await branches.put(branch, 'items', 'c', { price: 3 })
    const { id: entry } = await newest(branches, branch)
    const { tables } = expectOk(await reverting(branches, { entry }, branch)).body
    expect(tables[0]).toMatchObject({ deleted: LONG.length + many.length })
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2, c: 3 })
  })
})

describe('a bulk load that keeps no states', () => {
  const fails = async (branches: TestBranches, entry: string) => {
    const { status, body } = await reverting(branches, { entry })
    expect([status, body.code]).toEqual([409, 'not_revertible'])
    return body.message
  }

  it('has too few records, or more than others can wait for', async () => {
    const branches = (await open()).through(bounded)
    const upsert = (count: number) =>
      stream(
        branches,
        Array.from({ length: count }, (_, index) => ({ id: `u${index}`, price: index })),
        { query: '?existing=replace' },
      )
    for (const [count, reason] of [
      [2, 'few'],
      [3, undefined],
      [5, undefined],
      [6, 'many'],
    ] as const) {
      await upsert(count)
      const { id, notRevertible, checkpoint } = await newest(branches)
      expect([count, notRevertible, checkpoint !== undefined]).toEqual([
        count,
        reason,
        reason === undefined,
      ])
      if (reason === undefined) continue
      expect(await fails(branches, id)).toContain(reason === 'few' ? 'so few' : 'others wait')
    }
    for (const count of [2, 3]) {
      await branches.bulk(
        'main',
        'fresh',
        LOADED.slice(0, count).map(({ price }) => ({ price })),
      )
      expect((await newest(branches)).notRevertible).toBe(count === 2 ? 'few' : undefined)
    }
  })

  it('is stored in parts', async () => {
    const branches = await open()
    await stream(branches, LOADED, { query: '?mode=partial' })
    expect(await fails(branches, (await newest(branches)).id)).toContain('in parts')
  })

  it('does not take the place of other checkpoints', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.put('dev', 'items', 'd', { price: 4 })
    const { entry } = await branches.merge('dev')
    for (let load = 0; load < 21; load++) await branches.bulk('main', 'items', [{ price: load }])
    await runBackground(service)
    expectOk(await reverting(branches, { entry }))
    expect(await prices(branches)).not.toHaveProperty('d')
  })
})

describe('a revert of a migration', () => {
  const edit = async (branches: TestBranches, ...operations: readonly object[]) => {
    const body = { edits: { operations }, allowDataLoss: true }
    return expectOk(await branches.call('main', 'POST', '/schema/apply', body)).body.entry
  }
  const size = { name: 'size', type: 'int' }

  it('removes what it has added, by the rule of data loss', async () => {
    const branches = await open()
    const schema = await branches.schema('main')
    const entry = await edit(
      branches,
      { addTable: { table: 'tags' } },
      {
        addColumn: {
          table: 'tags',
          column: { name: 'item', type: 'link', link: { table: 'items' } },
        },
      },
      { addColumn: { table: 'items', column: size } },
      { addConstraint: { table: 'items', constraint: { name: 'positive', check: 'size > 0' } } },
    )
    const logged = expectOk(await branches.call('main', 'GET', '/log?kind=migration&size=1')).body
    expect(logged.entries[0]).not.toHaveProperty('added')
    expect(logged.entries[0]).not.toHaveProperty('checkpoint')
    await branches.edit('main', { renameTable: { oldName: 'tags', newName: 'labels' } })
    const preview = expectOk(await reverting(branches, { entry, dryRun: true })).body
    expect(preview).toMatchObject({ merged: false, conflicts: [], dataLoss: [] })
    await branches.put('main', 'labels', 'l', { item: 'a' })
    await branches.patch('main', 'items', 'a', { size: 7 })
    const refused = await reverting(branches, { entry })
    expect([refused.status, refused.body.code]).toEqual([409, 'data_loss'])
    expect(refused.body.dataLoss).toMatchObject([
      { table: 'items', column: 'size', records: 1 },
      { table: 'labels', records: 1 },
    ])
    const reverted = expectOk(await reverting(branches, { entry, allowDataLoss: true })).body
    expect(await branches.schema('main')).toEqual(schema)
    expect(await prices(branches)).toEqual({ a: 1, b: 2 })
    expect(expectOk(await reverting(branches, { entry })).body.merged).toBe(false)
    // What comes back is what the migration has added.
    expectOk(await reverting(branches, { entry: reverted.entry }))
    expect((await branches.record('main', 'items', 'a'))?.size).toBe(7)
    expect((await branches.record('main', 'labels', 'l'))?.item).toMatchObject({ id: 'a' })
    expectOk(await reverting(branches, { entry, allowDataLoss: true }))
    expect(await branches.schema('main')).toEqual(schema)
  })

  it('is refused if something else needs what it has added', async () => {
    const branches = await open()
    const table = await edit(branches, { addTable: { table: 'tags' } })
    const column = await edit(branches, { addColumn: { table: 'items', column: size } })
    await edit(
      branches,
      {
        addColumn: {
          table: 'items',
          column: { name: 'tag', type: 'link', link: { table: 'tags' } },
        },
      },
      { addConstraint: { table: 'items', constraint: { name: 'positive', check: 'size > 0' } } },
    )
    for (const entry of [table, column]) {
      const { status, body } = await reverting(branches, { entry })
      expect([status, body.code]).toEqual([409, 'not_revertible'])
    }
    expect(Object.keys(await branches.schema('main'))).toEqual(['items', 'fresh', 'tags'])
  })

  it('gives back names and rules that it has changed', async () => {
    const branches = await open()
    const renamed = await edit(branches, {
      renameColumn: { table: 'items', oldName: 'price', newName: 'cost' },
    })
    await branches.put('main', 'items', 'c', { cost: 3 })
    expectOk(await reverting(branches, { entry: renamed }))
    expect(await prices(branches)).toEqual({ a: 1, b: 2, c: 3 })
    const altered = await edit(branches, {
      alterColumn: { table: 'items', column: 'price', unique: true },
    })
    expectOk(await reverting(branches, { entry: altered }))
    await branches.put('main', 'items', 'd', { price: 3 })
  })

  it('leaves branches alone that were forked in between, which lose the additions by a pull', async () => {
    const branches = await open()
    const entry = await edit(branches, { addColumn: { table: 'items', column: size } })
    await branches.fork('dev')
    await branches.put('dev', 'items', 'd', { price: 4 })
    expectOk(await reverting(branches, { entry }))
    await branches.merge('dev')
    expect(await prices(branches)).toEqual({ a: 1, b: 2, d: 4 })
    await branches.pull('dev')
    expect(await branches.schema('dev')).toEqual(await branches.schema('main'))
  })
})
