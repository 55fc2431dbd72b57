import { createHash } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { collectAnswers } from '../../packages/server/src/data/records/idempotency.js'
import {
  ANSWER_ENTRY_BYTES,
  KEPT_ANSWERS_BYTES_GOAL,
  KEPT_ANSWERS_BYTES_MAX,
} from '../../packages/server/src/data/records/kept-answers.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import {
  type Description,
  exampleRequest,
  findOperation,
  type Route,
  watchRoutes,
} from '../support/routes.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

let service: TestService
let call: BranchCall
let routes: readonly Route[]
let description: Description
let number = 0

beforeAll(async () => {
  const watched = watchRoutes()
  service = await createTestService()
  watched.stop()
  routes = watched.routes
  description = (await service.call('GET', '/openapi.json', { key: null })).body
  call = await createTables(service, 'shop', {
    users: [
      { name: 'name', type: 'string' },
      { name: 'email', type: 'string', unique: true },
    ],
  })
})
afterAll(() => service.close())

const HEADER = 'Idempotency-Key'
const newKey = () => ({ [HEADER]: `key-${++number}` })

async function count(branch = call): Promise<number> {
  const body = { summaries: { total: { count: '*' } } }
  const answer = expectOk(await branch('POST', '/tables/users/summarize', { body }))
  return answer.body.summaries[0].total
}

/** The requests that accept a key. Each creates records, and returns the ids of all of them. */
const CREATIONS: Record<
  string,
  { url: string; body: unknown; created: number; idsOf(body: Answer['body']): string[] }
> = {
  createRecord: {
    url: '/tables/users/data',
    body: { name: 'A' },
    created: 1,
    idsOf: (body) => [body.id],
  },
  'createRecord with columns': {
    url: '/tables/users/data?columns=name',
    body: { name: 'A' },
    created: 1,
    idsOf: (body) => [body.id],
  },
  insertRecords: {
    url: '/tables/users/bulk',
    body: { records: [{ name: 'A' }, { name: 'B' }] },
    created: 2,
    idsOf: (body) => body.recordIDs,
  },
  'insertRecords with columns': {
    url: '/tables/users/bulk?columns=name',
    body: { records: [{ name: 'A' }, { name: 'B' }] },
    created: 2,
    idsOf: (body) => body.records.map(({ id }: { id: string }) => id),
  },
  runTransaction: {
    url: '/transaction',
    body: {
      operations: [
        { insert: { table: 'users', record: { name: 'A' } } },
        { insert: { table: 'users', record: { id: 'passing', name: 'B' } } },
        { delete: { table: 'users', id: 'passing' } },
        { update: { table: 'users', id: 'lasting', fields: { name: 'C' }, upsert: true } },
      ],
    },
    created: 2,
    idsOf: (body) => [body.results[0].id, body.results[3].id],
  },
}

