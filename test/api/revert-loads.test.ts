import { PassThrough } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { INSERTED_ROWS_MAX } from '../../packages/server/src/data/records/stream-layer.js'
import { collectLoads } from '../../packages/server/src/domain/log/loads.js'
import { TestBranches } from '../support/branches.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
/** A process that compares the rows of most reverts without locks. */
let pinning: TestService
let number = 0

beforeAll(async () => {
  const limits = { automaticCheckpointsMax: 20 }
  service = await createTestService({ limits })
  pinning = await createTestService({
    url: service.url,
    limits: { ...limits, mergeLockedRowsMax: 1 },
  })
})
afterAll(async () => {
  await pinning.close()
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
) {
  const path = `/tables/${table}/bulk${query}`
  const answer = await branches.call(branch, 'POST', path, linesOf(records), { headers: NDJSON })
  return { ...expectOk(answer).body, entry: answer.headers['offshoot-entry'] }
}

const upsert = (branches: TestBranches, records: readonly object[], branch = 'main') =>
  branches.call(branch, 'POST', '/tables/items/upsert', { records })

const upsertLines = (branches: TestBranches, records: readonly object[], branch = 'main') =>
  branches.call(branch, 'POST', '/tables/items/upsert', linesOf(records), { headers: NDJSON })

/** The prices in a table by id. */
async function prices(
  branches: TestBranches,
  { table = 'items', branch = 'main' } = {},
): Promise<Record<string, number>> {
  const query = { columns: ['price'], page: { size: 200 } }
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

  const LOADS: [string, (branches: TestBranches) => Promise<unknown>, string[]][] = [
    ['one record', (branches) => branches.bulk(branch, 'items', LOADED.slice(0, 1)), ['x']],
    ['a body', (branches) => branches.bulk(branch, 'items', LOADED), ['x', 'y', 'z']],
    ['a short stream', (branches) => stream(branches, LOADED, { branch }), ['x', 'y', 'z']],
    ['a long stream', (branches) => stream(branches, LONG, { branch }), LONG.map(({ id }) => id)],
    [
      'a stream that skips',
      (branches) =>
        stream(branches, [...LOADED, { id: 'a', price: 5 }], { branch, query: '?existing=skip' }),
      ['x', 'y', 'z'],
    ],
    [
      'a stream that replaces nothing',
      (branches) => stream(branches, LOADED, { branch, query: '?existing=replace' }),
      ['x', 'y', 'z'],
    ],
    [
      'a stream in parts',
      (branches) => stream(branches, LOADED, { branch, query: '?mode=partial' }),
      ['x', 'y', 'z'],
    ],
    [
      'an upsert of new records',
      (branches) => upsert(branches, [...LOADED, { id: 'a', price: 1 }], branch),
      ['x', 'y', 'z'],
    ],
    [
      'a stream of upserts of new records',
      (branches) => upsertLines(branches, [...LOADED, { id: 'a', price: 1 }], branch),
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
    expect(logged).toMatchObject({ table: 'items', counts: { inserted: ids.length } })
    expect(logged).not.toHaveProperty('checkpoint')
    const preview = expectOk(await reverting(branches, { entry, dryRun: true }, branch)).body
    expect(preview).toMatchObject({ merged: false, conflicts: [], conflictCount: 0 })
    expect(await prices(branches, { branch })).toEqual(loaded)
    const reverted = expectOk(await reverting(branches, { entry }, branch)).body
    expect(reverted.tables).toContainEqual({
      name: 'items',
      ...{ inserted: 0, updated: 0, deleted: ids.length },
    })
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 22, c: 3 })
    expect(expectOk(await reverting(branches, { entry }, branch)).body.merged).toBe(false)
    // The revert can be reverted. The records that come back are those of the load.
    for (let round = 0; round < 2; round++) {
      const [{ id }] = expectOk(await branches.call(branch, 'GET', '/log?kind=revert')).body.entries
      expectOk(await reverting(branches, { entry: id }, branch))
      expect(await prices(branches, { branch })).toEqual(loaded)
      expectOk(await reverting(branches, { entry }, branch))
      expect(await prices(branches, { branch })).toEqual({ a: 1, b: 22, c: 3 })
    }
  })

  it('is refused if the load has replaced records', async () => {
    const branches = await opened()
    const records = [{ id: 'a', price: 100 }, ...LOADED]
    await stream(branches, records, { branch, query: '?existing=replace' })
    const { id: entry, counts, notRevertible } = await newest(branches, branch)
    expect([counts, notRevertible]).toEqual([{ inserted: 3, updated: 1 }, 'replaced'])
    const { status, body } = await reverting(branches, { entry }, branch)
    expect([status, body.code]).toEqual([409, 'not_revertible'])
    expect(body.message).toContain('has replaced records')
  })

  it('reports records that were changed since as conflicts', async () => {
    const branches = await opened()
    await branches.bulk(branch, 'items', LOADED)
    await branches.patch(branch, 'items', 'x', { price: 11 })
    await branches.remove(branch, 'items', 'y')
    const { id: entry } = await newest(branches, branch)
    const refused = await reverting(branches, { entry }, branch)
    expect([refused.status, refused.body.code]).toEqual([409, 'merge_conflict'])
    const [conflict] = refused.body.conflicts
    expect(refused.body.conflicts).toEqual([
      {
        ...{ table: 'items', id: 'x', kind: 'deletedThere', token: expect.any(String) },
        // The values that were loaded are not kept.
        base: {},
        ours: { price: 11 },
        theirs: null,
      },
    ])
    const { token } = conflict
    const keep = { table: 'items', id: 'x', take: 'ours', token }
    const kept = await reverting(branches, { entry, resolutions: [keep], dryRun: true }, branch)
    expect(expectOk(kept).body.tables[0]).toMatchObject({ deleted: 1 })
    const { entry: revert } = expectOk(
      await reverting(branches, { entry, strategy: 'ours' }, branch),
    ).body
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2, x: 11 })
    expectOk(await reverting(branches, { entry: revert }, branch))
    expectOk(await reverting(branches, { entry, strategy: 'theirs' }, branch))
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2, x: 11 })
  })

  it('deletes changed records with the strategy theirs, or those that it names only', async () => {
    const branches = await opened()
    await branches.bulk(branch, 'items', LOADED)
    await branches.patch(branch, 'items', 'x', { price: null })
    const { id: entry } = await newest(branches, branch)
    const only = { records: [{ table: 'items', id: 'y' }] }
    expectOk(await reverting(branches, { entry, only }, branch))
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2, x: undefined, z: 30 })
    expect((await reverting(branches, { entry }, branch)).body.conflictCount).toBe(1)
    expectOk(await reverting(branches, { entry, strategy: 'theirs' }, branch))
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2 })
  })

  it('keeps records that were deleted and created anew', async () => {
    const branches = await opened()
    await branches.bulk(branch, 'items', LOADED)
    const { id: entry } = await newest(branches, branch)
    await branches.remove(branch, 'items', 'x', 'y')
    await branches.put(branch, 'items', 'x', { price: 10 })
    await branches.bulk(branch, 'items', [{ id: 'y', price: 21 }])
    expectOk(await reverting(branches, { entry }, branch))
    expect(await prices(branches, { branch })).toEqual({ a: 1, b: 2, x: 10, y: 21 })
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
    const { id: entry } = await newest(branches, branch)
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

describe('the records of a bulk load', () => {
  it('are taken back by a process that compares without locks, while others write', async () => {
    const branches = (await open()).through(pinning)
    const many = Array.from({ length: 5000 }, (_, n) => ({ id: `many-${n}`, price: n }))
    const { entry } = await stream(branches, many)
    await branches.patch('main', 'items', 'many-7', { price: -7 })
    const refused = await reverting(branches, { entry })
    expect([refused.status, refused.body.conflictCount]).toEqual([409, 1])
    const [reverted] = await Promise.all([
      reverting(branches, { entry, strategy: 'ours' }),
      ...Array.from({ length: 10 }, (_, n) =>
        branches.put('main', 'items', `other-${n}`, { price: n }),
      ),
    ])
    const [items] = expectOk(reverted).body.tables
    expect(items).toMatchObject({ name: 'items', deleted: 4999 })
    expect(Object.keys(await prices(branches)).sort()).toEqual(
      ['a', 'b', 'many-7', ...Array.from({ length: 10 }, (_, n) => `other-${n}`)].sort(),
    )
  })

  it('are known for each of several loads at once', async () => {
    const branches = await open()
    const load = (name: string) =>
      branches.bulk(
        'main',
        'items',
        Array.from({ length: 1000 }, (_, n) => ({ id: `${name}${n}`, price: n })),
      )
    await Promise.all([load('one'), load('two')])
    const { entries } = expectOk(await branches.call('main', 'GET', '/log?kind=bulk')).body
    await Promise.all(
      entries.map(async ({ id }: { id: string }) =>
        expectOk(await reverting(branches, { entry: id })),
      ),
    )
    expect(await prices(branches)).toEqual({ a: 1, b: 2 })
  })

  it('belong to one entry if they are stored in parts, also if the stream fails', async () => {
    const branches = await open()
    const lines = linesOf(Array.from({ length: 4500 }, (_, n) => ({ id: `p${n}`, price: n })))
    expect(await stream(branches, [], { query: '?mode=partial' })).toEqual({
      ...{ inserted: 0, failed: 0, errors: [], entry: undefined },
    })
    const path = '/tables/items/bulk?mode=partial'
    const faulty = `${lines}{"id": "p1"}\n{"id": "a"}\nnot JSON\n`
    const stored = await branches.call('main', 'POST', path, faulty, { headers: NDJSON })
    const { inserted } = expectOk(stored).body
    const entry = stored.headers['offshoot-entry']
    expect(inserted).toBe(4500)
    expect(await newest(branches)).toMatchObject({ id: entry, counts: { inserted } })
    expectOk(await reverting(branches, { entry }))
    expect(await prices(branches)).toEqual({ a: 1, b: 2 })
    // A client that is gone in the middle leaves what was stored, and an entry for that.
    const body = new PassThrough()
    const answer = service.app.inject({
      method: 'POST',
      url: `${service.workspace}/db/${branches.database}:main/tables/items/bulk?mode=partial`,
      headers: { authorization: `Bearer ${service.key}`, ...NDJSON },
      payload: body,
    })
    body.write(lines)
    // The rest is too short for a part.
    await until(async () => {
      const { id, counts } = await newest(branches)
      return id !== entry && counts.inserted > 2500
    })
    body.destroy(new Error('gone'))
    await answer.catch(() => undefined)
    const failed = await newest(branches)
    expectOk(await reverting(branches, { entry: failed.id }))
    expect(await prices(branches)).toEqual({ a: 1, b: 2 })
  })

  it('cannot be taken back if an upsert has changed others', async () => {
    const branches = await open()
    const batch = Array.from({ length: 2500 }, (_, n) => ({ id: `p${n}`, price: n }))
    const changing = [...LOADED, { id: 'a', price: 5 }, { id: 'b', price: 'none' }]
    for (const [load, counts] of [
      [() => upsert(branches, changing), { inserted: 3, updated: 1 }],
      // The first part has changed nothing.
      [
        () => upsertLines(branches, [...batch, { id: 'a', price: 6 }]),
        { inserted: 2500, updated: 1 },
      ],
      [() => upsertLines(branches, [{ id: 'a', price: 7 }]), { inserted: 0, updated: 1 }],
    ] as const) {
      const answer = await load()
      expectOk(answer)
      const { id: entry, ...logged } = await newest(branches)
      expect(answer.headers['offshoot-entry']).toBe(entry)
      expect(logged).toMatchObject({ table: 'items', counts, notRevertible: 'replaced' })
      const refused = await reverting(branches, { entry })
      expect([refused.status, refused.body.code]).toEqual([409, 'not_revertible'])
    }
  })

  it('have no entry if an upsert has written none', async () => {
    const branches = await open()
    const unchanged = [
      { id: 'a', price: 1 },
      { id: 'b', price: 'none' },
    ]
    for (const load of [upsert, upsertLines]) {
      const answer = await load(branches, unchanged)
      expect(expectOk(answer).headers['offshoot-entry']).toBeUndefined()
    }
    expect(await newest(branches)).toBeUndefined()
  })

  it('are not deleted while others must link to them, and take what may go with them', async () => {
    const link = (name: string, onDelete: 'restrict' | 'cascade' | 'setNull') =>
      ({ name, type: 'link', link: { table: 'items', onDelete } }) as const
    const branches = await open()
    await branches.edit('main', { addTable: { table: 'uses' } })
    for (const onDelete of ['restrict', 'cascade', 'setNull'] as const) {
      await branches.edit('main', {
        addColumn: { table: 'uses', column: link(onDelete, onDelete) },
      })
    }
    await branches.bulk('main', 'items', LOADED)
    const { id: entry } = await newest(branches)
    await branches.put('main', 'uses', 'u', { restrict: 'x' })
    const refused = await reverting(branches, { entry })
    expect([refused.status, refused.body.code]).toEqual([409, 'merge_conflict'])
    expect(refused.body.conflicts).toMatchObject([
      { table: 'uses', kind: 'link', target: { table: 'items', id: 'x' } },
    ])
    await branches.patch('main', 'uses', 'u', { restrict: null })
    expectOk(await reverting(branches, { entry }))
    expect(await prices(branches)).toEqual({ a: 1, b: 2 })
  })

  it('stay on forks from before the revert, which lose them by a pull, as in git', async () => {
    const branches = await open()
    await branches.bulk('main', 'items', LOADED)
    const { id: entry } = await newest(branches)
    await branches.fork('dev')
    await branches.put('dev', 'items', 'd', { price: 4 })
    expectOk(await reverting(branches, { entry }))
    expect((await reverting(branches, { entry }, 'dev')).body.code).toBe('entry_not_found')
    expect(await prices(branches, { branch: 'dev' })).toMatchObject({ x: 10, d: 4 })
    await branches.merge('dev')
    expect(await prices(branches)).toEqual({ a: 1, b: 2, d: 4 })
    await branches.pull('dev')
    expect(await prices(branches, { branch: 'dev' })).toEqual({ a: 1, b: 2, d: 4 })
  })

  it.each(['int', 'uuid'] as const)('can have ids of the type %s', async (type) => {
    const branches = await open()
    const table = { table: 'typed', idType: type } as never
    await branches.edit('main', { addTable: table }, {
      addColumn: { table: 'typed', column: { name: 'price', type: 'int' } },
    } as never)
    await branches.bulk('main', 'typed', [{ price: 1 }, { price: 2 }])
    const { id: entry } = await newest(branches)
    await branches.bulk('main', 'typed', [{ price: 3 }])
    expectOk(await reverting(branches, { entry }))
    expect(Object.values(await prices(branches, { table: 'typed' }))).toEqual([3])
  })

  it('are gone with their table, and come back with it', async () => {
    const branches = await open()
    await branches.bulk('main', 'fresh', LOADED)
    const { id: entry } = await newest(branches)
    await branches.edit('main', { removeTable: { table: 'fresh' } })
    expect(expectOk(await reverting(branches, { entry })).body.merged).toBe(false)
    const removal = expectOk(await branches.call('main', 'GET', '/log?kind=migration&size=1')).body
    expectOk(await reverting(branches, { entry: removal.entries[0].id }))
    expect(Object.keys(await prices(branches, { table: 'fresh' }))).toHaveLength(3)
    // They have come back as other records of another table.
    const refused = await reverting(branches, { entry })
    expect(refused.body).toMatchObject({
      code: 'not_revertible',
      message: expect.stringContaining('its table was removed and brought back since'),
    })
  })

  it('are not known any more after 30 days', async () => {
    const branches = await open()
    await branches.bulk('main', 'items', LOADED)
    const { id: entry } = await newest(branches)
    const age = (days: number) =>
      service.database.pool.query(
        `update offshoot.loads set at = now() - make_interval(days => $2, mins => 1) where entry_id = $1`,
        [entry, days],
      )
    await age(29)
    while (await collectLoads(service.database)) {}
    expectOk(await reverting(branches, { entry, dryRun: true }))
    await age(30)
    while (await collectLoads(service.database)) {}
    const { status, body } = await reverting(branches, { entry })
    expect([status, body.code]).toEqual([409, 'state_collected'])
    expect(body.message).toContain('not kept any more')
    const left = await service.database.pool.query(
      'select from offshoot.loads where entry_id = $1',
      [entry],
    )
    expect(left.rows).toEqual([])
  })

  it('leave nothing behind if their load fails, or their database is deleted', async () => {
    const branches = await open()
    const count = async () => {
      const { rows } = await service.database.pool.query(
        `select count(*)::integer as count from offshoot.loads l
        where not exists (select from offshoot.log e where e.id = l.entry_id)
          or not exists (select from offshoot.databases d where d.id = l.database_id)`,
      )
      return rows[0].count
    }
    expect(await count()).toBe(0)
    const failing = linesOf([...LONG, { id: 'a', price: 1 }])
    const path = '/tables/items/bulk'
    const answer = await branches.call('main', 'POST', path, failing, { headers: NDJSON })
    expect(answer.status).toBe(400)
    await stream(branches, LONG)
    expect(await count()).toBe(0)
    const url = `/workspaces/${service.workspaceId}/dbs/${branches.database}`
    expectOk(await service.call('DELETE', url))
    expect(await count()).toBe(0)
  })

  it('need no checkpoint, so that loads do not take the place of other changes', async () => {
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

  it('brings back what computed columns use, and can be repeated', async () => {
    const branches = await open()
    await edit(
      branches,
      { addColumn: { table: 'items', column: size } },
      {
        addColumn: { table: 'items', column: { name: 'twice', type: 'int', computed: 'size * 2' } },
      },
      { addTable: { table: 'tags' } },
      {
        addColumn: {
          table: 'tags',
          column: { name: 'item', type: 'link', link: { table: 'tags' } },
        },
      },
    )
    await branches.patch('main', 'items', 'a', { size: 7 })
    const schema = await branches.schema('main')
    const entry = await edit(
      branches,
      { removeColumn: { table: 'items', column: 'twice' } },
      { removeColumn: { table: 'items', column: 'size' } },
      { removeTable: { table: 'tags' } },
    )
    expectOk(await reverting(branches, { entry }))
    expect(await branches.schema('main')).toEqual(schema)
    const again = expectOk(await reverting(branches, { entry })).body
    expect(again).toMatchObject({ merged: false, conflicts: [] })
    // A value that was changed since the first revert stays.
    await branches.patch('main', 'items', 'a', { size: 8 })
    expectOk(await reverting(branches, { entry }))
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ size: 8, twice: 16 })
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
