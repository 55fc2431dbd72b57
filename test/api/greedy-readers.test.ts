import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createDatabase, createUser, createWorkspace } from '../support/people.js'
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

it('Unread large answers of one key refuse no small request of another one', async () => {
  const { key } = await createUser(service, 'bystander')
  const { id: workspaceId } = await createWorkspace(service, 'small', key)
  await createDatabase(service, 'small', { workspaceId, key })
  const small = `/${workspaceId}.local/db/small:main`
  const operations = addTables({ notes: [{ name: 'text', type: 'text' }] })
  expectOk(await service.call('POST', `${small}/schema/update`, { key, body: { operations } }))
  const write = (id: string) =>
    service.call('PUT', `${small}/tables/notes/data/${id}`, { key, body: { text: id } })
  expectOk(await write('one'))
  const body = JSON.stringify({ page: { size: PAGE_ROWS } })
  const greedy = await Promise.all(
    Array.from({ length: READERS }, async () => {
      const wire = await openWire(
        address,
        requestHead('POST', `${service.workspace}/db/large:main/tables/notes/query`, {
          authorization: `Bearer ${service.key}`,
          'content-type': 'application/json',
          'content-length': String(body.length),
        }) + body,
      )
      wire.socket.once('data', () => wire.socket.pause())
      return wire
    }),
  )
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
