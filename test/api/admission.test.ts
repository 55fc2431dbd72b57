import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { ANY_CHUNKS_MAX, CHUNK_BYTES_MIN } from '../../packages/server/src/http/counted-message.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createKey } from '../support/people.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { lockTable } from '../support/table-lock.js'
import { type BranchCall, createTables, expectOk, XATA_CLIENT } from '../support/tables.js'

/** Requests of one key that run at once, and that wait: its share of the limits. */
const AT_ONCE = 4
const WAITING = 6
const LIMITS = { requestsAtOnceMax: 6, requestsWaitingMax: 8 }
/** Timeout that no test reaches. */
const PATIENCE_MS = 3_600_000
/** Longest time that a request may wait in `hasty`. */
const WAIT_MS = 400

let service: TestService
let hasty: TestService
let call: BranchCall
let port: number

beforeAll(async () => {
  service = await createTestService({
    limits: {
      ...LIMITS,
      requestWaitMs: PATIENCE_MS,
      bufferedBytesMax: 1_000_000,
    },
  })
  call = await createTables(service, 'shop', { items: [{ name: 'name', type: 'text' }] })
  hasty = await createTestService({
    url: service.url,
    limits: { ...LIMITS, requestWaitMs: WAIT_MS },
  })
  await service.app.listen({ host: '127.0.0.1', port: 0 })
  port = (service.app.server.address() as AddressInfo).port
})
afterAll(async () => {
  await hasty.close()
  await service.close()
})

/**
 * Freezes the clock, so that tests do not depend on how long requests take. Returns a function that
 * advances it.
 */
function stopTheClock(): (ms: number) => void {
  let now = performance.now()
  vi.spyOn(performance, 'now').mockImplementation(() => now)
  return (ms) => {
    now += ms
  }
}
afterEach(() => {
  vi.restoreAllMocks()
})

const lanes = () => service.app.admission.lanes
/** Returns whether no request is running or waiting and no body bytes are held. */
const isIdle = () =>
  Object.values(lanes()).every(({ inside, waiting }) => inside === 0 && waiting === 0) &&
  service.app.admission.budget.bytes === 0

beforeEach(async () => {
  await until(async () => isIdle())
})

/** Blocks all writes until the returned function is called. */
async function holdWrites(): Promise<() => Promise<void>> {
  const client = await service.database.pool.connect()
  await client.query('begin')
  await lockTable(client, {
    table: 'offshoot_db_1.heap_1',
    isCluster: service.database.server.isCluster,
    mode: 'access exclusive',
  })
  return async () => {
    await client.query('rollback')
    client.release()
  }
}

const insert = () => call('POST', '/tables/items/data', { body: { name: 'x' } })
const insertInHaste = () =>
  hasty.call('POST', `${service.workspace}/db/shop:main/tables/items/data`, {
    key: service.key,
    body: { name: 'x' },
  })

const countConnections = () =>
  new Promise<number>((resolve, reject) => {
    service.app.server.getConnections((error, count) => (error ? reject(error) : resolve(count)))
  })

async function openSocket(text: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  socket.write(text)
  return socket
}

const head = (method: string, url: string, headers = '') =>
  `${method} ${service.workspace}/db/shop:main${url} HTTP/1.1\r\nhost: x\r\n` +
  `authorization: Bearer ${service.key}\r\ncontent-type: application/json\r\n${headers}\r\n`

