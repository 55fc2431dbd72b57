import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { withinLifetime } from '../support/lifetime.js'
import { addMember, createDatabase, createKey, createUser } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const getUser = (key: string) => service.call('GET', '/user', { key })
const inAnHour = () => new Date(Date.now() + 3_600_000).toISOString()

describe('GET user', () => {
  it('returns the user making the request', async () => {
    const { status, body } = await service.call('GET', '/user')
    expect(status).toBe(200)
    expect(body).toEqual({
      id: expect.stringMatching(/^usr_[0-9a-v]{20}$/),
      email: 'admin@offshoot.local',
      fullname: 'Administrator',
      image: '',
    })
  })

  it('shows each user only itself, and neither keys nor rank', async () => {
    const ada = await createUser(service, 'ada')
    const { body } = await getUser(ada.key)
    expect(body).toEqual({ id: ada.id, email: 'ada@example.com', fullname: 'ada', image: '' })
  })
})

describe('PUT user', () => {
  it('replaces the three fields and keeps the id', async () => {
    const user = await createUser(service, 'put')
    const fields = { email: 'Put+1@example.com', fullname: 'Pút 🍎', image: 'https://x.test/a.png' }
    const answer = await service.call('PUT', '/user', { body: fields, key: user.key })
    expect(answer).toMatchObject({ status: 200 })
    expect(answer.body).toEqual({ id: user.id, ...fields })
    expect((await getUser(user.key)).body).toEqual({ id: user.id, ...fields })
  })

  it('does not tell whether an e-mail address has an account', async () => {
    const user = await createUser(service, 'put-curious')
    await createUser(service, 'put-owner')
    const answers = []
    for (const email of ['PUT-Owner@example.com', 'PUT-Nobody@example.com']) {
      const body = { email, fullname: 'x', image: '' }
      answers.push(await service.call('PUT', '/user', { body, key: user.key }))
      expect((await getUser(user.key)).body.email).toBe(email)
    }
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    // The profile address does not reserve an account: an administrator can still create a user
    // with it.
    await createUser(service, 'PUT-Nobody')
  })

  it('takes each field up to its limit', async () => {
    const user = await createUser(service, 'put-limits')
    const fields = {
      email: `${'a'.repeat(242)}@example.com`,
      fullname: '🍎'.repeat(2048),
      image: 'x'.repeat(2048),
    }
    const answer = await service.call('PUT', '/user', { body: fields, key: user.key })
    expect(answer.status).toBe(200)
    expect((await getUser(user.key)).body).toEqual({ id: user.id, ...fields })
  })

  it('lets a user change the case of its own e-mail', async () => {
    const user = await createUser(service, 'put-case')
    const body = { email: 'PUT-CASE@example.com', fullname: 'x', image: '' }
    expect((await service.call('PUT', '/user', { body, key: user.key })).status).toBe(200)
  })

  const valid = { email: 'a@example.com', fullname: 'A', image: '' }
  it.each([
    ['no body', undefined, 'body: must be of type object'],
    ['an empty object', {}, '[email]: is required'],
    ['no fullname', { email: 'a@example.com', image: '' }, '[fullname]: is required'],
    ['no image', { email: 'a@example.com', fullname: 'A' }, '[image]: is required'],
    ['an id', { ...valid, id: 'usr_1' }, '[id]: is not known'],
    ['an e-mail without an at', { ...valid, email: 'a.example.com' }, '[email]'],
    ['an e-mail with a space', { ...valid, email: 'a b@example.com' }, '[email]'],
    [
      'an e-mail of 255 characters',
      { ...valid, email: `${'a'.repeat(243)}@example.com` },
      '[email]',
    ],
    ['an empty fullname', { ...valid, fullname: '' }, '[fullname]'],
    ['a fullname of 2049 characters', { ...valid, fullname: 'x'.repeat(2049) }, '[fullname]'],
    ['a NUL', { ...valid, fullname: 'a\0b' }, '[fullname]: must not contain a NUL'],
    ['an image that is null', { ...valid, image: null }, '[image]: must be of type string'],
  ])('refuses %s with 400 and changes nothing', async (_name, body, message) => {
    const before = (await service.call('GET', '/user')).body
    const answer = await service.call('PUT', '/user', { body })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect((await service.call('GET', '/user')).body).toEqual(before)
  })
})

