import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { addMember, createDatabase, createKey, createUser } from '../support/people.js'
import { LONG } from '../support/random.js'
import { type Description, exampleRequest, type Route, watchRoutes } from '../support/routes.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { addTables, expectOk, XATA_CLIENT } from '../support/tables.js'
import { TENANT_TABLES, userRecord } from '../support/tenants.js'

/*
 * A user has databases, branches, keys and colleagues with marked names. A key whose scope excludes
 * them requests every route. No answer may contain one of the marks.
 */

const MARKS = {
  branch: 'sekret-branch',
  database: 'sekret-store',
  key: 'sekret-keyring',
  mail: 'sekret.mail',
} as const
type Mark = keyof typeof MARKS

/** Returns a text of the same length that names nothing. */
const ghostOf = (text: string) => text.replaceAll('sekret', 'nobody')

interface Kind {
  readonly name: string
  readonly scope: object
  readonly hidden: readonly Mark[]
  /** Whether it also sends all requests as clients of Xata do. Together these kinds hide every mark from all routes. */
  readonly asXataToo?: boolean
}

const KINDS: readonly Kind[] = [
  { name: 'some branches', scope: { branches: ['pr-*'] }, hidden: ['branch', 'key', 'mail'] },
  {
    name: 'some branches, reading',
    scope: { branches: ['pr-*'], access: 'read' },
    hidden: ['branch', 'key', 'mail'],
  },
  {
    name: 'some branches of a database',
    scope: { databases: ['shop'], branches: ['pr-*'] },
    hidden: ['branch', 'database', 'key', 'mail'],
    asXataToo: true,
  },
  { name: 'a database', scope: { databases: ['shop'] }, hidden: ['database', 'key', 'mail'] },
  {
    name: 'a database, reading',
    scope: { databases: ['shop'], access: 'read' },
    hidden: ['database', 'key', 'mail'],
  },
  { name: 'reading', scope: { access: 'read' }, hidden: ['key'] },
  { name: 'few requests', scope: { requestsAtOnce: 1000 }, hidden: ['key'], asXataToo: true },
]

let service: TestService
let description: Description
let routes: readonly Route[]
let keys: ReadonlyMap<string, string>

beforeAll(async () => {
  const watch = watchRoutes()
  service = await createTestService()
  watch.stop()
  routes = watch.routes
  description = (await service.call('GET', '/openapi.json')).body
  await addMember(service, await createUser(service, `${MARKS.mail}.member`))
  await admin('POST', `/workspaces/${service.workspaceId}/invites`, {
    email: `${MARKS.mail}.invited@example.com`,
    role: 'maintainer',
  })
  await createDatabase(service, MARKS.database)
  await prepareShop()
  await createKey(service, MARKS.key, { fields: { scope: { branches: [`${MARKS.key}-*`] } } })
  const made = new Map<string, string>()
  for (const { name, scope } of KINDS) {
    made.set(name, await createKey(service, name, { fields: { scope } }))
  }
  keys = made
})
afterAll(() => service.close())

const admin = async (method: string, path: string, body?: unknown) =>
  expectOk(await service.call(method, path, { body })).body
const shop = (name: string) => `${service.workspace}/db/shop:${name}`

/** Creates a database in which every key may use the branches `pr-*`. */
async function prepareShop(): Promise<void> {
  const trunk = `${MARKS.branch}-trunk`
  await createDatabase(service, 'shop', { branchName: trunk })
  await admin('POST', `${shop(trunk)}/schema/update`, { operations: addTables(TENANT_TABLES) })
  const records = ['ada', 'grace'].map((id, position) => userRecord(id, position, 'plain'))
  await admin('POST', `${shop(trunk)}/tables/users/bulk`, { records })
  await admin('PUT', shop('pr-1'), { from: trunk })
  await admin('PUT', shop('pr-2'), { from: 'pr-1' })
  await admin('PUT', shop(`${MARKS.branch}-dev`), { from: 'pr-1' })
  await admin('PATCH', `${shop('pr-1')}/tables/users/data/ada`, { name: 'Ada of the fork' })
  await admin('PATCH', `${shop(trunk)}/tables/users/data/ada`, { name: 'Ada of the trunk' })
  // Merge in both directions across the scope, so that the merge history of each side mentions the
  // other.
  await admin('POST', `${shop('pr-2')}/merge`, { into: 'pr-1', strategy: 'theirs' })
  await admin('POST', `${shop(`${MARKS.branch}-dev`)}/merge`, {
    into: 'pr-1',
    strategy: 'theirs',
  })
  for (const [gitBranch, serviceBranch] of [
    ['feat/login', 'pr-1'],
    [`feat/${MARKS.branch}`, `${MARKS.branch}-dev`],
    ['pr-mapped', `${MARKS.branch}-dev`],
  ]) {
    await admin('POST', `${service.workspace}/dbs/shop/gitBranches`, { gitBranch, serviceBranch })
  }
  await admin('PUT', `${service.workspace}/dbs/shop/branchRules`, {
    rules: [
      { pattern: 'pr-lost*', from: `${MARKS.branch}-gone`, ttl: 600 },
      { pattern: 'pr-*', from: trunk, ttl: 86_400 },
      { pattern: `p*${MARKS.branch}`, from: 'pr-1', ttl: 600 },
      { pattern: `${MARKS.branch}-*`, from: 'pr-1' },
      { pattern: '*', from: trunk, ttl: 600 },
    ],
  })
}

