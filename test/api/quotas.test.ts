import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { QUOTA_BYTES_MAX } from '@offshoot/contract/limits'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { checkBlobs, collectBlobs } from '../../packages/server/src/data/files/collect.js'
import { measureUsage } from '../../packages/server/src/domain/quotas/measure.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { openLocalStore, type TestStore } from '../support/file-store.js'
import {
  addMember,
  createDatabase,
  createKey,
  createUser,
  createWorkspace,
} from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import {
  addTables,
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
} from '../support/tables.js'

const NOW = { graceSeconds: 0, recheckSeconds: 0 }
const TABLES = {
  notes: [
    { name: 'text', type: 'text' },
    { name: 'file', type: 'file' },
  ],
} as const

let store: TestStore
/** Two processes of one instance. */
let services: readonly [TestService, TestService]
let service: TestService
let call: BranchCall

beforeAll(async () => {
  store = await openLocalStore()
  service = await createTestService({ blobs: store.blobs })
  services = [service, await createTestService({ blobs: store.blobs, url: service.url })]
  call = await createTables(service, 'shop', TABLES)
  expectOk(await call('PUT', '/tables/notes/data/first', { body: { text: 'x' } }))
})
afterEach(async () => {
  await setQuota(null)
})
afterAll(async () => {
  await services[1].close()
  await service.close()
  await store.close()
})

const usagePath = () => `/workspaces/${service.workspaceId}/usage`
const readUsage = async (via = service) =>
  expectOk(await via.call('GET', usagePath(), { key: service.key })).body

async function setQuota(bytesMax: number | null): Promise<void> {
  const path = `/workspaces/${service.workspaceId}/quota`
  expectOk(await service.call('PUT', path, { body: { bytesMax } }))
  for (const { sessions } of services) await sessions.quotas.refresh()
}

/** Measures every workspace now, and refreshes the quotas of both processes. */
async function measure(options: { heapsMax?: number } = {}): Promise<number> {
  const { database } = service
  let steps = 0
  for (const { sessions } of services) await sessions.quotas.refresh()
  await database.query(sql`update offshoot.workspace_usage set due_at = now()`)
  while (await measureUsage(database, { bytesMaxDefault: null, ...options })) steps++
  for (const { sessions } of services) await sessions.quotas.refresh()
  return steps
}

/** Sets the quota so that this many bytes are left. */
async function leaveRoom(bytes: number): Promise<number> {
  await measure()
  const { bytesUsed } = await readUsage()
  await setQuota(bytesUsed + bytes)
  return bytesUsed
}

const sizeOf = (body: unknown) => Buffer.byteLength(JSON.stringify(body))

function expectRefused(answer: Answer): void {
  expect([answer.status, answer.body.code]).toEqual([403, 'quota_exceeded'])
}

const countNotes = async (of = call) =>
  expectOk(
    await of('POST', '/tables/notes/summarize', { body: { summaries: { n: { count: '*' } } } }),
  ).body.summaries[0].n as number

async function upload(
  url: string,
  payload: Buffer | Readable,
  options: { key?: string; via?: TestService } = {},
): Promise<Answer> {
  const { key, via = service } = options
  const response = await via.app.inject({
    method: 'PUT',
    url,
    headers: {
      'content-type': 'application/octet-stream',
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    },
    payload,
  })
  return { status: response.statusCode, body: response.json(), headers: response.headers }
}
const fileUrl = (id: string) =>
  `${service.workspace}/db/shop:main/tables/notes/data/${id}/column/file/file`

async function uploadLink(id: string): Promise<string> {
  expectOk(await call('PUT', `/tables/notes/data/${id}`, { body: { file: { name: 'a.bin' } } }))
  const path = `/tables/notes/data/${id}?columns=file.uploadUrl`
  const { pathname, search } = new URL(expectOk(await call('GET', path)).body.file.uploadUrl)
  return `${pathname}${search}`
}

