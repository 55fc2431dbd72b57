import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { deleteLostPins } from '../../packages/server/src/domain/merges/pins.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
/** Another process on the same PostgreSQL. */
let other: TestService
let number = 0

const limits = { automaticCheckpointsMax: 3, checkpointsPerBranchMax: 5 }

beforeAll(async () => {
  service = await createTestService({ limits })
  other = await createTestService({ url: service.url, limits })
})
afterAll(async () => {
  await other.close()
  await service.close()
})

/** A database with the records `a`, `b` and `c` on `main`. */
async function open(): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `past${++number}`, {
    items: [
      { name: 'name', type: 'string' },
      { name: 'price', type: 'int' },
    ],
  })
  for (const [index, id] of ['a', 'b', 'c'].entries()) {
    await branches.put('main', 'items', id, { name: id, price: index + 1 })
  }
  return branches
}

const checkpoint = async (branches: TestBranches, branch = 'main', fields: object = {}) =>
  expectOk(await branches.call(branch, 'POST', '/checkpoints', fields)).body

const list = async (branches: TestBranches, branch = 'main', query = '') =>
  expectOk(await branches.call(branch, 'GET', `/checkpoints${query}`)).body.checkpoints

/** Returns the prices by id, at a checkpoint or now. */
async function prices(branches: TestBranches, branch = 'main', at?: string) {
  const query = at === undefined ? '' : `?at=${encodeURIComponent(at)}`
  const answer = await branches.call(branch, 'POST', `/tables/items/query${query}`, {
    columns: ['price'],
  })
  const { records } = expectOk(answer).body
  return Object.fromEntries(
    records.map((record: { id: string; price: number }) => [record.id, record.price]),
  )
}

/** Changes, deletes and adds records. */
async function change(branches: TestBranches, branch = 'main'): Promise<void> {
  await branches.patch(branch, 'items', 'a', { price: 10 })
  await branches.remove(branch, 'items', 'b')
  await branches.put(branch, 'items', 'd', { price: 4 })
}

const BEFORE = { a: 1, b: 2, c: 3 }
const AFTER = { a: 10, c: 3, d: 4 }

