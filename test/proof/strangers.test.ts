import { readFile, rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  request,
  startOffshoot,
  until,
} from '../support/process.js'
import { openWire, requestHead, type Wire } from '../support/wire.js'

const MIB = 1024 * 1024
/** A few bodies exhaust this budget. */
const BUFFERED_BYTES = 4 * MIB

const STRANGER_REQUESTS = 100
const FAULTS =
  'data:text/javascript,' +
  encodeURIComponent(
    "process.on('SIGUSR2',()=>{Promise.reject(new Error('lost-58213'))});" +
      "process.on('SIGCONT',()=>{throw(new Error('thrown-58213'))})",
  )

let folder: string
let service: OffshootProcess
let banner: Banner
let key: string
const wires: Wire[] = []

beforeAll(async () => {
  folder = await makeDataFolder('strangers')
  service = startOffshoot(folder, {
    env: {
      OFFSHOOT_LIMIT_BUFFERED_BYTES_MAX: String(BUFFERED_BYTES),
      OFFSHOOT_TRUSTED_PROXIES: '127.0.0.1',
      OFFSHOOT_LIMIT_ADDRESS_REQUESTS_PER_SECOND_MAX: String(STRANGER_REQUESTS),
      // Makes the process reject a promise or throw on demand.
      NODE_OPTIONS: `--import ${FAULTS}`,
    },
  })
  banner = await service.ready()
  key = banner.key ?? ''
  await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
  const operations = [
    { addTable: { table: 'notes' } },
    { addColumn: { table: 'notes', column: { name: 'text', type: 'text' } } },
    { addColumn: { table: 'notes', column: { name: 'file', type: 'file' } } },
  ]
  await call('POST', '/db/shop:main/schema/update', { operations })
  await call('PUT', '/db/shop:main/tables/notes/data/one', { text: 'x' })
})
afterEach(() => {
  for (const { socket } of wires.splice(0)) socket.destroy()
})
afterAll(async () => {
  await endAll([folder])
  await rm(folder, { recursive: true, force: true })
})

async function call(method: string, url: string, body?: unknown, by = key) {
  const answer = await request(banner.address, method, url, { key: by, body })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}

async function open(text: string): Promise<Wire> {
  const wire = await openWire(banner.address, text)
  wires.push(wire)
  return wire
}

