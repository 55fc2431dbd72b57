import { rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  request,
  startOffshoot,
  until,
} from '../support/process.js'
import { bytesUnread, isHeld, openWire, requestHead } from '../support/wire.js'

const HEADERS_MS = 1000
const STALL_MS = 1500
const BYTES_PER_SECOND = 100_000
const CONNECTIONS = 100

let folder: string
let service: OffshootProcess
let banner: Banner
let key: string

beforeAll(async () => {
  folder = await makeDataFolder('slow')
  service = startOffshoot(folder, {
    env: {
      OFFSHOOT_LIMIT_HEADERS_TIMEOUT_MS: String(HEADERS_MS),
      OFFSHOOT_LIMIT_STALL_TIMEOUT_MS: String(STALL_MS),
      OFFSHOOT_LIMIT_CONNECTIONS_MAX: String(CONNECTIONS),
      OFFSHOOT_LIMIT_TRANSFER_BYTES_PER_SECOND_MIN: String(BYTES_PER_SECOND),
    },
  })
  banner = await service.ready()
  key = banner.key ?? ''
  await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
  const column = (name: string, type: string) => ({
    addColumn: { table: 'notes', column: { name, type } },
  })
  const operations = [
    { addTable: { table: 'notes' } },
    column('text', 'text'),
    column('file', 'file'),
  ]
  await call('POST', '/db/shop:main/schema/update', { operations })
  const records = Array.from({ length: 1000 }, (_, number) => ({
    id: `n${number}`,
    text: 'x'.repeat(8000),
  }))
  await call('POST', '/db/shop:main/tables/notes/bulk', { records })
})
afterAll(async () => {
  await endAll([folder])
  await rm(folder, { recursive: true, force: true })
})

async function call(method: string, url: string, body?: unknown) {
  const answer = await request(banner.address, method, url, { key, body })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  return answer.body
}

/** Waits until a read succeeds. On a busy machine, an attempt may exceed the short time limits. */
const isServed = () =>
  until(async () => {
    const url = '/db/shop:main/tables/notes/data/n1'
    return (await request(banner.address, 'GET', url, { key })).status === 200
  })

const authorization = () => ({ authorization: `Bearer ${key}` })
const wire = (text = '') => openWire(banner.address, text)

describe('a connection', () => {
  it.concurrent.each([
    ['brings nothing at all', ''],
    ['brings half of a request line', 'GET /us'],
    ['brings half of its headers', 'GET /user HTTP/1.1\r\nhost: localhost\r\nauthor'],
  ])('that %s is closed', async (_name, text) => {
    const wires = await Promise.all(Array.from({ length: 10 }, () => wire(text)))
    await isServed()
    for (const { closed } of wires) {
      const lasted = await closed
      expect(lasted).toBeGreaterThan(HEADERS_MS * 0.9)
    }
    if (text !== '')
      expect(wires[0]?.text).toMatch(/^HTTP\/1.1 408 [\s\S]*"code":"request_timeout"/)
  })

  it.concurrent('that drips a header byte after byte is closed', async () => {
    const wires = await Promise.all(
      Array.from({ length: 20 }, () => wire('GET /user HTTP/1.1\r\nhost: localhost\r\nx-slow: ')),
    )
    const drip = setInterval(() => {
      for (const { socket } of wires) if (socket.writable) socket.write('x')
    }, 50)
    await isServed()
    for (const { closed } of wires) await closed
    clearInterval(drip)
  })

  it('that is kept for later makes room when there are too many', async () => {
    const text = requestHead('GET', '/health')
    const wires = await Promise.all(Array.from({ length: CONNECTIONS }, () => wire(text)))
    await until(async () => wires.some(({ text }) => text.startsWith('HTTP/1.1 200')))
    // The first attempt may be dropped: it makes the service close an idle connection.
    await until(async () => (await request(banner.address, 'GET', '/health')).status === 200)
    for (const { socket } of wires) socket.destroy()
  })
})

