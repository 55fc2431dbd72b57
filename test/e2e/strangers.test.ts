import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
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
/** So little that a few bodies take it all. */
const BUFFERED_BYTES = 4 * MIB

let folder: string
let service: OffshootProcess
let banner: Banner
let key: string
const wires: Wire[] = []

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-strangers-'))
  service = startOffshoot(folder, {
    env: { OFFSHOOT_LIMIT_BUFFERED_BYTES_MAX: String(BUFFERED_BYTES) },
  })
  banner = await service.ready()
  key = banner.key ?? ''
  await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
  const operations = [
    { addTable: { table: 'notes' } },
    { addColumn: { table: 'notes', column: { name: 'text', type: 'text' } } },
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

/** What someone else does meanwhile: reads, and sends a body of its own. */
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
      for (const wire of opened) await until(async () => wire.text.includes('\r\n\r\n'), 20_000)
      for (const { text } of opened) {
        expect([name, text]).toEqual([name, expect.stringMatching(`^HTTP/1.1 ${status} `)])
      }
      await bystander()
      // Nobody reads on for long either.
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
      // Whoever sends all of it before it reads anything may lose the connection, and no more.
      for (const letter of ['[', '{},']) {
        for (let count = 0; count < 60 && wire.socket.writable; count++) {
          wire.socket.write(letter.repeat(MIB / letter.length))
          await delay(0)
        }
      }
      await until(async () => wire.text.includes('\r\n\r\n'), 20_000)
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
    await call('PUT', '/db/shop:main/tables/notes/data/one', { text: 'x' })
    await bystander()
    expect(service.child.exitCode).toBeNull()
    expect(service.stderr).not.toContain('because of a fault')
  })
})
