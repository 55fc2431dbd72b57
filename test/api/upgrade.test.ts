import { readFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * The fixture is a catalogue of the first version, filled by the server of that version: a database
 * with branches, forks of forks, schema edits on them, a deleted branch, keys and users.
 */

const FIXTURE = new URL('../fixtures/catalogue-001.sql', import.meta.url)
const KEY = 'off_fixture_of_the_first_catalogue_0000000000001'

let own: TestDatabase
let service: TestService
let other: TestService
let branches: TestBranches
let scopedKey: string
let secondKey: string

beforeAll(async () => {
  own = await createTestDatabase()
  const text = await readFile(FIXTURE, 'utf8')
  scopedKey = /^-- scoped key: (.*)$/m.exec(text)?.[1] ?? ''
  secondKey = /^-- second user's key: (.*)$/m.exec(text)?.[1] ?? ''
  await own.pool.query(text)
  // Keys expire after a day, and the fixture is older.
  await own.pool.query('update offshoot.idempotency_keys set created_at = now()')
  // Two processes start at the same time, as in a rolling upgrade.
  const services = await Promise.all([0, 1].map(() => createTestService({ url: own.url })))
  const [first, second] = services as [TestService, TestService]
  // Neither process created a first key, because the instance already has users.
  expect([first.key, second.key]).toEqual(['', ''])
  service = { ...first, key: KEY, call: withKey(first) }
  other = { ...second, key: KEY, call: withKey(second) }
  branches = new TestBranches(service, 'shop')
})
afterAll(async () => {
  await service.close()
  await other.close()
  await own.close()
})

function withKey(made: TestService): TestService['call'] {
  return (method, path, options) => made.call(method, path, { key: KEY, ...options })
}

async function names(branch: string, column = 'name'): Promise<Record<string, unknown>> {
  const body = { columns: ['*'], sort: { id: 'asc' } }
  const { records } = expectOk(
    await branches.call(branch, 'POST', '/tables/people/query', body),
  ).body
  return Object.fromEntries(
    records.map((record: Record<string, unknown>) => [record.id, record[column]]),
  )
}

describe('a catalogue of the first version', () => {
  it('is brought to this one once, by whichever of two processes comes first', async () => {
    const applied = await service.database.query<{ number: number }>(sql`
      select number from offshoot.catalogue_migrations order by number`)
    expect(applied.length).toBeGreaterThan(2)
    expect(new Set(applied.map(({ number }) => number)).size).toBe(applied.length)
  })

  it('has its users, keys and members', async () => {
    expect((await service.call('GET', '/user')).body).toMatchObject({ fullname: 'Administrator' })
    const { body } = await service.call('GET', '/user', { key: secondKey })
    expect(body).toMatchObject({ email: 'second@example.com' })
    const { workspaces } = (await service.call('GET', '/workspaces', { key: secondKey })).body
    expect(workspaces).toEqual([expect.objectContaining({ id: service.workspaceId })])
    const read = (branch: string): Promise<Answer> =>
      branches.call(branch, 'GET', '/tables/people/data/p1', undefined, { key: scopedKey })
    expect((await read('dev')).status).toBe(200)
    expect((await read('main')).status).toBe(404)
  })

  it('has every record of every branch, each as its own branch saw it', async () => {
    expect(await branches.record('main', 'people', 'p1')).toMatchObject({
      id: 'p1',
      name: 'Person 1',
      email: 'p1@example.com',
      age: 22,
      score: 0.25,
      active: false,
      seen: '2026-01-01T10:00:00.500Z',
      bio: 'It\'s "1"\n\\ é 😀',
      tags: ['a', 't1'],
      extra: { n: 1, list: [1, 'x', null] },
      place: [1, 0.5, -1],
      address: { street: 'Road 1', number: 1 },
      service: { version: 1 },
    })
    const ofMain = { p1: 'Person 1', p2: 'Person 2', p3: 'Person 3', p5: 'Person 5' }
    expect(await names('main')).toEqual({ ...ofMain, p4: 'Changed on main' })
    const { p3: _gone, ...rest } = ofMain
    const ofDev = { ...rest, p2: 'Changed on dev', p4: 'Person 4' }
    expect(await names('dev')).toEqual(ofDev)
    expect(await names('deep')).toEqual(ofDev)
    expect(await names('bare')).toEqual({})
    expect(await names('deep', 'nick')).toMatchObject({ p1: 'deepest', p2: 'none' })
    expect(await names('dev', 'age')).toMatchObject({ p5: 99 })
    expect(await names('deep', 'age')).toMatchObject({ p5: 25 })
    expect((await branches.call('gone', 'GET', '')).status).toBe(404)
    const { body } = await service.call(
      'GET',
      `${service.workspace}/dbs/shop/resolveBranch?gitBranch=feature/dev`,
    )
    expect(body).toMatchObject({ branch: 'dev', reason: { code: 'FOUND_IN_MAPPING' } })
  })

  it('keeps schemas, with their history', async () => {
    expect((await branches.schema('main')).people).toContain('bio')
    const deep = (await branches.schema('deep')).people
    expect(deep).toEqual(expect.arrayContaining(['story', 'nick']))
    expect(deep).not.toContain('score')
    const body = {}
    const { logs } = expectOk(await branches.call('deep', 'POST', '/schema/history', body)).body
    expect(logs.length).toBeGreaterThan(1)
  })

  it('can be written to, on every branch and by every process', async () => {
    const through = branches.through(other)
    for (const branch of ['main', 'dev', 'deep', 'bare']) {
      await branches.put(branch, 'people', 'new', { name: `On ${branch}` })
      expect(await through.record(branch, 'people', 'new')).toMatchObject({ name: `On ${branch}` })
      await through.remove(branch, 'people', 'new')
      expect(await branches.record(branch, 'people', 'new')).toBeUndefined()
    }
    const taken = await branches.call('deep', 'PUT', '/tables/people/data/other', {
      name: 'x',
      email: 'p5@example.com',
    })
    expect(taken.status).toBe(400)
    // Idempotency keys are kept too.
    const repeated = await branches.call(
      'main',
      'POST',
      '/transaction',
      { operations: [] },
      { headers: { 'idempotency-key': 'fixture-1' } },
    )
    expect(repeated.body).toMatchObject({ code: 'idempotency_mismatch' })
  })

  it('starts records at version 0 that were deleted by an earlier version', async () => {
    expect(await branches.record('dev', 'people', 'p3')).toBeUndefined()
    for (const version of [0, 1]) {
      await branches.put('dev', 'people', 'p3', { name: 'again' })
      expect(await branches.record('dev', 'people', 'p3')).toMatchObject({ service: { version } })
    }
    await branches.remove('dev', 'people', 'p3')
  })

  it('takes part in what later versions can do', async () => {
    await branches.edit('main', {
      addColumn: { table: 'orders', column: { name: 'receipt', type: 'file' } },
    })
    await branches.patch('main', 'orders', 'o1', {
      receipt: { name: 'r.txt', mediaType: 'text/plain', base64Content: 'aGVsbG8=' },
    })
    const file = await branches.call('main', 'GET', '/tables/orders/data/o1/column/receipt/file')
    expect(file.body).toBe('hello')
    await branches.fork('later', 'main')
    await branches.patch('later', 'people', 'p1', { age: 1 })
    expect((await branches.diff('later')).tables).toMatchObject([{ name: 'people', updated: 1 }])
    expect(await branches.merge('later')).toMatchObject({ merged: true })
    expect(await branches.record('main', 'people', 'p1')).toMatchObject({ age: 1 })
    expect((await branches.diff('deep', '?size=0')).tables).toMatchObject([
      { name: 'people', updated: 1 },
    ])
    await branches.reset('later')
    await branches.delete('deep')
    await branches.delete('dev')
    await runBackground(service)
    expect(await names('main')).toMatchObject({ p4: 'Changed on main' })
  })
})