describe('the quota of a workspace', () => {
  it('lets a body in that fits to the byte, and refuses one that is a byte longer', async () => {
    const body = { text: 'a'.repeat(1000) }
    await leaveRoom(sizeOf(body))
    const before = await countNotes()
    expectRefused(await call('POST', '/tables/notes/data', { body: { text: 'a'.repeat(1001) } }))
    expect(await countNotes()).toBe(before)
    expectOk(await call('POST', '/tables/notes/data', { body }))
    expectRefused(await call('POST', '/tables/notes/data', { body: {} }))
    expect(await countNotes()).toBe(before + 1)
  })

  it('names what is used and what is allowed in its refusal', async () => {
    const bytesUsed = await leaveRoom(0)
    const answer = await call('POST', '/tables/notes/data', { body: { text: 'a' } })
    expectRefused(answer)
    expect(answer.body.message).toContain(`${bytesUsed} of ${bytesUsed} bytes are used`)
  })

  it('does not count requests that are refused', async () => {
    const body = { text: 'a'.repeat(1000) }
    await leaveRoom(sizeOf(body))
    for (let attempt = 0; attempt < 3; attempt++) {
      const path = '/tables/notes/data/first?createOnly=true'
      expect((await call('PUT', path, { body })).status).toBe(422)
    }
    expectOk(await call('PUT', '/tables/notes/data/counted', { body }))
  })

  const text = 'a'.repeat(100)
  const ndjson = { 'content-type': 'application/x-ndjson' }
  it.each<[string, string, string, unknown, Record<string, string>?]>([
    ['create', 'POST', '/tables/notes/data', { text }],
    ['replace', 'PUT', '/tables/notes/data/first', { text }],
    ['update', 'PATCH', '/tables/notes/data/first', { text }],
    ['upsert', 'POST', '/tables/notes/data/first', { text }],
    ['bulk insert', 'POST', '/tables/notes/bulk', { records: [{ text }] }],
    ['stream', 'POST', '/tables/notes/bulk', `{"text":"${text}"}`, ndjson],
    ['partial stream', 'POST', '/tables/notes/bulk?mode=partial', `{"text":"${text}"}`, ndjson],
    [
      'transaction that inserts',
      'POST',
      '/transaction',
      { operations: [{ insert: { table: 'notes', record: { text } } }] },
    ],
    [
      'transaction that updates',
      'POST',
      '/transaction',
      { operations: [{ update: { table: 'notes', id: 'first', fields: { text } } }] },
    ],
    ['SQL insert', 'POST', '/sql', { statement: `insert into notes (text) values ('${text}')` }],
    ['SQL update', 'POST', '/sql', { statement: `update notes set text = '${text}'` }],
  ])(
    'refuses a %s, and takes it when there is room',
    async (_name, method, path, body, headers) => {
      const options = { body, ...(headers === undefined ? {} : { headers }) }
      await leaveRoom(50)
      const before = await countNotes()
      expectRefused(await call(method, path, options))
      expect(await countNotes()).toBe(before)
      await setQuota(null)
      expectOk(await call(method, path, options))
    },
  )

  it('counts the rows that SQL writes, which its text does not tell', async () => {
    const records = Array.from({ length: 50 }, () => ({ text: 'b'.repeat(1000) }))
    expectOk(await call('POST', '/tables/notes/bulk', { body: { records } }))
    await leaveRoom(20_000)
    const before = await countNotes()
    const statement = 'insert into notes (text) select text from notes where length(text) = 1000'
    expectRefused(await call('POST', '/sql', { body: { statement } }))
    expect(await countNotes()).toBe(before)
    const fewer = `${statement} limit 10`
    expectOk(await call('POST', '/sql', { body: { statement: fewer } }))
    expectRefused(await call('POST', '/sql', { body: { statement: fewer } }))
  })

  it('never keeps anyone from reading or deleting', async () => {
    const records = ['gone-1', 'gone-2', 'gone-3', 'gone-4'].map((id) => ({ id, text: 'x' }))
    expectOk(await call('POST', '/tables/notes/bulk', { body: { records } }))
    expectOk(await upload(fileUrl('gone-4'), randomBytes(100), { key: service.key }))
    expectOk(await call('POST', '/schema/update', { body: { operations: addTables({ old: [] }) } }))
    expectOk(
      await branchCall(service, 'shop', { branch: 'spare' })('PUT', '', { body: { from: 'main' } }),
    )
    await setQuota(0)
    expectRefused(await call('POST', '/tables/notes/data', { body: {} }))
    const gets = { operations: [{ get: { table: 'notes', id: 'first' } }] }
    const deletes = { operations: [{ delete: { table: 'notes', id: 'gone-2' } }] }
    for (const [method, path, body] of [
      ['GET', '/tables/notes/data/first'],
      ['POST', '/tables/notes/query', {}],
      ['POST', '/transaction', gets],
      ['POST', '/sql', { statement: 'select count(*) from notes' }],
      ['GET', '/tables/notes/data/gone-4/column/file/file'],
      ['GET', '/stats'],
      ['DELETE', '/tables/notes/data/gone-4/column/file/file'],
      ['DELETE', '/tables/notes/data/gone-1'],
      ['POST', '/transaction', deletes],
      ['POST', '/sql', { statement: "delete from notes where id = 'gone-3'" }],
      ['DELETE', '/tables/old'],
    ] as const) {
      expectOk(await call(method, path, body === undefined ? {} : { body }))
    }
    expectOk(await branchCall(service, 'shop', { branch: 'spare' })('DELETE', ''))
  })

  it('refuses merges and pulls, but not dry runs', async () => {
    const fork = branchCall(service, 'shop', { branch: 'merged' })
    expectOk(await fork('PUT', '', { body: { from: 'main' } }))
    expectOk(await fork('PUT', '/tables/notes/data/of-fork', { body: { text: 'x' } }))
    await leaveRoom(0)
    expectRefused(await fork('POST', '/merge', { body: {} }))
    expectRefused(await fork('POST', '/pull', { body: {} }))
    expectOk(await fork('POST', '/merge', { body: { dryRun: true } }))
    await leaveRoom(1)
    expectOk(await fork('POST', '/merge', { body: {} }))
    expect((await call('GET', '/tables/notes/data/of-fork')).status).toBe(200)
  })

  it('answers a repetition with an Idempotency-Key, for which nothing is stored', async () => {
    const options = { body: { records: [{ text: 'x' }] }, headers: { 'idempotency-key': 'once' } }
    const { body } = expectOk(await call('POST', '/tables/notes/bulk', options))
    await setQuota(0)
    expect((await call('POST', '/tables/notes/bulk', options)).body).toEqual(body)
  })
})

