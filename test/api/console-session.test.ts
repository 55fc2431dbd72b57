import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { prepareFirstStart } from '../../packages/server/src/domain/first-start.js'
import {
  createSignInToken,
  SESSION_SECONDS,
  SESSIONS_PER_KEY_MAX,
} from '../../packages/server/src/domain/keys/console-sessions.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createDatabase, createKey, createUser } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { TIME } from '../support/tables.js'

/** A page and an asset in the form of the built console. */
const FOLDER = path.join(fileURLToPath(new URL('.', import.meta.url)), '../support/console-page')
const OURS = { 'x-offshoot-console': '1', host: 'localhost:6001' }

let service: TestService
let other: TestService
beforeAll(async () => {
  service = await createTestService({ consoleFolder: FOLDER })
  // Another process of the same instance.
  other = await createTestService({ consoleFolder: FOLDER, url: service.url })
  await createDatabase(service, 'shop')
})
afterAll(async () => {
  await other.close()
  await service.close()
})

const signIn = (key: string | null, headers: Record<string, string> = {}) =>
  service.call('POST', '/console/session', { key, headers: { ...OURS, ...headers } })

/** Returns the cookie of an answer as a browser sends it. */
const cookieOf = ({ headers }: Answer) => String(headers['set-cookie']).split(';')[0] ?? ''

const open = async (key = service.key) => cookieOf(await signIn(key))

const callWith = (
  cookie: string,
  method: string,
  url: string,
  options: { headers?: Record<string, string>; body?: unknown; from?: TestService } = {},
) =>
  (options.from ?? service).call(method, url, {
    key: null,
    headers: { ...OURS, cookie, ...options.headers },
    ...(options.body === undefined ? {} : { body: options.body }),
  })