const residentMiB = async () => {
  const status = await readFile(`/proc/${service.child.pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024
}

/** Acts as another client meanwhile: reads, and sends a body. */
async function bystander(): Promise<void> {
  await call('GET', '/db/shop:main/tables/notes/data/one')
  await call('PUT', '/db/shop:main/tables/notes/data/two', { text: 'y'.repeat(10_000) })
}

const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`
const json = { 'content-type': 'application/json' }
const REFUSED: [string, string, Record<string, string>, number][] = [
  ['an address that does not exist', 'POST /nothing-here', {}, 404],
  ['a method that is not allowed', 'PUT /health', {}, 405],
  ['a method with a body of its own', 'QUERY /nothing-here', {}, 404],
  ['no key', 'POST /db/shop:main/tables/notes/data', {}, 401],
  ['no key, and a bulk insert', 'POST /db/shop:main/tables/notes/bulk', {}, 401],
  ['no key, and a request about a workspace', 'POST /workspaces', {}, 401],
  ['a malformed key', 'POST /db/shop:main/transaction', { authorization: 'Bearer a b' }, 401],
  ['an unknown key', 'POST /db/shop:main/sql', { authorization: 'Bearer off_unknown' }, 401],
]

describe('a body of a stranger', () => {
  it('is not waited for, and holds nothing', async () => {
    for (const [name, target, headers, status] of REFUSED) {
      const [method = '', url = ''] = target.split(' ')
      const head = requestHead(method, url, { ...json, ...headers, 'content-length': 64 * MIB })
      const opened = await Promise.all(Array.from({ length: 8 }, () => open(`${head}[`)))
      for (const wire of opened) await until(async () => wire.text.includes('\r\n\r\n'))
      for (const { text } of opened) {
        expect([name, text]).toEqual([name, expect.stringMatching(`^HTTP/1.1 ${status} `)])
      }
      await bystander()
      // The service stops reading the rest of a refused body.
      for (const wire of opened) wire.socket.write('[0],'.repeat(1000))
    }
    await Promise.all(wires.map(({ closed }) => closed))
  })

  it.each(REFUSED)(
    'is not parsed, however large it is: %s',
    async (_name, target, headers, status) => {
      const [method = '', url = ''] = target.split(' ')
      const before = await residentMiB()
      const head = requestHead(method, url, { ...json, ...headers, 'content-length': 60 * MIB })
      const wire = await open(head)
      // A client that sends its whole body before it reads the answer may lose the connection, and
      // nothing more.
      for (const letter of ['[', '{},']) {
        for (let count = 0; count < 60 && wire.socket.writable; count++) {
          wire.socket.write(letter.repeat(MIB / letter.length))
          await delay(0)
        }
      }
      await until(async () => wire.text.includes('\r\n\r\n'))
      expect(wire.text).toMatch(new RegExp(`^HTTP/1.1 ${status} `))
      await bystander()
      expect((await residentMiB()) - before).toBeLessThan(200)
    },
  )

  it('that is short is read past, and the connection serves the next request', async () => {
    const body = '{"name":"x"}'
    const post = requestHead('POST', '/nothing-here', { ...json, 'content-length': body.length })
    const wire = await open(post)
    await until(async () => wire.text.includes('route_not_found'))
    wire.socket.write(body + requestHead('GET', '/health'))
    await until(async () => wire.text.includes('"status":"ready"'))
  })

  it('that is still sent does not keep a client that reads late from its answer', async () => {
    const head = requestHead('POST', '/nothing-here', { ...json, 'content-length': 60 * MIB })
    for (let isInTime = false; !isInTime; ) {
      const wire = await open('')
      wire.socket.pause()
      const startedAt = performance.now()
      wire.socket.write(head + '[0],'.repeat(4 * MIB))
      // The service checks such connections once a second, and keeps them for five.
      await delay(1500)
      isInTime = performance.now() - startedAt < 4000
      wire.socket.resume()
      if (isInTime) await until(async () => wire.text.includes('\r\n\r\n') || wire.socket.destroyed)
      if (isInTime) expect(wire.text).toMatch(/^HTTP\/1.1 404 /)
      wire.socket.destroy()
    }
  })

  it('that may stay unread closes the connection, and the answer says so', async () => {
    const long = requestHead('POST', '/nothing-here', { ...json, 'content-length': MIB + 1 })
    const chunked = requestHead('POST', '/nothing-here', {
      ...json,
      'transfer-encoding': 'chunked',
    })
    for (const head of [long, chunked]) {
      const wire = await open(head)
      await until(async () => wire.text.includes('\r\n\r\n'))
      expect(wire.text).toMatch(/^HTTP\/1.1 404 /)
      expect(wire.text).toMatch(/\r\nconnection: close\r\n/i)
      await until(async () => wire.socket.destroyed)
    }
    const short = await open(
      requestHead('POST', '/nothing-here', { ...json, 'content-length': MIB }),
    )
    await until(async () => short.text.includes('\r\n\r\n'))
    expect(short.text).not.toMatch(/\r\nconnection: close\r\n/i)
  })

  it('is not asked for when the client waits to be asked', async () => {
    const expecting = { ...json, expect: '100-continue', 'content-length': 1000 }
    const refused = await open(requestHead('POST', '/nothing-here', expecting))
    await until(async () => refused.text.includes('\r\n\r\n'))
    expect(refused.text).toMatch(/^HTTP\/1.1 404 /)
    const body = JSON.stringify({ text: 'expected' })
    const url = '/db/shop:main/tables/notes/data/expected'
    const taken = await open(
      requestHead('PUT', url, {
        ...expecting,
        authorization: `Bearer ${key}`,
        'content-length': body.length,
      }),
    )
    await until(async () => taken.text.startsWith('HTTP/1.1 100 '))
    taken.socket.write(body)
    await until(async () => taken.text.includes('HTTP/1.1 201 '))
  })
})

describe('a body of a request that has none', () => {
  it('does not end the process, with the room for bodies nearly taken', async () => {
    const url = '/db/shop:main/tables/notes/data/slow'
    const authorization = { authorization: `Bearer ${key}` }
    const head = requestHead('PUT', url, { ...json, ...authorization, 'content-length': 60 * MIB })
    const slow = await open(`${head}{"text":"${'x'.repeat(BUFFERED_BYTES - 1000)}`)
    await delay(300)
    for (const method of ['GET', 'HEAD', 'DELETE', 'OPTIONS']) {
      for (const headers of [{}, authorization]) {
        const text = requestHead(method, '/db/shop:main/tables/notes/data/one', {
          ...headers,
          'transfer-encoding': 'chunked',
        })
        const wire = await open(`${text}${chunk('x'.repeat(2000))}0\r\n\r\n`)
        await until(async () => wire.text.includes('\r\n\r\n'))
      }
    }
    slow.socket.destroy()
    const put = { key, body: { text: 'x' } }
    await until(async () => {
      const url = '/db/shop:main/tables/notes/data/one'
      return (await request(banner.address, 'PUT', url, put)).status < 300
    })
    await bystander()
    expect(service.child.exitCode).toBeNull()
    expect(service.stderr).not.toContain('because of a fault')
  })
})

describe('requests without a valid key', () => {
  /** Sends a request from any address, because the test is a trusted proxy. */
  const ask = async (address: string, url = '/nothing-here', bearer = '') => {
    const response = await fetch(`${banner.address}${url}`, {
      headers: {
        'x-forwarded-for': address,
        ...(bearer === '' ? {} : { authorization: `Bearer ${bearer}` }),
      },
    })
    await response.text()
    return response
  }

  it('are limited by address, and neither other addresses nor keys feel it', async () => {
    const askMany = (count: number, address: (number: number) => string) =>
      Promise.all(Array.from({ length: count }, (_, number) => ask(address(number))))
    // Send more requests than the limit refills meanwhile, however slow the machine is.
    await until(async () => {
      const answers = await askMany(2 * STRANGER_REQUESTS, () => '203.0.113.7')
      return answers.some(({ status }) => status === 429)
    })
    await until(async () => {
      const answers = await askMany(2 * STRANGER_REQUESTS, (number) => `2001:db8:1:2::${number}`)
      const refused = answers.find(({ status }) => status === 429)
      if (refused !== undefined) expect(Number(refused.headers.get('retry-after'))).toBe(1)
      return refused !== undefined
    })
    expect((await ask('203.0.113.8')).status).toBe(404)
    expect((await ask('2001:db8:1:3::1')).status).toBe(404)
    expect((await ask('203.0.113.7', '/user', key)).status).toBe(200)
    await bystander()
  })
})

describe('readers of files', () => {
  const LINK_MAX = 64

  it('that are slow keep nobody else from files', async () => {
    const content = Buffer.alloc(8 * MIB, 'x')
    const filePath = (id: string) => `/db/shop:main/tables/notes/data/${id}/column/file/file`
    const urls: string[] = []
    for (const id of ['popular', 'other']) {
      await call('PUT', `/db/shop:main/tables/notes/data/${id}`, { text: id })
      const response = await fetch(`${banner.address}${filePath(id)}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'text/plain' },
        body: content,
      })
      expect(response.status).toBe(201)
      const columns = { file: { enablePublicUrl: true } }
      await call('PATCH', `/db/shop:main/tables/notes/data/${id}`, columns)
      const record = await call('POST', '/db/shop:main/tables/notes/query', {
        columns: ['file.url'],
        filter: { text: id },
      })
      urls.push(new URL(record.records[0].file.url).pathname)
    }
    const [popular = '', other = ''] = urls
    const readers: Wire[] = []
    for (let number = 0; number < 300; number++) {
      const wire = await open('')
      readers.push(wire)
      // The first `LINK_MAX` readers do not read. Each reader has its own address.
      if (number < LINK_MAX) wire.socket.pause()
      const from = { 'x-forwarded-for': `203.0.${number >> 8}.${number & 255}` }
      wire.socket.write(requestHead('GET', popular, from))
      if (number >= LINK_MAX) await until(async () => wire.text.includes('\r\n\r\n'))
    }
    const refused = readers.filter(({ text }) => text.startsWith('HTTP/1.1 429 '))
    expect(refused.length).toBeGreaterThanOrEqual(300 - LINK_MAX)
    expect(refused[0]?.text).toContain('a link can have at most 64 concurrent file transfers')
    const read = await fetch(`${banner.address}${other}`)
    expect(Buffer.from(await read.arrayBuffer()).equals(content)).toBe(true)
    const byKey = await fetch(`${banner.address}${filePath('popular')}`, {
      headers: { authorization: `Bearer ${key}` },
    })
    expect((await byKey.arrayBuffer()).byteLength).toBe(content.length)
    for (const { socket } of readers) socket.destroy()
    // Their transfers are released.
    await until(async () => (await fetch(`${banner.address}${popular}`)).status === 200)
  })
})

describe('pipelined requests', () => {
  const get = (url: string) => `GET ${url} HTTP/1.1\r\nHost: localhost\r\n\r\n`

  it('are answered up to the second one, and hold nothing when their connection closes', async () => {
    const metric = async (name: string) => {
      const text = await (await fetch(`${banner.address}/metrics`)).text()
      return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(text)?.[1] ?? 0)
    }
    for (const url of ['/openapi.json', '/health', '/nothing-here']) {
      const wire = await open(get(url).repeat(500))
      await wire.closed
      expect(wire.text.match(/HTTP\/1\.1 /g)?.length).toBeLessThanOrEqual(2)
    }
    await until(async () => (await metric('offshoot_buffered_bytes')) === 0)
    await call('POST', '/db/shop:main/tables/notes/query', {})
  })

  it('may follow each other once the one before is answered', async () => {
    const wire = await open(get('/health'))
    await until(async () => wire.text.includes('ready'))
    wire.socket.write(get('/health'))
    await until(async () => (wire.text.match(/HTTP\/1\.1 200/g) ?? []).length === 2)
  })

  it('with an unknown expectation are bounded as any other', async () => {
    const head =
      'PUT /user HTTP/1.1\r\nHost: localhost\r\nExpect: x\r\nContent-Length: 999999999\r\n\r\n'
    const wire = await open(head)
    await until(async () => wire.text.includes('401'))
  })
})

describe('a fault of the service itself', () => {
  it('that is a lost promise is logged, and everyone is served on', async () => {
    service.child.kill('SIGUSR2')
    await until(async () => service.stderr.includes('unhandled promise rejection'))
    await bystander()
    expect(service.child.exitCode).toBeNull()
  })

  it('that is an exception is logged, and ends the process, which starts again', async () => {
    service.child.kill('SIGCONT')
    expect(await service.ended).toMatchObject({ code: 1 })
    expect(service.stderr).toContain('uncaught exception; the process exits')
    service = startOffshoot(folder, { env: {} })
    banner = await service.ready()
    await bystander()
  })
})