describe('uploads', () => {
  it('fit to the byte, with and without an announced length', async () => {
    const content = randomBytes(5000)
    const chunks = () => Readable.from([content.subarray(0, 2000), content.subarray(2000)])
    const { key } = service
    await leaveRoom(4999)
    expectRefused(await upload(fileUrl('first'), content, { key }))
    expectRefused(await upload(fileUrl('first'), chunks(), { key }))
    await leaveRoom(5000)
    expectOk(await upload(fileUrl('first'), chunks(), { key }))
    await leaveRoom(5000)
    expectOk(await upload(fileUrl('first'), content, { key }))
    expectRefused(await upload(fileUrl('first'), Buffer.from('a'), { key }))
  })

  it('by a link are refused without telling what the workspace stores', async () => {
    const link = await uploadLink('linked')
    await leaveRoom(99)
    const answer = await upload(link, randomBytes(100))
    expectRefused(answer)
    expect(answer.body.message).not.toMatch(/\d/)
    await leaveRoom(100)
    expectOk(await upload(link, randomBytes(100)))
  })

  it('count once for equal contents, and no longer when no row mentions them', async () => {
    await measure()
    const before = (await readUsage()).fileBytes
    const content = randomBytes(7000)
    for (const id of ['copy-1', 'copy-2']) {
      expectOk(await call('PUT', `/tables/notes/data/${id}`, { body: {} }))
      expectOk(await upload(fileUrl(id), content, { key: service.key }))
    }
    await measure()
    expect((await readUsage()).fileBytes).toBe(before + 7000)

    expectOk(await call('DELETE', '/tables/notes/data/copy-1'))
    await checkBlobs(service.database, NOW)
    await measure()
    expect((await readUsage()).fileBytes).toBeGreaterThanOrEqual(7000)

    expectOk(await call('DELETE', '/tables/notes/data/copy-2'))
    await checkBlobs(service.database, NOW)
    await collectBlobs({ database: service.database, blobs: store.blobs }, NOW)
    await measure()
    const after = (await readUsage()).fileBytes
    expectOk(await call('PUT', '/tables/notes/data/copy-3', { body: {} }))
    expectOk(await upload(fileUrl('copy-3'), content, { key: service.key }))
    await measure()
    expect((await readUsage()).fileBytes).toBe(after + 7000)
  })

  it('of earlier versions are found by the check of contents', async () => {
    await checkBlobs(service.database, NOW)
    await measure()
    const { fileBytes } = await readUsage()
    expect(fileBytes).toBeGreaterThan(0)
    await service.database.query(sql`delete from offshoot.workspace_blobs`)
    await measure()
    expect((await readUsage()).fileBytes).toBe(0)
    await checkBlobs(service.database, NOW)
    await measure()
    expect((await readUsage()).fileBytes).toBe(fileBytes)
  })
})

