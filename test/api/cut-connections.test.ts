import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import S3rver from 's3rver'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { S3Store } from '../../packages/server/src/blobs/s3-store.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { CuttingProxy } from '../support/cutting-proxy.js'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { until } from '../support/process.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Connections to PostgreSQL and to the file store are reset in the middle of a transfer. Vitest fails on
 * every unhandled rejection and every uncaught exception.
 */

let database: TestDatabase
let folder: string
let store: InstanceType<typeof S3rver>
let toPostgres: CuttingProxy
let toStore: CuttingProxy
let service: TestService
let call: BranchCall

beforeAll(async () => {
  database = await createTestDatabase({ copiesCatalogue: true })
  const url = new URL(database.url)
  toPostgres = await CuttingProxy.start(postgresAddress(url))
  url.hostname = '127.0.0.1'
  url.port = String(toPostgres.port)
  url.searchParams.delete('host')
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-files-'))
  store = new S3rver({
    directory: path.join(folder, 's3'),
    address: '127.0.0.1',
    port: 0,
    silent: true,
    configureBuckets: [{ name: 'files', configs: [] }],
  })
  const { port } = await store.run()
  toStore = await CuttingProxy.start({ host: '127.0.0.1', port })
  const blobs = new S3Store({
    endpoint: `http://127.0.0.1:${toStore.port}`,
    region: 'us-east-1',
    bucket: 'files',
    prefix: 'of/tests/',
    keyId: 'S3RVER',
    secret: 'S3RVER',
    spoolFolder: path.join(folder, 'incoming'),
  })
  await blobs.prepare()
  service = await createTestService({ url: url.href, blobs })
  call = await createTables(service, 'shop', {
    notes: [
      { name: 'text', type: 'text' },
      { name: 'photo', type: 'file' },
    ],
    plain: [{ name: 'text', type: 'text' }],
  })
})
afterEach(() => {
  toPostgres.heal()
  toStore.heal()
})
afterAll(async () => {
  await service.close()
  await toPostgres.close()
  await toStore.close()
  await store.close()
  await rm(folder, { recursive: true, force: true })
  await database.close()
})

function postgresAddress(url: URL) {
  const port = Number(url.port || 5432)
  const socketFolder = url.searchParams.get('host')
  return socketFolder === null
    ? { host: url.hostname, port }
    : { path: path.join(socketFolder, `.s.PGSQL.${port}`) }
}

async function countOf(table: string): Promise<number> {
  const body = { summaries: { all: { count: '*' } } }
  const answer = expectOk(await call('POST', `/tables/${table}/summarize`, { body }))
  return Number(answer.body.summaries[0]?.all ?? 0)
}

function expectUnavailable({ status, body }: Answer): void {
  expect({ status, body }).toMatchObject({
    status: 503,
    body: { code: expect.any(String), message: expect.any(String) },
  })
  expect(body.message).not.toMatch(/ECONN|socket|internal/i)
}

const TEXT = 'x'.repeat(1000)
const RECORDS = 3000
const CUT_BYTES = 1_000_000
const NDJSON = { 'content-type': 'application/x-ndjson' }
const lines = `${JSON.stringify({ text: TEXT })}\n`.repeat(RECORDS)

describe('a connection to PostgreSQL that is cut in the middle of a COPY', () => {
  it.each([
    ['a bulk insert', '', { records: Array.from({ length: RECORDS }, () => ({ text: TEXT })) }],
    ['an atomic stream', '?mode=atomic', lines],
  ])('makes %s fail as a whole, and the next one succeeds', async (_name, query, body) => {
    const before = await countOf('plain')
    const headers = typeof body === 'string' ? NDJSON : {}
    const insert = () => call('POST', `/tables/plain/bulk${query}`, { body, headers })
    const { cuts } = toPostgres
    toPostgres.cutAfter('request', CUT_BYTES)
    expectUnavailable(await insert())
    expect(toPostgres.cuts).toBeGreaterThan(cuts)
    toPostgres.heal()
    expect(await countOf('plain')).toBe(before)
    expectOk(await insert())
    expect(await countOf('plain')).toBe(before + RECORDS)
    await until(async () => {
      const [streams] = await service.database.query<{ count: string }>(sql`
        select count(*) as count from offshoot_work.spares where definition = 'layer'`)
      return Number(streams?.count) === 0
    })
  })

  it('ends a partial stream after whole batches', async () => {
    const before = await countOf('plain')
    toPostgres.cutAfter('request', CUT_BYTES)
    expectUnavailable(
      await call('POST', '/tables/plain/bulk?mode=partial', { body: lines, headers: NDJSON }),
    )
    toPostgres.heal()
    expect((await countOf('plain')) - before).toBeLessThan(RECORDS)
  })

  it('makes a query fail while its rows are read', async () => {
    const read = () => call('POST', '/tables/plain/query', { body: { page: { size: 1000 } } })
    toPostgres.cutAfter('response', CUT_BYTES / 2)
    expectUnavailable(await read())
    toPostgres.heal()
    expectOk(await read())
  })
})

describe('a connection to the file store that is reset', () => {
  const CONTENT = Buffer.alloc(500_000, 'content')
  const photo = (mark: string) => ({
    name: 'x.txt',
    mediaType: 'text/plain',
    base64Content: Buffer.concat([Buffer.from(mark), CONTENT]).toString('base64'),
  })
  const isThere = async (id: string) =>
    (await call('GET', `/tables/notes/data/${id}`)).status === 200

  it.each([
    ['at once', 'request', 0],
    ['in the middle of the content', 'request', 200_000],
    ['before the answer', 'response', 0],
  ] as const)('%s makes a record with a file fail, and stores nothing', async (name, at, bytes) => {
    const write = (id: string) =>
      call('PUT', `/tables/notes/data/${id}`, { body: { text: 'a', photo: photo(name) } })
    toStore.cutAfter(at, bytes)
    const id = `cut_${bytes}_${at}`
    expectUnavailable(await write(id))
    expect(await isThere(id)).toBe(false)
    toStore.heal()
    expectOk(await write(id))
  })

  it('in the middle makes the upload of a content fail, and keeps the earlier one', async () => {
    expectOk(await call('PUT', '/tables/notes/data/kept', { body: { photo: photo('kept') } }))
    const url = '/tables/notes/data/kept/column/photo/file'
    const headers = { 'content-type': 'text/plain' }
    toStore.cutAfter('request', 200_000)
    expectUnavailable(await call('PUT', url, { body: 'y'.repeat(400_000), headers }))
    toStore.heal()
    const { body } = expectOk(await call('GET', url))
    expect(String(body).startsWith('kept')).toBe(true)
  })

  it.each([
    ['before the content', 0],
    ['in the middle of the content', 200_000],
  ])('%s makes a record with the content of its file fail', async (_name, bytes) => {
    expectOk(await call('PUT', '/tables/notes/data/read', { body: { photo: photo('read') } }))
    const read = () => call('GET', '/tables/notes/data/read?columns=photo.base64Content')
    toStore.cutAfter('response', bytes)
    expectUnavailable(await read())
    toStore.heal()
    expectOk(await read())
  })
})
