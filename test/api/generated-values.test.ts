import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { reviewed } from '../support/reviewed.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Columns that get their values from the service, by each way to write records.
 */

const UUID_7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
const OLD = '2000-01-01T00:00:00.000Z'

const COLUMNS: readonly Column[] = [
  { name: 'key', type: 'uuid', unique: true, notNull: true, generate: 'uuid' },
  { name: 'author', type: 'string', notNull: true, generate: 'user' },
  { name: 'changed', type: 'datetime', notNull: true, generate: 'updatedAt' },
  { name: 'at', type: 'time', defaultValue: 'now' },
  { name: 'n', type: 'int' },
  { name: 'number', type: 'int', unique: true, notNull: true, generate: 'sequence' },
]

let service: TestService
/** Keeps writers waiting for a few records only. */
let large: TestService
let branches: TestBranches
let userId: string

beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 20 } })
  large = await createTestService({
    url: service.url,
    limits: { mergeLockedRowsMax: 1, ruleLockedRowsMax: 1 },
  })
  branches = await TestBranches.create(service, 'notes', { notes: COLUMNS })
  userId = (await service.call('GET', '/user')).body.id
})
afterAll(async () => {
  await large.close()
  await service.close()
})

const call = (method: string, path: string, body?: unknown) =>
  branches.call('main', method, path, body)

async function note(id: string, branch = 'main') {
  return (await branches.read(branch, 'notes', [id]))[id] as Record<string, unknown>
}

describe('a new record gets its values', () => {
  const ways: readonly [string, (id: string) => Promise<unknown>][] = [
    ['a single write', (id) => branches.put('main', 'notes', id, { n: 1 })],
    ['a bulk insert', (id) => branches.bulk('main', 'notes', [{ id, n: 1 }])],
    [
      'a transaction',
      async (id) => {
        const operations = [{ insert: { table: 'notes', record: { id, n: 1 } } }]
        expectOk(await call('POST', '/transaction', { operations }))
      },
    ],
    [
      'SQL',
      async (id) => {
        const statement = `insert into notes (id, n) values ('${id}', 1)`
        expectOk(await call('POST', '/sql', { statement }))
      },
    ],
    [
      'an upsert',
      async (id) => {
        expectOk(await call('POST', '/tables/notes/upsert', { records: [{ id, n: 1 }] }))
      },
    ],
    [
      'an upsert of one record',
      async (id) => {
        expectOk(await call('POST', `/tables/notes/data/${id}`, { n: 1 }))
      },
    ],
    [
      'an upsert in a transaction',
      async (id) => {
        const operations = [{ update: { table: 'notes', id, fields: { n: 1 }, upsert: true } }]
        expectOk(await call('POST', '/transaction', { operations }))
      },
    ],
    [
      'a stream',
      async (id) => {
        const headers = { 'content-type': 'application/x-ndjson' }
        const line = JSON.stringify({ id, n: 1 })
        const answer = await branches.call('main', 'POST', '/tables/notes/bulk', line, { headers })
        expectOk(answer)
      },
    ],
  ]

  it.each(ways)('by %s', async (way, write) => {
    const id = way.replaceAll(' ', '-')
    await write(id)
    const { key, author, changed, at, n, number } = await note(id)
    expect(number).toEqual(expect.any(Number))
    expect(key).toMatch(UUID_7)
    expect(author).toBe(userId)
    expect(String(changed)).toMatch(/^20\d\d-.*Z$/)
    expect(String(at)).toMatch(/^\d\d:\d\d:\d\d/)
    expect(n).toBe(1)
  })

  it('unless a request has them', async () => {
    const given = { key: '0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f', author: 'ada', changed: OLD }
    await branches.put('main', 'notes', 'given', given)
    expect(await note('given')).toMatchObject(given)
  })
})