describe('a session of the console', () => {
  it('is opened by a key, and its cookie is kept from scripts and other sites', async () => {
    const answer = await signIn(service.key)
    expect(answer.status).toBe(201)
    const cookie = String(answer.headers['set-cookie'])
    expect(cookie).toMatch(/^offshoot_session_6001=[A-Za-z0-9]{44}; Path=\/; Expires=/)
    expect(cookie).toContain('HttpOnly; SameSite=Strict')
    const lasts = new Date(answer.body.expiresAt).getTime() - Date.now()
    expect(lasts).toBeGreaterThan((SESSION_SECONDS - 600) * 1000)
    expect(lasts).toBeLessThanOrEqual(SESSION_SECONDS * 1000)
    const { body } = await callWith(cookieOf(answer), 'GET', '/console/session')
    expect(body.session).toMatchObject({ key: 'first', scope: {}, administrator: true })
  })

  it('acts as its key in the control plane and in the data plane', async () => {
    const cookie = await open()
    expect((await callWith(cookie, 'GET', '/user')).status).toBe(200)
    const branch = `${service.workspace}/db/shop:main`
    expect((await callWith(cookie, 'PUT', `${branch}/tables/items`)).status).toBe(201)
    const answer = await callWith(cookie, 'POST', `${branch}/tables/items/data`, { body: {} })
    expect(answer.status).toBe(201)
  })

  it('needs the header of the console and the same origin', async () => {
    const cookie = await open()
    const send = (headers: Record<string, string>) =>
      service.call('GET', '/user', {
        key: null,
        headers: { host: 'localhost:6001', cookie, ...headers },
      })
    const ours = { 'x-offshoot-console': '1' }
    expect((await send({})).status).toBe(401)
    expect((await send({})).body.message).toContain('x-offshoot-console')
    expect((await send({ ...ours, origin: 'http://localhost:3000' })).status).toBe(401)
    expect((await send({ ...ours, origin: 'null' })).status).toBe(401)
    expect((await send({ ...ours, 'sec-fetch-site': 'same-site' })).status).toBe(401)
    expect((await send({ ...ours, 'sec-fetch-site': 'cross-site' })).status).toBe(401)
    expect((await send({ ...ours, origin: 'http://localhost:6001' })).status).toBe(200)
    expect((await send({ ...ours, 'sec-fetch-site': 'same-origin' })).status).toBe(200)
  })

  it('is not opened for a page of another origin', async () => {
    const answer = await signIn(service.key, { origin: 'http://evil.example' })
    expect(answer.status).toBe(403)
    expect(answer.headers['set-cookie']).toBeUndefined()
    const plain = await service.call('POST', '/console/session')
    expect(plain.status).toBe(403)
  })

  it('is not opened by a wrong key, by a session, or without a key', async () => {
    expect((await signIn('off_wrong')).status).toBe(401)
    expect((await signIn(null)).status).toBe(401)
    const cookie = await open()
    const answer = await callWith(cookie, 'POST', '/console/session')
    expect(answer.status).toBe(400)
  })

  it('has a secret that is not an API key and is stored only as a hash', async () => {
    const secret = (await open()).split('=')[1] ?? ''
    expect((await service.call('GET', '/user', { key: secret })).status).toBe(401)
    expect((await service.call('GET', '/user', { key: `session:${secret}` })).status).toBe(401)
    const rows = await service.database.query<{ text: string }>(sql`
      select k::text as text from offshoot.api_keys k`)
    expect(rows.map(({ text }) => text).join('\n')).not.toContain(secret)
  })

  it('does not show up among the keys', async () => {
    const cookie = await open()
    const { body } = await callWith(cookie, 'GET', '/user/keys')
    expect(body.keys.map(({ name }: { name: string }) => name)).not.toContain('console')
    expect((await callWith(cookie, 'DELETE', '/user/keys/console')).status).toBe(404)
    expect((await callWith(cookie, 'POST', '/user/keys/console')).status).toBe(201)
    expect((await callWith(cookie, 'DELETE', '/user/keys/console')).status).toBe(204)
  })

  it('ends in every process when its user signs out', async () => {
    const cookie = await open()
    const branch = `${service.workspace}/db/shop:main`
    const query = (from: TestService) =>
      callWith(cookie, 'POST', `${branch}/tables/items/query`, { from, body: {} })
    expect((await query(service)).status).toBe(200)
    expect((await query(other)).status).toBe(200)
    const answer = await callWith(cookie, 'DELETE', '/console/session')
    expect(answer.status).toBe(204)
    expect(answer.headers['set-cookie']).toContain('Expires=Thu, 01 Jan 1970')
    for (const from of [service, other]) {
      expect((await query(from)).status).toBe(401)
      expect((await callWith(cookie, 'GET', '/user', { from })).status).toBe(401)
      expect((await callWith(cookie, 'GET', '/console/session', { from })).body).toEqual({
        session: null,
      })
    }
    expect((await service.call('GET', '/user')).status).toBe(200)
  })

  it('ends in every process when its key is deleted', async () => {
    const key = await createKey(service, 'brief')
    const cookie = await open(key)
    expect((await callWith(cookie, 'GET', '/user', { from: other })).status).toBe(200)
    await service.call('DELETE', '/user/keys/brief')
    expect((await callWith(cookie, 'GET', '/user', { from: other })).status).toBe(401)
  })

  it('expires with its key, and by itself', async () => {
    const expiresAt = new Date(Date.now() + 3_600_000).toISOString()
    const key = await createKey(service, 'hour', { fields: { expiresAt } })
    const answer = await signIn(key)
    expect(answer.body.expiresAt).toBe(expiresAt)
    const cookie = await open()
    await service.database.query(sql`
      update offshoot.api_keys set expires_at = now() where session`)
    expect((await callWith(cookie, 'GET', '/user')).status).toBe(401)
  })

  it('has the scope of its key', async () => {
    const key = await createKey(service, 'reader', {
      fields: { scope: { databases: ['shop'], access: 'read' } },
    })
    const cookie = await open(key)
    const branch = `${service.workspace}/db/shop:main`
    expect(
      (await callWith(cookie, 'POST', `${branch}/tables/items/query`, { body: {} })).status,
    ).toBe(200)
    const write = await callWith(cookie, 'POST', `${branch}/tables/items/data`, { body: {} })
    expect(write.body.code).toBe('key_scope')
    expect((await callWith(cookie, 'POST', '/user/keys/more')).body.code).toBe('key_scope')
    const { body } = await callWith(cookie, 'GET', '/user/keys')
    expect(body.keys.map(({ name }: { name: string }) => name)).toEqual(['reader'])
    const { session } = (await callWith(cookie, 'GET', '/console/session')).body
    expect(session).toMatchObject({ key: 'reader', scope: { databases: ['shop'], access: 'read' } })
  })

  it('is the oldest that ends when a key has too many, and leaves those of other keys', async () => {
    const user = await createUser(service, 'many')
    const fields = { scope: { access: 'read' } }
    const reader = await createKey(service, 'reader', { key: user.key, fields })
    const owner = await open(user.key)
    const cookies: string[] = []
    for (let i = 0; i <= SESSIONS_PER_KEY_MAX; i++) cookies.push(await open(reader))
    const stateOf = async (cookie = '') => (await callWith(cookie, 'GET', '/user')).status
    const tried = [owner, cookies[0], cookies[1], cookies[SESSIONS_PER_KEY_MAX]]
    expect(await Promise.all(tried.map(stateOf))).toEqual([200, 401, 200, 200])
  })

  it('gives way to an API key in the same request', async () => {
    const user = await createUser(service, 'grace')
    const answer = await service.call('GET', '/user', {
      key: user.key,
      headers: { ...OURS, cookie: await open() },
    })
    expect(answer.body.id).toBe(user.id)
  })
})