describe('DELETE user', () => {
  it('deletes the user with its keys and memberships', async () => {
    const user = await createUser(service, 'leaver')
    const second = await createKey(service, 'second', { key: user.key })
    await addMember(service, user)
    expect(await service.call('DELETE', '/user', { key: user.key })).toMatchObject({
      status: 204,
      body: '',
    })
    for (const key of [user.key, second]) expect((await getUser(key)).status).toBe(401)
    const members = await service.call('GET', `/workspaces/${service.workspaceId}/members`)
    expect(JSON.stringify(members.body)).not.toContain(user.id)
  })

  it('frees the e-mail for another user', async () => {
    const user = await createUser(service, 'reused')
    await service.call('DELETE', '/user', { key: user.key })
    expect((await createUser(service, 'reused')).id).not.toBe(user.id)
  })

  it('is refused with 409 while a workspace would lose its only owner', async () => {
    const user = await createUser(service, 'owner')
    const body = { name: 'Owned' }
    const workspace = (await service.call('POST', '/workspaces', { body, key: user.key })).body
    const answer = await service.call('DELETE', '/user', { key: user.key })
    expect(answer.status).toBe(409)
    expect(answer.body.code).toBe('only_owner')
    expect(answer.body.message).toContain(`workspace [${workspace.id}]`)
    expect((await getUser(user.key)).status).toBe(200)
    await service.call('DELETE', `/workspaces/${workspace.id}`, { key: user.key })
    expect((await service.call('DELETE', '/user', { key: user.key })).status).toBe(204)
  })

  it('hands the instance on to the user who is longest with it', async () => {
    const other = await createTestService()
    const next = await createUser(other, 'next')
    const last = await createUser(other, 'last')
    await other.call('DELETE', `/workspaces/${other.workspaceId}`)
    expect((await other.call('DELETE', '/user')).status).toBe(204)
    const body = { email: 'new@example.com', fullname: 'New' }
    expect((await other.call('POST', '/users', { body, key: last.key })).status).toBe(403)
    expect((await other.call('POST', '/users', { body, key: next.key })).status).toBe(201)
    await other.close()
  })
})

describe('POST users', () => {
  const post = (body: unknown, key = service.key) => service.call('POST', '/users', { body, key })

  it('creates a user with a first key, which is shown this once', async () => {
    const fields = { email: 'grace@example.com', fullname: 'Grace', image: 'g.png' }
    const { status, body } = await post(fields)
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^usr_/),
      ...fields,
      key: expect.stringMatching(/^off_[A-Za-z0-9]{40,}$/),
    })
    expect((await getUser(body.key)).body).toEqual({ id: body.id, ...fields })
    const keys = await service.call('GET', '/user/keys', { key: body.key })
    expect(keys.body.keys).toHaveLength(1)
    expect(JSON.stringify(keys.body)).not.toContain(body.key)
  })

  it('gives a new user no workspace and no image', async () => {
    const user = await createUser(service, 'lonely')
    const answer = await service.call('GET', '/workspaces', { key: user.key })
    expect(answer.body).toEqual({ workspaces: [] })
    expect((await getUser(user.key)).body.image).toBe('')
  })

  it('is for the administrator alone', async () => {
    const user = await createUser(service, 'commoner')
    const answer = await post({ email: 'x1@example.com', fullname: 'X' }, user.key)
    expect(answer.status).toBe(403)
    expect(answer.body).toEqual({
      id: answer.headers['x-request-id'],
      message: 'only the administrator of this instance can create users',
      code: 'forbidden',
    })
    expect((await post({ email: 'x1@example.com', fullname: 'X' })).status).toBe(201)
  })

  it('refuses an e-mail that is taken, in whatever case, with 422', async () => {
    await createUser(service, 'taken')
    const answer = await post({ email: 'Taken@Example.com', fullname: 'T' })
    expect(answer.status).toBe(422)
    expect(answer.body.message).toBe('email [Taken@Example.com]: is taken by another user')
  })

  it('lets one of many requests for the same e-mail win', async () => {
    const body = { email: 'race@example.com', fullname: 'R' }
    const answers = await Promise.all(Array.from({ length: 5 }, () => post(body)))
    expect(answers.map((answer) => answer.status).sort()).toEqual([201, 422, 422, 422, 422])
  })

  it.each([
    ['no body', undefined],
    ['no e-mail', { fullname: 'X' }],
    ['no fullname', { email: 'x2@example.com' }],
    ['an administrator', { email: 'x2@example.com', fullname: 'X', administrator: true }],
    ['a key', { email: 'x2@example.com', fullname: 'X', key: 'off_mine' }],
  ])('refuses %s with 400', async (_name, body) => {
    expect((await post(body)).status).toBe(400)
  })
})

