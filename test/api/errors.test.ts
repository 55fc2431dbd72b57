import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { Readable } from 'node:stream'
import { ERROR_CODES } from '@offshoot/contract/errors'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createDatabase } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'

let service: TestService
const home = () => `/workspaces/${service.workspaceId}`

beforeAll(async () => {
  service = await createTestService()
  await createDatabase(service, 'shop')
})
afterAll(() => service.close())

/** Internal details that must not appear in an answer. */
const INTERNALS =
  /\b(select|insert|update|delete) .*(from|into|set)\b|offshoot\.|pg_|sqlstate|stack|\.js:|\.ts:|node_modules|node:|econn|enoent|fst_|ajv|fastify|\/(tmp|work|home|root)\//i

function expectError(answer: Answer, status: number, code: string): void {
  expect(answer.status).toBe(status)
  expect(answer.headers['content-type']).toMatch(/^application\/json/)
  const { id, message, ...rest } = answer.body
  expect(id).toBe(answer.headers['x-request-id'])
  expect(id).toMatch(/^req_[0-9a-f]{32}$/)
  expect(rest).toEqual({ code })
  expect(message).not.toMatch(INTERNALS)
  expect(message).not.toMatch(/\.$/)
  expect(Object.keys(ERROR_CODES)).toContain(code)
}

const put = (body: unknown, headers: Record<string, string> = {}) =>
  service.call('PUT', `${home()}/dbs/refused`, { body, headers })
const expectNothingStored = async () =>
  expect((await service.call('GET', `${home()}/dbs/refused`)).status).toBe(404)

