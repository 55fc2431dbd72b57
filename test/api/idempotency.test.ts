import { createHash } from 'node:crypto'
import { IDEMPOTENCY_HOURS } from '@offshoot/contract/records'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  collectAnswers,
  shrinkAnswers,
} from '../../packages/server/src/data/records/idempotency.js'
import {
  ANSWER_ENTRY_BYTES,
  KEPT_ANSWERS_BYTES_GOAL,
  KEPT_ANSWERS_BYTES_MAX,
} from '../../packages/server/src/data/records/kept-answers.js'
import { ident, type Sql, sql } from '../../packages/server/src/postgres/sql.js'
import { addMember, createKey, createUser } from '../support/people.js'
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
/** Another process on the same database. */
let second: TestService
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
      { name: 'visits', type: 'int', notNull: true, defaultValue: '0' },
    ],
  })
  second = await createTestService({ url: service.url })
})
afterAll(async () => {
  await second.close()
  await service.close()
})

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
    expect(outcomes.accepted.sort()).toEqual([
      'createRecord',
      'deleteRecord',
      'deleteRecords',
      'insertRecords',
      'mergeBranch',
      'pullBranch',
      'replaceRecord',
      'resetBranch',
      'restoreRecordVersion',
      'revertBranch',
      'runSql',
      'runSqlBatch',
      'runTransaction',
      'updateRecord',
      'updateRecords',
      'upsertRecord',
      'upsertRecords',
    ])
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
      expect.arrayContaining(['createBranch', 'deleteBranch', 'applySchema', 'uploadFile']),
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

const ADA = '/tables/users/data/ada'
const INCREMENT = 'update users set visits = visits + 1 where id = $1'
const putAda = (branch: BranchCall) => branch('PUT', ADA, { body: { name: 'A' } })
const put = async (branch: BranchCall, id: string) =>
  expectOk(await branch('PUT', `/tables/users/data/${id}`, { body: { name: id } }))

/** Requests that change something, each on a new branch. */
interface Change {
  readonly method: string
  readonly url: string
  readonly body?: unknown
  /** Another request, with the same method. */
  readonly other: { readonly url?: string; readonly body?: unknown }
  readonly status: number
  readonly isPrepared?: boolean
  /** What others change before the repetition. Executing the request again would be visible. */
  later?(branch: BranchCall, source: BranchCall): Promise<Answer>
}

const CHANGES: Record<string, Change> = {
  'replaceRecord of a new record': {
    method: 'PUT',
    url: ADA,
    body: { name: 'B' },
    other: { body: { name: 'C' } },
    status: 201,
  },
  'replaceRecord of an existing record': {
    method: 'PUT',
    url: `${ADA}?columns=name`,
    body: { name: 'B' },
    other: { body: { name: 'C' } },
    status: 200,
    isPrepared: true,
  },
  'replaceRecord with createOnly': {
    method: 'PUT',
    url: `${ADA}?createOnly=true`,
    body: { name: 'B' },
    other: { url: ADA },
    status: 201,
  },
  updateRecord: {
    method: 'PATCH',
    url: ADA,
    body: { visits: { $increment: 1 } },
    other: { body: { visits: { $increment: 2 } } },
    status: 200,
    isPrepared: true,
  },
  'updateRecord with ifVersion': {
    method: 'PATCH',
    url: `${ADA}?ifVersion=0&columns=*`,
    body: { visits: 7 },
    other: { url: `${ADA}?ifVersion=1&columns=*` },
    status: 200,
    isPrepared: true,
  },
  'upsertRecord of a new record': {
    method: 'POST',
    url: ADA,
    body: { name: 'B' },
    other: { body: { name: 'C' } },
    status: 201,
  },
  'upsertRecord of an existing record': {
    method: 'POST',
    url: ADA,
    body: { visits: { $increment: 1 } },
    other: { body: { visits: { $increment: 2 } } },
    status: 200,
    isPrepared: true,
  },
  deleteRecord: {
    method: 'DELETE',
    url: ADA,
    other: { url: '/tables/users/data/other' },
    status: 204,
    isPrepared: true,
    later: putAda,
  },
  'deleteRecord with columns': {
    method: 'DELETE',
    url: `${ADA}?columns=name`,
    other: { url: ADA },
    status: 200,
    isPrepared: true,
    later: putAda,
  },
  runSql: {
    method: 'POST',
    url: '/sql',
    body: { statement: INCREMENT, params: ['ada'] },
    other: { body: { statement: INCREMENT, params: ['bob'] } },
    status: 200,
    isPrepared: true,
  },
  'runSql with a result': {
    method: 'POST',
    url: '/sql',
    body: { statement: "insert into users (name) values ('B') returning id, name" },
    other: { body: { statement: "insert into users (name) values ('C') returning id, name" } },
    status: 200,
  },
  runSqlBatch: {
    method: 'POST',
    url: '/sql/batch',
    body: {
      statements: [
        { statement: INCREMENT, params: ['ada'] },
        { statement: 'select visits from users' },
      ],
    },
    other: { body: { statements: [{ statement: INCREMENT, params: ['ada'] }] } },
    status: 200,
    isPrepared: true,
  },
  mergeBranch: {
    method: 'POST',
    url: '/merge',
    body: { strategy: 'theirs' },
    other: { body: { strategy: 'ours' } },
    status: 200,
    isPrepared: true,
    later: (branch) => put(branch, 'later'),
  },
  'mergeBranch with nothing new': {
    method: 'POST',
    url: '/merge',
    other: { body: { strategy: 'ours' } },
    status: 200,
    later: (branch) => put(branch, 'later'),
  },
  pullBranch: {
    method: 'POST',
    url: '/pull',
    other: { body: { strategy: 'ours' } },
    status: 200,
    isPrepared: true,
    later: (_branch, source) => put(source, 'later'),
  },
  resetBranch: {
    method: 'POST',
    url: '/reset',
    other: { body: { to: 'source' } },
    status: 200,
    isPrepared: true,
    later: putAda,
  },
}

