import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDatabase, createKey, createUser, createWorkspace } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { watchQueries } from '../support/watch-queries.js'

const XATA_CLIENT = { 'x-xata-client-id': 'client' }

let service: TestService
/** A second workspace of the same user. */
let other: string

beforeAll(async () => {
  service = await createTestService()
  other = (await createWorkspace(service, 'Other')).id
  await createDatabase(service, 'home-only')
  await createDatabase(service, 'in-both')
  await createDatabase(service, 'in-both', { workspaceId: other, branchName: 'other-main' })
  await createDatabase(service, 'european', { region: 'eu' })
})
afterAll(() => service.close())

const get = (path: string, headers: Record<string, string> = {}, key?: string) =>
  service.call('GET', path, { headers, ...(key === undefined ? {} : { key }) })
const withHost = (path: string, host: string, more: Record<string, string> = {}) =>
  get(path, { host, ...more })

describe('the workspace as a host', () => {
  it.each([
    ['with localhost', 'local.localhost:6001'],
    ['without a port', 'local.localhost'],
    ['with a suffix of its own', 'local.db.example.com'],
    ['with a suffix of one label', 'local.internal:80'],
    ['with a dot at the end', 'local.localhost.'],
    ['in upper case', 'LOCAL.LOCALHOST'],
    ['with the label upload', 'local.upload.localhost:6001'],
  ])('is read %s', async (_name, suffix) => {
    const host = `${service.workspaceId}.${suffix}`
    const answer = await withHost('/db/in-both:main', host)
    expect(answer).toMatchObject({ status: 200, body: { branchName: 'main' } })
    expect((await withHost('/dbs/in-both', host)).status).toBe(200)
  })

  it('tells two databases of the same name apart', async () => {
    const answer = await withHost('/db/in-both:other-main', `${other}.local.localhost:6001`)
    expect(answer).toMatchObject({ status: 200, body: { branchName: 'other-main' } })
    const crossed = await withHost(
      '/db/in-both:other-main',
      `${service.workspaceId}.local.localhost`,
    )
    expect(crossed).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
  })

  it('answers a region that is not the one of the database with 404', async () => {
    const { workspaceId } = service
    expect((await withHost('/db/european:main', `${workspaceId}.eu.localhost`)).status).toBe(200)
    for (const region of ['local', 'us', 'mars']) {
      const answer = await withHost('/db/european:main', `${workspaceId}.${region}.localhost`)
      expect(answer).toMatchObject({
        status: 404,
        body: { message: 'database [european] not found', code: 'database_not_found' },
      })
    }
  })

  it('serves control-plane paths all the same', async () => {
    expect((await withHost('/user', `${service.workspaceId}.local.localhost`)).status).toBe(200)
  })
})

describe('the workspace as the first part of the path', () => {
  it.each([
    ['alone', 'local'],
    ['with more labels', 'local.xata.sh'],
    ['with the label upload', 'local.upload.xata.sh'],
    ['with anything behind', 'local.a.b.c.d.e.f'],
  ])('is read %s', async (_name, rest) => {
    const answer = await get(`/${service.workspaceId}.${rest}/db/in-both:main`)
    expect(answer).toMatchObject({ status: 200, body: { branchName: 'main' } })
  })

  it('goes before the host', async () => {
    const path = `/${other}.local/db/in-both:other-main`
    expect((await withHost(path, `${service.workspaceId}.local.localhost`)).status).toBe(200)
  })

  it('may be percent-encoded', async () => {
    expect((await get(`/${service.workspaceId}%2elocal/db/in-both:main`)).status).toBe(404)
    expect((await get(`/%68${service.workspaceId.slice(1)}.local/db/in-both:main`)).status).toBe(
      200,
    )
  })

  it('answers a region that is not the one of the database with 404', async () => {
    expect((await get(`/${service.workspaceId}.eu/db/european:main`)).status).toBe(200)
    expect((await get(`/${service.workspaceId}.local/db/european:main`)).status).toBe(404)
  })

  it('keeps the query', async () => {
    const path = `/${service.workspaceId}.local/dbs/in-both/resolveBranch?fallbackBranch=main`
    expect((await get(path)).body.reason.code).toBe('FALLBACK_BRANCH')
  })

  it('does not hide paths of the service that have a dot', async () => {
    expect((await get('/openapi.json')).status).toBe(200)
  })

  it.each([
    ['no workspace', '/.local/db/home-only:main'],
    ['no region', (id: string) => `/${id}./db/home-only:main`],
    ['only dots', '/.../db/home-only:main'],
    ['an unknown workspace', '/nowhere-aaaaaa.local/db/home-only:main'],
    ['another case', (id: string) => `/${id.toUpperCase()}.local/db/home-only:main`],
    ['a broken escape', '/%zz.local/db/home-only:main'],
  ])('answers %s with 404', async (_name, path) => {
    const answer = await get(typeof path === 'string' ? path : path(service.workspaceId))
    expect(answer.status).toBe(404)
    expect(answer.body.message).toMatch(/ not found$/)
  })
})