async function restoreShop(): Promise<void> {
  await service.call('DELETE', `/workspaces/${service.workspaceId}/dbs/shop`)
  await prepareShop()
}

const names = (): Record<string, string> => ({
  workspaceId: service.workspaceId,
  databaseName: 'shop',
  databaseBranch: 'shop:pr-1',
  branchName: 'pr-2',
  tableName: 'users',
  columnName: 'photo',
  recordId: 'ada',
  fileId: 'paper',
  userId: 'us_nobody',
  keyName: 'laptop',
  invite: 'inv_nobody',
})

interface Request {
  readonly method: string
  readonly path: string
  readonly body?: unknown
}

/** Lists every route with its documented example, destructive routes last. */
function exampleRequests(): Request[] {
  const rank = ({ method, url }: Route) => {
    if (method === 'DELETE') return 100 - url.split('/').length
    if (url.endsWith('/rename')) return 90
    if (method === 'PATCH' && url.includes(':tableName')) return 80
    return method === 'PUT' && url.endsWith('/schema') ? 70 : 0
  }
  return (
    routes
      .filter(({ url }) => /^\/(workspaces|dbs?\/|users?$|user\/|linkKeys)/.test(url))
      // The other requests still need the workspace.
      .filter(({ method, url }) => method !== 'DELETE' || url !== '/workspaces/:workspaceId')
      .sort((a, b) => rank(a) - rank(b))
      .map((route) => {
        const { path, body } = exampleRequest(description, route, names())
        const address = route.url.startsWith('/db') ? `${service.workspace}${path}` : path
        return { method: route.method, path: address, body }
      })
  )
}

/**
 * Lists requests that rely on defaults, because defaults are where names come from that the caller
 * did not send.
 */
function furtherRequests(): Request[] {
  const dbs = `${service.workspace}/dbs/shop`
  const get = (path: string): Request => ({ method: 'GET', path })
  const post = (path: string, body?: unknown): Request => ({ method: 'POST', path, body })
  const put = (path: string, body?: unknown): Request => ({ method: 'PUT', path, body })
  return [
    get('/user/keys'),
    get('/dbs/shop'),
    get(`${dbs}`),
    get(`${dbs}/branchRules`),
    get(`${dbs}/gitBranches`),
    get(`${dbs}/resolveBranch`),
    ...['feat/login', 'pr-mapped', 'pr-9', 'other'].flatMap((git) => [
      get(`${dbs}/resolveBranch?gitBranch=${encodeURIComponent(git)}`),
      get(`${dbs}/resolveBranch?gitBranch=${encodeURIComponent(git)}&create=true`),
    ]),
    ...['pr-1', 'pr-2'].flatMap((name) => [
      get(shop(name)),
      get(`${shop(name)}/diff`),
      get(`${shop(name)}/diff?against=fork`),
      get(`${shop(name)}/diff?against=source`),
      get(`${shop(name)}/stats`),
      post(`${shop(name)}/schema/history`, {}),
      post(`${shop(name)}/merge`, { dryRun: true }),
      post(`${shop(name)}/merge`, {}),
      post(`${shop(name)}/pull`, {}),
      post(`${shop(name)}/reset`),
      { method: 'DELETE', path: `${shop(name)}/nothing` },
    ]),
    get(`${shop('pr-1')}/diff?against=pr-2`),
    put(shop('pr-new')),
    put(shop('pr-new-2'), {}),
    put(shop('pr-lost-1'), {}),
    put(shop('pr-1'), { from: 'pr-2' }),
    put(shop('other'), {}),
    put(`/workspaces/${service.workspaceId}/dbs/fresh`, { region: 'local' }),
    post(`${shop('pr-1')}/sql`, { statement: 'select * from users' }),
    post(`${shop('pr-1')}/sql`, { statement: 'select * from nothing' }),
  ]
}

/** Returns the marks that an answer contains. */
function marksIn({ body, headers }: Answer, hidden: readonly Mark[]): string[] {
  const text = `${JSON.stringify(body)}\n${JSON.stringify(headers)}`.toLowerCase()
  return hidden.filter((mark) => text.includes(MARKS[mark]))
}