describe.each(Object.entries(CHANGES))('%s with an Idempotency-Key', (_name, change) => {
  const { method, url, body, other, status, isPrepared = false, later } = change

  /** Forks `source`, a new branch, through both processes. */
  async function open() {
    const base = `base${++number}`
    const source = branchCall(service, 'shop', { branch: base })
    expectOk(await source('PUT', '', { body: { from: 'main' } }))
    const name = `${base}-fork`
    const branch = branchCall(service, 'shop', { branch: name })
    expectOk(await branch('PUT', '', { body: { from: base } }))
    if (isPrepared) expectOk(await putAda(branch))
    if (url === '/pull') await put(source, 'fresh')
    const via = branchCall(service, 'shop', { branch: name, via: second })
    return { base, source, branch, via }
  }

  /** All records of both branches, and how often they were merged. */
  async function stateOf({ base, source, branch }: Awaited<ReturnType<typeof open>>) {
    const read = async (call: BranchCall) =>
      expectOk(
        await call('POST', '/tables/users/query', {
          body: { sort: { id: 'asc' }, page: { size: 200 } },
        }),
      ).body.records
    const [merged] = await service.database.query<{ count: string }>(sql`
      select count(*) as count
      from offshoot.merges m join offshoot.branches b on b.id = m.into_branch_id
      where b.name = ${base}`)
    return { source: await read(source), branch: await read(branch), merged: merged?.count }
  }

  it('is executed once, by two processes', async () => {
    const opened = await open()
    const headers = newKey()
    const send = (call: BranchCall) => call(method, url, { body, headers })
    const answers = await Promise.all([
      send(opened.branch),
      send(opened.via),
      send(opened.branch),
      send(opened.via),
    ])
    for (const answer of answers) {
      expect([answer.status, answer.body]).toEqual([status, answers[0]?.body])
    }
    const alone = await open()
    expectOk(await alone.branch(method, url, { body }))
    const states = [await stateOf(opened), await stateOf(alone)]
    const versions = states.map(({ source, branch, merged }) => ({
      merged,
      rows: [source, branch].map((rows) =>
        rows.map(({ id, name, visits, service }: RecordBody) => ({
          ...{ id: id.startsWith('rec_') ? '' : id, name, visits, version: service.version },
        })),
      ),
    }))
    expect(versions[0]).toEqual(versions[1])
    if (later) expectOk(await later(opened.branch, opened.source))
    const before = await stateOf(opened)
    for (const call of [opened.branch, opened.via]) {
      const repeated = await send(call)
      expect([repeated.status, repeated.body]).toEqual([status, answers[0]?.body])
    }
    expect(await stateOf(opened)).toEqual(before)
  })

  it('refuses another request with the key, and changes nothing', async () => {
    const opened = await open()
    const headers = newKey()
    expectOk(await opened.branch(method, url, { body, headers }))
    const before = await stateOf(opened)
    const name = `other${++number}`
    const to = branchCall(service, 'shop', { branch: name })
    expectOk(await to('PUT', '', { body: { from: 'main' } }))
    const isReset = url === '/reset'
    const refused = await opened.via(method, other.url ?? url, {
      body: isReset ? { to: name } : 'body' in other ? other.body : body,
      headers,
    })
    expect([refused.status, refused.body.code]).toEqual([422, 'idempotency_mismatch'])
    expect(await stateOf(opened)).toEqual(before)
  })

  it('is undone if its answer cannot be kept', async () => {
    const opened = await open()
    const before = await stateOf(opened)
    const key = newKey()[HEADER] ?? ''
    // A trigger refuses the row, as a crash before the COMMIT would.
    const [place] = await service.database.query<{ schema: string }>(sql`
      select 'offshoot_db_' || id as schema from offshoot.databases where name = 'shop'`)
    const answers = sql`${ident(place?.schema ?? '')}.idempotency_keys`
    await service.database.query(sql`
      alter table ${answers} add constraint refuse check (size < 0) not valid`)
    try {
      const failed = await opened.branch(method, url, { body, headers: { [HEADER]: key } })
      expect(failed.status).toBeGreaterThanOrEqual(400)
      expect(await stateOf(opened)).toEqual(before)
    } finally {
      await service.database.query(sql`alter table ${answers} drop constraint refuse`)
    }
    const repeated = await opened.branch(method, url, { body, headers: { [HEADER]: key } })
    expect(repeated.status).toBe(status)
  })

  it('does not show its answer to a key that may not make the request', async () => {
    const opened = await open()
    const headers = newKey()
    expectOk(await opened.branch(method, url, { body, headers }))
    const reader = await createKey(service, `reader${++number}`, {
      fields: { scope: { access: 'read' } },
    })
    const narrow = await createKey(service, `narrow${number}`, {
      fields: { scope: { branches: ['elsewhere-*'] } },
    })
    const isRead = await opened.branch(method, url, { body, headers, key: reader })
    expect([isRead.status, isRead.body.code]).toEqual([403, 'key_scope'])
    const isElsewhere = await opened.branch(method, url, { body, headers, key: narrow })
    expect([isElsewhere.status, isElsewhere.body.code]).toEqual([404, 'branch_not_found'])
  })
})