describe('an address without a workspace', () => {
  it('is enough when one workspace of the key has the database', async () => {
    expect((await get('/db/home-only:main')).status).toBe(200)
    expect((await get('/db/european:main')).status).toBe(200)
    expect((await service.call('PUT', '/db/home-only:bare')).status).toBe(201)
    expect((await get('/dbs/home-only')).status).toBe(200)
  })

  it.each(['127.0.0.1:6001', '[::1]:6001', 'localhost', 'example.com', 'a.localhost', ''])(
    'is one with the host %j',
    async (host) => {
      expect((await withHost('/db/home-only:main', host)).status).toBe(200)
    },
  )

  it.each([
    [
      'more than one workspace',
      'in-both',
      'more than one workspace of this API key has a database with this name',
    ],
    ['no workspace', 'nowhere', 'no workspace of this API key has a database with this name'],
  ])('is refused with 400 when %s has the database', async (_name, database, reason) => {
    const answer = await get(`/db/${database}:main`)
    expect(answer.status).toBe(400)
    expect(answer.body.code).toBe('ambiguous_workspace')
    expect(answer.body.message).toContain(`database [${database}]: ${reason}`)
    expect(answer.body.message).toContain('http://{workspace}.{region}.localhost/db/...')
    expect(answer.body.message).toContain('http://localhost:80/{workspace}.{region}/db/...')
  })

  it('takes no more round trips to PostgreSQL than one with a workspace', async () => {
    let roundTrips = 0
    const tracing = watchQueries(() => {
      roundTrips++
    })
    const counted = await createTestService({ tracing })
    try {
      await createDatabase(counted, 'counted')
      const steps = (name: string) =>
        [
          ['PUT', `/db/counted:${name}`, { from: 'main' }],
          ['GET', `/db/counted:${name}`],
          ['GET', `/db/counted:${name}/diff`],
          ['POST', `/db/counted:${name}/sql`, { statement: 'select 1' }],
          ['POST', `/db/counted:${name}/merge`, { into: 'main' }],
          ['DELETE', `/db/counted:${name}`],
        ] as const
      const costsOf = async (prefix: string, name: string) => {
        const costs: number[] = []
        for (const [method, path, body] of steps(name)) {
          const before = roundTrips
          const answer = await counted.call(method, `${prefix}${path}`, { body })
          expect(answer.status, path).toBeLessThan(300)
          costs.push(roundTrips - before)
        }
        return costs
      }
      const named = `/${counted.workspaceId}.local`
      // The first round loads what a process reads once.
      await costsOf(named, 'first')
      await costsOf('', 'second')
      expect(await costsOf('', 'third')).toEqual(await costsOf(named, 'fourth'))
    } finally {
      await counted.close()
    }
  })

  it('is made clear by a key that reaches one workspace only', async () => {
    const fields = { scope: { workspaces: [other] } }
    const key = await createKey(service, 'one-workspace', { fields })
    expect((await get('/db/in-both:other-main', {}, key)).status).toBe(200)
    expect((await get('/db/home-only:main', {}, key)).status).toBe(400)
  })

  it('tells nothing about the databases of others', async () => {
    const stranger = await createUser(service, 'stranger')
    const [existing, missing] = [
      await get('/db/home-only:main', {}, stranger.key),
      await get('/db/nowhere-at-all:main', {}, stranger.key),
    ]
    expect(existing.status).toBe(400)
    expect(existing.body.message.replace('home-only', 'nowhere-at-all')).toBe(missing.body.message)
  })
})