const countPins = async (branches: TestBranches): Promise<number> => {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from offshoot.branches b
    join offshoot.databases d on d.id = b.database_id
    where d.name = ${branches.database} and b.deleted_at is not null`)
  return row?.count ?? 0
}

const countPast = async (branches: TestBranches): Promise<number> => {
  const heaps = await service.database.query<{ id: string; databaseId: string }>(sql`
    select h.id, h.database_id as "databaseId"
    from offshoot.heaps h
    join offshoot.databases d on d.id = h.database_id
    where d.name = ${branches.database} and h.kind = 'heap'`)
  let count = 0
  for (const { id, databaseId } of heaps) {
    const [row] = await service.database.query<{ xml: string }>(sql`
      select query_to_xml(${`select count(*) from offshoot_db_${databaseId}.past_${id}`}, false, true, '')::text as xml`)
    count += Number(/<count>(\d+)</.exec(row?.xml ?? '')?.[1] ?? 0)
  }
  return count
}

describe('a checkpoint', () => {
  it('is the whole branch at one moment, schema and rows', async () => {
    const branches = await open()
    const made = await checkpoint(branches, 'main', { name: 'start', note: 'as it was' })
    expect(made).toEqual({
      id: expect.stringMatching(/^cp_[0-9a-v]{20}$/),
      name: 'start',
      note: 'as it was',
      kind: 'manual',
      createdAt: expect.any(String),
      entry: expect.stringMatching(/^log_/),
    })
    await change(branches)
    await branches.edit('main', { addTable: { table: 'notes' } })
    await branches.edit('main', {
      renameColumn: { table: 'items', oldName: 'price', newName: 'cents' },
    })
    for (const at of ['start', made.id]) expect(await prices(branches, 'main', at)).toEqual(BEFORE)
    const past = expectOk(await branches.call('main', 'GET', '?at=start'))
    expect(past.headers['offshoot-checkpoint']).toBe(made.id)
    expect(past.body.schema.tables.map(({ name }: { name: string }) => name)).toEqual(['items'])
    const present = expectOk(await branches.call('main', 'GET', '')).body
    expect(present.schema.tables).toHaveLength(2)
    const columns = expectOk(
      await branches.call('main', 'GET', '/tables/items/schema?at=start'),
    ).body
    expect(columns.columns.map(({ name }: { name: string }) => name)).toEqual(['name', 'price'])
  })

  it('is listed newest first and in pages, read, renamed and deleted', async () => {
    const branches = await open()
    const made = []
    for (const name of ['one', 'two', 'three'])
      made.push(await checkpoint(branches, 'main', { name }))
    expect((await list(branches)).map(({ name }: { name: string }) => name)).toEqual([
      'three',
      'two',
      'one',
    ])
    const page = expectOk(await branches.call('main', 'GET', '/checkpoints?size=2')).body
    expect(page.meta).toEqual({ cursor: made[1].id, more: true })
    expect(await list(branches, 'main', `?after=${page.meta.cursor}`)).toMatchObject([
      { name: 'one' },
    ])
    const renamed = await branches.call('main', 'PATCH', '/checkpoints/two', {
      name: 'second',
      note: 'n',
    })
    expect(expectOk(renamed).body).toMatchObject({ id: made[1].id, name: 'second', note: 'n' })
    expect(expectOk(await branches.call('main', 'GET', '/checkpoints/second')).body.id).toBe(
      made[1].id,
    )
    expect((await branches.call('main', 'GET', '/checkpoints/two')).body.code).toBe(
      'checkpoint_not_found',
    )
    expect(
      (await branches.call('main', 'PATCH', '/checkpoints/second', { name: 'one' })).body.code,
    ).toBe('already_exists')
    expect((await branches.call('main', 'POST', '/checkpoints', { name: 'one' })).body.code).toBe(
      'already_exists',
    )
    expect((await branches.call('main', 'DELETE', '/checkpoints/second')).status).toBe(204)
    expect(await list(branches)).toHaveLength(2)
    expect((await branches.call('main', 'DELETE', '/checkpoints/second')).status).toBe(404)
  })

  it('is no branch in any list, and has its id as its name by default', async () => {
    const branches = await open()
    const { id, name } = await checkpoint(branches)
    expect(name).toBe(id)
    const { body } = await service.call('GET', `${service.workspace}/dbs/${branches.database}`)
    expect(body.branches.map((branch: { name: string }) => branch.name)).toEqual(['main'])
  })

  it('has a name of its user, which is never that of a checkpoint of the service', async () => {
    const branches = await open()
    const { id } = await checkpoint(branches)
    for (const name of ['cp_1', `${id}-after`, id]) {
      const body = { name }
      const answer = await branches.call('main', 'POST', '/checkpoints', body)
      expect([answer.status, answer.body.message]).toEqual([
        400,
        `body: field [name]: [${name}] begins with [cp_], as only ids do`,
      ])
      const other = await checkpoint(branches)
      const renamed = await branches.call('main', 'PATCH', `/checkpoints/${other.id}`, body)
      expect([renamed.status, renamed.body.code]).toEqual([400, 'invalid_request'])
      expectOk(await branches.call('main', 'DELETE', `/checkpoints/${other.id}`))
    }
    // Its own id is the name that it began with.
    expectOk(await branches.call('main', 'PATCH', `/checkpoints/${id}`, { name: 'named' }))
    expectOk(await branches.call('main', 'PATCH', `/checkpoints/${id}`, { name: id }))
    expect(await list(branches)).toMatchObject([{ id, name: id }])
  })

  it('after a change belongs to the entry of the log, and cannot be renamed', async () => {
    const branches = await open()
    expectOk(await branches.call('main', 'POST', '/checkpoints', { name: 'kept' }))
    await change(branches)
    expectOk(await branches.call('main', 'POST', '/reset', { at: 'kept' }))
    const { entries } = expectOk(await branches.call('main', 'GET', '/log?kind=reset')).body
    const [{ checkpoint: before, after }] = entries
    const renamed = await branches.call('main', 'PATCH', `/checkpoints/${after}`, { name: 'mine' })
    expect([renamed.status, renamed.body.code]).toEqual([409, 'conflict'])
    // So it is still deleted with the one before the change.
    expectOk(await branches.call('main', 'DELETE', `/checkpoints/${before}`))
    expectOk(await branches.call('main', 'DELETE', '/checkpoints/kept'))
    expect((await branches.call('main', 'GET', `/checkpoints/${after}`)).status).toBe(404)
  })

  it('is one of a limited number', async () => {
    const branches = await open()
    for (let count = 0; count < limits.checkpointsPerBranchMax; count++) await checkpoint(branches)
    const refused = await branches.call('main', 'POST', '/checkpoints')
    expect(refused).toMatchObject({ status: 422, body: { code: 'limit_reached' } })
    expect(await list(branches)).toHaveLength(limits.checkpointsPerBranchMax)
    expect(LIMITS.checkpointsPerBranchMax).toBe(1000)
  })

  it('needs a key that can write, and reading one does not', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'kept' })
    const key = await createKey(service, `reader${number}`, {
      fields: { scope: { access: 'read' } },
    })
    for (const [method, path, body] of [
      ['POST', '/checkpoints', {}],
      ['PATCH', '/checkpoints/kept', { name: 'x' }],
      ['DELETE', '/checkpoints/kept', undefined],
    ] as const) {
      expect((await branches.call('main', method, path, body, { key })).status).toBe(403)
    }
    expect(
      (await branches.call('main', 'GET', '/tables/items/data/a?at=kept', undefined, { key }))
        .status,
    ).toBe(200)
  })

  it('stays readable while others write, and when lost pins are collected', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'kept' })
    await change(branches)
    await service.database.query(sql`
      update offshoot.branches set deleted_at = now() - interval '1 day' where deleted_at is not null`)
    const [database] = await service.database.query<{ id: string }>(sql`
      select id from offshoot.databases where name = ${branches.database}`)
    await deleteLostPins(service.database, database?.id ?? '')
    await runBackground(service)
    expect(await prices(branches, 'main', 'kept')).toEqual(BEFORE)
    expect(await prices(branches.through(other), 'main', 'kept')).toEqual(BEFORE)
  })

  it('frees what only it needed when it is deleted', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'kept' })
    await change(branches)
    expect([await countPins(branches), await countPast(branches)]).toEqual([1, 2])
    expect(await prices(branches, 'main', 'kept')).toEqual(BEFORE)
    expect((await branches.call('main', 'DELETE', '/checkpoints/kept')).status).toBe(204)
    expect((await branches.call('main', 'GET', '/tables/items/data/a?at=kept')).status).toBe(404)
    await runBackground(service)
    expect([await countPins(branches), await countPast(branches)]).toEqual([0, 0])
    expect(await prices(branches)).toEqual(AFTER)
  })

  it('keeps no merges in the history once it is deleted', async () => {
    const branches = await open()
    const countMerges = async () => {
      const [row] = await service.database.query<{ count: number }>(sql`
        select count(*)::integer as count
        from offshoot.merges m
        join offshoot.branches b on b.id = m.into_branch_id
        join offshoot.databases d on d.id = b.database_id
        where d.name = ${branches.database}`)
      return row?.count
    }
    await branches.fork('dev')
    for (const price of [10, 20]) {
      await branches.patch('dev', 'items', 'a', { price })
      await branches.merge('dev')
      await checkpoint(branches)
    }
    await runBackground(service)
    expect(await countMerges()).toBe(2)
    for (const { id } of await list(branches)) {
      expectOk(await branches.call('main', 'DELETE', `/checkpoints/${id}`))
    }
    await runBackground(service)
    expect(await countMerges()).toBe(1)
  })

  it('ends with its branch', async () => {
    const branches = await open()
    await branches.fork('dev')
    await checkpoint(branches, 'dev', { name: 'kept' })
    await branches.patch('dev', 'items', 'a', { price: 9 })
    expect(await prices(branches, 'dev', 'kept')).toEqual(BEFORE)
    await branches.delete('dev')
    expect((await branches.call('dev', 'GET', '/tables/items/data/a?at=kept')).status).toBe(404)
    await runBackground(service)
    await runBackground(service)
    expect(await countPins(branches)).toBe(0)
  })
})

describe('a text that no name can be', () => {
  it.each([
    ['GET', '/tables/items/columns?at=%00'],
    ['GET', '/tables/items/data/a?at=a%00b'],
    ['GET', '/checkpoints/%00'],
    ['GET', '/checkpoints?after=%00'],
    ['GET', '/log?after=%00'],
    ['GET', '/diff?againstAt=%00'],
    ['POST', '/reset', { at: '\0' }],
    ['POST', '/revert', { entry: '\0' }],
    ['POST', '/revert', { from: '\0', to: 'a' }],
    ['POST', '/tables/items/columns', { name: 'e', type: 'enum', enum: { values: ['\0'] } }],
  ])('is refused: %s %s', async (method, path, body?: object) => {
    const branches = await open()
    const answer = await branches.call('main', method, path, body)
    expect([answer.status, answer.body.message]).toEqual([400, expect.stringContaining('NUL')])
  })
})

describe('reading the past', () => {
  it('is possible by every kind of read', async () => {
    const branches = await open()
    const { id } = await checkpoint(branches, 'main', { name: 'kept' })
    await change(branches)
    const read = async (method: string, path: string, body?: unknown) => {
      const answer = expectOk(await branches.call('main', method, path, body))
      expect(answer.headers['offshoot-checkpoint']).toBe(id)
      return answer.body
    }
    expect(await read('GET', '/tables/items/data/b?at=kept')).toMatchObject({ id: 'b', price: 2 })
    expect((await branches.call('main', 'GET', '/tables/items/data/d?at=kept')).status).toBe(404)
    const counted = await read('POST', '/tables/items/summarize?at=kept', {
      summaries: { sum: { sum: 'price' } },
    })
    expect(counted.summaries).toEqual([{ sum: 6 }])
    const aggregated = await read('POST', '/tables/items/aggregate?at=kept', {
      aggs: { all: { count: '*' } },
    })
    expect(aggregated.aggs).toEqual({ all: 3 })
    const got = await read('POST', '/transaction?at=kept', {
      operations: [{ get: { table: 'items', id: 'b', columns: ['price'] } }],
    })
    expect(got.results).toMatchObject([{ columns: { price: 2 } }])
    const found = await read('POST', '/tables/items/search?at=kept', { query: 'b' })
    expect(found.records).toMatchObject([{ id: 'b' }])
    const everywhere = await read('POST', '/search?at=kept', { query: 'b' })
    expect(everywhere.records).toMatchObject([{ id: 'b' }])
    const selected = await read('POST', '/sql?at=kept', {
      statement: 'select id, price from items order by id',
    })
    expect(selected.records).toEqual([
      { id: 'a', price: 1 },
      { id: 'b', price: 2 },
      { id: 'c', price: 3 },
    ])
    expect(
      (await branches.call('main', 'GET', '/tables/items/data/b')).headers['offshoot-checkpoint'],
    ).toBeUndefined()
  })

  it('takes a time for the newest checkpoint at or before it, and says which one', async () => {
    const branches = await open()
    const first = await checkpoint(branches)
    await service.database.query(sql`
      update offshoot.checkpoints set created_at = '2026-01-01T00:00:00Z' where id = ${first.id}`)
    await branches.patch('main', 'items', 'a', { price: 5 })
    const second = await checkpoint(branches)
    await change(branches)
    for (const [time, expected] of [
      ['2026-01-01T00:00:00Z', first.id],
      ['2026-01-01T01:00:00+01:00', first.id],
      ['2026-05-05T05:05:05.5Z', first.id],
      [second.createdAt, second.id],
      ['2999-01-01T00:00:00Z', second.id],
    ]) {
      const answer = await branches.call(
        'main',
        'GET',
        `/tables/items/data/a?at=${encodeURIComponent(time)}`,
      )
      expect([time, expectOk(answer).headers['offshoot-checkpoint']]).toEqual([time, expected])
    }
    const early = await branches.call('main', 'GET', '/tables/items/data/a?at=2025-12-31T23:59:59Z')
    expect(early).toMatchObject({ status: 404, body: { code: 'checkpoint_not_found' } })
    expect(early.body.message).toContain('no checkpoint at or before')
    expect((await branches.call('main', 'GET', '/tables/items/data/a?at=nothing')).status).toBe(404)
  })

  it('follows the name, not what a process remembers', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'x' })
    await change(branches)
    await checkpoint(branches, 'main', { name: 'y' })
    expect(await prices(branches, 'main', 'x')).toEqual(BEFORE)
    const elsewhere = branches.through(other)
    expectOk(await elsewhere.call('main', 'PATCH', '/checkpoints/x', { name: 'z' }))
    expectOk(await elsewhere.call('main', 'PATCH', '/checkpoints/y', { name: 'x' }))
    expect(await prices(branches, 'main', 'x')).toEqual(AFTER)
    expect(await prices(branches, 'main', 'z')).toEqual(BEFORE)
  })

  it('never changes it', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'kept' })
    for (const [method, path, body] of [
      ['PUT', '/tables/items/data/a?at=kept', { price: 0 }],
      ['PATCH', '/tables/items/data/a?at=kept', { price: 0 }],
      ['DELETE', '/tables/items/data/a?at=kept', undefined],
      ['POST', '/tables/items/bulk?at=kept', { records: [{}] }],
      [
        'POST',
        '/transaction?at=kept',
        {
          operations: [
            { get: { table: 'items', id: 'a', columns: ['price'] } },
            { delete: { table: 'items', id: 'a' } },
          ],
        },
      ],
      ['POST', '/sql?at=kept', { statement: "update items set price = 0 where id = 'a'" }],
    ] as const) {
      const answer = await branches.call('main', method, path, body)
      expect([path, answer.status, answer.body.code]).toEqual([path, 400, 'invalid_request'])
      expect(answer.body.message).toMatch(/a state of the past/)
    }
    expect(await prices(branches)).toEqual(BEFORE)
  })
})

describe('a fork at a checkpoint', () => {
  it('has its schema and rows, and can be merged', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'kept' })
    await change(branches)
    expectOk(await branches.call('old', 'PUT', '', { from: 'main', at: 'kept' }))
    expect(await prices(branches, 'old')).toEqual(BEFORE)
    await branches.patch('old', 'items', 'c', { price: 33 })
    expect(await prices(branches, 'main', 'kept')).toEqual(BEFORE)
    expectOk(await branches.call('old', 'POST', '/merge'))
    expect(await prices(branches)).toEqual({ ...AFTER, c: 33 })
    const missing = await branches.call('never', 'PUT', '', { from: 'main', at: 'nothing' })
    expect(missing).toMatchObject({ status: 404, body: { code: 'checkpoint_not_found' } })
  })

  it('merges what came later only once, also after a compaction', async () => {
    const branches = await open()
    await branches.fork('work')
    await branches.patch('work', 'items', 'a', { price: 7 })
    await branches.merge('work')
    await checkpoint(branches, 'main', { name: 'merged' })
    await branches.patch('work', 'items', 'c', { price: 30 })
    await branches.merge('work')
    await runBackground(service)
    expectOk(await branches.call('old', 'PUT', '', { from: 'main', at: 'merged' }))
    await branches.patch('old', 'items', 'a', { price: 70 })
    await branches.patch('work', 'items', 'c', { price: 31 })
    // The checkpoint contains the first merge, so only `old` has changed `a` since.
    expectOk(await branches.call('old', 'POST', '/pull', { from: 'work' }))
    expect(await prices(branches, 'old')).toEqual({ a: 70, b: 2, c: 31 })
  })
})

describe('a reset to a checkpoint', () => {
  it('takes a bad import back, and can be taken back itself', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'before-import' })
    await change(branches)
    await branches.edit('main', { removeColumn: { table: 'items', column: 'name' } })
    const dry = expectOk(
      await branches.call('main', 'POST', '/reset', { at: 'before-import', dryRun: true }),
    ).body
    expect(dry.difference.tables).toMatchObject([{ inserted: 1, updated: 1, deleted: 1 }])
    expect(await prices(branches)).toEqual(AFTER)
    const { entry } = expectOk(
      await branches.call('main', 'POST', '/reset', { at: 'before-import' }),
    ).body
    const log = expectOk(await branches.call('main', 'GET', '/log')).body.entries
    const reset = log.find(({ id }: { id: string }) => id === entry)
    expect(reset).toMatchObject({ kind: 'reset', toCheckpoint: expect.stringMatching(/^cp_/) })
    expect(Date.parse(reset.at)).toBeGreaterThan(0)
    expect(await prices(branches)).toEqual(BEFORE)
    expect((await branches.record('main', 'items', 'a')).name).toBe('a')
    // The checkpoint is still there, and so is the state before the reset.
    expect(await prices(branches, 'main', 'before-import')).toEqual(BEFORE)
    const [latest] = await list(branches)
    expect(latest).toMatchObject({ kind: 'automatic', before: 'reset' })
    await branches.patch('main', 'items', 'a', { price: 99 })
    expectOk(await branches.call('main', 'POST', '/reset', { at: latest.id }))
    expect(await prices(branches)).toEqual(AFTER)
    await runBackground(service)
    expect(await prices(branches)).toEqual(AFTER)
    expect(await prices(branches, 'main', 'before-import')).toEqual(BEFORE)
  })

  it('can be one of another branch', async () => {
    const branches = await open()
    await branches.fork('dev')
    await checkpoint(branches, 'dev', { name: 'kept' })
    await change(branches, 'dev')
    expectOk(await branches.call('main', 'POST', '/reset', { to: 'dev', at: 'kept' }))
    expect(await prices(branches)).toEqual(BEFORE)
    expect(await prices(branches, 'dev')).toEqual(AFTER)
  })
})

describe('the difference', () => {
  it('is between any two of branches and checkpoints', async () => {
    const branches = await open()
    const first = await checkpoint(branches, 'main', { name: 'first' })
    await branches.patch('main', 'items', 'a', { price: 10 })
    await checkpoint(branches, 'main', { name: 'second' })
    await branches.remove('main', 'items', 'b')
    const diff = async (branch: string, query: string) =>
      expectOk(await branches.call(branch, 'GET', `/diff?${query}`)).body
    const changes = async (branch: string, query: string) => {
      const { tables } = await diff(branch, query)
      return (tables[0]?.changes ?? []).map(
        ({ change, id }: { change: string; id: string }) => `${change} ${id}`,
      )
    }
    expect(await changes('main', 'againstAt=first')).toEqual(['updated a', 'deleted b'])
    expect(await changes('main', 'at=first')).toEqual(['updated a', 'inserted b'])
    expect(await changes('main', 'at=second&againstAt=first')).toEqual(['updated a'])
    expect(await diff('main', 'at=first&againstAt=second')).toMatchObject({
      checkpoint: first.id,
      against: { branch: 'main', at: 'checkpoint', checkpoint: expect.any(String) },
    })
    await branches.fork('dev')
    await branches.put('dev', 'items', 'e', { price: 5 })
    expect(await changes('dev', 'against=main&againstAt=second')).toEqual([
      'deleted b',
      'inserted e',
    ])
    expect((await branches.call('main', 'GET', '/diff?at=first&against=base')).status).toBe(400)
    expect((await branches.call('main', 'GET', '/diff?at=nothing')).status).toBe(404)
  })
})

describe('the service', () => {
  it('makes a checkpoint before merges, pulls, resets and edits that do more than add', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.put('dev', 'items', 'x', { price: 7 })
    await branches.merge('dev')
    await branches.put('main', 'items', 'y', { price: 8 })
    expectOk(await branches.call('dev', 'POST', '/pull'))
    expect(await list(branches, 'dev')).toMatchObject([{ kind: 'automatic', before: 'pull' }])
    expect(await prices(branches, 'dev', (await list(branches, 'dev'))[0].id)).toEqual({
      ...BEFORE,
      x: 7,
    })
    await branches.edit('main', { addTable: { table: 'empty' } })
    await branches.edit('main', { removeTable: { table: 'empty' } })
    await branches.edit('main', { removeColumn: { table: 'items', column: 'name' } })
    const made = await list(branches)
    expect(made.map((each: { before: string }) => each.before)).toEqual([
      'migration',
      'migration',
      'merge',
    ])
    expect(await prices(branches, 'main', made[2].id)).toEqual(BEFORE)
    const past = await branches.call('main', 'GET', `/tables/items/data/a?at=${made[0].id}`)
    expect(expectOk(past).body.name).toBe('a')
    const { entries } = expectOk(await branches.call('main', 'GET', '/log?kind=merge')).body
    expect(entries[0].checkpoint).toBe(made[2].id)
  })

  it('makes none before a merge that brings nothing, or is refused', async () => {
    const branches = await open()
    await branches.fork('dev')
    await branches.merge('dev')
    await branches.patch('dev', 'items', 'a', { price: 8 })
    await branches.patch('main', 'items', 'a', { price: 9 })
    expect((await branches.call('dev', 'POST', '/merge')).status).toBe(409)
    expect(await list(branches)).toEqual([])
  })

  it('keeps the newest of its checkpoints, and all of the user', async () => {
    const branches = await open()
    await checkpoint(branches, 'main', { name: 'mine' })
    await branches.fork('dev')
    for (let price = 10; price < 16; price++) {
      await branches.patch('dev', 'items', 'a', { price })
      await branches.merge('dev')
    }
    await runBackground(service)
    const kept = await list(branches)
    expect(kept.map(({ kind }: { kind: string }) => kind)).toEqual([
      'automatic',
      'automatic',
      'automatic',
      'manual',
    ])
    expect(await prices(branches, 'main', kept[0].id)).toEqual({ ...BEFORE, a: 14 })
    expect(await prices(branches, 'main', 'mine')).toEqual(BEFORE)
  })

  it('makes checkpoints on a schedule, and keeps as many as it says', async () => {
    const branches = await open()
    const schedule = { every: 60, keep: 2 }
    expect(
      expectOk(await branches.call('main', 'PATCH', '', { checkpoints: schedule })).body
        .checkpoints,
    ).toEqual(schedule)
    const pass = async () => {
      await service.database.query(sql`
        update offshoot.branches b
        set checkpoint_due = now() - interval '1 second'
        from offshoot.databases d
        where d.id = b.database_id and d.name = ${branches.database} and b.checkpoint_due is not null`)
      await runBackground(service)
    }
    for (let round = 0; round < 4; round++) await pass()
    await runBackground(service)
    expect(await list(branches)).toMatchObject([{ kind: 'scheduled' }, { kind: 'scheduled' }])
    expect(await list(branches)).toHaveLength(2)
    expectOk(await branches.call('main', 'PATCH', '', { checkpoints: null }))
    await pass()
    expect(await list(branches)).toHaveLength(2)
    for (const bad of [
      { every: 59, keep: 1 },
      { every: 60, keep: 0 },
      { every: 60, keep: 1001 },
      { every: 60 },
    ]) {
      expect((await branches.call('main', 'PATCH', '', { checkpoints: bad })).status).toBe(400)
    }
  })

  it('gives new branches the schedule of their rule', async () => {
    const branches = await open()
    const rules = [{ pattern: 'release-*', checkpoints: { every: 3600, keep: 24 } }]
    expectOk(
      await service.call('PUT', `${service.workspace}/dbs/${branches.database}/branchRules`, {
        body: { rules },
      }),
    )
    await branches.fork('release-1')
    expect(expectOk(await branches.call('release-1', 'GET', '')).body.checkpoints).toEqual({
      every: 3600,
      keep: 24,
    })
  })
})