describe('keys', () => {
  it('are shown when they are created and never again', async () => {
    const { status, body } = await service.call('POST', '/user/keys/ci')
    expect(status).toBe(201)
    expect(body).toEqual({
      name: 'ci',
      key: expect.stringMatching(/^off_[A-Za-z0-9_]{40,}$/),
      createdAt: expect.any(String),
    })
    expect((await getUser(body.key)).status).toBe(200)
    const list = await service.call('GET', '/user/keys')
    expect(list.status).toBe(200)
    expect(list.body.keys).toContainEqual({ name: 'ci', createdAt: body.createdAt })
    expect(JSON.stringify(list.body)).not.toContain(body.key)
    for (const key of list.body.keys) expect(key).not.toHaveProperty('key')
  })

  it('are stored as a hash only', async () => {
    const key = await createKey(service, 'hashed')
    const rows = await service.database.query<{ text: string }>(sql`
      select k::text as text from offshoot.api_keys k`)
    const stored = JSON.stringify(rows)
    expect(stored).not.toContain(key)
    expect(stored).not.toContain(Buffer.from(key).toString('hex'))
  })

  it.each([['no body at all'], ['an empty JSON body', ''], ['an empty object', {}]])(
    'can be created with %s',
    async (name, body?: unknown) => {
      const answer = await service.call('POST', `/user/keys/${encodeURIComponent(name)}`, { body })
      expect(answer.status).toBe(201)
      expect(answer.body.name).toBe(name)
    },
  )

  it.each(['with space', 'a/b', 'é🍎', '%', 'x'.repeat(255), '🌿'.repeat(255)])(
    'can be called %s',
    async (name) => {
      const user = await createUser(service, `named-${name.length}-${name.charCodeAt(0)}`)
      const url = `/user/keys/${encodeURIComponent(name)}`
      const created = await service.call('POST', url, { key: user.key })
      expect(created).toMatchObject({ status: 201, body: { name } })
      const list = await service.call('GET', '/user/keys', { key: user.key })
      expect(list.body.keys.map((key: { name: string }) => key.name)).toEqual(['first', name])
      expect((await service.call('DELETE', url, { key: user.key })).status).toBe(204)
    },
  )

  it.each([
    ['x'.repeat(256), 400],
    ['%00', 400],
    ['', 400],
  ])('cannot be called %j', async (name, status) => {
    expect((await service.call('POST', `/user/keys/${name}`)).status).toBe(status)
  })

  it('have names of their own within a user', async () => {
    const user = await createUser(service, 'twice')
    await createKey(service, 'same', { key: user.key })
    const answer = await service.call('POST', '/user/keys/same', { key: user.key })
    expect(answer.status).toBe(422)
    expect(answer.body.message).toBe('key [same] already exists')
    expect((await service.call('POST', '/user/keys/same')).status).toBe(201)
  })

  it.each([
    ['an unknown field', { name: 'x' }, '[name]: is not known'],
    ['an expiry in the past', { expiresAt: '2020-01-01T00:00:00Z' }, 'must be in the future'],
    ['an expiry that is no time', { expiresAt: 'tomorrow' }, '[expiresAt]'],
    ['an expiry without an offset', { expiresAt: '2999-01-01T00:00:00' }, '[expiresAt]'],
    ['a leap second', { expiresAt: '2999-12-31T23:59:60Z' }, '[expiresAt]'],
    ['an unknown scope', { scope: { tables: ['t'] } }, '[scope.tables]: is not known'],
    ['an empty list of databases', { scope: { databases: [] } }, '[scope.databases]'],
    ['a database that is no name', { scope: { databases: ['a/b'] } }, '[scope.databases.0]'],
    ['a pattern with a space', { scope: { branches: ['a b'] } }, '[scope.branches.0]'],
    ['an unknown access', { scope: { access: 'admin' } }, 'must be one of [read, write]'],
    ['101 workspaces', { scope: { workspaces: Array(101).fill('a') } }, '[scope.workspaces]'],
  ])('refuse %s with 400 and are not created', async (_name, body, message) => {
    const answer = await service.call('POST', '/user/keys/refused', { body })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    const list = await service.call('GET', '/user/keys')
    expect(JSON.stringify(list.body)).not.toContain('refused')
  })

  it('stop at once when they are revoked, and can be created anew', async () => {
    const key = await createKey(service, 'revoked')
    expect((await getUser(key)).status).toBe(200)
    expect((await service.call('DELETE', '/user/keys/revoked')).status).toBe(204)
    expect((await getUser(key)).status).toBe(401)
    const again = await service.call('DELETE', '/user/keys/revoked')
    expect(again.status).toBe(404)
    expect(again.body.message).toBe('key [revoked] not found')
    const renewed = await createKey(service, 'revoked')
    expect(renewed).not.toBe(key)
    expect((await getUser(key)).status).toBe(401)
    expect((await getUser(renewed)).status).toBe(200)
  })

  it('can revoke themselves', async () => {
    const key = await createKey(service, 'suicidal')
    expect((await service.call('DELETE', '/user/keys/suicidal', { key })).status).toBe(204)
    expect((await getUser(key)).status).toBe(401)
  })

  it('of one user cannot be seen or revoked by another', async () => {
    await createKey(service, 'private')
    const user = await createUser(service, 'spy')
    expect((await service.call('DELETE', '/user/keys/private', { key: user.key })).status).toBe(404)
    const list = await service.call('GET', '/user/keys', { key: user.key })
    expect(JSON.stringify(list.body)).not.toContain('private')
  })

  it('expire at their time', async () => {
    const key = await withinLifetime(async (seconds) => {
      const name = `brief-${seconds}`
      const expiresAt = new Date(Date.now() + seconds * 1000).toISOString()
      const answer = await service.call('POST', `/user/keys/${name}`, { body: { expiresAt } })
      const { createdAt, key } = answer.body
      expect(answer.body).toMatchObject({ name, expiresAt })
      expect((await getUser(key)).status).toBe(200)
      const list = await service.call('GET', '/user/keys')
      expect(list.body.keys).toContainEqual({ name, createdAt, expiresAt })
      return key
    })
    expect(await getUser(key)).toMatchObject({
      status: 401,
      body: { message: 'Invalid API key' },
    })
  })

  it.each([
    ['another offset', '2999-06-01T12:00:00+23:30', '2999-05-31T12:30:00.000Z'],
    ['lower case', '2999-06-01t12:00:00z', '2999-06-01T12:00:00.000Z'],
  ])('take an expiry in %s', async (name, expiresAt, expected) => {
    const url = `/user/keys/${encodeURIComponent(name)}`
    const answer = await service.call('POST', url, { body: { expiresAt } })
    expect(answer).toMatchObject({ status: 201, body: { expiresAt: expected } })
  })

  it('stop after forty, and not one earlier', async () => {
    const user = await createUser(service, 'collector')
    for (let number = 2; number <= 40; number++) {
      await createKey(service, `key-${number}`, { key: user.key })
    }
    const answer = await service.call('POST', '/user/keys/key-41', { key: user.key })
    expect(answer.status).toBe(422)
    expect(answer.body.code).toBe('limit_reached')
    expect(answer.body.message).toContain('at most 40 API keys')
    await service.call('DELETE', '/user/keys/key-2', { key: user.key })
    await createKey(service, 'key-41', { key: user.key })
    const list = await service.call('GET', '/user/keys', { key: user.key })
    expect(list.body.keys).toHaveLength(40)
  })

  it('stop at the limit also when they are created at once', async () => {
    const limited = await createTestService({ limits: { keysPerUserMax: 3 } })
    const answers = await Promise.all(
      Array.from({ length: 6 }, (_, n) => limited.call('POST', `/user/keys/k${n}`)),
    )
    const created = answers.filter((answer) => answer.status === 201)
    expect(created).toHaveLength(2)
    expect((await limited.call('GET', '/user/keys')).body.keys).toHaveLength(3)
    await limited.close()
  })
})

