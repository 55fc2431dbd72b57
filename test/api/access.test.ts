import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createDatabase, createKey, createUser, createWorkspace } from '../support/people.js'
import { type Description, exampleRequest, findOperation, watchRoutes } from '../support/routes.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { everythingStored } from '../support/stored.js'

/** Routes that need no API key. Every other route must require one. */
const PUBLIC = [
  'GET /health',
  // Metrics name no tenant; an optional token protects them (test/api/metrics.test.ts).
  'GET /metrics',
  'GET /openapi.json',
  // Redirects to the API reference.
  'GET /',
  'GET /docs',
  'GET /docs/',
  'GET /docs/json',
  'GET /docs/yaml',
  'GET /docs/static/*',
  'GET /docs/static/swagger-initializer.js',
  'GET /docs/static/theme/icon.svg',
  // File links carry their own authorization (test/api/files.test.ts).
  'GET /file/:accessId',
  'PUT /file/:accessId',
]

/** Routes about the caller or the instance. Every other route is about a workspace. */
const PERSONAL = [
  '/user',
  '/users',
  '/user/keys',
  '/user/keys/:keyName',
  '/user/sessions',
  '/user/sessions/:sessionId',
  '/workspaces',
  '/linkKeys',
]

/** Suffixes of routes that read by POST, because their input does not fit into a URL. */
const READS_BY_POST =
  /\/(query|search|vectorSearch|aggregate|summarize|ask(\/:sessionId)?|sql|sql\/batch|compare(\/:\w+)?|preview|history)$/

interface Walked {
  readonly name: string
  readonly method: string
  readonly url: string
  call(key: string | null, headers?: Record<string, string>, body?: string): Promise<Answer>
}

let service: TestService
let walked: Walked[]
let description: Description
let routes: readonly { method: string; url: string }[]

beforeAll(async () => {
  const watch = watchRoutes()
  service = await createTestService()
  watch.stop()
  routes = watch.routes
  description = (await service.call('GET', '/openapi.json')).body
  await createDatabase(service, 'shop')
  await service.call('PUT', `${service.workspace}/db/shop:dev`)
  const invite = await service.call('POST', `/workspaces/${service.workspaceId}/invites`, {
    body: { email: 'invited@example.com', role: 'maintainer' },
  })
  const values = {
    workspaceId: service.workspaceId,
    databaseName: 'shop',
    databaseBranch: 'shop:dev',
    branchName: 'dev',
    userId: (await service.call('GET', '/user')).body.id,
    keyName: 'first',
    invite: invite.body.inviteId,
  }
  walked = routes
    // Operations are known by their ids. Their own tests look at who reaches them.
    .filter(({ method, url }) => !isPublic(method, url) && !url.startsWith('/operations/'))
    .map(({ method, url }) => {
      const { path, body } = exampleRequest(description, { method, url }, values)
      const isDataPlane = url.startsWith('/db')
      const address = isDataPlane ? `${service.workspace}${path}` : path
      return {
        name: `${method} ${url}`,
        method,
        url,
        call: (key, headers = {}, text) =>
          service.call(method, address, { key, headers, body: text ?? body }),
      }
    })
})
afterAll(() => service.close())

function isPublic(method: string, url: string): boolean {
  return PUBLIC.includes(`${method === 'HEAD' ? 'GET' : method} ${url}`)
}

/** Fails with the names of all routes that answer wrongly, or if anything stored has changed. */
async function expectOfEach(
  chosen: readonly Walked[],
  call: (route: Walked) => Promise<Answer>,
  isRight: (answer: Answer, route: Walked) => boolean,
): Promise<void> {
  expect(chosen.length).toBeGreaterThan(0)
  const before = await everythingStored(service)
  const wrong: string[] = []
  for (const route of chosen) {
    const answer = await call(route)
    if (!isRight(answer, route)) {
      wrong.push(`${route.name}: ${answer.status} ${JSON.stringify(answer.body)}`)
    }
  }
  expect(wrong).toEqual([])
  expect(await everythingStored(service)).toEqual(before)
}

const isHead = (route: Walked) => route.method === 'HEAD'
const isRead = (route: Walked) =>
  ['GET', 'HEAD'].includes(route.method) || READS_BY_POST.test(route.url)
const isPersonal = (route: Walked) => PERSONAL.includes(route.url)
const isAccept = (route: Walked) => route.url.endsWith('/invites/:invite/accept')
const hasCode = (answer: Answer, status: number, code: string, route: Walked) =>
  answer.status === status && (isHead(route) || answer.body.code === code)