describe('the usage of a workspace', () => {
  it('counts the rows that forks share once', async () => {
    const records = Array.from({ length: 1000 }, () => ({ text: randomBytes(500).toString('hex') }))
    expectOk(await call('POST', '/tables/notes/bulk', { body: { records } }))
    await measure()
    const { rowBytes } = await readUsage()
    expect(rowBytes).toBeGreaterThan(1_000_000)
    for (const branch of ['a', 'b', 'c']) {
      expectOk(await branchCall(service, 'shop', { branch })('PUT', '', { body: { from: 'main' } }))
    }
    const fork = branchCall(service, 'shop', { branch: 'a' })
    expectOk(await fork('PUT', '/tables/notes/data/own', { body: { text: 'x' } }))
    await measure()
    const after = (await readUsage()).rowBytes
    expect(after).toBeGreaterThan(rowBytes)
    expect(after).toBeLessThan(1.5 * rowBytes)
  })

  it('is the same whether it is measured in one step or in many', async () => {
    await measure()
    const whole = await readUsage()
    const steps = await measure({ heapsMax: 1 })
    expect(steps).toBeGreaterThan(2)
    expect((await readUsage()).rowBytes).toBe(whole.rowBytes)
  })

  it('is measured once when several processes measure at the same time', async () => {
    await measure()
    const whole = await readUsage()
    await service.database.query(sql`update offshoot.workspace_usage set due_at = now()`)
    await Promise.all(
      [...services, ...services].map(async ({ database }) => {
        while (await measureUsage(database, { bytesMaxDefault: null, heapsMax: 1 }));
      }),
    )
    const again = await readUsage()
    expect(again.rowBytes).toBe(whole.rowBytes)
    expect(Date.parse(again.measuredAt)).toBeGreaterThan(Date.parse(whole.measuredAt))
  })

  it('is agreed on by two processes after a refresh', async () => {
    const [first, second] = services
    const body = { text: randomBytes(4000).toString('hex') }
    await leaveRoom(2 * sizeOf(body))
    const other = branchCall(service, 'shop', { via: second })
    expectOk(await other('POST', '/tables/notes/data', { body }))
    expectOk(await other('POST', '/tables/notes/data', { body }))
    expectRefused(await other('POST', '/tables/notes/data', { body }))
    const records = Array.from({ length: 20 }, () => body)
    await setQuota(null)
    expectOk(await other('POST', '/tables/notes/bulk', { body: { records } }))
    await leaveRoom(0)
    expect(await readUsage(first)).toEqual(await readUsage(second))
    for (const via of services) {
      const answer = await branchCall(service, 'shop', { via })('POST', '/tables/notes/data', {
        body,
      })
      expectRefused(answer)
    }
  })

  it('is for members with a key for the whole workspace', async () => {
    const member = await createUser(service, 'member')
    await addMember(service, member)
    const stranger = await createUser(service, 'stranger')
    const part = await createKey(service, 'part', { fields: { scope: { databases: ['shop'] } } })
    const branches = await createKey(service, 'prs', { fields: { scope: { branches: ['pr-*'] } } })
    const reader = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
    const ask = async (key: string | null) =>
      (await service.call('GET', usagePath(), { key })).status
    expect(await ask(member.key)).toBe(200)
    expect(await ask(reader)).toBe(200)
    expect(await ask(stranger.key)).toBe(404)
    expect(await ask(part)).toBe(403)
    expect(await ask(branches)).toBe(403)
    expect(await ask(null)).toBe(401)
    await leaveRoom(0)
    const answer = await call('POST', '/tables/notes/data', { body: { text: 'x' }, key: part })
    expectRefused(answer)
    expect(answer.body.message).not.toMatch(/\d/)
  })

  it('is not measured yet in a new workspace, and then is', async () => {
    const { id } = await createWorkspace(service, 'fresh')
    const path = `/workspaces/${id}/usage`
    expect((await service.call('GET', path)).body).toEqual({
      bytesMax: null,
      bytesUsed: 0,
      rowBytes: 0,
      fileBytes: 0,
      measuredAt: null,
    })
    await createDatabase(service, 'fresh', { workspaceId: id })
    await runBackground(service)
    expect((await service.call('GET', path)).body.measuredAt).toMatch(/^\d{4}-/)
  })
})