describe('scopes', () => {
  const scoped = (name: string, scope: object) =>
    createKey(service, name, { fields: { scope, expiresAt: inAnHour() } })

  beforeAll(async () => {
    await createDatabase(service, 'shop')
    await createDatabase(service, 'blog')
  })

  it('are listed with the key', async () => {
    const scope = { workspaces: [service.workspaceId], databases: ['shop'], branches: ['p-*'] }
    await scoped('listed', scope)
    const { body } = await service.call('GET', '/user/keys')
    expect(body.keys.find((key: { name: string }) => key.name === 'listed').scope).toEqual(scope)
  })

  it('of a database hide the others', async () => {
    const key = await scoped('shop-only', { databases: ['shop'] })
    const dbs = `/workspaces/${service.workspaceId}/dbs`
    const { body } = await service.call('GET', dbs, { key })
    expect(body.databases.map((database: { name: string }) => database.name)).toEqual(['shop'])
    expect((await service.call('GET', `${dbs}/shop`, { key })).status).toBe(200)
    expect(await service.call('GET', `${dbs}/blog`, { key })).toMatchObject({
      status: 404,
      body: { message: 'database [blog] not found' },
    })
    const create = await service.call('PUT', `${dbs}/new`, { key, body: { region: 'local' } })
    expect(create).toMatchObject({ status: 403, body: { code: 'key_scope' } })
  })

  it('of a workspace hide the others', async () => {
    const body = { name: 'Second' }
    const second = (await service.call('POST', '/workspaces', { body })).body
    const key = await scoped('second-only', { workspaces: [second.id] })
    const list = await service.call('GET', '/workspaces', { key })
    expect(list.body.workspaces).toHaveLength(1)
    expect(list.body.workspaces[0].id).toBe(second.id)
    const foreign = await service.call('GET', `/workspaces/${service.workspaceId}`, { key })
    expect(foreign.status).toBe(404)
  })

  it('for reading refuse every change with 403', async () => {
    const key = await scoped('reader', { access: 'read' })
    const url = `/workspaces/${service.workspaceId}/dbs/shop`
    expect((await service.call('GET', url, { key })).status).toBe(200)
    const answer = await service.call('DELETE', url, { key })
    expect(answer).toMatchObject({
      status: 403,
      body: { message: 'this API key can only read', code: 'key_scope' },
    })
    expect((await service.call('GET', url)).status).toBe(200)
  })

  it.each([
    ['access', { access: 'read' }],
    ['databases', { databases: ['shop'] }],
    ['branches', { branches: ['*'] }],
    ['workspaces', { workspaces: ['home-aaaaaa'] }],
  ])('of %s cannot be widened by making a new key', async (name, scope) => {
    const key = await scoped(`narrow-${name}`, scope)
    const attempts = await Promise.all([
      service.call('POST', '/user/keys/wider', { key }),
      service.call('DELETE', '/user/keys/first', { key }),
      service.call('POST', '/workspaces', { key, body: { name: 'Wider' } }),
      service.call('POST', '/users', { key, body: { email: 'w@example.com', fullname: 'W' } }),
      service.call('PUT', '/user', {
        key,
        body: { email: 'w@example.com', fullname: 'W', image: '' },
      }),
      service.call('DELETE', '/user', { key }),
    ])
    for (const answer of attempts) {
      expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    }
    expect((await service.call('GET', '/user')).body.email).toBe('admin@offshoot.local')
  })

  it('that name nothing limit nothing', async () => {
    const key = await scoped('unlimited', {})
    expect((await service.call('POST', '/user/keys/made-by-unlimited', { key })).status).toBe(201)
    const write = await scoped('writer', { access: 'write' })
    expect((await service.call('POST', '/user/keys/made-by-writer', { key: write })).status).toBe(
      201,
    )
  })
})

describe('another process on the same database', () => {
  let second: TestService

  beforeAll(async () => {
    second = await createTestService({ url: service.url })
  })
  afterAll(() => second.close())

  it('finds the first user in place and makes no second one', async () => {
    expect(second.key).toBe('')
    expect(second.workspaceId).toBe(service.workspaceId)
  })

  it('knows a new key at once and forgets a revoked one at once', async () => {
    const key = await createKey(service, 'shared')
    expect((await second.call('GET', '/user', { key })).status).toBe(200)
    expect((await second.call('DELETE', '/user/keys/shared', { key })).status).toBe(204)
    expect((await getUser(key)).status).toBe(401)
    expect((await second.call('GET', '/user', { key })).status).toBe(401)
  })

  it('forgets the keys of a deleted user at once', async () => {
    const user = await createUser(service, 'two-doors')
    expect((await second.call('GET', '/user', { key: user.key })).status).toBe(200)
    await service.call('DELETE', '/user', { key: user.key })
    expect((await second.call('GET', '/user', { key: user.key })).status).toBe(401)
  })
})