describe('more requests than can be worked on', () => {
  beforeAll(async () => {
    expectOk(await insert())
    const [heap] = await service.database.query<{ id: string }>(sql`
      select id::text from offshoot.heaps`)
    expect(heap?.id).toBe('1')
  })

  it('wait for their turn, up to a limit, and the rest is refused with 503', async () => {
    const release = await holdWrites()
    const refusedBefore = lanes().work.refused
    const answers = Array.from({ length: AT_ONCE + WAITING + 3 }, insert)
    await until(async () => {
      const { inside, waiting, refused } = lanes().work
      return inside === AT_ONCE && waiting === WAITING && refused === refusedBefore + 3
    })
    await release()
    const statuses = (await Promise.all(answers)).map((answer) => answer.status)
    expect(statuses.filter((status) => status === 201)).toHaveLength(AT_ONCE + WAITING)
    expect(statuses.filter((status) => status === 503)).toHaveLength(3)
  })

  it('are told when to try again, and that nothing has happened', async () => {
    const before = (await call('POST', '/tables/items/summarize', { body: count })).body
    const release = await holdWrites()
    const held = Array.from({ length: AT_ONCE }, insertInHaste)
    await until(async () => hasty.app.admission.lanes.work.inside === AT_ONCE)
    const startedAt = performance.now()
    const late = Array.from({ length: WAITING }, insertInHaste)
    const refused = await Promise.all(late)
    expect(performance.now() - startedAt).toBeGreaterThan(WAIT_MS * 0.9)
    for (const answer of refused) {
      expect(answer).toMatchObject({
        status: 503,
        body: {
          code: 'overloaded',
          message: 'the service is overloaded; nothing was executed, try again later',
        },
        headers: { 'retry-after': '1', 'x-ratelimit-reset': '1' },
      })
    }
    await release()
    for (const answer of await Promise.all(held)) expectOk(answer)
    const after = (await call('POST', '/tables/items/summarize', { body: count })).body
    expect(after.summaries[0].total - before.summaries[0].total).toBe(AT_ONCE)
  })

  it('are refused with 429 where clients try again by themselves after that', async () => {
    const release = await holdWrites()
    const held = Array.from({ length: AT_ONCE }, insertInHaste)
    await until(async () => hasty.app.admission.lanes.work.inside === AT_ONCE)
    const answer = await hasty.call(
      'GET',
      `${service.workspace}/db/shop:main/tables/items/data/a`,
      { key: service.key, headers: XATA_CLIENT },
    )
    expect(answer).toMatchObject({
      status: 429,
      body: { code: 'overloaded' },
      headers: { 'retry-after': '1', 'x-ratelimit-reset': '1' },
    })
    await release()
    await Promise.all(held)
  })

  it('do not keep health from answering', async () => {
    const release = await holdWrites()
    const held = Array.from({ length: AT_ONCE + WAITING }, insert)
    await until(async () => lanes().work.waiting === WAITING)
    const answer = await service.call('GET', '/health', { key: null })
    expect(answer).toMatchObject({ status: 200, body: { status: 'ready' } })
    await release()
    await Promise.all(held)
  })

  it('count until their work is done, though the client has hung up', async () => {
    const release = await holdWrites()
    const sockets = await Promise.all(
      Array.from({ length: AT_ONCE }, () =>
        openSocket(`${head('POST', '/tables/items/data', 'content-length: 2\r\n')}{}`),
      ),
    )
    await until(async () => lanes().work.inside === AT_ONCE)
    for (const socket of sockets) socket.destroy()
    await until(async () => (await countConnections()) === 0)
    expect(lanes().work.inside).toBe(AT_ONCE)
    await release()
    await until(async () => isIdle())
  })

  it('lose their place when the client hangs up while they wait', async () => {
    const release = await holdWrites()
    const held = Array.from({ length: AT_ONCE }, insert)
    await until(async () => lanes().work.inside === AT_ONCE)
    const socket = await openSocket(head('GET', '/tables/items/data/a'))
    await until(async () => lanes().work.waiting === 1)
    socket.destroy()
    await until(async () => lanes().work.waiting === 0)
    await release()
    await Promise.all(held)
  })
})

const count = { summaries: { total: { count: '*' } } }

