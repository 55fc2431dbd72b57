import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { createDatabase, createKey, createUser, createWorkspace } from '../support/people.js'
import { until } from '../support/process.js'
import { createTestService, type TestService } from '../support/service.js'
import { addTables, createTables, expectOk } from '../support/tables.js'
import { openWire, requestHead } from '../support/wire.js'

/*
 * Clients that request large pages and do not read them fill the memory for answers. That is their own share of it:
 * small requests of others are served all the same.
 */

const BUFFERED_BYTES_MAX = 32 * 1024 * 1024
/** Far more than the buffers of a socket. */
const PAGE_ROWS = 250
const TEXT_LENGTH = 40_000
const READERS = 24
/** Rows of a page of the other workspace: less than a third of the memory for answers. */
const OTHER_ROWS = 200

let service: TestService
let address: string

beforeAll(async () => {
  service = await createTestService({ limits: { bufferedBytesMax: BUFFERED_BYTES_MAX } })
  await service.app.listen({ host: '127.0.0.1', port: 0 })
  address = `http://127.0.0.1:${(service.app.server.address() as AddressInfo).port}`
  const call = await createTables(service, 'large', { notes: [{ name: 'text', type: 'text' }] })
  for (let first = 0; first < PAGE_ROWS; first += 50) {
    const records = Array.from({ length: 50 }, (_, number) => ({
      id: `n${first + number}`,
      text: 'x'.repeat(TEXT_LENGTH),
    }))
    expectOk(await call('POST', '/tables/notes/bulk', { body: { records } }))
  }
})
afterAll(() => service.close())

/** Creates another user with a workspace and a table of its own. */
async function openBystander(name: string) {
  const { key } = await createUser(service, name)
  const { id: workspaceId } = await createWorkspace(service, name, key)
  await createDatabase(service, name, { workspaceId, key })
  const small = `/${workspaceId}.local/db/${name}:main`
  const operations = addTables({ notes: [{ name: 'text', type: 'text' }] })
  expectOk(await service.call('POST', `${small}/schema/update`, { key, body: { operations } }))
  const write = (id: string, text = id) =>
    service.call('PUT', `${small}/tables/notes/data/${id}`, { key, body: { text } })
  expectOk(await write('one'))
  return { key, small, write }
}

/** Requests a large page, and does not read it. */
async function readGreedily(key: string) {
  const body = JSON.stringify({ page: { size: PAGE_ROWS } })
  const wire = await openWire(
    address,
    requestHead('POST', `${service.workspace}/db/large:main/tables/notes/query`, {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'content-length': String(body.length),
    }) + body,
  )
  wire.socket.once('data', () => wire.socket.pause())
  return wire
}

it('Unread large answers of many keys of one workspace leave room for large answers of another', async () => {
  const { key, small, write } = await openBystander('other')
  for (let row = 0; row < OTHER_ROWS; row++) {
    expectOk(await write(`n${row}`, 'x'.repeat(TEXT_LENGTH)))
  }
  const greedy: Awaited<ReturnType<typeof readGreedily>>[] = []
  onTestFinished(() => {
    for (const { socket } of greedy) socket.destroy()
  })
  for (let number = 0; number < 10; number++) {
    const wire = await readGreedily(await createKey(service, `greedy${number}`))
    greedy.push(wire)
    await until(async () => wire.text !== '')
  }
  expect(service.app.admission.budget.bytes).toBeGreaterThan(BUFFERED_BYTES_MAX)
  const body = { page: { size: OTHER_ROWS } }
  const large = await service.call('POST', `${small}/tables/notes/query`, { key, body })
  expect([large.status, large.body.records?.length]).toEqual([200, OTHER_ROWS])
  // Small answers always pass, also those of the workspace whose share is spent.
  const own = await createKey(service, 'small-reader')
  const notes = `${service.workspace}/db/large:main/tables/notes`
  for (const tiny of [
    await service.call('GET', `${small}/tables/notes/data/one`, { key }),
    await service.call('GET', `${notes}/data/n0?columns=id`, { key: own }),
  ]) {
    expect(tiny.status).toBe(200)
  }
  for (const { socket } of greedy) socket.destroy()
  await until(async () => service.app.admission.budget.bytes === 0)
})

it('Unread large answers of one key refuse no small request of another one', async () => {
  const { key, small, write } = await openBystander('bystander')
  const greedy = await Promise.all(Array.from({ length: READERS }, () => readGreedily(service.key)))
  const refused: unknown[] = []
  let served = 0
  const read = async () => {
    const answers = await Promise.all([
      service.call('GET', `${small}/tables/notes/data/one`, { key }),
      service.call('POST', `${small}/tables/notes/query`, { key, body: { page: { size: 1 } } }),
      write('two'),
    ])
    for (const { status, body } of answers) {
      if (status >= 300) refused.push(body)
      else served++
    }
  }
  await until(async () => {
    await read()
    return greedy.every(({ text }) => text !== '')
  })
  await read()
  expect(refused).toEqual([])
  expect(served).toBeGreaterThan(5)
  expect(greedy.some(({ text }) => text.startsWith('HTTP/1.1 200'))).toBe(true)
  expect(service.app.admission.budget.bytes).toBeLessThan(2 * BUFFERED_BYTES_MAX)
  for (const { socket } of greedy) socket.destroy()
  await until(async () => service.app.admission.budget.bytes === 0)
})