describe('an Idempotency-Key', () => {
  it('is documented where it is accepted, ignored by reads, and refused by all other operations', async () => {
    const values = {
      workspaceId: service.workspaceId,
      databaseName: 'shop',
      databaseBranch: 'shop:main',
      tableName: 'users',
      branchName: 'main',
      recordId: 'rec_x',
      columnName: 'email',
    }
    const outcomes: Record<'accepted' | 'ignored' | 'refused', string[]> = {
      accepted: [],
      ignored: [],
      refused: [],
    }
    for (const route of routes) {
      const operation = findOperation(description, route) as
        | { operationId: string; parameters?: { name: string }[] }
        | undefined
      if (operation === undefined || ['GET', 'HEAD'].includes(route.method)) continue
      const { operationId, parameters = [] } = operation
      if (parameters.some(({ name }) => name === HEADER)) {
        outcomes.accepted.push(operationId)
        continue
      }
      const { path } = exampleRequest(description, route, values)
      const answer = await service.call(route.method, path, { headers: newKey() })
      const isRefused = answer.status === 400 && answer.body.message?.includes(HEADER)
      outcomes[isRefused ? 'refused' : 'ignored'].push(operationId)
    }
    expect(outcomes.accepted.sort()).toEqual(['createRecord', 'insertRecords', 'runTransaction'])
    expect(outcomes.ignored.sort()).toEqual([
      'aggregateRecords',
      'compareBranches',
      'compareSchema',
      'previewSchema',
      'queryRecords',
      'searchBranch',
      'searchTable',
      'searchVectors',
      'summarizeRecords',
    ])
    expect(outcomes.refused.length).toBeGreaterThan(40)
    expect(outcomes.refused).toEqual(
      expect.arrayContaining(['replaceRecord', 'upsertRecord', 'runSql', 'createBranch']),
    )
    // Nothing was executed.
    expect(expectOk(await call('GET', '')).body.branchName).toBe('main')
    const { body } = await service.call('GET', `/db/shop:main/tables/users/data/rec_x`)
    expect(body.code).toBe('record_not_found')
  })

  for (const [name, { url, body, created, idsOf }] of Object.entries(CREATIONS)) {
    const branchOf = async () => {
      const branch = branchCall(service, 'shop', { branch: `branch${++number}` })
      expectOk(await branch('PUT', ''))
      return branch
    }

    it(`executes ${name} once`, async () => {
      const branch = await branchOf()
      const before = await count(branch)
      const headers = newKey()
      const send = () => branch('POST', url, { body, headers })
      const answers = await Promise.all([send(), send(), send()])
      const [first] = answers
      for (const answer of [...answers, await send()]) {
        expect([answer.status, answer.body]).toEqual([first?.status, first?.body])
      }
      expect(first?.status).toBe(name.startsWith('createRecord') ? 201 : 200)
      expect(await count(branch)).toBe(before + created)
      const other = await branch('POST', url.replace('users', 'users'), {
        body: { ...(body as object), more: 1 },
        headers,
      })
      expect([400, 422]).toContain(other.status)
    })

    it(`does not answer ${name} with records that were deleted since`, async () => {
      const branch = await branchOf()
      const headers = newKey()
      const send = () => branch('POST', url, { body, headers })
      const ids = idsOf(expectOk(await send()).body)
      const before = await count(branch)
      expectOk(await branch('PATCH', `/tables/users/data/${ids[0]}`, { body: { name: 'new' } }))
      expectOk(await send())
      expectOk(await branch('DELETE', `/tables/users/data/${ids.at(-1)}`))
      const repeated = await send()
      expect([repeated.status, repeated.body.code]).toEqual([409, 'idempotency_outdated'])
      expect(repeated.body.message).toContain(`[${ids.at(-1)}]`)
      expect(await count(branch)).toBe(before - 1)
    })

    it(`executes ${name} again after a reset`, async () => {
      const branch = await branchOf()
      const before = await count(branch)
      const headers = newKey()
      const send = () => branch('POST', url, { body, headers })
      const first = idsOf(expectOk(await send()).body)
      expectOk(await branch('POST', '/reset'))
      expect(await count(branch)).toBe(before)
      const second = idsOf(expectOk(await send()).body)
      expect(second[0]).not.toBe(first[0])
      expect(await count(branch)).toBe(before + created)
      expect(idsOf(expectOk(await send()).body)).toEqual(second)
    })
  }

  it('is stored as earlier versions did, so that an upgrade executes no request again', async () => {
    const branch = branchCall(service, 'shop', { branch: 'upgraded' })
    expectOk(await branch('PUT', ''))
    const user = expectOk(await service.call('GET', '/user')).body.id
    const [place] = await service.database.query<{ id: string; schema: string }>(sql`
      select id, 'offshoot_db_' || database_id as schema from offshoot.branches
      where name = 'upgraded' and deleted_at is null`)
    const stored = async (): Promise<string[]> => {
      const rows = await service.database.query<{ hash: string }>(sql`
        select encode(hash, 'hex') as hash
        from ${ident(place?.schema ?? '')}.idempotency_keys`)
      return rows.map(({ hash }) => hash)
    }
    const hashOf = (...parts: readonly string[]) =>
      createHash('sha256')
        .update(parts.map((part) => `${part}\0`).join(''))
        .digest('hex')
    // Earlier versions have added 2^32 to the versions of the branch with each reset, and hashed the sum.
    for (const resets of [[], ['4294967296'], ['8589934592']]) {
      const headers = { [HEADER]: 'upgraded' }
      expectOk(await branch('POST', '/tables/users/data', { body: {}, headers }))
      expect(await stored()).toContain(hashOf(user, place?.id ?? '', ...resets, 'upgraded'))
      expectOk(await branch('POST', '/reset'))
    }
  })

  it('keeps nothing of a creation that was refused', async () => {
    const headers = newKey()
    const send = () => call('POST', '/tables/users/data', { body: { email: 'taken@x' }, headers })
    await call('PUT', '/tables/users/data/holder', { body: { email: 'taken@x' } })
    expect((await send()).status).toBe(400)
    await call('DELETE', '/tables/users/data/holder')
    expect((await send()).status).toBe(201)
  })

  it.each(['', 'x'.repeat(256)])('of %j is refused', async (key) => {
    const before = await count()
    const headers = { [HEADER]: key }
    const answer = await call('POST', '/tables/users/data', { body: {}, headers })
    expect([answer.status, answer.body.code]).toEqual([400, 'invalid_request'])
    expect(await count()).toBe(before)
  })

  it('may have 255 characters', async () => {
    const headers = { [HEADER]: 'x'.repeat(255) }
    expectOk(await call('POST', '/tables/users/data', { body: {}, headers }))
  })
})