describe('headers', () => {
  it('beyond the limit are refused with 431, and hold nothing', async () => {
    const fits = await wire(requestHead('GET', '/health', { x: 'x'.repeat(15_000) }))
    await until(async () => fits.text.startsWith('HTTP/1.1 200'))
    fits.socket.destroy()
    const wires = await Promise.all(
      Array.from({ length: 20 }, () =>
        wire(requestHead('GET', '/health', { x: 'x'.repeat(17_000) })),
      ),
    )
    for (const { closed } of wires) await closed
    expect(wires[0]?.text).toMatch(/^HTTP\/1.1 431 [\s\S]*"code":"headers_too_large"/)
    await isServed()
  })

  it('without a host are refused like every malformed request', async () => {
    const { socket, ...opened } = await wire('GET /health HTTP/1.1\r\n\r\n')
    const other = await wire('GET /health HTTP/1.1\r\nconnection: close\r\n\r\n')
    await other.closed
    expect(other.text).toMatch(/^HTTP\/1.1 400 /)
    expect(JSON.parse(other.text.split('\r\n\r\n')[1] ?? '')).toEqual({
      id: expect.stringMatching(/^req_/),
      message: 'header [host]: is required',
      code: 'invalid_request',
    })
    socket.destroy()
    await opened.closed
    const old = await wire('GET /health HTTP/1.0\r\n\r\n')
    await old.closed
    expect(old.text).toMatch(/^HTTP\/1.1 200 /)
  })
})

describe('a body', () => {
  const bodies: [string, string, Record<string, string | number>][] = [
    ['of JSON', 'PUT /db/shop:main/tables/notes/data/slow', { 'content-length': 100 }],
    ['in chunks', 'PUT /db/shop:main/tables/notes/data/slow', { 'transfer-encoding': 'chunked' }],
    [
      'of a file',
      'PUT /db/shop:main/tables/notes/data/n1/column/file/file',
      { 'content-type': 'text/plain', 'content-length': 100 },
    ],
    [
      'of lines',
      'POST /db/shop:main/tables/notes/bulk',
      { 'content-type': 'application/x-ndjson', 'content-length': 100 },
    ],
  ]
  it.concurrent.each(bodies)(
    '%s that stands still is given up with 408',
    async (_name, target, headers) => {
      const [method = '', url = ''] = target.split(' ')
      const text = requestHead(method, url, {
        ...authorization(),
        'content-type': 'application/json',
        ...headers,
      })
      const opened = await wire(headers['transfer-encoding'] ? `${text}1\r\n{\r\n` : `${text}{`)
      await isServed()
      const lasted = await opened.closed
      expect(lasted).toBeGreaterThan(STALL_MS * 0.9)
      expect(opened.text).toMatch(/^HTTP\/1.1 408 [\s\S]*"code":"request_timeout"/)
      expect(
        (await request(banner.address, 'GET', `/db/shop:main/tables/notes/data/slow`, { key }))
          .status,
      ).toBe(404)
    },
  )

  it.concurrent('that drips byte after byte is given up too', async () => {
    const opened = await wire(
      requestHead('PUT', '/db/shop:main/tables/notes/data/slow', {
        ...authorization(),
        'content-type': 'application/json',
        'content-length': 1000,
      }),
    )
    const drip = setInterval(() => opened.socket.writable && opened.socket.write(' '), 20)
    await opened.closed
    clearInterval(drip)
    expect(opened.text).toMatch(/^HTTP\/1.1 408 /)
  })

  it.concurrent('that nobody wants does not hold its connection', async () => {
    const opened = await wire(
      `${requestHead('PUT', '/db/shop:main/tables/notes/data/slow', {
        'content-type': 'application/json',
        'content-length': 1000,
      })}{`,
    )
    await opened.closed
    expect(opened.text).toMatch(/^HTTP\/1.1 401 /)
  })
})