describe('a workspace that is unknown or of others', () => {
  it('is answered with 404 alike, on every kind of path', async () => {
    const stranger = await createUser(service, 'outsider')
    for (const [path, unknown] of [
      [`/workspaces/${other}`, '/workspaces/nowhere-aaaaaa'],
      [`/workspaces/${other}/dbs/in-both`, '/workspaces/nowhere-aaaaaa/dbs/in-both'],
      [`/${other}.local/db/in-both:main`, '/nowhere-aaaaaa.local/db/in-both:main'],
    ] as const) {
      const [foreign, missing] = [
        await get(path, {}, stranger.key),
        await get(unknown, {}, stranger.key),
      ]
      expect(foreign.status).toBe(404)
      expect(foreign.body.code).toBe('workspace_not_found')
      const { id: _id, ...rest } = foreign.body
      const { id: _other, ...expected } = missing.body
      expect(rest).toEqual({ ...expected, message: `workspace [${other}] not found` })
    }
  })

  it.each([
    ['by host', () => withHost('/db/x:main', 'nowhere-aaaaaa.local.localhost', XATA_CLIENT)],
    ['by path', () => get('/nowhere-aaaaaa.local/db/x:main', XATA_CLIENT)],
    ['in the control plane', () => get('/workspaces/nowhere-aaaaaa', XATA_CLIENT)],
    ['with the other header', () => get('/workspaces/nowhere-aaaaaa', { 'x-xata-agent': '' })],
  ])('is answered to Xata clients with 401, %s', async (_name, call) => {
    const answer = await call()
    expect(answer.status).toBe(401)
    expect(answer.body.message).toBe('workspace [nowhere-aaaaaa] not found')
    expect(answer.body.message).not.toContain('Invalid API key')
  })

  it('does not change the answer to Xata clients for what is missing inside a known one', async () => {
    expect((await get(`${service.workspace}/db/nowhere:main`, XATA_CLIENT)).status).toBe(404)
    expect((await get(`${service.workspace}/db/home-only:nowhere`, XATA_CLIENT)).status).toBe(404)
  })
})

describe('hostile hosts', () => {
  it.each([
    'a.b.localhost',
    `${'x'.repeat(300)}.local.localhost`,
    "'or'1=1.local.localhost",
    '%00.local.localhost',
    '..localhost',
    '__proto__.local.localhost',
  ])('%j names no workspace', async (host) => {
    const answer = await withHost('/db/home-only:main', host)
    expect(answer.status).toBe(404)
    expect(answer.body.code).toBe('workspace_not_found')
  })

  it.each(['1.2.3.4', '999.1.1.1:80', '[fe80::1]:1', 'localhost:65535', 'localhost:', '-'])(
    '%j is an address without a workspace',
    async (host) => {
      expect((await withHost('/db/home-only:main', host)).status).toBe(200)
    },
  )

  it.each([
    'a"b<x>',
    "' or 1=1 --.local.localhost",
    '../../etc/passwd.local.localhost',
    'é.local.localhost',
    'user@localhost',
    '@',
    ':::',
    '::1',
    '[::1',
    '[localhost]',
    '[fe80::1%25eth0]:1',
    'localhost:6001:6001',
    'localhost:65536',
    'localhost:x',
    'a, b',
    'a b',
    '%zz.local.localhost',
    'localhost/db',
    'localhost?x',
    'localhost#x',
  ])('%j is refused with 400', async (host) => {
    for (const path of ['/db/home-only:main', '/user', '/health', '/metrics', '/nowhere']) {
      const answer = await withHost(path, host)
      expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
      expect(answer.body.message).toContain('header [host]')
    }
  })

  it('are not taken from headers that anyone can add', async () => {
    const headers = { 'x-forwarded-host': `${other}.local.localhost`, 'x-host': other }
    const answer = await get('/db/home-only:main', headers)
    expect(answer).toMatchObject({ status: 200 })
  })
})

describe('a workspace in the path that cannot be one', () => {
  it.each(['%00', 'a%00b', '%0A', '%F0%9F%98%80'])('is not found: %s', async (workspace) => {
    for (const path of ['', '/tables/people/data/ada']) {
      const answer = await service.call('GET', `/${workspace}.local/db/shop:main${path}`)
      expect(answer.status).toBe(404)
      expect(answer.body.code).toBe('workspace_not_found')
    }
  })
})