describe('bodies', () => {
  it.each([
    ['a cut object', '{"region":'],
    ['no JSON at all', 'region=local'],
    ['single quotes', "{'region':'local'}"],
    ['a trailing comma', '{"region":"local",}'],
    ['a comment', '{"region":"local"/**/}'],
    ['two values', '{} {}'],
    ['not a number', '{"region":NaN}'],
    ['a byte order mark', '\ufeff{"region":"local"}'],
    ['only spaces', '  '],
  ])('that are not JSON are refused with 400: %s', async (_name, text) => {
    const answer = await put(text)
    expectError(answer, 400, 'invalid_json')
    expect(answer.body.message).toMatch(/^body: is not valid JSON/)
    await expectNothingStored()
  })

  it.each([
    ['a lone continuation byte', [0x80]],
    ['an overlong slash', [0xc0, 0xaf]],
    ['half of a surrogate pair', [0xed, 0xa0, 0x80]],
    ['a cut character', [0xf0, 0x9f, 0x8d]],
    ['latin-1', [0xe9]],
  ])('that are not UTF-8 are refused with 400: %s', async (_name, bytes) => {
    const response = await service.app.inject({
      method: 'PUT',
      url: `${home()}/dbs/refused`,
      headers: { authorization: `Bearer ${service.key}`, 'content-type': 'application/json' },
      payload: Buffer.concat([
        Buffer.from('{"region":"local","ui":{"color":"'),
        Buffer.from(bytes),
        Buffer.from('"}}'),
      ]),
    })
    expect(response.statusCode).toBe(400)
    expect(response.json()).toMatchObject({
      message: 'body: is not valid UTF-8',
      code: 'invalid_json',
    })
    await expectNothingStored()
  })

  it.each([
    ['half of a surrogate pair', '{"region":"local","ui":{"color":"\\ud83c"}}', '[ui.color]'],
    ['the wrong half', '{"region":"local","ui":{"color":"\\udf4e\\ud83c"}}', '[ui.color]'],
    ['a NUL', '{"region":"local","ui":{"color":"\\u0000"}}', '[ui.color]'],
  ])('with a text that cannot be stored are refused with 400: %s', async (_name, text, field) => {
    const answer = await put(text)
    expectError(answer, 400, 'invalid_request')
    expect(answer.body.message).toContain(`field ${field}: must not contain`)
    await expectNothingStored()
  })

  it('with a whole surrogate pair are taken', async () => {
    const body = '{"region":"local","ui":{"color":"\\ud83c\\udf4e"}}'
    const answer = await service.call('PUT', `${home()}/dbs/apple`, { body })
    expect(answer.status).toBe(201)
    expect((await service.call('GET', `${home()}/dbs/apple`)).body.ui.color).toBe('🍎')
  })

  it.each([
    ['__proto__', '{"region":"local","__proto__":{"admin":true}}', '__proto__'],
    ['constructor', '{"region":"local","constructor":{"prototype":{}}}', 'constructor'],
    ['prototype', '{"region":"local","prototype":1}', 'prototype'],
    ['toString', '{"region":"local","toString":"x"}', 'toString'],
    ['__proto__ inside', '{"region":"local","ui":{"__proto__":{"x":1}}}', 'ui.__proto__'],
    ['an empty name', '{"region":"local","":1}', ''],
    ['a name with a slash', '{"region":"local","a/b~c":1}', 'a/b~c'],
  ])('with a field that is not known are refused with 400: %s', async (_name, text, field) => {
    const answer = await put(text)
    expectError(answer, 400, 'invalid_request')
    expect(answer.body.message).toBe(`body: field [${field}]: is not known`)
    expect(({} as { admin?: boolean }).admin).toBeUndefined()
    await expectNothingStored()
  })

  it.each([
    ['lists', '['.repeat(100_000) + ']'.repeat(100_000)],
    ['objects', `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`],
    [
      'lists in a field',
      `{"region":"local","metadata":{"labels":${'['.repeat(50_000)}${']'.repeat(50_000)}}}`,
    ],
  ])('nested a hundred thousand times are refused with 400: %s', async (_name, text) => {
    const answer = await put(text)
    expectError(answer, 400, 'invalid_request')
    await expectNothingStored()
  })

  it.each([
    'text/plain',
    'application/xml',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    'application/jsonp',
    'application/merge-patch+json',
    'json',
  ])('of the content type %s are refused with 415', async (contentType) => {
    const answer = await put('{"region":"local"}', { 'content-type': contentType })
    expectError(answer, 415, 'unsupported_media_type')
    await expectNothingStored()
  })

  it.each(['application/json', 'application/json; charset=utf-8', 'Application/JSON'])(
    'of the content type %s are read',
    async (contentType) => {
      const url = `${home()}/dbs/typed-${contentType.replace(/\W/g, '')}`
      const headers = { 'content-type': contentType }
      const answer = await service.call('PUT', url, { body: '{"region":"local"}', headers })
      expect(answer.status).toBe(201)
    },
  )

  it('that are not there are no reason to refuse JSON, on any method', async () => {
    const headers = { 'content-type': 'application/json' }
    expect((await service.call('GET', '/user', { headers })).status).toBe(200)
    const url = `${service.workspace}/db/shop:json-typed`
    expect((await service.call('PUT', url, { headers })).status).toBe(201)
    expect((await service.call('DELETE', url, { headers })).status).toBe(200)
  })
})

describe('large requests', () => {
  let small: TestService
  beforeAll(async () => {
    small = await createTestService({ limits: { requestBytesMax: 1000 } })
  })
  afterAll(() => small.close())

  const bodyOf = (bytes: number) => {
    const frame = '{"region":"local","ui":{"color":""}}'
    return frame.replace('""', `"${'x'.repeat(bytes - frame.length)}"`)
  }
  const url = (name: string) => `/workspaces/${small.workspaceId}/dbs/${name}`

  it('are taken up to the limit and refused with 413 one byte above', async () => {
    expect((await small.call('PUT', url('fits'), { body: bodyOf(1000) })).status).toBe(201)
    const answer = await small.call('PUT', url('large'), { body: bodyOf(1001) })
    expectError(answer, 413, 'payload_too_large')
    expect(answer.body.message).toBe('the request body is larger than the limit of 1000 bytes')
    expect((await small.call('GET', url('large'))).status).toBe(404)
  })

  it('are refused with 413 also when they do not say how long they are', async () => {
    const response = await small.app.inject({
      method: 'PUT',
      url: url('chunked'),
      headers: { authorization: `Bearer ${small.key}`, 'content-type': 'application/json' },
      payload: Readable.from([bodyOf(600), bodyOf(600)]),
    })
    expect(response.statusCode).toBe(413)
    expect(response.json().code).toBe('payload_too_large')
  })
})