describe('the time of a change', () => {
  const changes: readonly [string, (id: string) => Promise<unknown>][] = [
    ['an update', (id) => branches.patch('main', 'notes', id, { n: 2 })],
    ['arithmetic', (id) => branches.patch('main', 'notes', id, { n: { $increment: 1 } })],
    [
      'SQL',
      async (id) => {
        const statement = `update notes set n = 2 where id = '${id}'`
        expectOk(await call('POST', '/sql', { statement }))
      },
    ],
    [
      'an upsert',
      async (id) => {
        expectOk(await call('POST', '/tables/notes/upsert', { records: [{ id, n: 2 }] }))
      },
    ],
    [
      'an update of a set',
      async (id) => {
        const body = { filter: { id }, set: { n: 2 } }
        expectOk(await call('PATCH', '/tables/notes/data', body))
      },
    ],
  ]

  it.each(changes)('is set by %s', async (way, change) => {
    const id = `changed-${way.replaceAll(' ', '-')}`
    await branches.put('main', 'notes', id, { n: 1, changed: OLD })
    const before = await note(id)
    await change(id)
    const after = await note(id)
    expect(after.n).toBe(2)
    expect(after.changed).not.toBe(OLD)
    expect({ ...after, n: 1, changed: OLD }).toEqual(before)
  })

  it('stays if an upsert changes nothing', async () => {
    await branches.put('main', 'notes', 'equal', { n: 1, changed: OLD })
    const body = { records: [{ id: 'equal', n: 1 }] }
    const { results } = expectOk(await call('POST', '/tables/notes/upsert', body)).body
    expect(results).toMatchObject([{ outcome: 'unchanged' }])
    expect((await note('equal')).changed).toBe(OLD)
  })

  it('is no conflict in a merge', async () => {
    const columns: readonly Column[] = [...COLUMNS, { name: 'm', type: 'int' }]
    const own = await TestBranches.create(service, 'merged-times', { notes: columns })
    await own.put('main', 'notes', 'a', { n: 1, m: 1 })
    await own.fork('dev')
    await own.patch('dev', 'notes', 'a', { n: 2, changed: OLD })
    await own.patch('main', 'notes', 'a', { m: 2 })
    await own.merge('dev')
    const merged = (await own.read('main', 'notes', ['a'])).a
    expect(merged).toMatchObject({ n: 2, m: 2, changed: OLD })
  })
})

describe('a definition', () => {
  it.each([
    [{ name: 'x', type: 'int', generate: 'uuid' }, '[uuid] is not possible for type [int]'],
    [{ name: 'x', type: 'datetime', generate: 'user' }, '[user] is not possible for type'],
    [{ name: 'x', type: 'string', generate: 'user', unique: true }, 'for a unique column'],
    [
      { name: 'x', type: 'string', generate: 'user', defaultValue: 'y' },
      'both fields [generate] and [defaultValue]',
    ],
  ])('%j is refused', async (column, message) => {
    const answer = await call('POST', '/tables/notes/columns', column)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('table [notes]: column [x]: ')
    expect(answer.body.message).toContain(message)
  })

  it('is read as it was written, and can be changed', async () => {
    const { columns } = expectOk(await call('GET', '/tables/notes/schema')).body
    expect(columns).toEqual(COLUMNS)
    const path = '/tables/notes/columns/at'
    expectOk(await call('PATCH', path, { defaultValue: null, generate: 'updatedAt' }))
    expect(expectOk(await call('GET', path)).body).toEqual({
      ...{ name: 'at', type: 'time', generate: 'updatedAt' },
    })
    expectOk(await call('PATCH', path, { generate: null }))
    expect(expectOk(await call('GET', path)).body).toEqual({ name: 'at', type: 'time' })
  })
})

