import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createKey } from '../support/people.js'
import { LONG } from '../support/random.js'
import { type Description, exampleRequest, type Route, watchRoutes } from '../support/routes.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { everythingStored } from '../support/stored.js'
import { XATA_CLIENT } from '../support/tables.js'
import { createTenant, type Tenant } from '../support/tenants.js'

/*
 * Two tenants use the same names for workspaces, databases, branches, tables, records and keys. The
 * second tenant tries to reach everything of the first. Every answer must equal the one for an id
 * that does not exist.
 */

const MARK = 'mark-of-one'
const OTHER_MARK = 'mark-of-other'

let service: TestService
let description: Description
let routes: readonly Route[]
let one: Tenant
/** PostgreSQL tables with the first tenant's records. */
let heaps: string[]
let other: Tenant
/** A key of every kind that the second tenant can have. */
let keys: Record<string, string>

beforeAll(async () => {
  const watch = watchRoutes()
  service = await createTestService()
  watch.stop()
  routes = watch.routes
  description = (await service.call('GET', '/openapi.json')).body
  one = await createTenant(service, { userName: 'one', mark: MARK })
  heaps = Object.keys(await everythingStored(service)).filter((table) =>
    table.startsWith('offshoot_db_'),
  )
  other = await createTenant(service, { userName: 'other', mark: OTHER_MARK })
  const key = (name: string, fields?: object) =>
    createKey(service, name, { key: other.key, ...(fields === undefined ? {} : { fields }) })
  const scoped = (name: string, scope: object) => key(name, { scope })
  keys = {
    whole: other.key,
    reading: await scoped('reading', { access: 'read' }),
    'of a database': await scoped('database', { databases: ['shop'] }),
    'of branches': await scoped('branches', { branches: ['dev', 'preview-*'] }),
    'of the own workspace': await scoped('own', { workspaces: [other.workspaceId] }),
    'that names the workspace of the one': await scoped('claim', { workspaces: [one.workspaceId] }),
    expired: await key('expired', { expiresAt: new Date(Date.now() + 60_000).toISOString() }),
    revoked: await key('revoked'),
  }
  await service.database.query(sql`
    update offshoot.api_keys set expires_at = now() where name = 'expired'`)
  await service.call('DELETE', '/user/keys/revoked', { key: other.key })
})
afterAll(() => service.close())

const KEY_KINDS = [
  'whole',
  'reading',
  'of a database',
  'of branches',
  'of the own workspace',
  'that names the workspace of the one',
  'expired',
  'revoked',
]

/** Returns an id of the same form that was never assigned. */
function ghostOf(id: string): string {
  const end = id.slice(-6)
  return `${id.slice(0, -6)}${end.replace(/./g, (letter) => (letter === 'z' ? 'y' : 'z'))}`
}

/** Returns an answer without the requested id, the request id and the date. */
function normalized(answer: Answer, id: string): unknown {
  const { 'x-request-id': requestId, date: _date, ...headers } = answer.headers
  const text = JSON.stringify(answer.body)
  return {
    status: answer.status,
    body: text.replaceAll(id, '{id}').replaceAll(String(requestId), '{request}'),
    headers: JSON.stringify(headers).replaceAll(id, '{id}'),
  }
}

interface Attempt {
  readonly name: string
  call(id: string, key: string): Promise<Answer>
}

/**
 * Fails with every attempt whose answer differs from the one for an unassigned id, or if anything
 * stored has changed.
 */
async function expectGhost(attempts: readonly Attempt[], id: string, key: string): Promise<void> {
  expect(attempts.length).toBeGreaterThan(0)
  const before = await everythingStored(service)
  const wrong: unknown[] = []
  for (const { name, call } of attempts) {
    const real = normalized(await call(id, key), id)
    const ghost = normalized(await call(ghostOf(id), key), ghostOf(id))
    const { status, body } = real as { status: number; body: string }
    const isTold = JSON.stringify(real) !== JSON.stringify(ghost)
    if (isTold || status < 400 || body.includes(MARK)) wrong.push({ name, real, ghost })
  }
  expect(wrong).toEqual([])
  expect(await everythingStored(service)).toEqual(before)
}