describe('the answers that a database keeps', () => {
  let branch: BranchCall
  let databaseId: string

  beforeEach(async () => {
    const name = `kept${++number}`
    branch = await createTables(service, name, { users: [{ name: 'name', type: 'string' }] })
    const [row] = await service.database.query<{ id: string }>(sql`
      select id from offshoot.databases where name = ${name}`)
    databaseId = row?.id ?? ''
  })

  const insert = (id: string, headers: Record<string, string> = {}) =>
    branch('POST', '/tables/users/bulk', { body: { records: [{ id }] }, headers })
  const sizeOf = (id: string) =>
    Buffer.byteLength(JSON.stringify({ recordIDs: [id] })) + ANSWER_ENTRY_BYTES
  /** Inserts an answer of another request that takes the given bytes. */
  const fill = async (size: number) => {
    await service.database.query(sql`
      insert into ${ident(`offshoot_db_${databaseId}`)}.idempotency_keys (hash, request_hash, body, size)
      values (sha256(${Buffer.from(`filler${++number}`)}), '', '{}', ${size})`)
  }

  it('are limited in bytes, and a key beyond the limit is refused before anything is stored', async () => {
    await fill(KEPT_ANSWERS_BYTES_MAX - sizeOf('a'))
    const first = newKey()
    expectOk(await insert('a', first))
    const refused = await insert('b', newKey())
    expect(refused.status).toBe(422)
    expect(refused.body.code).toBe('limit_reached')
    expect(refused.body.message).toContain('[Idempotency-Key]')
    expect(refused.body.message).toContain(String(KEPT_ANSWERS_BYTES_MAX))
    expect(await count(branch)).toBe(1)
    expect(expectOk(await insert('a', first)).body).toEqual({ recordIDs: ['a'] })
    expectOk(await insert('b'))
    expect(await count(branch)).toBe(2)
  })

  it('make room for others by dropping the oldest, whose requests are still not executed again', async () => {
    const [oldest, newer] = [newKey(), newKey()]
    expectOk(await insert('a', oldest))
    expectOk(await insert('b', newer))
    await fill(KEPT_ANSWERS_BYTES_MAX - sizeOf('a') - sizeOf('b'))
    await collectAnswers(service.database)
    const again = await insert('a', oldest)
    expect(again.status).toBe(409)
    expect(again.body.code).toBe('idempotency_outdated')
    expect((await insert('c', oldest)).body.code).toBe('idempotency_mismatch')
    expect(await count(branch)).toBe(2)
  })

  it('keep their text while all of them take at most half of the limit', async () => {
    const [oldest, newer] = [newKey(), newKey()]
    expectOk(await insert('a', oldest))
    expectOk(await insert('b', newer))
    await fill(KEPT_ANSWERS_BYTES_GOAL - sizeOf('a') - sizeOf('b'))
    await collectAnswers(service.database)
    expect(expectOk(await insert('a', oldest)).body).toEqual({ recordIDs: ['a'] })
    await fill(1)
    // A process measures the databases to which it has added answers.
    expectOk(await insert('c', newKey()))
    await collectAnswers(service.database)
    expect((await insert('a', oldest)).body.code).toBe('idempotency_outdated')
  })
})