describe('the numbers of a sequence', () => {
  const numbers = async (branch: string) => {
    const statement = 'select number from tickets order by number'
    const { body } = expectOk(await own.call(branch, 'POST', '/sql', { statement }))
    return (body as { records: { number: number }[] }).records.map(({ number }) => number)
  }
  let own: TestBranches
  beforeAll(async () => {
    own = await TestBranches.create(service, 'tickets', {
      tickets: [
        { name: 'number', type: 'int', unique: true, notNull: true, generate: 'sequence' },
        { name: 'title', type: 'string' },
      ],
    })
  })

  it('are shared by all branches, and go on after one that a record has', async () => {
    await own.bulk('main', 'tickets', [{ title: 'a' }, { title: 'b' }])
    await own.fork('dev')
    await own.bulk('dev', 'tickets', [{ title: 'c' }])
    await own.bulk('main', 'tickets', [{ title: 'd', number: 10 }, { title: 'e' }])
    expect(await numbers('main')).toEqual([1, 2, 10, 11])
    expect(await numbers('dev')).toEqual([1, 2, 3])
    await own.merge('dev')
    expect(await numbers('main')).toEqual([1, 2, 3, 10, 11])
  })

  it('stay as they are when a record changes', async () => {
    await own.put('main', 'tickets', 'x', { title: 'f', number: 20 })
    await own.patch('main', 'tickets', 'x', { title: 'g' })
    const body = { records: [{ id: 'x', title: 'h' }] }
    expectOk(await own.call('main', 'POST', '/tables/tickets/upsert', body))
    expect(await own.read('main', 'tickets', ['x'])).toMatchObject({
      x: { title: 'h', number: 20 },
    })
  })

  it('are whole numbers only', async () => {
    const column = { name: 'other', type: 'string', generate: 'sequence' }
    const answer = await own.call('main', 'POST', '/tables/tickets/columns', column)
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_schema' } })
  })
})

