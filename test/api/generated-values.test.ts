import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
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
let branches: TestBranches
let userId: string

beforeAll(async () => {
  service = await createTestService()
  branches = await TestBranches.create(service, 'notes', { notes: COLUMNS })
  userId = (await service.call('GET', '/user')).body.id
})
afterAll(() => service.close())

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