describe('a body', () => {
  const held = () => service.app.admission.budget.bytes

  it('that takes its time holds no place', async () => {
    const body = '{"name":"slow"}'
    const sockets = await Promise.all(
      Array.from({ length: 2 * AT_ONCE }, () =>
        openSocket(
          `${head('POST', '/tables/items/data', `content-length: ${body.length}\r\n`)}${body.slice(0, 4)}`,
        ),
      ),
    )
    await until(async () => held() === sockets.length * 4)
    expect(lanes().work.inside).toBe(0)
    expectOk(await insert())
    for (const socket of sockets) {
      socket.write(body.slice(4))
      const [answer] = await once(socket, 'data')
      expect(String(answer)).toMatch(/^HTTP\/1.1 201 /)
      socket.destroy()
    }
  })

  const large = (bytes: number) => `{"name":"${'x'.repeat(bytes - 11)}"}`
  /** Sends a request that announces 60 MB and delivers only the given number of bytes. */
  const openBody = (bytes: number, key = service.key) =>
    openSocket(
      head('POST', '/tables/items/data', 'content-length: 60000000\r\n').replace(service.key, key) +
        large(bytes).slice(0, bytes),
    )
  it('counts with what has arrived of it, not with what it announces', async () => {
    const sockets = await Promise.all(Array.from({ length: 20 }, () => openBody(1000)))
    await until(async () => held() === 20_000)
    const fits = await call('POST', '/tables/items/data', { body: large(400_000) })
    expect(fits.status).toBe(201)
    for (const socket of sockets) socket.destroy()
  })

  it('is refused when its key holds as much as is left for others, unless it is alone', async () => {
    const alone = await call('POST', '/tables/items/data', { body: large(1_000_000) })
    expect(alone.status).toBe(201)
    const slow = await openBody(400_000)
    await until(async () => held() === 400_000)
    const fits = await call('POST', '/tables/items/data', { body: large(50_000) })
    expect(fits.status).toBe(201)
    const refused = await call('POST', '/tables/items/data', { body: large(300_000) })
    expect(refused).toMatchObject({ status: 503, body: { code: 'overloaded' } })
    slow.destroy()
  })

  it('of another key finds room, at the cost of the key that holds most', async () => {
    const keys = await Promise.all(
      ['a', 'b', 'c', 'd', 'e'].map((name) => createKey(service, `trickles-${name}`)),
    )
    const sockets: Socket[] = []
    for (const key of keys) {
      for (let count = 0; count < 5; count++) sockets.push(await openBody(100_000, key))
    }
    await until(async () => held() > 700_000)
    const answer = await call('POST', '/tables/items/data', { body: large(100_000) })
    expect(answer.status).toBe(201)
    for (const socket of sockets) socket.destroy()
  })

  /** Sends a body in chunks of the given size. Returns the answer. */
  const sendChunks = async (body: string, chunkBytes: number, key = service.key) => {
    const bytes = Buffer.from(body)
    const chunks: Buffer[] = []
    for (let at = 0; at < bytes.length; at += chunkBytes) {
      const content = bytes.subarray(at, at + chunkBytes)
      chunks.push(Buffer.from(`${content.length.toString(16)}\r\n`), content, Buffer.from('\r\n'))
    }
    const text = head('PUT', '/tables/items/data/pieces', 'transfer-encoding: chunked\r\n')
    const socket = await openSocket(text.replace(service.key, key))
    socket.write(Buffer.concat([...chunks, Buffer.from('0\r\n\r\n')]))
    const [answer] = await once(socket, 'data')
    return { socket, answer: String(answer) }
  }

  it('that comes in small pieces is whole', async () => {
    const name = 'in pieces, ä€😀 '.repeat(2000)
    const { socket, answer } = await sendChunks(JSON.stringify({ name }), 2 * CHUNK_BYTES_MIN)
    expect(answer).toMatch(/^HTTP\/1.1 201 /)
    socket.destroy()
    const stored = await call('GET', '/tables/items/data/pieces')
    expect(stored.body.name).toBe(name)
  })

  it('of tiny chunks is accepted up to a number of chunks', async () => {
    const { socket, answer } = await sendChunks(large(ANY_CHUNKS_MAX), 1)
    expect(answer).toMatch(/^HTTP\/1.1 20[01] /)
    socket.destroy()
  })

  it.each(['a key', 'a stranger'])('of more tiny chunks is refused: %s', async (who) => {
    const key = who === 'a key' ? service.key : 'off_unknown'
    const { socket, answer } = await sendChunks(large(ANY_CHUNKS_MAX + 1), 1, key)
    expect(answer).toMatch(/^HTTP\/1.1 400 [\s\S]*too many small chunks/)
    if (!socket.destroyed) await once(socket, 'close')
    const next = await call('GET', '/tables/items/data/none')
    expect(next.status).toBe(404)
  })

  it('that does not say how long it is counts as it comes', async () => {
    const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`
    const socket = await openSocket(
      head('POST', '/tables/items/data', 'transfer-encoding: chunked\r\n'),
    )
    socket.write(chunk('{"name":"'))
    socket.write(chunk('x'.repeat(400_000)))
    await until(async () => held() > 400_000)
    const other = await openSocket(
      head('POST', '/tables/items/data', 'transfer-encoding: chunked\r\n'),
    )
    other.write(chunk('x'.repeat(400_000)))
    const [refusal] = await once(other, 'data')
    expect(String(refusal)).toMatch(/^HTTP\/1.1 503 [\s\S]*"code":"overloaded"/)
    other.destroy()
    socket.write(`${chunk('"}')}0\r\n\r\n`)
    const [answer] = await once(socket, 'data')
    expect(String(answer)).toMatch(/^HTTP\/1.1 201 /)
    socket.destroy()
  })
})

describe('wrong keys', () => {
  it('do not crowd out right ones', async () => {
    expectOk(await call('GET', '/tables'.replace('/tables', '')))
    const client = await service.database.pool.connect()
    await client.query('begin')
    await client.query('lock table offshoot.users in access exclusive mode')
    const strangers = Array.from({ length: AT_ONCE + WAITING }, (_, number) =>
      service.call('GET', '/user', { key: `off_wrong${number}` }),
    )
    await until(async () => lanes().strangers.inside > 0)
    expect((await call('GET', '/tables/items/data/none')).status).toBe(404)
    await client.query('rollback')
    client.release()
    for (const { status } of await Promise.all(strangers)) expect([401, 503]).toContain(status)
  })

  it('are refused without asking again for a moment', async () => {
    stopTheClock()
    const answers = [await service.call('GET', '/user', { key: 'off_again' })]
    const client = await service.database.pool.connect()
    await client.query('begin')
    await client.query('lock table offshoot.api_keys in access exclusive mode')
    answers.push(await service.call('GET', '/user', { key: 'off_again' }))
    answers.push(await call('GET', '/tables/items/data/a', { key: 'off_again' }))
    await client.query('rollback')
    client.release()
    for (const { status, body } of answers) {
      expect(status).toBe(401)
      expect(body).toMatchObject({ message: 'Invalid API key', code: 'invalid_api_key' })
    }
  })

  it('do not keep anyone from what needs no key', async () => {
    const headers = { authorization: 'Bearer off_again' }
    await service.call('GET', '/user', { key: 'off_again' })
    expect((await service.call('GET', '/openapi.json', { headers, key: null })).status).toBe(200)
  })
})

describe('limits of an address', () => {
  it('count monitoring apart from other requests, and hold at their edge', async () => {
    const strict = await createTestService({
      url: service.url,
      limits: { addressRequestsPerSecondMax: 3, monitoringRequestsPerSecondMax: 2 },
    })
    try {
      const moveTheClock = stopTheClock()
      const statusOf = async (path: string) =>
        (await strict.call('GET', path, { key: null })).status
      const statusesOf = async (path: string, count: number) => {
        const statuses: number[] = []
        while (statuses.length < count) statuses.push(await statusOf(path))
        return statuses
      }
      expect(await statusesOf('/user', 4)).toEqual([401, 401, 401, 429])
      expect(await statusOf('/health')).toBe(200)
      expect(await statusesOf('/metrics', 2)).toEqual([200, 429])
      expect(await statusOf('/health')).toBe(429)
      moveTheClock(1000)
      expect(await statusOf('/health')).toBe(200)
      expect(await statusOf('/user')).toBe(401)
    } finally {
      await strict.close()
    }
  })
})

describe('limits of a key', () => {
  const read = (key: string) => call('GET', '/tables/items/data/none', { key })

  it('of requests per second hold at their edge, and are told in headers', async () => {
    const moveTheClock = stopTheClock()
    const key = await createKey(service, 'three', { fields: { scope: { requestsPerSecond: 3 } } })
    for (const remaining of ['2', '1', '0']) {
      expect(await read(key)).toMatchObject({
        status: 404,
        headers: {
          'x-ratelimit-limit': '3',
          'x-ratelimit-remaining': remaining,
          'x-ratelimit-reset': '1',
        },
      })
    }
    const refused = await read(key)
    expect(refused).toMatchObject({
      status: 429,
      headers: {
        'x-ratelimit-limit': '3',
        'x-ratelimit-remaining': '0',
        'x-ratelimit-reset': '1',
        'retry-after': '1',
      },
      body: {
        code: 'rate_limited',
        message: 'this API key can make at most 3 requests per second; nothing was executed',
      },
    })
    expect((await read(service.key)).headers).not.toHaveProperty('x-ratelimit-limit')
    // A malformed Authorization header gets 401 even with a rate-limited key, so that the answer
    // reveals nothing about the key.
    for (const scheme of ['Xxxxxx', 'Basic', 'Bearer ']) {
      const headers = { authorization: `${scheme} ${key}` }
      expect((await call('GET', '/tables/items/data/none', { key: null, headers })).status).toBe(
        401,
      )
    }
    expect((await read(key)).status).toBe(429)
    moveTheClock(1000)
    expect((await read(key)).status).toBe(404)
  })

  it('of requests at once hold at their edge, and are free again when the client hangs up', async () => {
    const key = await createKey(service, 'two', { fields: { scope: { requestsAtOnce: 2 } } })
    expect((await read(key)).status).toBe(404)
    const text = head('POST', '/tables/items/data', 'content-length: 2\r\n')
    const open = () => openSocket(`${text.replace(service.key, key)}{`)
    const sockets = [await open(), await open()]
    await until(async () => service.app.admission.budget.bytes === 2)
    expect(await read(key)).toMatchObject({
      status: 429,
      headers: { 'retry-after': '1', 'x-ratelimit-reset': '1' },
      body: { code: 'rate_limited' },
    })
    sockets[0]?.destroy()
    await until(async () => (await read(key)).status === 404)
    sockets[1]?.write('}')
    sockets[1]?.destroy()
  })

  it('are part of its scope, which cannot be shaken off by making another key', async () => {
    const key = await createKey(service, 'some', { fields: { scope: { requestsAtOnce: 50 } } })
    const answer = await service.call('POST', '/user/keys/more', { key })
    expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    const { keys } = (await service.call('GET', '/user/keys')).body
    expect(keys.find(({ name }: { name: string }) => name === 'some').scope).toEqual({
      requestsAtOnce: 50,
    })
  })

  it.each([
    ['requestsPerSecond', 0],
    ['requestsPerSecond', 1_000_001],
    ['requestsPerSecond', 1.5],
    ['requestsAtOnce', 0],
    ['requestsAtOnce', '1'],
  ])('are whole numbers of at least one: %s %s', async (field, value) => {
    const body = { scope: { [field]: value } }
    const answer = await service.call('POST', '/user/keys/refused', { body })
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    expect(answer.body.message).toContain(`field [scope.${field}]`)
  })

  it('hold for all keys when the settings say so', async () => {
    const limited = await createTestService({ keyLimits: { requestsPerSecond: 2 } })
    stopTheClock()
    try {
      const statuses = []
      for (let count = 0; count < 3; count++) {
        statuses.push((await limited.call('GET', '/user')).status)
      }
      expect(statuses).toEqual([200, 200, 429])
    } finally {
      await limited.close()
    }
  })
})