describe('setting a quota', () => {
  const put = (body: unknown, options: { key?: string; id?: string } = {}) =>
    service.call('PUT', `/workspaces/${options.id ?? service.workspaceId}/quota`, {
      body,
      ...(options.key === undefined ? {} : { key: options.key }),
    })

  it('is for the administrator of the instance', async () => {
    const owner = await createUser(service, 'owner')
    const { id } = await createWorkspace(service, 'theirs', owner.key)
    expect((await put({ bytesMax: 1 }, { id, key: owner.key })).status).toBe(403)
    expect((await put({ bytesMax: 1 }, { id })).body.bytesMax).toBe(1)
    const limited = await createKey(service, 'limited', {
      fields: { scope: { databases: ['shop'] } },
    })
    expect((await put({ bytesMax: 1 }, { key: limited })).status).toBe(403)
    // A limited key of the administrator reaches only the workspaces that its user is a member of.
    expect((await put({ bytesMax: 1 }, { id, key: limited })).status).toBe(404)
    expect((await put({ bytesMax: 1 }, { id: 'nothing-abc123' })).status).toBe(404)
  })

  it.each([
    [{ bytesMax: 0 }, 200],
    [{ bytesMax: QUOTA_BYTES_MAX }, 200],
    [{ bytesMax: null }, 200],
    [{ bytesMax: -1 }, 400],
    [{ bytesMax: QUOTA_BYTES_MAX + 1 }, 400],
    [{ bytesMax: 1.5 }, 400],
    [{ bytesMax: '1' }, 400],
    [{}, 400],
    [{ bytesMax: 1, other: 1 }, 400],
  ])('answers %j with %i', async (body, status) => {
    expect((await put(body)).status).toBe(status)
  })

  it('reaches another process with its next refresh', async () => {
    const [first, second] = services
    const other = branchCall(service, 'shop', { via: second })
    expectOk(await other('POST', '/tables/notes/data', { body: {} }))
    expectOk(
      await first.call('PUT', `/workspaces/${service.workspaceId}/quota`, {
        body: { bytesMax: 0 },
      }),
    )
    await second.sessions.quotas.refresh()
    expectRefused(await other('POST', '/tables/notes/data', { body: {} }))
  })
})

describe('the default quota', () => {
  it('is for workspaces that have none of their own', async () => {
    const limited = await createTestService({ workspaceBytesMax: 0 })
    try {
      const own = await createTables(limited, 'shop', TABLES)
      expectRefused(await own('POST', '/tables/notes/data', { body: {} }))
      const path = `/workspaces/${limited.workspaceId}/quota`
      expectOk(await limited.call('PUT', path, { body: { bytesMax: 1_000_000 } }))
      expectOk(await own('POST', '/tables/notes/data', { body: {} }))
      expect((await limited.call('PUT', path, { body: { bytesMax: null } })).body.bytesMax).toBe(0)
      expectRefused(await own('POST', '/tables/notes/data', { body: {} }))
    } finally {
      await limited.close()
    }
  })
})