describe('addresses', () => {
  it('lead from the root to the reference, for those who open it in a browser', async () => {
    const answer = await service.app.inject({ method: 'GET', url: '/' })
    expect(answer.statusCode).toBe(302)
    expect(answer.headers.location).toBe('/docs')
    expect((await service.app.inject({ method: 'GET', url: '/docs' })).statusCode).toBe(200)
  })

  it.each([
    ['GET', '/nowhere'],
    ['POST', '/nowhere?x=1'],
    ['GET', '/User'],
    ['GET', '/user/'],
    ['GET', '/workspaces/a/b/c/d'],
    ['GET', '/db/a:b/c/d/e/f/g'],
    ['GET', '/__proto__'],
  ])('that lead nowhere are answered with 404: %s %s', async (method, path) => {
    const answer = await service.call(method, path)
    expectError(answer, 404, 'route_not_found')
    expect(answer.body.message).toBe(`there is nothing at [${path.split('?')[0]}]; see /docs`)
  })

  it.each([
    ['POST', '/user', 'DELETE, GET, HEAD, PUT'],
    ['DELETE', '/workspaces', 'GET, HEAD, POST'],
    ['POST', '/db/shop:main', 'DELETE, GET, HEAD, PATCH, PUT'],
    ['PUT', '/health', 'GET, HEAD'],
    ['OPTIONS', '/users', 'POST'],
    ['GET', '/workspaces/a/dbs/b/rename', 'POST'],
  ])('that do not know the method are answered with 405: %s %s', async (method, path, allow) => {
    const answer = await service.call(method, path)
    expectError(answer, 405, 'method_not_allowed')
    expect(answer.headers.allow).toBe(allow)
    expect(answer.body.message).toBe(
      `method [${method}] is not allowed at [${path}]; allowed: ${allow}`,
    )
  })

  it.each([
    '/user/keys/%',
    '/user/keys/%zz',
    '/user/keys/%ff',
    '/db/%C0%AF',
    '/workspaces/%ED%A0%80',
  ])('that are not encoded right are refused with 400: %s', async (path) => {
    const answer = await service.call('DELETE', path)
    expectError(answer, 400, 'invalid_request')
    expect(answer.body.message).toBe('the path contains an invalid percent-encoding')
  })

  it('with a part that no name can be are refused with 400', async () => {
    const answer = await service.call('GET', `/workspaces/${'x'.repeat(5000)}`)
    expectError(answer, 400, 'invalid_request')
    expect(answer.body.message).toBe('a part of the path is too long')
  })
})