const isAboutWorkspace = ({ url }: Route) => /^\/(workspaces\/:|dbs?\/)/.test(url)

/** Lists every route below a workspace, in every form of address or in the first one, with the first tenant's ids. */
function workspaceAttempts(forms: 'every form' | 'the first form'): Attempt[] {
  return routes.filter(isAboutWorkspace).flatMap((route) => {
    const request = (workspaceId: string) =>
      exampleRequest(description, route, { ...namesOf(one), workspaceId })
    const attempt = (
      form: string,
      address: (id: string) => string,
      headers: (id: string) => Record<string, string> = () => ({}),
    ): Attempt => ({
      name: `${route.method} ${route.url} ${form}`,
      call: (id, key) => {
        const { path, body } = request(id)
        return service.call(route.method, `${address(id)}${path}`, {
          key,
          body,
          headers: headers(id),
        })
      },
    })
    const none = () => ''
    const listed = route.url.startsWith('/db')
      ? [
          attempt('by path', (id) => `/${id}.local`),
          attempt('by host', none, (id) => ({ host: `${id}.local.localhost` })),
          attempt(
            'by path, Xata client',
            (id) => `/${id}.local.xata.sh`,
            () => XATA_CLIENT,
          ),
        ]
      : [attempt('', none), attempt('Xata client', none, () => XATA_CLIENT)]
    return forms === 'every form' ? listed : listed.slice(0, 1)
  })
}

/** Returns the values of path parameters for a tenant. */
function namesOf(tenant: Tenant): Record<string, string> {
  return {
    workspaceId: tenant.workspaceId,
    databaseName: 'shop',
    databaseBranch: 'shop:dev',
    branchName: 'main',
    tableName: 'users',
    columnName: 'photo',
    recordId: 'ada',
    fileId: 'paper',
    userId: tenant.userId,
    keyName: 'ci',
    invite: tenant.invite.inviteId,
  }
}

describe('the workspace of another tenant is as if it did not exist', () => {
  it.each(KEY_KINDS)('to every route, with a key: %s', async (kind) => {
    // The form of an address is read before the key, so the short form has all of them with one key.
    const forms = LONG || kind === 'whole' ? 'every form' : 'the first form'
    await expectGhost(workspaceAttempts(forms), one.workspaceId, keys[kind] ?? '')
  })
})