describe.each(KINDS)('a key for $name', ({ name, hidden, asXataToo }) => {
  it('sees no name that is outside of its scope, in any answer of any route', async () => {
    const dialects = asXataToo || LONG ? [{}, XATA_CLIENT] : [{}]
    const key = keys.get(name) ?? ''
    const shown: unknown[] = []
    let successes = 0
    const requests = [...furtherRequests(), ...exampleRequests()]
    for (const { method, path, body } of requests) {
      for (const headers of dialects) {
        const answer = await service.call(method, path, { key, body, headers })
        if (answer.status < 300) successes++
        const marks = marksIn(answer, hidden)
        if (marks.length > 0) shown.push({ method, path, marks, body: answer.body })
      }
    }
    expect(shown).toEqual([])
    expect(successes).toBeGreaterThan(requests.length / 3)
    await restoreShop()
  })

  it('lists itself alone among the keys of its user', async () => {
    const { body } = await service.call('GET', '/user/keys', { key: keys.get(name) })
    expect(body.keys.map((other: { name: string }) => other.name)).toEqual([name])
  })
})

describe.each(KINDS.filter(({ hidden }) => hidden.includes('branch')))(
  'a branch out of reach of a key for $name',
  ({ name }) => {
    it('is answered like one that does not exist, wherever it is named', async () => {
      const key = keys.get(name) ?? ''
      const dev = `${MARKS.branch}-dev`
      const dbs = `${service.workspace}/dbs/shop`
      const below = exampleRequests()
        .filter(({ path }) => path.includes('/db/shop:pr-1'))
        .map((request) => ({ ...request, path: request.path.replace('shop:pr-1', `shop:${dev}`) }))
      const told = await listTold(key, [
        ...below,
        { method: 'PUT', path: shop('pr-3'), body: { from: dev } },
        { method: 'PUT', path: `${shop('pr-3')}?from=${dev}` },
        { method: 'GET', path: `${shop('pr-1')}/diff?against=${dev}` },
        { method: 'POST', path: `${shop('pr-1')}/merge`, body: { into: dev } },
        { method: 'POST', path: `${shop('pr-1')}/pull`, body: { from: dev } },
        { method: 'POST', path: `${shop('pr-1')}/schema/compare/${dev}`, body: {} },
        { method: 'GET', path: `${dbs}/resolveBranch?gitBranch=${dev}` },
        { method: 'GET', path: `${dbs}/resolveBranch?gitBranch=${dev}&create=true` },
        { method: 'GET', path: `${dbs}/resolveBranch?gitBranch=feat/${MARKS.branch}` },
        { method: 'GET', path: `${dbs}/resolveBranch?gitBranch=feat/${MARKS.branch}&create=true` },
        { method: 'GET', path: `${dbs}/resolveBranch?gitBranch=x&fallbackBranch=${dev}` },
        { method: 'DELETE', path: `${dbs}/gitBranches?gitBranch=feat/${MARKS.branch}` },
        {
          method: 'POST',
          path: `${dbs}/gitBranches`,
          body: { gitBranch: 'x', serviceBranch: dev },
        },
      ])
      expect(told).toEqual([])
    })
  },
)

describe.each(KINDS.filter(({ hidden }) => hidden.includes('database')))(
  'a database out of reach of a key for $name',
  ({ name }) => {
    it('is answered like one that does not exist, wherever it is named', async () => {
      const requests = exampleRequests()
        .filter(({ path }) => /\/dbs?\/shop/.test(path))
        .map((request) => ({
          ...request,
          path: request.path.replace(/\/(dbs?)\/shop/, `/$1/${MARKS.database}`),
        }))
      // Repeat the requests without a workspace in the address.
      const bare = requests.map(({ path, ...request }) => ({
        ...request,
        path: path.replace(service.workspace, ''),
      }))
      expect(await listTold(keys.get(name) ?? '', [...requests, ...bare])).toEqual([])
    })
  },
)

/** Returns the requests whose answers distinguish an existing name from a nonexistent one. */
async function listTold(key: string, requests: readonly Request[]): Promise<unknown[]> {
  const told: unknown[] = []
  for (const request of requests) {
    const real = await ask(key, request)
    const ghost = await ask(key, JSON.parse(ghostOf(JSON.stringify(request))))
    if (ghostOf(real) !== ghost) told.push({ ...request, real, ghost })
  }
  return told
}

/** Returns an answer as text, without the request id and the date. */
async function ask(key: string, { method, path, body }: Request): Promise<string> {
  const answer = await service.call(method, path, { key, body })
  const { 'x-request-id': requestId, date: _date, ...headers } = answer.headers
  const text = JSON.stringify({ status: answer.status, body: answer.body, headers })
  return text.replaceAll(String(requestId), '{request}')
}

describe('a rule for new branches', () => {
  it('is shown to a key as far as it names what the key reaches', async () => {
    const path = `${service.workspace}/dbs/shop/branchRules`
    const { body } = await service.call('GET', path, { key: keys.get('some branches') })
    expect(body.rules).toEqual([
      { pattern: 'pr-lost*', ttl: 600 },
      { pattern: 'pr-*', ttl: 86_400 },
      { pattern: '*', ttl: 600 },
    ])
    expect((await admin('GET', path)).rules).toHaveLength(5)
  })
})