describe('every route', () => {
  it('is described, or is known to be public', () => {
    const undescribed = routes
      .filter(({ method, url }) => method !== 'HEAD' && !isPublic(method, url))
      .filter((route) => findOperation(description, route) === undefined)
      .map(({ method, url }) => `${method} ${url}`)
    expect(undescribed).toEqual([])
  })

  it('that is described without a key is known to be public', () => {
    const open = Object.entries(description.paths).flatMap(([path, operations]) =>
      Object.entries(operations)
        .filter(([, operation]) => 'security' in operation)
        .map(([method]) => `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, ':$1')}`),
    )
    for (const route of open) expect(PUBLIC).toContain(route)
  })

  it('that is public is there', () => {
    const urls = routes.flatMap(({ method, url }) => [`GET ${url}`, `${method} ${url}`])
    for (const name of PUBLIC) expect(urls).toContain(name)
  })
})

describe('without a valid key, every route', () => {
  const refusedWith = (message: string) => (answer: Answer, route: Walked) =>
    answer.status === 401 &&
    String(answer.headers['www-authenticate']).startsWith('Bearer realm="offshoot"') &&
    (isHead(route) ||
      JSON.stringify(answer.body) ===
        JSON.stringify({ id: answer.headers['x-request-id'], message, code: 'invalid_api_key' }))
  const isRefused = refusedWith('Invalid API key')
  const isMissing = refusedWith(
    'header [authorization]: is missing; send [Authorization: Bearer <API key>]',
  )
  const NO_SCHEME = 'header [authorization]: must be the word Bearer, a space and an API key'
  const TWO_KEYS = 'header [authorization]: must be given once, with one API key'
  const NO_KEY =
    'header [authorization]: an API key must follow Bearer: 1 to 255 letters, digits and underscores'

  it('answers 401 when the header is missing', async () => {
    await expectOfEach(walked, (route) => route.call(null), isMissing)
  })

  it('answers 401 before it looks at the body', async () => {
    const withBody = walked.filter((route) => !['GET', 'HEAD'].includes(route.method))
    await expectOfEach(withBody, (route) => route.call(null, {}, '{ not json'), isMissing)
  })

  it('answers 401 to Xata clients too', async () => {
    await expectOfEach(walked, (route) => route.call(null, { 'x-xata-agent': 'x' }), isMissing)
  })

  it.each([
    ['another scheme', () => `Basic ${service.key}`, NO_SCHEME],
    ['a scheme of the same length', () => `Xxxxxx ${service.key}`, NO_SCHEME],
    ['no scheme', () => service.key, NO_SCHEME],
    ['no key', () => 'Bearer ', NO_KEY],
    ['two keys', () => `Bearer ${service.key}, Bearer ${service.key}`, TWO_KEYS],
    ['a key and more', () => `Bearer ${service.key} x`, NO_KEY],
    ['two spaces', () => `Bearer  ${service.key}`, NO_KEY],
    ['characters no key has', () => 'Bearer off_ö%00*', NO_KEY],
    ['SQL', () => "Bearer ' or '1'='1", NO_KEY],
    ['a very long key', () => `Bearer ${'x'.repeat(5000)}`, NO_KEY],
  ])('answers 401 when the header is malformed: %s', async (_name, authorization, message) => {
    const headers = { authorization: authorization() }
    await expectOfEach(walked, (route) => route.call(null, headers), refusedWith(message))
  })

  it('answers 401 when the header is empty', async () => {
    await expectOfEach(walked, (route) => route.call(null, { authorization: '' }), isMissing)
  })

  it.each([
    ['made up', () => `off_${'a'.repeat(44)}`],
    ['one character short', () => service.key.slice(0, -1)],
    ['one character long', () => `${service.key}a`],
    ['in another case', () => service.key.toUpperCase()],
  ])('answers 401 when the key is unknown: %s', async (_name, key) => {
    await expectOfEach(walked, (route) => route.call(key()), isRefused)
  })

  it('answers 401 when the key has expired', async () => {
    const key = await createKey(service, 'expired', {
      fields: { expiresAt: new Date(Date.now() + 60_000).toISOString() },
    })
    await service.database.query(sql`
      update offshoot.api_keys set expires_at = now() where name = 'expired'`)
    await expectOfEach(walked, (route) => route.call(key), isRefused)
  })

  it('answers 401 when the key was revoked', async () => {
    const key = await createKey(service, 'revoked')
    await service.call('DELETE', '/user/keys/revoked')
    await expectOfEach(walked, (route) => route.call(key), isRefused)
  })

  it('answers 401 when the user of the key was deleted', async () => {
    const { key } = await createUser(service, 'deleted')
    await service.call('DELETE', '/user', { key })
    await expectOfEach(walked, (route) => route.call(key), isRefused)
  })
})