describe('the list of sessions', () => {
  const list = async (key: string) =>
    (await service.call('GET', '/user/sessions', { key })).body.sessions

  it('names the key of each session, when it was opened and when it ends', async () => {
    const user = await createUser(service, 'lister')
    expect(await list(user.key)).toEqual([])
    const cookie = await open(user.key)
    const [session, ...others] = await list(user.key)
    expect(others).toEqual([])
    expect(session).toEqual({
      id: expect.stringMatching(/^\d+$/),
      key: 'first',
      createdAt: expect.stringMatching(TIME),
      expiresAt: expect.stringMatching(TIME),
      isCurrent: false,
    })
    const { body } = await callWith(cookie, 'GET', '/user/sessions')
    expect(body.sessions).toEqual([{ ...session, isCurrent: true }])
  })

  it('lets a session be ended, in every process', async () => {
    const user = await createUser(service, 'ender')
    const cookie = await open(user.key)
    expect((await callWith(cookie, 'GET', '/user', { from: other })).status).toBe(200)
    const [{ id }] = await list(user.key)
    const end = (key: string, of = id) => service.call('DELETE', `/user/sessions/${of}`, { key })
    expect((await end(service.key)).body.code).toBe('session_not_found')
    expect((await end(user.key)).status).toBe(204)
    expect((await end(user.key)).body.code).toBe('session_not_found')
    expect((await end(user.key, 'x')).status).toBe(400)
    expect((await callWith(cookie, 'GET', '/user', { from: other })).status).toBe(401)
    expect(await list(user.key)).toEqual([])
  })

  it('shows a limited key its own sessions only', async () => {
    const user = await createUser(service, 'narrow')
    const fields = { scope: { databases: ['shop'] } }
    const limited = await createKey(service, 'limited', { key: user.key, fields })
    const cookie = await open(user.key)
    await open(limited)
    const all = await list(user.key)
    expect(all.map(({ key }: { key: string }) => key)).toEqual(['first', 'limited'])
    expect((await list(limited)).map(({ key }: { key: string }) => key)).toEqual(['limited'])
    const answer = await service.call('DELETE', `/user/sessions/${all[0].id}`, { key: limited })
    expect(answer.body.code).toBe('key_scope')
    expect((await callWith(cookie, 'GET', '/user')).status).toBe(200)
  })
})