describe('every answer', () => {
  it('carries an id of its own, whatever id the caller sends', async () => {
    const headers = { 'x-request-id': 'mine', 'request-id': 'mine' }
    const answers = [
      await service.call('GET', '/user', { headers }),
      await service.call('GET', '/user', { headers }),
      await service.call('GET', '/nowhere', { headers }),
      await service.call('GET', '/user', { headers, key: null }),
      await service.call('GET', '/health', { headers }),
      await service.call('GET', '/user/keys/%', { headers }),
    ]
    const ids = answers.map((answer) => answer.headers['x-request-id'])
    expect(new Set(ids).size).toBe(ids.length)
    for (const id of ids) expect(id).toMatch(/^req_[0-9a-f]{32}$/)
  })

  it.each([
    ['a success', '/user'],
    ['a refusal', '/nowhere'],
    ['a path that cannot be read', '/user/keys/%'],
    ['the state of health', '/health'],
  ])('is neither stored, guessed at nor run by a browser: %s', async (_name, path) => {
    const { headers } = await service.call('GET', path)
    expect(headers).toMatchObject({
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'x-frame-options': 'DENY',
      'referrer-policy': 'no-referrer',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    })
    expect(headers).not.toHaveProperty('x-powered-by')
    expect(headers).not.toHaveProperty('server')
    expect(headers).not.toHaveProperty('access-control-allow-origin')
  })

  it('asks browsers to stay with TLS where clients come over TLS, and nowhere else', async () => {
    const secure = await createTestService({ publicUrl: 'https://data.example.com' })
    try {
      const { headers } = await secure.call('GET', '/user')
      expect(headers['strict-transport-security']).toBe('max-age=31536000')
    } finally {
      await secure.close()
    }
    const { headers } = await service.call('GET', '/user')
    expect(headers).not.toHaveProperty('strict-transport-security')
  })

  it('keeps to itself what broke inside', async () => {
    await service.database.query(sql`alter table offshoot.databases rename column color to hue`)
    try {
      const answer = await service.call('GET', `${home()}/dbs/shop`)
      expectError(answer, 500, 'internal')
      expect(answer.body.message).toBe(
        'internal error; the id of this answer is also in the log of the service',
      )
    } finally {
      await service.database.query(sql`alter table offshoot.databases rename column hue to color`)
    }
    expect((await service.call('GET', `${home()}/dbs/shop`)).status).toBe(200)
  })
})

describe('the wire itself', () => {
  let address: AddressInfo
  let wired: TestService
  beforeAll(async () => {
    wired = await createTestService()
    // Node.js checks for late requests only once per interval (30 seconds by default).
    ;(
      wired.app.server as unknown as { connectionsCheckingInterval: number }
    ).connectionsCheckingInterval = 100
    await wired.app.listen({ host: '127.0.0.1', port: 0 })
    address = wired.app.server.address() as AddressInfo
  })
  afterAll(() => wired.close())

  async function exchange(text: string): Promise<{ head: string; body: string }> {
    const socket = connect(address.port, address.address)
    await once(socket, 'connect')
    socket.write(text)
    const chunks: Buffer[] = []
    for await (const chunk of socket) chunks.push(chunk)
    const [head = '', body = ''] = Buffer.concat(chunks).toString().split('\r\n\r\n')
    return { head, body }
  }

  it.each([
    ['what is not HTTP', 'hello\r\n\r\n', 400, 'invalid_request'],
    ['an unknown version', 'GET / HTTP/9.9\r\n\r\n', 400, 'invalid_request'],
    [
      'a header that is none',
      'GET /user HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n',
      400,
      'invalid_request',
    ],
    [
      'two lengths',
      'POST /users HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n',
      400,
      'invalid_request',
    ],
    [
      'a length and chunks, which smuggle requests',
      'POST /users HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n',
      400,
      'invalid_request',
    ],
    [
      'headers beyond the limit',
      `GET /user HTTP/1.1\r\nhost: x\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
  ])('answers %s in the form of every error', async (_name, text, status, code) => {
    const { head, body } = await exchange(text)
    expect(head).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
    expect(head).toMatch(/content-type: application\/json/i)
    expect(head).toMatch(/connection: close/i)
    const parsed = JSON.parse(body)
    expect(parsed).toEqual({
      id: expect.stringMatching(/^req_/),
      message: expect.any(String),
      code,
    })
    expect(head).toContain(`x-request-id: ${parsed.id}`)
    expect(parsed.message).not.toMatch(INTERNALS)
  })

  it('answers a request that does not arrive with 408', async () => {
    const { headersTimeout } = wired.app.server
    wired.app.server.headersTimeout = 300
    const { head, body } = await exchange('PUT /user HTTP/1.1\r\nhost: x\r\nauthor')
    wired.app.server.headersTimeout = headersTimeout
    expect(head).toMatch(/^HTTP\/1.1 408 /)
    expect(JSON.parse(body).code).toBe('request_timeout')
  })

  it('goes on after a caller hung up in the middle', async () => {
    const socket = connect(address.port, address.address)
    await once(socket, 'connect')
    socket.write('PUT /user HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{')
    socket.destroy()
    const response = await fetch(`http://127.0.0.1:${address.port}/user`, {
      headers: { authorization: `Bearer ${wired.key}` },
    })
    expect(response.status).toBe(200)
  })
})