describe('with the key of someone who is no member', () => {
  let key: string
  let aboutWorkspace: Walked[]

  beforeAll(async () => {
    key = (await createUser(service, 'foreign')).key
    aboutWorkspace = walked.filter((route) => !isPersonal(route))
  })

  it('every route about a workspace answers 404 as if there were none', async () => {
    await expectOfEach(
      aboutWorkspace,
      (route) => route.call(key),
      (answer, route) =>
        hasCode(answer, 404, isAccept(route) ? 'invite_not_found' : 'workspace_not_found', route),
    )
  })

  it('every route about a workspace answers 401 to Xata clients, with another message', async () => {
    await expectOfEach(
      aboutWorkspace.filter((route) => !isAccept(route)),
      (route) => route.call(key, { 'x-xata-agent': 'x' }),
      (answer, route) =>
        hasCode(answer, 401, 'workspace_not_found', route) &&
        answer.body.message !== 'Invalid API key',
    )
  })

  it('is the same for a key whose scope is another workspace', async () => {
    const other = await createWorkspace(service, 'Elsewhere')
    const scoped = await createKey(service, 'elsewhere', {
      fields: { scope: { workspaces: [other.id] } },
    })
    await expectOfEach(
      aboutWorkspace,
      (route) => route.call(scoped),
      (answer, route) =>
        isAccept(route)
          ? hasCode(answer, 403, 'key_scope', route)
          : hasCode(answer, 404, 'workspace_not_found', route),
    )
  })
})

describe('with a key of limited scope', () => {
  /** Members and usage belong to a whole workspace, not to one database or branch. */
  const isAboutWhole = ({ url }: Walked) => /\/(members|usage|audit)$/.test(url)
  /** A limited key needs a scope that includes it. */
  const isAudit = ({ url }: Walked) => url.endsWith('/audit')
  const isAboutAllBranches = ({ url }: Walked) => url.endsWith('/privateFiles')
  const isNotRefused = (answer: Answer) => answer.status !== 401 && answer.status !== 403

  it('that may only read, every route that changes something answers 403', async () => {
    const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    await expectOfEach(
      walked,
      (route) => route.call(key),
      (answer, route) =>
        isRead(route) && !isAudit(route)
          ? isNotRefused(answer)
          : hasCode(answer, 403, 'key_scope', route),
    )
  })

  it('that names another database, nothing of this one is reached or changed', async () => {
    const key = await createKey(service, 'other-database', {
      fields: { scope: { databases: ['other'] } },
    })
    await expectOfEach(
      walked,
      (route) => route.call(key),
      (answer, route) => {
        if (isAboutWhole(route)) return hasCode(answer, 403, 'key_scope', route)
        if (isPersonal(route) || !/:database(Name|Branch)/.test(route.url)) {
          return isRead(route) ? isNotRefused(answer) : hasCode(answer, 403, 'key_scope', route)
        }
        const isCreate = route.name === 'PUT /workspaces/:workspaceId/dbs/:databaseName'
        return isCreate
          ? hasCode(answer, 403, 'key_scope', route)
          : hasCode(answer, 404, 'database_not_found', route)
      },
    )
  })

  it('that names other branches, no branch is reached and no database changed', async () => {
    const key = await createKey(service, 'other-branches', {
      fields: { scope: { branches: ['other-*'] } },
    })
    await expectOfEach(
      walked,
      (route) => route.call(key),
      (answer, route) => {
        if (isAboutWhole(route) || isAboutAllBranches(route))
          return hasCode(answer, 403, 'key_scope', route)
        if (route.url.endsWith('/proposals') && !isRead(route)) {
          return hasCode(answer, 404, 'branch_not_found', route)
        }
        if (route.url.includes('/proposals/')) {
          return hasCode(answer, 404, 'proposal_not_found', route)
        }
        if (!route.url.includes(':databaseBranch')) {
          return isRead(route) ? isNotRefused(answer) : hasCode(answer, 403, 'key_scope', route)
        }
        const isCreate = route.name === 'PUT /db/:databaseBranch'
        return isCreate
          ? hasCode(answer, 403, 'key_scope', route)
          : hasCode(answer, 404, 'branch_not_found', route)
      },
    )
  })
})