describe('an id of another tenant is as if it did not exist, in the own workspace', () => {
  const home = () => `/workspaces/${other.workspaceId}`
  const branch = (name = 'main') => `${other.workspace}/db/shop:${name}`
  const attempt = (
    method: string,
    path: (id: string) => string,
    body?: (id: string) => unknown,
  ) => ({
    name: `${method} ${path('{id}')}`,
    call: (id: string, key: string) => service.call(method, path(id), { key, body: body?.(id) }),
  })

  it('of a user', async () => {
    const attempts = [
      attempt(
        'PUT',
        (id) => `${home()}/members/${id}`,
        () => ({ role: 'owner' }),
      ),
      attempt('DELETE', (id) => `${home()}/members/${id}`),
    ]
    await expectGhost(attempts, one.userId, other.key)
  })

  it('of an invite', async () => {
    const attempts = [
      attempt(
        'PATCH',
        (id) => `${home()}/invites/${id}`,
        () => ({ role: 'owner' }),
      ),
      attempt('DELETE', (id) => `${home()}/invites/${id}`),
      attempt('POST', (id) => `${home()}/invites/${id}/resend`),
      attempt('POST', (id) => `${home()}/invites/${id}/accept`),
      attempt('POST', (id) => `/workspaces/${one.workspaceId}/invites/${id}/accept`),
    ]
    await expectGhost(attempts, one.invite.inviteId, other.key)
    // An invite key admits its holder, but only to the workspace that issued it.
    await expectGhost(attempts.slice(3, 4), one.invite.key, other.key)
  })

  it('of a branch', async () => {
    for (const id of one.branchIds) {
      const attempts = [
        attempt('GET', (name) => branch(name)),
        attempt('DELETE', (name) => branch(name)),
        attempt(
          'PUT',
          () => branch('taken'),
          (from) => ({ from }),
        ),
        attempt('GET', (name) => `${branch('dev')}/diff?against=${name}`),
        attempt(
          'POST',
          () => `${branch('dev')}/merge`,
          (into) => ({ into }),
        ),
        attempt(
          'POST',
          () => `${branch('dev')}/pull`,
          (from) => ({ from }),
        ),
        attempt(
          'POST',
          (name) => `${branch('dev')}/schema/compare/${name}`,
          () => ({}),
        ),
        attempt(
          'POST',
          () => `${other.workspace}/dbs/shop/gitBranches`,
          (serviceBranch) => ({
            gitBranch: 'x',
            serviceBranch,
          }),
        ),
      ]
      await expectGhost(attempts, id, other.key)
    }
  })

  it('of a migration', async () => {
    const operations = [{ addTable: { table: 'taken' } }]
    const attempts = [
      attempt(
        'POST',
        () => `${branch()}/schema/update`,
        (parentID) => ({ parentID, operations }),
      ),
      attempt(
        'POST',
        () => `${branch()}/schema/history`,
        (since) => ({ since }),
      ),
      attempt(
        'POST',
        () => `${branch()}/schema/history`,
        (after) => ({ page: { after } }),
      ),
    ]
    await expectGhost(attempts, one.migrationId, other.key)
  })

  it('of a file, without its signature or with that of another file', async () => {
    const [accessId = ''] = one.links.map((link) => link.replace(/^\/file\/|\?.*$/g, ''))
    const signatures = other.links.flatMap((link) => link.split('?verify=').slice(1))
    expect(signatures.length).toBeGreaterThan(0)
    const queries = ['', ...signatures.map((signature) => `?verify=${signature}`)]
    const attempts = queries.flatMap((query) => [
      attempt('GET', (id) => `/file/${id}${query}`),
      attempt('HEAD', (id) => `/file/${id}${query}`),
      attempt(
        'PUT',
        (id) => `/file/${id}${query}`,
        () => 'overwritten',
      ),
    ])
    await expectGhost(attempts, accessId, other.key)
  })
})