describe('a stream of records', () => {
  const line = `${JSON.stringify({ text: 'x'.repeat(1000) })}\n`
  const head = () =>
    requestHead('POST', '/db/shop:main/tables/notes/bulk', {
      ...authorization(),
      'content-type': 'application/x-ndjson',
      'content-length': 10_000_000,
    })
  const countNotes = async () =>
    (
      await call('POST', '/db/shop:main/tables/notes/summarize', {
        summaries: { total: { count: '*' } },
      })
    ).summaries[0].total

  it('keeps nobody waiting while its beginning takes its time, and is not taken for whole when it breaks off', async () => {
    const before = await countNotes()
    for (let attempt = 0; ; attempt++) {
      const opened = await wire(head() + line.repeat(100))
      let isClosed = false
      void opened.closed.then(() => {
        isClosed = true
      })
      await until(async () => (await bytesUnread(opened)) === 0)
      await call('PUT', `/db/shop:while-it-begins-${attempt}`, { from: 'main' })
      // If the machine was too slow, the stream timed out first, and the attempt proves nothing.
      const isInTime = !isClosed
      opened.socket.destroy()
      await opened.closed
      if (isInTime) break
    }
    expect(await countNotes()).toBe(before)
  })

  it('that stands still in the middle is given up, and those who wait for it go on', async () => {
    const before = await countNotes()
    const opened = await wire(head() + line.repeat(2000))
    await call('PUT', '/db/shop:while-it-stands', { from: 'main' })
    await opened.closed
    expect(opened.text).toMatch(/^HTTP\/1.1 408 [\s\S]*"code":"request_timeout"/)
    expect(await countNotes()).toBe(before)
  })

  it('that moves on is taken, however long it takes in all', async () => {
    const linesPerRound = 200
    const round = line.repeat(linesPerRound)
    const chunk = `${round.length.toString(16)}\r\n${round}\r\n`
    for (;;) {
      const before = await countNotes()
      const opened = await wire(
        requestHead('POST', '/db/shop:main/tables/notes/bulk', {
          ...authorization(),
          'content-type': 'application/x-ndjson',
          'transfer-encoding': 'chunked',
        }),
      )
      const startedAt = performance.now()
      let rounds = 0
      let longestMs = 0
      for (let sentAt = startedAt; sentAt - startedAt < 1.5 * STALL_MS; rounds++) {
        opened.socket.write(chunk)
        await delay(10)
        longestMs = Math.max(longestMs, performance.now() - sentAt)
        sentAt = performance.now()
      }
      opened.socket.write('0\r\n\r\n')
      await until(async () => opened.text !== '')
      opened.socket.destroy()
      // If the machine stopped this process for too long, the stream did stall, and the attempt is
      // repeated.
      if (longestMs > STALL_MS / 3) continue
      expect(opened.text).toMatch(/^HTTP\/1.1 200 /)
      expect(await countNotes()).toBe(before + rounds * linesPerRound)
      return
    }
  })
})

describe('an answer', () => {
  const ask = () => {
    const body = JSON.stringify({ page: { size: 1000 } })
    return `${requestHead('POST', '/db/shop:main/tables/notes/query', {
      ...authorization(),
      'content-type': 'application/json',
      'content-length': body.length,
    })}${body}`
  }

  /** Requests a large answer on a connection that is not read. */
  const askOnly = async () => {
    const opened = await wire()
    opened.socket.pause()
    opened.socket.write(ask())
    return opened
  }

  it('that nobody reads is given up', async () => {
    const wires = await Promise.all(Array.from({ length: 5 }, askOnly))
    await isServed()
    for (const opened of wires) {
      await until(async () => !(await isHeld(opened)))
      opened.socket.resume()
      await opened.closed
      expect(opened.text.length).toBeLessThan(8_000_000)
    }
  })

  it('that is read a little at a time is given up', async () => {
    const opened = await askOnly()
    const sip = setInterval(() => opened.socket.read(256), 20)
    await until(async () => !(await isHeld(opened)))
    clearInterval(sip)
    opened.socket.resume()
    await opened.closed
    expect(opened.text.length).toBeLessThan(8_000_000)
  })

  it('that is read at once is whole', async () => {
    const opened = await wire(ask())
    await until(async () => opened.text.length > 8_000_000)
    opened.socket.destroy()
  })
})