describe('a sign-in link', () => {
  const use = (token: string, headers: Record<string, string> = {}) =>
    service.call('POST', '/console/session/token', {
      key: null,
      headers: { ...OURS, 'x-offshoot-sign-in': token, ...headers },
    })
  const createToken = async (key = service.key): Promise<string> => {
    const { body } = await service.call('GET', '/user', { key })
    return (await createSignInToken(service.database, body.id)) ?? ''
  }

  it('signs in once', async () => {
    const token = await createToken()
    const answer = await use(token)
    expect(answer.status).toBe(201)
    const { session } = (await callWith(cookieOf(answer), 'GET', '/console/session')).body
    expect(session).toMatchObject({ key: 'first', administrator: true })
    expect((await use(token)).body.code).toBe('invalid_link')
  })

  it('is refused after its time, for other origins, and if it is malformed', async () => {
    const token = await createToken()
    expect((await use(token, { origin: 'http://evil.example' })).status).toBe(403)
    await service.database.query(sql`update offshoot.sign_in_tokens set expires_at = now()`)
    expect((await use(token)).body.code).toBe('invalid_link')
    expect((await use('')).status).toBe(400)
    expect((await use('a b')).status).toBe(400)
  })

  it('opens a session that ends with the key of the administrator, as do unused links', async () => {
    const replaced = await createTestService({ consoleFolder: FOLDER })
    const { body: user } = await replaced.call('GET', '/user')
    const link = async () => (await createSignInToken(replaced.database, user.id)) ?? ''
    const useAt = (token: string) =>
      replaced.call('POST', '/console/session/token', {
        key: null,
        headers: { ...OURS, 'x-offshoot-sign-in': token },
      })
    const cookie = cookieOf(await useAt(await link()))
    const unused = await link()
    expect((await callWith(cookie, 'GET', '/user', { from: replaced })).status).toBe(200)
    // The settings have another key at the next start.
    await prepareFirstStart(replaced.database, { apiKey: 'off_another_key_of_the_settings' })
    expect((await callWith(cookie, 'GET', '/user', { from: replaced })).status).toBe(401)
    expect((await useAt(unused)).body.code).toBe('invalid_link')
    await replaced.close()
  })

  it('is not created for a user without a key that is unlimited', async () => {
    const user = await createUser(service, 'limited')
    const fields = { scope: { access: 'read' } }
    await createKey(service, 'reader', { key: user.key, fields })
    expect(await createToken(user.key)).not.toBe('')
    await service.call('DELETE', '/user/keys/first', { key: user.key })
    expect(await createSignInToken(service.database, user.id)).toBeUndefined()
  })
})

describe('the page of the console', () => {
  const get = (url: string, headers: Record<string, string> = {}, method = 'GET') =>
    service.call(method, url, { key: null, headers })

  it('is at / with a policy that names its nonce', async () => {
    expect((await get('/')).headers.location).toBe('/console/')
    const answer = await get('/console/')
    expect(answer.status).toBe(200)
    const [, nonce] = /nonce="([^"]+)"/.exec(answer.body) ?? []
    const policy = String(answer.headers['content-security-policy'])
    expect(policy).toContain(`style-src 'self' 'nonce-${nonce}'`)
    expect(policy).toContain("default-src 'none'")
    expect(policy).not.toContain('unsafe')
    expect((await get('/console/')).body).not.toBe(answer.body)
    expect(answer.headers['cache-control']).toBe('no-store')
  })

  it('answers deep links of browsers only, and shadows nothing', async () => {
    const html = { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }
    expect((await get('/console/w/x/db/y%20z/b/main', html)).status).toBe(200)
    expect((await get('/console/w/x', { accept: 'application/json' })).body.code).toBe(
      'route_not_found',
    )
    expect((await get('/console/w/x')).status).toBe(404)
    expect((await get('/workspaces', html)).status).toBe(401)
    expect((await get('/consoles', html)).status).toBe(404)
    expect((await get('/docs', html)).status).toBe(200)
  })

  it('lets browsers keep assets, and answers HEAD and conditional requests', async () => {
    const url = '/console/assets/index-1234.js'
    const answer = await get(url)
    expect(answer.status).toBe(200)
    expect(answer.headers['cache-control']).toBe('public, max-age=31536000, immutable')
    expect(answer.headers['content-type']).toContain('javascript')
    const etag = String(answer.headers.etag)
    expect((await get(url, { 'if-none-match': etag })).status).toBe(304)
    const head = await get(url, {}, 'HEAD')
    expect([head.status, head.body]).toEqual([200, ''])
    expect((await get('/console/assets/missing.js')).body.code).toBe('route_not_found')
    expect((await get('/console/assets/..%2findex.html')).status).toBe(404)
  })

  it('is left out, with its sessions, if the console is off', async () => {
    const off = await createTestService({ url: service.url })
    try {
      expect((await off.call('GET', '/', { key: null })).headers.location).toBe('/docs')
      expect((await off.call('GET', '/console/', { key: null })).status).toBe(404)
      expect((await off.call('POST', '/console/session', { headers: OURS })).status).toBe(404)
      const cookie = await open()
      expect((await callWith(cookie, 'GET', '/user', { from: off })).status).toBe(401)
    } finally {
      await off.close()
    }
  })
})