describe('where both have the same name for it', () => {
  const bare = '/db/shop:dev/tables/users'

  it.each<[string, string, string, unknown?]>([
    ['a record', 'GET', `${bare}/data/ada`],
    ['a query', 'POST', `${bare}/query`, { columns: ['*', 'team.*'] }],
    [
      'a summary',
      'POST',
      `${bare}/summarize`,
      { columns: ['name'], summaries: { n: { count: '*' } } },
    ],
    [
      'an aggregation',
      'POST',
      `${bare}/aggregate`,
      { aggs: { names: { topValues: { column: 'name' } } } },
    ],
    [
      'a transaction',
      'POST',
      '/db/shop:dev/transaction',
      { operations: [{ get: { table: 'users', id: 'ada', columns: ['*'] } }] },
    ],
    ['a difference', 'GET', '/db/shop:dev/diff'],
    ['a file', 'GET', `${bare}/data/ada/column/photo/file`],
    ['the metadata of a branch', 'GET', '/db/shop:dev/metadata'],
  ])('each gets its own, in turns and at once: %s', async (_name, method, path, body) => {
    const ask = async (tenant: Tenant, mark: string, foreign: string) => {
      const answer = await service.call(method, path, { key: tenant.key, body })
      const text = JSON.stringify(answer.body)
      expect(answer.status).toBe(200)
      expect(text).toContain(mark)
      expect(text).not.toContain(foreign)
    }
    for (let turn = 0; turn < 3; turn++) {
      await ask(one, MARK, OTHER_MARK)
      await ask(other, OTHER_MARK, MARK)
    }
    await Promise.all(
      Array.from({ length: 10 }, (_, turn) =>
        turn % 2 === 0 ? ask(one, MARK, OTHER_MARK) : ask(other, OTHER_MARK, MARK),
      ),
    )
  })

  it('an Idempotency-Key of the one is nothing to the other', async () => {
    const headers = { 'idempotency-key': 'same' }
    const body = {
      operations: [
        { get: { table: 'users', id: 'grace', columns: ['name'] } },
        { update: { table: 'users', id: 'grace', fields: { age: 50 } } },
      ],
    }
    const post = (tenant: Tenant) =>
      service.call('POST', '/db/shop:main/transaction', { key: tenant.key, body, headers })
    const first = JSON.stringify((await post(one)).body)
    const second = JSON.stringify((await post(other)).body)
    expect(first).toContain(MARK)
    expect(second).toContain(OTHER_MARK)
    expect(second).not.toContain(MARK)
  })

  it('a cursor of the one leads the other through its own records', async () => {
    const query = { columns: ['bio'], sort: [{ age: 'asc' }], page: { size: 1 } }
    const path = '/db/shop:main/tables/users/query'
    const { body } = await service.call('POST', path, { key: one.key, body: query })
    const page = { page: { after: body.meta.page.cursor } }
    const answer = await service.call('POST', path, { key: other.key, body: page })
    expect(JSON.stringify(answer.body)).not.toContain(MARK)
  })

  it('what the other does to its own, to the end, leaves the one as it was', async () => {
    const before = await everythingOf(one)
    const own = namesOf(other)
    // Order: removals and renames run after the routes that use the name, and workspaces are
    // deleted last.
    const rank = ({ method, url }: Route) => {
      if (method === 'DELETE') return 100 - url.split('/').length
      if (url.endsWith('/rename')) return 90
      if (method === 'PATCH' && url.includes(':tableName')) return 80
      return method === 'PUT' && url.endsWith('/schema') ? 70 : 0
    }
    const walked = [...routes]
      .filter((route) => isAboutWorkspace(route) || route.url.startsWith('/user'))
      .filter(({ url }) => url !== '/users')
      .sort((a, b) => rank(a) - rank(b))
    const shown: string[] = []
    let successes = 0
    for (const route of walked) {
      const { path, body } = exampleRequest(description, route, own)
      const address = route.url.startsWith('/db') ? `${other.workspace}${path}` : path
      const answer = await service.call(route.method, address, { key: other.key, body })
      if (answer.status < 300) successes++
      if (JSON.stringify(answer.body).includes(MARK)) shown.push(`${route.method} ${route.url}`)
    }
    expect(shown).toEqual([])
    expect(successes).toBeGreaterThan(walked.length / 2)
    expect((await service.call('GET', '/user', { key: other.key })).status).toBe(401)
    expect(await everythingOf(one)).toEqual(before)
  })

  /** Reads everything that the tenant can see, and all of its rows in PostgreSQL. */
  async function everythingOf(tenant: Tenant): Promise<unknown> {
    const seen: Record<string, unknown> = {}
    for (const route of routes.filter(
      ({ method, url }) => method === 'GET' && !url.includes('*'),
    )) {
      if (!isAboutWorkspace(route) && !route.url.startsWith('/user')) continue
      for (const branch of ['main', 'dev', 'preview-1']) {
        const names = { ...namesOf(tenant), databaseBranch: `shop:${branch}` }
        const { path } = exampleRequest(description, route, names)
        const address = route.url.startsWith('/db') ? `${tenant.workspace}${path}` : path
        const { status, body } = await service.call('GET', address, { key: tenant.key })
        // Leave out the timestamp of statistics and the ids of errors, which differ with every
        // request.
        const { timestamp: _now, id: _id, ...rest } = typeof body === 'object' ? body : { body }
        seen[path] = { status, rest }
      }
    }
    const stored = await everythingStored(service)
    const words = [tenant.workspaceId, tenant.userId, MARK, ...tenant.branchIds]
    const isOwn = (row: string) =>
      words.some((word) => row.includes(word)) && !row.includes(other.userId)
    return {
      seen,
      catalogue: Object.values(stored)
        .map((rows) => rows.filter(isOwn))
        .filter((rows) => rows.length > 0),
      heaps: Object.entries(stored).filter(([table]) => heaps.includes(table)),
    }
  }
})