interface RecordBody {
  readonly id: string
  readonly name: string
  readonly visits: number
  readonly service: { readonly version: number }
}

describe('an Idempotency-Key of a change', () => {
  it('is not shared with another user', async () => {
    const user = await createUser(service, 'other')
    await addMember(service, user)
    expectOk(await putAda(call))
    const headers = newKey()
    const send = (key: string) =>
      call('PATCH', `${ADA}?columns=visits`, { body: { visits: { $increment: 1 } }, headers, key })
    expect(expectOk(await send(service.key)).body.visits).toBe(1)
    expect(expectOk(await send(user.key)).body.visits).toBe(2)
    expect(expectOk(await send(service.key)).body.visits).toBe(1)
  })

  it('does not show a merge to a key that may not write to its target', async () => {
    const branch = branchCall(service, 'shop', { branch: 'scoped-a' })
    expectOk(await branch('PUT', '', { body: { from: 'main' } }))
    await put(branch, 'scoped')
    const headers = newKey()
    expectOk(await branch('POST', '/merge', { headers }))
    const narrow = await createKey(service, 'scoped', {
      fields: { scope: { branches: ['scoped-*'] } },
    })
    const refused = await branch('POST', '/merge', { headers, key: narrow })
    expect(refused.status).toBeGreaterThanOrEqual(403)
    expect(refused.body).not.toHaveProperty('merged')
  })

  it('is refused for the same address and body with another method', async () => {
    expectOk(await putAda(call))
    const headers = newKey()
    expectOk(await call('PATCH', ADA, { body: { name: 'B' }, headers }))
    const other = await call('PUT', ADA, { body: { name: 'B' }, headers })
    expect([other.status, other.body.code]).toEqual([422, 'idempotency_mismatch'])
  })

  it('keeps nothing of a request that was refused', async () => {
    const branch = branchCall(service, 'shop', { branch: `refused${++number}` })
    expectOk(await branch('PUT', '', { body: { from: 'main' } }))
    const url = '/tables/users/data/missing'
    const headers = [newKey(), newKey(), newKey(), newKey()]
    const send = () =>
      Promise.all([
        branch('PATCH', url, { body: { name: 'B' }, headers: headers[0] ?? {} }),
        branch('POST', '/sql', {
          body: {
            statement:
              "update users set visits = visits / (select count(*) from users where id = 'missing')",
          },
          headers: headers[1] ?? {},
        }),
      ])
    expect((await send()).map(({ status }) => status)).toEqual([404, 400])
    await put(branch, 'missing')
    expect((await send()).map(({ status }) => status)).toEqual([200, 200])
  })

  it('keeps nothing of a merge with conflicts', async () => {
    const branch = branchCall(service, 'shop', { branch: `conflict${++number}` })
    expectOk(await putAda(call))
    expectOk(await branch('PUT', '', { body: { from: 'main' } }))
    const headers = newKey()
    expectOk(await branch('PATCH', ADA, { body: { name: 'theirs' } }))
    expectOk(await call('PATCH', ADA, { body: { name: 'ours' } }))
    const conflict = await branch('POST', '/merge', { headers })
    expect([conflict.status, conflict.body.code]).toEqual([409, 'merge_conflict'])
    expectOk(await branch('PATCH', ADA, { body: { name: 'ours' } }))
    expect(expectOk(await branch('POST', '/merge', { headers })).status).toBe(200)
  })

  it('is ignored by dry runs and by SQL that only reads', async () => {
    const branch = branchCall(service, 'shop', { branch: `reading${++number}` })
    expectOk(await branch('PUT', '', { body: { from: 'main' } }))
    const headers = newKey()
    const body = { statement: "select count(*) as n from users where id = 'read'" }
    const counted = async () =>
      expectOk(await branch('POST', '/sql', { body, headers })).body.records[0].n
    expect(await counted()).toBe(0)
    const dryRun = async () =>
      expectOk(await branch('POST', '/merge', { body: { dryRun: true }, headers })).body.tables
    const before = await dryRun()
    await put(branch, 'read')
    expect(await counted()).toBe(1)
    expect(await dryRun()).not.toEqual(before)
  })

  it('merges many rows once, whose answer is kept by the transaction that publishes them', async () => {
    const large = await createTestService({
      url: service.url,
      limits: { mergeLockedRowsMax: 2 },
    })
    try {
      const base = branchCall(service, 'shop', { branch: 'many-base' })
      expectOk(await base('PUT', '', { body: { from: 'main' } }))
      const branch = branchCall(service, 'shop', { branch: 'many', via: large })
      expectOk(await branch('PUT', '', { body: { from: 'many-base' } }))
      const records = Array.from({ length: 30 }, (_, index) => ({ id: `many${index}` }))
      expectOk(await branch('POST', '/tables/users/bulk', { body: { records } }))
      const headers = newKey()
      const send = () => branch('POST', '/merge', { headers })
      const answers = await Promise.all([send(), send(), send()])
      for (const { status, body } of answers)
        expect([status, body]).toEqual([200, answers[0]?.body])
      expect(answers[0]?.body).toMatchObject({ merged: true, tables: [{ inserted: 30 }] })
      await put(branch, 'later')
      const before = await count(base)
      expect((await send()).body).toEqual(answers[0]?.body)
      expect(await count(base)).toBe(before)
    } finally {
      await large.close()
    }
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

  /** Makes the answers of the database as old as is given. */
  const age = async (age: Sql) => {
    await service.database.query(sql`
      update ${ident(`offshoot_db_${databaseId}`)}.idempotency_keys set created_at = now() - (${age})`)
  }
  const countKept = async () => {
    const [row] = await service.database.query<{ count: number }>(sql`
      select count(*)::integer as count
      from ${ident(`offshoot_db_${databaseId}`)}.idempotency_keys`)
    return row?.count
  }
  /** Deletes the expired answers of all databases. */
  const collect = async () => {
    const after = { position: null }
    while (await collectAnswers(service.database, after));
  }
  const lifetime = sql`${IDEMPOTENCY_HOURS} * interval '1 hour'`

  it('are kept for 24 hours, in which the request is not executed again', async () => {
    const key = newKey()
    const { body } = expectOk(await insert('a', key))
    // Enough is left of the lifetime for the rest of the test.
    await age(sql`${lifetime} - interval '10 minutes'`)
    await collect()
    expect(await countKept()).toBe(1)
    expect(expectOk(await insert('a', key)).body).toEqual(body)
    expect((await insert('b', key)).body.code).toBe('idempotency_mismatch')
    expect(await count(branch)).toBe(1)
  })

  it('expire after 24 hours, and the key can be used for another request', async () => {
    const key = newKey()
    expectOk(await insert('a', key))
    await age(lifetime)
    expect(expectOk(await insert('b', key)).body).toEqual({ recordIDs: ['b'] })
    expect(expectOk(await insert('b', key)).body).toEqual({ recordIDs: ['b'] })
    expect(await count(branch)).toBe(2)
  })

  it('are deleted after 24 hours', async () => {
    expectOk(await insert('a', newKey()))
    await age(lifetime)
    await collect()
    expect(await countKept()).toBe(0)
  })

  it('make room for others by dropping the oldest, whose requests are still not executed again', async () => {
    const [oldest, newer] = [newKey(), newKey()]
    expectOk(await insert('a', oldest))
    expectOk(await insert('b', newer))
    await fill(KEPT_ANSWERS_BYTES_MAX - sizeOf('a') - sizeOf('b'))
    await shrinkAnswers(service.database)
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
    await shrinkAnswers(service.database)
    expect(expectOk(await insert('a', oldest)).body).toEqual({ recordIDs: ['a'] })
    await fill(1)
    // A process measures the databases to which it has added answers.
    expectOk(await insert('c', newKey()))
    await shrinkAnswers(service.database)
    expect((await insert('a', oldest)).body.code).toBe('idempotency_outdated')
  })
})