describe('a sequence goes on after the numbers that there are', () => {
  const Q: Column = { name: 'q', type: 'int', generate: 'sequence' }
  let count = 0

  /** Returns branches with a table `t` of three records. */
  async function numbered(...columns: readonly Column[]): Promise<TestBranches> {
    const own = await TestBranches.create(service, `numbered-${++count}`, { t: columns })
    await own.bulk('main', 't', [{ id: 'a' }, { id: 'b' }, { id: 'c' }])
    return own
  }
  const alter = async (own: TestBranches, body: object, branch = 'main'): Promise<string> =>
    expectOk(await own.call(branch, 'PATCH', '/tables/t/columns/q', body)).body.entry
  /** Returns the number of a new record. */
  async function next(own: TestBranches, branch = 'main'): Promise<unknown> {
    const { id } = expectOk(await own.call(branch, 'POST', '/tables/t/data', {})).body
    return (await own.record(branch, 't', id)).q
  }

  it.each([false, true])('when its column comes back (unique: %s)', async (unique) => {
    const own = await numbered({ ...Q, ...(unique && { unique }) })
    await own.fork('dev')
    const { entry } = expectOk(await own.call('main', 'DELETE', '/tables/t/columns/q')).body
    expectOk(await own.call('main', 'POST', '/revert', { entry }))
    expect(await next(own)).toBe(4)
    expect(await next(own, 'dev')).toBe(5)
    expect(await next(own)).toBe(6)
  })

  it.each([
    ['the same values', 'q', 4],
    ['greater values', 'q + 10', 14],
  ])('when an expression gives it %s', async (_, using, expected) => {
    const own = await numbered({ ...Q, unique: true })
    await own.fork('dev')
    const entry = await alter(own, { using })
    expect(await next(own)).toBe(expected)
    expect(await next(own, 'dev')).toBe(expected + 1)
    const taken = { strategy: 'theirs', allowDataLoss: true }
    expectOk(await own.call('main', 'POST', '/revert', { entry, ...taken }))
    expect(await next(own)).toBe(expected + 2)
  })

  it('when a column with values gets a sequence', async () => {
    const own = await numbered({ name: 'q', type: 'int' })
    await own.patch('main', 't', 'a', { q: 7 })
    await own.fork('dev')
    await alter(own, { generate: 'sequence' }, 'dev')
    expect(await next(own, 'dev')).toBe(8)
    await own.patch('main', 't', 'b', { q: 20 })
    await own.merge('dev')
    expect(await next(own)).toBe(21)
    expect(await next(own, 'dev')).toBe(22)
  })

  it('when a branch without the sequence is merged', async () => {
    const own = await numbered({ name: 'q', type: 'int' })
    await own.fork('dev')
    await alter(own, { generate: 'sequence' })
    await own.patch('dev', 't', 'a', { q: 30 })
    await own.merge('dev')
    expect(await next(own)).toBe(31)
  })

  it('when many records are looked at while others write', async () => {
    const own = (await numbered({ name: 'q', type: 'int' })).through(large)
    await own.patch('main', 't', 'a', { q: 7 })
    await own.fork('dev')
    await alter(own, { generate: 'sequence' }, 'dev')
    expect(await next(own, 'dev')).toBe(8)
    await own.patch('main', 't', 'b', { q: 20 })
    await own.merge('dev')
    expect(await next(own)).toBe(21)
  })

  it('when a removed sequence comes back', async () => {
    const own = await numbered(Q)
    const entry = await alter(own, { generate: null })
    await own.patch('main', 't', 'a', { q: 40 })
    expectOk(await own.call('main', 'POST', '/revert', { entry }))
    expect(await next(own)).toBe(41)
  })

  it('in the same transaction of SQL', async () => {
    const own = await numbered({ name: 'q', type: 'int' })
    await own.patch('main', 't', 'a', { q: 5 })
    const statement = `begin;
      create sequence t_q_seq;
      alter table t alter column q set default nextval('t_q_seq');
      alter table t add column r serial;
      insert into t (id) values ('d');
      commit`
    expectOk(await own.call('main', 'POST', '/sql', { statement }))
    expect(await own.record('main', 't', 'd')).toMatchObject({ q: 6, r: 4 })
  })

  it.each([
    ['an update', 'PATCH', '/tables/t/data/a', { q: 9 }],
    ['an update of a set', 'PATCH', '/tables/t/data', { filter: { id: 'a' }, set: { q: 9 } }],
    ['SQL', 'POST', '/sql', { statement: `update t set q = 4 + 5 where id = 'a'` }],
    [
      'SQL that changes instead of inserting',
      'POST',
      '/sql',
      { statement: `insert into t (id) values ('a') on conflict (id) do update set q = 9` },
    ],
    [
      'a transaction',
      'POST',
      '/transaction',
      { operations: [{ update: { table: 't', id: 'a', fields: { q: 9 } } }] },
    ],
    ['an upsert', 'POST', '/tables/t/upsert', { records: [{ id: 'a', q: 9 }] }],
  ])('that %s writes', async (_, method, path, body) => {
    const own = await numbered({ ...Q, unique: true })
    expectOk(await own.call('main', method, path, body))
    expect(await next(own)).toBe(10)
  })

  it('that a resolution of a merge gives', async () => {
    const own = await numbered({ ...Q, unique: true })
    await own.fork('dev')
    await own.patch('main', 't', 'a', { q: 10 })
    await own.patch('dev', 't', 'a', { q: 11 })
    const decisions = [{ table: 't', id: 'a', columns: { q: { value: 50 } } }]
    await own.merge('dev', { resolutions: await reviewed(own, decisions) })
    expect(await next(own)).toBe(51)
  })

  it('and does not repeat one that arithmetic has taken', async () => {
    const own = await numbered({ ...Q, unique: true })
    await own.patch('main', 't', 'c', { q: { $increment: 1 } })
    const refused = await own.call('main', 'POST', '/tables/t/data', {})
    expect(refused).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
    expect(await next(own)).toBe(5)
  })
})