describe('while PostgreSQL cannot be reached', () => {
  let flaky: TestService
  beforeAll(async () => {
    flaky = await createTestService()
  })
  afterAll(() => flaky.close())

  const nowhere = {
    host: '/nowhere/at/all',
    port: 5432,
    user: 'nobody',
    password: 'secret',
    database: 'none',
  }

  it('answers 503 with a time to try again, and recovers by itself', async () => {
    const path = `/workspaces/${flaky.workspaceId}`
    flaky.database.connect(nowhere)
    for (const answer of [
      await flaky.call('GET', '/user'),
      await flaky.call('GET', '/user', { key: 'off_unknown' }),
      await flaky.call('PUT', `${path}/dbs/lost`, { body: { region: 'local' } }),
    ]) {
      expectError(answer, 503, 'unavailable')
      expect(answer.headers['retry-after']).toBe('1')
      expect(answer.body.message).toBe('the database cannot be reached')
    }
    const health = await flaky.call('GET', '/health', { key: null })
    expect(health).toMatchObject({
      status: 503,
      body: { status: 'unavailable', message: 'PostgreSQL cannot be reached' },
    })
    expect(health.headers['retry-after']).toBe('1')
    flaky.database.connect({ url: flaky.url })
    expect((await flaky.call('GET', '/user')).status).toBe(200)
    expect((await flaky.call('GET', `${path}/dbs/lost`)).status).toBe(404)
    expect((await flaky.call('GET', '/health')).status).toBe(200)
  })

  it('answers 503 before it was ever connected', async () => {
    await flaky.database.close()
    const answer = await flaky.call('GET', '/user')
    expectError(answer, 503, 'unavailable')
    expect((await flaky.call('GET', '/health')).body.status).toBe('unavailable')
    flaky.database.connect({ url: flaky.url })
    expect((await flaky.call('GET', '/user')).status).toBe(200)
  })

  it('gets over connections that PostgreSQL has cut', async () => {
    for (let round = 0; round < 3; round++) {
      await Promise.all(Array.from({ length: 8 }, () => flaky.call('GET', '/user')))
      await service.database.query(sql`
        select pg_terminate_backend(pid)
        from pg_stat_activity
        where datname = ${new URL(flaky.url).pathname.slice(1)}`)
      const answers = await Promise.all(Array.from({ length: 8 }, () => flaky.call('GET', '/user')))
      for (const answer of answers) expect([200, 503]).toContain(answer.status)
      expect((await flaky.call('GET', '/user')).status).toBe(200)
    }
  })
})

describe('before and after service', () => {
  let unready: TestService
  beforeAll(async () => {
    unready = await createTestService()
  })
  afterAll(() => unready.close())

  it.each([
    ['starting', 'the server is starting'],
    ['draining', 'the server is shutting down'],
  ] as const)('answers everything but health with 503: %s', async (state, message) => {
    unready.lifecycle.enter(state)
    for (const [method, path] of [
      ['GET', '/user'],
      ['GET', '/nowhere'],
      ['DELETE', '/health'],
      ['GET', '/openapi.json'],
    ] as const) {
      const answer = await unready.call(method, path)
      expectError(answer, 503, state)
      expect(answer.headers['retry-after']).toBe('1')
      expect(answer.body.message).toBe(message)
    }
    const health = await unready.call('GET', '/health', { key: null })
    expect(health.status).toBe(503)
    expect(health.headers['retry-after']).toBe('1')
    expect(health.body).toEqual({ status: state, message })
    unready.lifecycle.enter('ready')
    expect(await unready.call('GET', '/health', { key: null })).toMatchObject({
      status: 200,
      body: { status: 'ready', message: 'requests can be served' },
    })
    expect((await unready.call('GET', '/user')).status).toBe(200)
  })
})
