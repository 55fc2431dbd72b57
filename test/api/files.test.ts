import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { LIMITS } from '@offshoot/contract/limits'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkBlobs, collectBlobs } from '../../packages/server/src/data/files/collect.js'
import { renewLinkKeys } from '../../packages/server/src/data/files/links.js'
import {
  runTransaction,
  type Transaction,
} from '../../packages/server/src/postgres/run-transaction.js'
import { ident, sql } from '../../packages/server/src/postgres/sql.js'
import { MentionedContents } from '../../packages/server/src/rows/files.js'
import { openLocalStore, openS3Store, type TestStore } from '../support/file-store.js'
import { withinLifetime } from '../support/lifetime.js'
import { createDatabase, createKey, createUser, createWorkspace } from '../support/people.js'
import { until } from '../support/process.js'
import { LONG } from '../support/random.js'
import { createTestService, type TestService } from '../support/service.js'
import {
  addTables,
  type BranchCall,
  branchCall,
  createTables,
  expectOk,
} from '../support/tables.js'

const FILE_BYTES_MAX = 3_000_000

let service: TestService
let call: BranchCall

function useService(openStore: () => Promise<TestStore>): void {
  let store: TestStore
  beforeAll(async () => {
    store = await openStore()
    const limits = { fileBytesMax: FILE_BYTES_MAX }
    service = await createTestService({ limits, blobs: store.blobs })
    call = await createTables(service, 'shop', TABLES)
  })
  afterAll(async () => {
    await service.close()
    await store.close()
  })
}

const TABLES = {
  people: [
    { name: 'name', type: 'string' as const },
    { name: 'photo', type: 'file' as const },
    { name: 'papers', type: 'file[]' as const },
    { name: 'open', type: 'file' as const, file: { defaultPublicAccess: true } },
    { name: 'chief', type: 'link' as const, link: { table: 'people' } },
  ],
}

const base64 = (content: string | Buffer) => Buffer.from(content).toString('base64')
const hashOf = (content: Buffer) => createHash('sha256').update(content).digest('hex')
const base = (name = 'shop:main') => `${service.workspace}/db/${name}`
const filePath = (id: string, column = 'photo', rest = '') =>
  `/tables/people/data/${id}/column/${column}/file${rest}`

/** The header of a PNG of 3 by 2 pixels; nothing after it is read. */
const PNG = Buffer.concat([
  Buffer.from('\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x03\0\0\0\x02', 'latin1'),
  Buffer.alloc(20),
])

interface Raw {
  readonly status: number
  readonly body: Buffer
  readonly headers: Record<string, string | string[] | number | undefined>
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  json(): any
}

/** Sends a request whose body and answer are bytes. */
async function raw(
  method: 'GET' | 'PUT' | 'DELETE' | 'HEAD',
  url: string,
  options: { body?: Buffer; headers?: Record<string, string>; key?: string | null } = {},
): Promise<Raw> {
  const { key = service.key } = options
  const response = await service.app.inject({
    method,
    url,
    headers: {
      ...(key === null ? {} : { authorization: `Bearer ${key}` }),
      ...options.headers,
    },
    ...(options.body === undefined ? {} : { payload: options.body }),
  })
  return {
    status: response.statusCode,
    body: response.rawPayload,
    headers: response.headers,
    json: () => response.json(),
  }
}

const put = (id: string, body: Buffer, type = 'text/plain', column = 'photo', rest = '') =>
  raw('PUT', `${base()}${filePath(id, column, rest)}`, { body, headers: { 'content-type': type } })
const get = (id: string, headers: Record<string, string> = {}, column = 'photo', rest = '') =>
  raw('GET', `${base()}${filePath(id, column, rest)}`, { headers })

async function create(record: object = {}): Promise<string> {
  return expectOk(await call('POST', '/tables/people/data', { body: record })).body.id
}
const read = async (id: string, columns = '*') =>
  expectOk(await call('GET', `/tables/people/data/${id}?columns=${columns}`)).body
const patch = (id: string, body: object) =>
  call('PATCH', `/tables/people/data/${id}?columns=*`, { body })

/** Follows a link as a browser does, without an API key. */
const follow = (url: string, headers: Record<string, string> = {}) => {
  const { pathname, search } = new URL(url)
  return raw('GET', `${pathname}${search}`, { headers, key: null })
}
async function listen(): Promise<AddressInfo> {
  if (!service.app.server.listening) await service.app.listen({ port: 0, host: '127.0.0.1' })
  return service.app.server.address() as AddressInfo
}

async function countBlobs(): Promise<number> {
  const [row] = await service.database.query<{ count: number }>(sql`
    select count(*)::integer as count from offshoot.blobs`)
  let stored = 0
  for await (const _ of service.files.blobs.list()) stored++
  expect(stored).toBe(row?.count)
  return stored
}

const LOCAL = ['a local folder', openLocalStore] as const
const S3 = ['an S3-compatible store', openS3Store] as const

// Both stores do the same by the tests beside them, so the short form needs one of them here.
describe.each(LONG ? [LOCAL, S3] : [LOCAL])('in %s', (_name, openStore) => {
  useService(openStore)

  describe('files in records', () => {
    it('are stored with what is known about them', async () => {
      const content = PNG
      const id = await create({
        photo: { name: 'ada.png', base64Content: base64(content) },
        papers: [
          { name: 'a.txt', mediaType: 'text/plain', base64Content: base64('one') },
          { id: 'second', base64Content: base64('two'), enablePublicUrl: true },
          {},
        ],
        open: { name: '', base64Content: '', signedUrlTimeout: 5, uploadUrlTimeout: 6 },
      })
      const record = await read(id)
      expect(record.photo).toEqual({
        name: 'ada.png',
        mediaType: 'image/png',
        size: content.length,
        version: 0,
        url: expect.stringMatching(/^http:\/\/localhost:80\/file\/[\w-]+$/),
        enablePublicUrl: false,
        signedUrlTimeout: 60,
        uploadUrlTimeout: 86_400,
        attributes: { width: 3, height: 2 },
      })
      expect(record.papers).toMatchObject([
        { id: expect.stringMatching(/^file_/), name: 'a.txt', mediaType: 'text/plain', size: 3 },
        { id: 'second', name: '', mediaType: 'application/octet-stream', enablePublicUrl: true },
        { name: '', size: 0, attributes: {} },
      ])
      expect(record.open).toMatchObject({
        enablePublicUrl: true,
        signedUrlTimeout: 5,
        uploadUrlTimeout: 6,
        size: 0,
      })
      expect((await get(id)).body).toEqual(content)
      expect((await get(id, {}, 'papers', '/second')).body.toString()).toBe('two')
    })

    it('show content and links only when these are named', async () => {
      const id = await create({
        photo: { name: 'a.txt', base64Content: base64('hello') },
        papers: [{ base64Content: base64('one') }],
      })
      const all = await read(id)
      for (const field of ['base64Content', 'signedUrl', 'uploadUrl', 'key', 'sha256']) {
        expect(all.photo).not.toHaveProperty(field)
        expect(all.papers[0]).not.toHaveProperty(field)
      }
      const named = await read(id, 'photo.base64Content,papers.base64Content,papers.size')
      expect(named.photo).toEqual({ base64Content: base64('hello') })
      expect(named.papers).toEqual([{ base64Content: base64('one'), size: 3 }])
      const links = await read(id, 'photo.*,photo.signedUrl,photo.uploadUrl')
      expect(links.photo.url).toBe(all.photo.url)
      expect(links.photo.signedUrl).toContain(`${all.photo.url}?verify=`)
      expect(links.photo.uploadUrl).toContain(`${all.photo.url}?verify=`)
      const unknown = await call('GET', `/tables/people/data/${id}?columns=photo.nothing`)
      expect(unknown.status).toBe(400)
      expect(unknown.body.message).toContain('column [photo.nothing]: column not found')
    })

    it('are found by a query with their content, also through reverse links', async () => {
      const id = await create({ photo: { name: 'a', base64Content: base64('hello') } })
      await create({ chief: id, papers: [{ base64Content: base64('one') }] })
      await create({ chief: id, papers: [{ base64Content: base64('two') }] })
      const linking = { name: '<-people.chief', as: 'team', columns: ['papers.base64Content'] }
      const answer = await call('POST', '/tables/people/query', {
        body: { filter: { id }, columns: ['photo.base64Content', linking] },
      })
      const [found] = expectOk(answer).body.records
      expect(found.photo).toEqual({ base64Content: base64('hello') })
      const papers = found.team.records.map((record: { papers: unknown }) => record.papers)
      expect(papers).toHaveLength(2)
      expect(papers).toContainEqual([{ base64Content: base64('one') }])
      expect(papers).toContainEqual([{ base64Content: base64('two') }])
    })

    it('are read with their content in a transaction, and refused when written there', async () => {
      const id = await create({ photo: { name: 'a', base64Content: base64('hello') } })
      const columns = ['photo.base64Content', 'photo.name']
      const answer = await call('POST', '/transaction', {
        body: { operations: [{ get: { table: 'people', id, columns } }] },
      })
      expect(answer.body.results[0].columns.photo).toEqual({
        name: 'a',
        base64Content: base64('hello'),
      })
      const record = { photo: { name: 'a' }, papers: [{}] }
      const refused = await call('POST', '/transaction', {
        body: { operations: [{ insert: { table: 'people', record } }] },
      })
      expect(refused.status).toBe(400)
      expect(refused.body.errors.map((fault: { message: string }) => fault.message)).toEqual([
        'column [photo]: file upload not permitted in transaction',
        'column [papers]: file entry [0]: file upload not permitted in transaction',
      ])
    })

    it('are an empty list when there were never any, which can be sent back', async () => {
      const id = await create({ name: 'None' })
      const record = await read(id)
      expect(record).toMatchObject({ name: 'None', papers: [] })
      expect('photo' in record).toBe(false)
      const body = { filter: { id }, columns: ['papers.name', 'chief.*'] }
      const found = await call('POST', '/tables/people/query', { body })
      expect(expectOk(found).body.records).toMatchObject([{ id, papers: [] }])
      const fields = { photo: null, papers: record.papers }
      const operations = [
        { update: { table: 'people', id, fields, columns: ['papers'] } },
        { insert: { table: 'people', record: { ...record, id: `${id}_2` }, columns: ['papers'] } },
        { get: { table: 'people', id, columns: ['papers'] } },
      ]
      const answer = await call('POST', '/transaction', { body: { operations } })
      expect(expectOk(answer).body.results).toMatchObject(
        operations.map(() => ({ columns: { papers: [] } })),
      )
      const full = await create({ papers: [{ base64Content: base64('gone') }] })
      const emptied = { update: { table: 'people', id: full, fields: { papers: [] } } }
      expectOk(await call('POST', '/transaction', { body: { operations: [emptied] } }))
      expect((await read(full)).papers).toEqual([])
    })

    it('take part in bulk inserts, of JSON and of lines', async () => {
      const contents = Array.from({ length: 5 }, () => randomBytes(100_000))
      const records = contents.map((content, number) => ({
        id: `bulk_${number}`,
        photo: { name: `${number}.bin`, base64Content: base64(content) },
        papers: [{ base64Content: base64(content) }],
      }))
      const inserted = await call('POST', '/tables/people/bulk?columns=photo.name', {
        body: { records },
      })
      expect(inserted.body.records.map((record: { photo: object }) => record.photo)).toEqual(
        records.map(({ photo }) => ({ name: photo.name })),
      )
      const lines = records.map((record) => JSON.stringify({ ...record, id: `line_${record.id}` }))
      const streamed = await call('POST', '/tables/people/bulk', {
        body: lines.join('\n'),
        headers: { 'content-type': 'application/x-ndjson' },
      })
      expect(streamed.body).toEqual({ inserted: 5, failed: 0, errors: [] })
      for (const [number, content] of contents.entries()) {
        expect(content.equals((await get(`bulk_${number}`)).body)).toBe(true)
        expect(content.equals((await get(`line_bulk_${number}`)).body)).toBe(true)
      }
    })

    it('of refused lines are left out, and those of the others are kept', async () => {
      const contents = Array.from({ length: 4 }, () => randomBytes(3_000_000))
      const lines = contents.map((content, number) => ({
        id: `partial_${number}`,
        name: number === 1 ? 5 : 'x',
        photo: { name: 'a', base64Content: base64(content) },
      }))
      const insert = (mode: string) =>
        call('POST', `/tables/people/bulk?mode=${mode}`, {
          body: lines.map((line) => JSON.stringify(line)).join('\n'),
          headers: { 'content-type': 'application/x-ndjson' },
        })
      expect((await insert('atomic')).status).toBe(400)
      expect((await get('partial_0')).status).toBe(404)
      const partial = await insert('partial')
      expect(partial.body).toMatchObject({ inserted: 3, failed: 1, errors: [{ line: 2 }] })
      for (const [number, content] of contents.entries()) {
        const stored = await get(`partial_${number}`)
        if (number === 1) expect(stored.status).toBe(404)
        else expect(stored.headers.etag).toBe(`"${hashOf(content)}"`)
      }
      const [refused] = await service.database.query(sql`
      select 1 from offshoot.blobs where sha256 = ${Buffer.from(hashOf(contents[1] ?? PNG), 'hex')}`)
      expect(refused).toBeUndefined()
    })

    it('may be as long in a line as in any other request', async () => {
      const content = randomBytes(8 * 1024 * 1024)
      const record = { id: 'long_line', photo: { name: 'a', base64Content: base64(content) } }
      const answer = await call('POST', '/tables/people/bulk', {
        body: JSON.stringify(record),
        headers: { 'content-type': 'application/x-ndjson' },
      })
      expect(answer.body).toMatchObject({ inserted: 1 })
      expect((await get('long_line')).headers.etag).toBe(`"${hashOf(content)}"`)
    })

    it('may lack a name only if a Xata client sends them', async () => {
      const body = { photo: { base64Content: base64('hello') } }
      const headers = { 'x-xata-agent': 'client=TS_SDK' }
      const { id } = expectOk(await call('POST', '/tables/people/data', { body, headers })).body
      expect((await read(id)).photo).toMatchObject({ name: '', size: 5 })
      const refused = await call('POST', '/tables/people/data', { body })
      expect(refused).toMatchObject({
        status: 400,
        body: { message: 'invalid record: column [photo]: field [name]: is required' },
      })
    })

    it('are merged by an update, replaced by a replacement and deleted by null', async () => {
      const id = await create({ photo: { name: 'a.txt', base64Content: base64('hello') } })
      const first = (await read(id)).photo
      const merged = expectOk(await patch(id, { photo: { enablePublicUrl: true } })).body.photo
      expect(merged).toMatchObject({ name: 'a.txt', size: 5, version: 1, enablePublicUrl: true })
      expect(merged.url).not.toBe(first.url)
      expect((await get(id)).body.toString()).toBe('hello')
      const upserted = await call('POST', `/tables/people/data/${id}?columns=photo.*`, {
        body: { photo: { base64Content: base64('other') } },
      })
      expect(upserted.body.photo).toMatchObject({
        name: 'a.txt',
        version: 2,
        enablePublicUrl: true,
      })
      const replaced = await call('PUT', `/tables/people/data/${id}?columns=*`, {
        body: { photo: { name: 'b.txt' } },
      })
      expect(replaced.body.photo).toMatchObject({
        name: 'b.txt',
        size: 0,
        version: 3,
        enablePublicUrl: false,
      })
      expect((await get(id)).status).toBe(204)
      expect(expectOk(await patch(id, { photo: null })).body).not.toHaveProperty('photo')
      const created = await call('POST', '/tables/people/data/upserted?columns=photo.name', {
        body: { photo: { name: 'new', base64Content: '' } },
      })
      expect(created).toMatchObject({ status: 201, body: { photo: { name: 'new' } } })
    })

    it('of a list are replaced by the listed ones; known ids keep their content', async () => {
      const id = await create({
        papers: [
          { id: 'a', name: 'a', base64Content: base64('A') },
          { id: 'b', name: 'b', base64Content: base64('B') },
        ],
      })
      const [, second] = (await read(id)).papers
      const papers = [
        { ...second, name: 'renamed' },
        { id: 'c', base64Content: base64('C') },
      ]
      const changed = expectOk(await patch(id, { papers })).body.papers
      expect(changed).toMatchObject([
        { id: 'b', name: 'renamed', size: 1, version: 1 },
        { id: 'c', name: '', version: 0 },
      ])
      expect((await get(id, {}, 'papers', '/b')).body.toString()).toBe('B')
      expect((await get(id, {}, 'papers', '/a')).status).toBe(404)
      expect(expectOk(await patch(id, { papers: [] })).body.papers).toEqual([])
    })

    it('keep every one of many updates at the same time', async () => {
      const id = await create({ photo: { name: 'a', base64Content: base64('A') }, papers: [] })
      const answers = await Promise.all([
        ...Array.from({ length: 6 }, (_, n) => patch(id, { photo: { signedUrlTimeout: n + 1 } })),
        ...Array.from({ length: 6 }, (_, n) =>
          put(id, Buffer.from(`${n}`), 'text/plain', 'papers', '/'),
        ),
      ])
      expect(answers.map(({ status }) => status)).toEqual([
        ...Array(6).fill(200),
        ...Array(6).fill(201),
      ])
      const record = await read(id)
      expect(record.photo).toMatchObject({ version: 6, size: 1 })
      expect(record.papers).toHaveLength(6)
    })
  })

  describe('the bytes of a file', () => {
    it('are put and read at the address of the file', async () => {
      const id = await create()
      expect((await get(id)).status).toBe(204)
      const created = await put(id, Buffer.from('hello'), 'text/plain; charset=utf-8')
      expect(created.status).toBe(201)
      expect(created.json()).toMatchObject({
        name: '',
        mediaType: 'text/plain',
        size: 5,
        version: 0,
      })
      const replaced = await put(id, PNG, 'image/png')
      expect(replaced.status).toBe(200)
      expect(replaced.json()).toMatchObject({ version: 1, attributes: { width: 3, height: 2 } })
      const answer = await get(id)
      expect(answer).toMatchObject({ status: 200, body: PNG })
      expect(answer.headers).toMatchObject({
        'content-type': 'image/png',
        'content-length': String(PNG.length),
        'content-disposition': 'inline',
        'accept-ranges': 'bytes',
        etag: `"${hashOf(PNG)}"`,
        'x-content-type-options': 'nosniff',
      })
      const record = await read(id)
      expect(record.photo.url).toBe(replaced.json().url)
      expect(record.service.version).toBe(2)
      const deleted = await raw('DELETE', `${base()}${filePath(id)}`)
      expect(deleted.status).toBe(200)
      expect(deleted.json()).toEqual(replaced.json())
      expect(await read(id)).not.toHaveProperty('photo')
      const again = await raw('DELETE', `${base()}${filePath(id)}`)
      expect(again).toMatchObject({ status: 404 })
      expect(again.json().code).toBe('file_not_found')
    })

    it('have the type that their first bytes tell when nobody says it', async () => {
      const id = await create()
      const url = `${base()}${filePath(id)}`
      const answer = await raw('PUT', url, { body: Buffer.from('%PDF-1.7') })
      expect(answer.json().mediaType).toBe('application/pdf')
      const unknown = await raw('PUT', url, { body: Buffer.from('something') })
      expect(unknown.json().mediaType).toBe('application/octet-stream')
      for (const type of ['', ' ', ';charset=utf-8']) {
        const untyped = await put(id, Buffer.from('%PDF-1.7'), type)
        expect(untyped.json().mediaType).toBe('application/pdf')
      }
    })

    it('may be none', async () => {
      const id = await create()
      expect((await put(id, Buffer.alloc(0))).json()).toMatchObject({ size: 0 })
      expect((await get(id)).status).toBe(204)
    })

    it('of a list are named by an id; without one they are added', async () => {
      const id = await create()
      const added = await put(id, Buffer.from('one'), 'text/plain', 'papers', '/')
      expect(added.status).toBe(201)
      const fileId = added.json().id
      expect(fileId).toMatch(/^file_/)
      expect((await put(id, Buffer.from('two'), 'text/plain', 'papers', '/mine')).status).toBe(201)
      expect((await put(id, Buffer.from('three'), 'text/plain', 'papers', '/mine')).status).toBe(
        200,
      )
      expect((await get(id, {}, 'papers', `/${fileId}`)).body.toString()).toBe('one')
      expect((await get(id, {}, 'papers', '/mine')).body.toString()).toBe('three')
      expect((await get(id, {}, 'papers')).status).toBe(400)
      expect((await get(id, {}, 'papers', '/')).status).toBe(400)
      expect((await get(id, {}, 'papers', '/other')).status).toBe(404)
      const deleted = await raw('DELETE', `${base()}${filePath(id, 'papers', '/mine')}`)
      expect(deleted.json()).toMatchObject({ id: 'mine', version: 1 })
      expect((await read(id)).papers).toMatchObject([{ id: fileId }])
    })

    it('of a single file are the same with an empty id', async () => {
      const id = await create()
      expect((await put(id, Buffer.from('x'), 'text/plain', 'photo', '/')).status).toBe(201)
      expect((await get(id, {}, 'photo', '/')).body.toString()).toBe('x')
      expect((await get(id, {}, 'photo', '/some')).status).toBe(404)
      expect((await put(id, Buffer.from('x'), 'text/plain', 'photo', '/some')).status).toBe(404)
    })

    it.each([
      ['bytes=0-0', 206, 'a', 'bytes 0-0/10'],
      ['bytes=2-4', 206, 'cde', 'bytes 2-4/10'],
      ['bytes=7-', 206, 'hij', 'bytes 7-9/10'],
      ['bytes=-2', 206, 'ij', 'bytes 8-9/10'],
      ['bytes=-99', 206, 'abcdefghij', 'bytes 0-9/10'],
      ['bytes=8-99', 206, 'ij', 'bytes 8-9/10'],
      ['bytes=10-', 416, undefined, 'bytes */10'],
      ['bytes=-0', 416, undefined, 'bytes */10'],
      ['bytes=4-2', 200, 'abcdefghij', undefined],
      ['bytes=0-1,4-5', 200, 'abcdefghij', undefined],
      ['lines=0-1', 200, 'abcdefghij', undefined],
    ])('are sent in part: %s', async (range, status, content, contentRange) => {
      const id = await create({ photo: { name: 'a', base64Content: base64('abcdefghij') } })
      const answer = await get(id, { range })
      expect(answer.status).toBe(status)
      expect(answer.headers['content-range']).toBe(contentRange)
      if (content === undefined) expect(answer.json().code).toBe('range_not_satisfiable')
      else expect(answer.body.toString()).toBe(content)
    })

    it('are not sent again to those who have them', async () => {
      const id = await create({ photo: { name: 'a', base64Content: base64('abcdefghij') } })
      const etag = String((await get(id)).headers.etag)
      for (const header of [etag, `W/${etag}`, `"x", ${etag}`, '*']) {
        const answer = await get(id, { 'if-none-match': header })
        expect(answer).toMatchObject({ status: 304, body: Buffer.alloc(0) })
      }
      expect((await get(id, { 'if-none-match': '"x"' })).status).toBe(200)
      expect((await get(id, { range: 'bytes=1-2', 'if-range': etag })).status).toBe(206)
      expect((await get(id, { range: 'bytes=1-2', 'if-range': '"x"' })).status).toBe(200)
      const head = await raw('HEAD', `${base()}${filePath(id)}`)
      expect(head).toMatchObject({ status: 200, body: Buffer.alloc(0) })
      expect(head.headers).toMatchObject({ 'content-length': '10', etag })
    })

    it('are refused beyond the limit and taken up to it', async () => {
      const id = await create()
      const before = await countBlobs()
      const over = await put(id, Buffer.alloc(FILE_BYTES_MAX + 1))
      expect(over.status).toBe(413)
      expect(over.json()).toMatchObject({
        code: 'payload_too_large',
        message: `the file is larger than ${FILE_BYTES_MAX} bytes`,
      })
      expect(await countBlobs()).toBe(before)
      expect((await put(id, Buffer.alloc(FILE_BYTES_MAX))).status).toBe(201)
      const { port } = await listen()
      const response = await fetch(`http://127.0.0.1:${port}${base()}${filePath(id)}`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${service.key}` },
        // A stream has no content-length.
        body: ReadableStream.from(Array.from({ length: 40 }, () => Buffer.alloc(100_000))),
        duplex: 'half',
      } as RequestInit)
      expect(response.status).toBe(413)
      expect(await response.json()).toMatchObject({ code: 'payload_too_large' })
      expect(await countBlobs()).toBe(before + 1)
    })

    it.each([
      ['an unknown table', '/tables/none/data/a/column/photo/file', 404, 'table_not_found'],
      ['an unknown column', '/tables/people/data/a/column/none/file', 404, 'column_not_found'],
      [
        'a column of another type',
        '/tables/people/data/a/column/name/file',
        400,
        'invalid_request',
      ],
      ['an unknown record', '/tables/people/data/none/column/photo/file', 404, 'record_not_found'],
    ])('are refused at the address of %s', async (_name, path, status, code) => {
      for (const method of ['GET', 'PUT', 'DELETE'] as const) {
        const body = method === 'PUT' ? { body: Buffer.from('x') } : {}
        const answer = await raw(method, `${base()}${path}`, body)
        expect(answer.status).toBe(status)
        expect(answer.json().code).toBe(code)
      }
    })

    it('are refused with a media type that is none', async () => {
      const id = await create()
      for (const type of ['x/y!z', 'text', 'text/', '/plain', 'a b/c']) {
        const answer = await put(id, Buffer.from('x'), type)
        expect(answer.status).toBe(400)
        expect(answer.json().message).toContain('header [Content-Type]: must match')
      }
    })

    it('cannot be put with a key that may only read, nor be given to others to put', async () => {
      const id = await create({ photo: { name: 'a' } })
      const key = await createKey(service, 'reader', { fields: { scope: { access: 'read' } } })
      const url = `${base()}${filePath(id)}`
      expect((await raw('PUT', url, { body: Buffer.from('x'), key })).status).toBe(403)
      expect((await raw('DELETE', url, { key })).status).toBe(403)
      const record = await call(
        'GET',
        `/tables/people/data/${id}?columns=photo.uploadUrl,photo.name`,
        {
          key,
        },
      )
      expect(record.body.photo).toEqual({ name: 'a' })
    })

    it('that break off leave nothing', async () => {
      const id = await create()
      const before = await countBlobs()
      const { port } = await listen()
      const accepted = once(service.app.server, 'connection')
      const socket = connect(port, '127.0.0.1')
      const [connection] = (await accepted) as [Socket]
      socket.write(
        `PUT ${base()}${filePath(id)} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${service.key}\r\n` +
          'content-length: 2000000\r\n\r\n',
      )
      socket.write(Buffer.alloc(1_500_000))
      await until(async () => connection.bytesRead > 1_000_000)
      socket.destroy()
      await until(async () => connection.destroyed)
      expect(await countBlobs()).toBe(before)
      expect(await read(id)).not.toHaveProperty('photo')
    })
  })

  describe('branches', () => {
    it('share content, and neither sees what the other does to its files', async () => {
      const content = randomBytes(1000)
      const id = await create({ open: { name: 'a', base64Content: base64(content) } })
      const before = await countBlobs()
      expectOk(await service.call('PUT', `${base('shop:fork')}?from=main`))
      const fork = branchCall(service, 'shop', { branch: 'fork' })
      const forkUrl = `${base('shop:fork')}${filePath(id, 'open')}`
      expect((await raw('GET', forkUrl)).body).toEqual(content)
      expect(await countBlobs()).toBe(before)
      const main = (await read(id)).open
      const forked = (await fork('GET', `/tables/people/data/${id}`)).body.open
      expect(forked.url).not.toBe(main.url)
      const other = Buffer.from('other')
      expectOk((await raw('PUT', forkUrl, { body: other })) as never)
      expect((await follow(main.url)).body).toEqual(content)
      const changed = (await fork('GET', `/tables/people/data/${id}`)).body.open
      expect((await follow(changed.url)).body).toEqual(other)
      expectOk(await patch(id, { open: null }))
      expect((await raw('GET', forkUrl)).body).toEqual(other)
    })
  })

  describe('content that nobody mentions', () => {
    const NOW = { graceSeconds: 0, recheckSeconds: 0 }
    const collect = async (times = NOW) => {
      while (await checkBlobs(service.database, times)) {
        // Repeat until no content is due for a check.
      }
      const context = { database: service.database, blobs: service.files.blobs }
      while (await collectBlobs(context, times)) {
        // Repeat until no unused content is left.
      }
    }
    const isStored = (content: Buffer) => service.files.blobs.has(hashOf(content))

    it('is removed, and what a row of any branch mentions is not, present or past', async () => {
      const [used, dropped, past, listed] = Array.from({ length: 4 }, () => randomBytes(100))
      if (!used || !dropped || !past || !listed) throw new Error('four contents are needed')
      const id = await create({
        photo: { name: 'a', base64Content: base64(used) },
        papers: [{ base64Content: base64(listed) }],
      })
      const gone = await create({ photo: { name: 'a', base64Content: base64(dropped) } })
      const seen = await create({ photo: { name: 'a', base64Content: base64(past) } })
      expectOk(await service.call('PUT', `${base('shop:keeper')}?from=main`))
      // The fork still sees the content of `seen`, so it is kept. No branch sees that of `later`
      // any more.
      expectOk(await patch(seen, { photo: null }))
      const later = await create({ photo: { name: 'a', base64Content: base64(dropped) } })
      for (const record of [gone, later]) {
        expectOk(await call('DELETE', `/tables/people/data/${record}`))
      }
      expectOk(
        await branchCall(service, 'shop', { branch: 'keeper' })(
          'DELETE',
          `/tables/people/data/${gone}`,
        ),
      )
      await collect({ graceSeconds: 3600, recheckSeconds: 0 })
      expect(await isStored(dropped)).toBe(true)
      await collect()
      expect(await isStored(used)).toBe(true)
      expect(await isStored(listed)).toBe(true)
      expect(await isStored(past)).toBe(true)
      expect((await get(id)).body).toEqual(used)
    })

    it('is looked for without holding on to the heaps, of which some may be gone', async () => {
      const content = randomBytes(100)
      const record = { photo: { name: 'a', base64Content: base64(content) } }
      for (const name of ['holder1', 'holder2']) {
        expectOk(await service.call('PUT', `${base(`shop:${name}`)}?from=main`))
        const fork = branchCall(service, 'shop', { branch: name })
        expectOk(await fork('POST', '/tables/people/data', { body: record }))
      }
      const look = async (transaction: Transaction) => {
        await transaction.query(sql`
          insert into offshoot.heaps (database_id, branch_id, table_id, column_ids, file_column_ids)
          values (0, 'gone', 1, '{1}', '{1}')`)
        const hashes = [hashOf(content), hashOf(randomBytes(100))]
        expect(await new MentionedContents(transaction).find(hashes)).toEqual(
          new Set([hashOf(content)]),
        )
        const locks = await transaction.query(sql`
          select from pg_locks l
          join pg_class c on c.oid = l.relation
          where l.pid = pg_backend_pid() and c.relname ~ '^(heap|past)_'
            -- Those of earlier transactions of the connection stay while others overlap with them.
            and l.mode <> 'SIReadLock'`)
        expect(locks).toEqual([])
        await transaction.query(sql`delete from offshoot.heaps where branch_id = 'gone'`)
      }
      await runTransaction(service.database, look, { isolation: 'read committed' })
    })

    it('is looked for in slices of heaps, and none is removed if a heap cannot be searched', async () => {
      const [used, unused] = [randomBytes(100), randomBytes(100)]
      const id = await create({ photo: { name: 'a', base64Content: base64(used) } })
      const gone = await create({ photo: { name: 'a', base64Content: base64(unused) } })
      expectOk(await call('DELETE', `/tables/people/data/${gone}`))
      for (const name of ['slice1', 'slice2']) {
        expectOk(await service.call('PUT', `${base(`shop:${name}`)}?from=main`))
        const fork = branchCall(service, 'shop', { branch: name })
        expectOk(await fork('POST', '/tables/people/data', { body: {} }))
      }
      const check = async (): Promise<number> => {
        let steps = 1
        while (await checkBlobs(service.database, NOW, { heapsMax: 1 })) steps++
        return steps
      }
      const isUnused = async (content: Buffer) => {
        const [row] = await service.database.query<{ isUnused: boolean }>(sql`
          select unused_since is not null as "isUnused"
          from offshoot.blobs
          where sha256 = ${Buffer.from(hashOf(content), 'hex')}`)
        return row?.isUnused
      }
      // The first heap of all belongs to `main`.
      const [heap] = await service.database.query<{
        id: string
        schema: string
        columnId: string
      }>(sql`
        select id, 'offshoot_db_' || database_id as schema, file_column_ids[1] as "columnId"
        from offshoot.heaps
        where file_column_ids <> '{}'
        order by id
        limit 1`)
      const table = sql`${ident(heap?.schema ?? '')}.${ident(`heap_${heap?.id}`)}`
      const [column, away] = [ident(`c${heap?.columnId}`), ident('away')]
      await service.database.query(sql`alter table ${table} rename column ${column} to ${away}`)
      try {
        expect(await check()).toBeGreaterThan(3)
        expect(await isUnused(used)).toBe(false)
        expect(await isUnused(unused)).toBe(false)
      } finally {
        await service.database.query(sql`alter table ${table} rename column ${away} to ${column}`)
      }
      await check()
      expect(await isUnused(used)).toBe(false)
      expect(await isUnused(unused)).toBe(true)
      expect((await get(id)).body).toEqual(used)
    })

    it('is removed only after the pause, and not when it was put again', async () => {
      const content = randomBytes(100)
      const id = await create({ photo: { name: 'a', base64Content: base64(content) } })
      expectOk(await patch(id, { photo: { base64Content: base64('x') } }))
      await checkBlobs(service.database, NOW)
      const again = await create({ photo: { name: 'a', base64Content: base64(content) } })
      await collect()
      expect((await get(again)).body).toEqual(content)
      expectOk(await patch(again, { photo: null }))
      await collect()
      expect(await isStored(content)).toBe(false)
      const third = await create({ photo: { name: 'a', base64Content: base64(content) } })
      expect((await get(third)).body).toEqual(content)
    })
  })
})

describe('a file that is changed while its record is created anew', () => {
  /** Called once, between reading the files of a record and writing it. */
  let meanwhile: (() => Promise<void>) | undefined

  useService(async () => {
    const store = await openLocalStore()
    const put = store.blobs.put.bind(store.blobs)
    store.blobs.put = async (source, options) => {
      const run = meanwhile
      meanwhile = undefined
      await run?.()
      return put(source, options)
    }
    return store
  })

  it.each([
    ['PATCH', ''],
    ['PATCH', '?ifVersion=0'],
    ['POST', ''],
  ])('by %s %s belongs to the new record', async (method, query) => {
    const path = '/tables/people/data/anew'
    const create = async (name: string) => {
      const photo = { name, base64Content: base64(name), enablePublicUrl: name === 'old' }
      expectOk(await call('PUT', path, { body: { photo, papers: [] } }))
    }
    await create('old')
    meanwhile = async () => {
      expectOk(await call('DELETE', path))
      await create('new')
    }
    const body = { photo: { base64Content: base64(`${method} ${query}`) } }
    const changed = expectOk(await call(method, `${path}${query}`, { body })).body
    expect(meanwhile).toBeUndefined()
    expect(changed.service.version).toBe(1)
    const { photo } = (await call('GET', path)).body
    expect(photo).toMatchObject({ name: 'new', enablePublicUrl: false, version: 1 })
    expectOk(await call('DELETE', path))
  })
})

describe('files that do not fit', () => {
  useService(openLocalStore)

  const long = (length: number) => 'a'.repeat(length)
  const cases: [string, object, string][] = [
    ['no object', { photo: 'x' }, 'column [photo]: expected an object, got a string'],
    ['a list for one file', { photo: [] }, 'column [photo]: expected an object, got an array'],
    ['one file for a list', { papers: {} }, 'column [papers]: expected an array, got an object'],
    ['no name', { photo: {} }, 'column [photo]: field [name]: is required'],
    ['an id', { photo: { name: 'a', id: 'x' } }, 'column [photo]: field [id]: is not known'],
    ['an unknown field', { photo: { name: 'a', x: 1 } }, 'column [photo]: field [x]: is not known'],
    ['a name with a slash', { photo: { name: 'a/b' } }, 'column [photo]: field [name]: must match'],
    [
      'a name that is too long',
      { photo: { name: long(LIMITS.fileNameLengthMax + 1) } },
      'column [photo]: field [name]: must have at most 1024 characters',
    ],
    [
      'a media type without a slash',
      { papers: [{}, { mediaType: 'text' }] },
      'column [papers]: file entry [1]: field [mediaType]: must match',
    ],
    [
      'an empty media type',
      { photo: { name: 'a', mediaType: '' } },
      'column [photo]: field [mediaType]: must have at least 3 characters',
    ],
    [
      'a media type that is too short',
      { papers: [{ mediaType: 'a/' }] },
      'column [papers]: file entry [0]: field [mediaType]: must have at least 3 characters',
    ],
    [
      'a media type that is too long',
      { papers: [{ mediaType: `a/${long(254)}` }] },
      'column [papers]: file entry [0]: field [mediaType]: must have at most 255 characters',
    ],
    [
      'a media type with a line break',
      { photo: { name: 'a', mediaType: 'text/html\r\nx: y' } },
      'column [photo]: field [mediaType]: must match',
    ],
    ...['a', 'ab=', 'a===', '*aaa', 'ab\ncd===', 'YQ==YQ=='].map(
      (text): [string, object, string] => [
        `no base64: ${JSON.stringify(text)}`,
        { papers: [{}, {}, {}, { base64Content: text }] },
        'column [papers]: file entry [3]: field [base64Content]: is not valid base64',
      ],
    ),
    [
      'base64 that is too long',
      { photo: { name: 'a', base64Content: long(LIMITS.base64LengthMax + 4) } },
      'column [photo]: field [base64Content]: must have at most 20971520 characters',
    ],
    [
      'one file too many',
      { papers: Array(LIMITS.filesPerArrayMax + 1).fill({}) },
      'column [papers]: file entry [50]: must have at most 50 files',
    ],
    [
      'an id twice',
      { papers: [{ id: 'a' }, { id: 'a' }] },
      'column [papers]: file entry [1]: field [id]: [a] is given twice',
    ],
    [
      'an id that is none',
      { papers: [{ id: '/' }] },
      'column [papers]: file entry [0]: field [id]: must match',
    ],
    [
      'no boolean',
      { photo: { name: 'a', enablePublicUrl: 1 } },
      'column [photo]: field [enablePublicUrl]: expected a boolean, got a number',
    ],
    ...[0, 86_401, 1.5].map((seconds): [string, object, string] => [
      `a time of ${seconds} seconds`,
      { photo: { name: 'a', signedUrlTimeout: seconds } },
      'column [photo]: field [signedUrlTimeout]: must be a whole number of seconds from 1 to 86400',
    ]),
  ]

  it.each(cases)(
    'are refused by name and nothing is stored: %s',
    async (_name, record, message) => {
      const before = await countBlobs()
      const good = { photo: { name: 'ok', base64Content: base64(randomBytes(10)) } }
      const single = await call('POST', '/tables/people/data', {
        body: { id: 'refused', ...record },
      })
      expect(single.status).toBe(400)
      expect(single.body.message).toContain(`invalid record: ${message}`)
      const replaced = await call('PUT', '/tables/people/data/refused', { body: record })
      expect(replaced.status).toBe(400)
      const bulk = await call('POST', '/tables/people/bulk', {
        body: { records: [{ id: 'refused' }, { ...good, ...record }] },
      })
      expect(bulk.status).toBe(400)
      expect(bulk.body.errors).toMatchObject([{ index: 1, status: 400 }])
      expect(bulk.body.errors[0].message).toContain(message)
      expect((await call('GET', '/tables/people/data/refused')).status).toBe(404)
      expect(await countBlobs()).toBe(before)
    },
  )

  it('are taken up to the very limits', async () => {
    const id = await create({
      photo: {
        name: long(LIMITS.fileNameLengthMax),
        mediaType: `a/${long(253)}`,
        base64Content: 'A'.repeat(LIMITS.base64LengthMax),
        signedUrlTimeout: LIMITS.urlSecondsMax,
        uploadUrlTimeout: 1,
      },
      papers: Array(LIMITS.filesPerArrayMax).fill({ mediaType: 'a/b', name: "!-_.*'()" }),
    })
    const record = await read(id)
    expect(record.photo.size).toBe((LIMITS.base64LengthMax / 4) * 3)
    expect(record.papers).toHaveLength(50)
    const oneMore = await put(id, Buffer.from('x'), 'a/b', 'papers', '/')
    expect(oneMore.status).toBe(400)
    expect(oneMore.json().message).toContain('column [papers]: must have at most 50 files')
    const known = record.papers[0].id
    expect((await put(id, Buffer.from('x'), 'a/b', 'papers', `/${known}`)).status).toBe(200)
  })
})

describe('links', () => {
  useService(openLocalStore)

  const withLinks = (id: string, column = 'photo') =>
    read(id, `${column}.*,${column}.signedUrl,${column}.uploadUrl`)

  it('that are public open the file for everybody, until it changes', async () => {
    const id = await create({ open: { name: 'a.txt', base64Content: base64('hello') } })
    const { url } = (await read(id)).open
    const answer = await follow(url)
    expect(answer).toMatchObject({ status: 200 })
    expect(answer.body.toString()).toBe('hello')
    expect((await follow(url, { range: 'bytes=1-2' })).body.toString()).toBe('el')
    expect((await follow(url, { 'if-none-match': String(answer.headers.etag) })).status).toBe(304)
    expectOk(await patch(id, { open: { enablePublicUrl: false } }))
    expect((await follow(url)).status).toBe(403)
    const { url: newUrl } = (await read(id)).open
    expect(newUrl).not.toBe(url)
    expect((await follow(newUrl)).json().code).toBe('invalid_link')
  })

  it('that are signed open a private file for a while', async () => {
    const signedUrl = await withinLifetime(async (seconds) => {
      const id = await create({
        photo: { name: 'a', base64Content: base64('hello'), signedUrlTimeout: seconds },
      })
      const { url, signedUrl } = (await withLinks(id)).photo
      expect((await follow(url)).status).toBe(403)
      expect((await follow(signedUrl)).body.toString()).toBe('hello')
      return signedUrl
    })
    const late = await follow(signedUrl)
    expect(late).toMatchObject({ status: 403 })
    expect(late.json()).toMatchObject({
      code: 'invalid_link',
      message: 'this link is private, changed or expired',
    })
  })

  it('that are changed in any place open nothing', async () => {
    const id = await create({ photo: { name: 'a', base64Content: base64('hello') } })
    const other = await create({ photo: { name: 'b', base64Content: base64('other') } })
    const mine = (await withLinks(id)).photo
    const theirs = (await withLinks(other)).photo
    const verify = String(new URL(mine.signedUrl).searchParams.get('verify'))
    const [keyId = '', expiry = '', signature = ''] = verify.split('.')
    const accessId = mine.url.split('/').at(-1)
    const changed = [
      `${theirs.url}?verify=${verify}`,
      `${mine.url}?verify=`,
      `${mine.url}?verify=x`,
      `${mine.url}?verify=${keyId}.${Number(expiry) + 1000}.${signature}`,
      `${mine.url}?verify=${Number(keyId) + 1}.${expiry}.${signature}`,
      `${mine.url}?verify=${keyId}.${expiry}.${'A'.repeat(43)}`,
      `${mine.url}?verify=${keyId}.${expiry}.${signature.slice(0, -1)}`,
      `${mine.url}x?verify=${verify}`,
      `${mine.url.slice(0, -1)}?verify=${verify}`,
      // An upload link does not permit reading.
      mine.uploadUrl,
    ]
    for (const url of changed) expect((await follow(url)).status, url).toBe(403)
    const forged = Buffer.from(String(accessId), 'base64url').toString().replace(id, other)
    const forgedUrl = `http://x/file/${Buffer.from(forged).toString('base64url')}`
    expect((await follow(forgedUrl)).status).toBe(403)
    expect((await follow(`${forgedUrl}?verify=${verify}`)).status).toBe(403)
  })

  it('get a new key from nobody but the administrator, with a key that is not limited', async () => {
    const { key } = await createUser(service, 'no-administrator')
    const refused = await service.call('POST', '/linkKeys', { key, body: { endLinks: true } })
    expect(refused).toMatchObject({ status: 403, body: { code: 'forbidden' } })
    const limited = await createKey(service, 'limited', {
      fields: { scope: { access: 'read' } },
    })
    const readOnly = await service.call('POST', '/linkKeys', { key: limited })
    expect(readOnly).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    const wrong = await service.call('POST', '/linkKeys', { body: { endLinks: 'yes' } })
    expect(wrong).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
  })

  it('keep a branch alive that lives on after each use, when they open something', async () => {
    const { app, database } = service
    expectOk(await service.call('PUT', base('shop:brief'), { body: { from: 'main', ttl: 3600 } }))
    const brief = branchCall(service, 'shop', { branch: 'brief' })
    const body = { id: 'brief', photo: { name: 'a', base64Content: base64('hello') } }
    expectOk(await brief('POST', '/tables/people/data', { body }))
    const columns = 'photo.url,photo.signedUrl'
    const { photo } = (await brief('GET', `/tables/people/data/brief?columns=${columns}`)).body
    const renewedBy = async (url: string) => {
      await service.sessions.flushUses()
      await database.query(sql`
        update offshoot.branches set expires_at = now() + interval '60 seconds' where name = 'brief'`)
      const { pathname, search } = new URL(url)
      await app.inject({ method: 'GET', url: `${pathname}${search}` })
      await service.sessions.flushUses()
      const [row] = await database.query(sql`
        select 1
        from offshoot.branches
        where name = 'brief' and expires_at > now() + interval '3000 seconds'`)
      return row !== undefined
    }
    expect(await renewedBy(photo.signedUrl)).toBe(true)
    expect(await renewedBy(photo.url)).toBe(false)
    expect(await renewedBy(`${photo.signedUrl}x`)).toBe(false)
  })

  it('do not lead to the file of another tenant, public or not', async () => {
    const { key } = await createUser(service, 'tenant')
    const { id: workspaceId } = await createWorkspace(service, 'Tenant', key)
    await createDatabase(service, 'theirs', { workspaceId, key })
    const url = `/${workspaceId}.local/db/theirs:main`
    const operations = addTables(TABLES)
    expectOk(await service.call('POST', `${url}/schema/update`, { body: { operations }, key }))
    const record = { id: 'same', photo: { name: 'a', base64Content: base64('theirs') } }
    expectOk(await service.call('POST', `${url}/tables/people/data`, { body: record, key }))
    expectOk(await call('POST', '/tables/people/data', { body: { ...record, id: 'same' } }))
    const columns = 'photo.url,photo.signedUrl'
    const theirs = await service.call('GET', `${url}/tables/people/data/same?columns=${columns}`, {
      key,
    })
    const own = (await read('same', columns)).photo
    const { search } = new URL(own.signedUrl)
    expect((await follow(`${theirs.body.photo.url}${search}`)).status).toBe(403)
    expect((await follow(theirs.body.photo.signedUrl)).status).toBe(200)
    const path = `${url}${filePath('same')}`
    expect((await raw('GET', path)).status).toBe(404)
  })

  it('that are for uploading take one upload', async () => {
    const id = await create({ photo: { name: 'a.png' }, papers: [{ id: 'p' }] })
    const { uploadUrl, url } = (await withLinks(id)).photo
    const upload = (link: string) => {
      const { pathname, search } = new URL(link)
      return raw('PUT', `${pathname}${search}`, {
        body: PNG,
        headers: { 'content-type': 'image/png' },
        key: null,
      })
    }
    expect((await upload(url)).status).toBe(403)
    const done = await upload(uploadUrl)
    expect(done.status).toBe(201)
    expect(done.json()).toMatchObject({ name: 'a.png', size: PNG.length, version: 1 })
    expect((await get(id)).body).toEqual(PNG)
    expect((await upload(uploadUrl)).status).toBe(404)
    expect((await get(id)).body).toEqual(PNG)
    const { papers } = await withLinks(id, 'papers')
    expect((await upload(papers[0].signedUrl)).status).toBe(403)
    expect((await upload(papers[0].uploadUrl)).json()).toMatchObject({ id: 'p', version: 1 })
  })

  it('outlive a new key, and end with the key that signed them', async () => {
    const id = await create({ photo: { name: 'a', base64Content: base64('hello') } })
    const before = (await withLinks(id)).photo.signedUrl
    const rotated = await service.call('POST', '/linkKeys')
    expect(rotated).toMatchObject({ status: 201, body: { endedKeys: 0 } })
    const after = (await withLinks(id)).photo.signedUrl
    const keyOf = (url: string) => String(new URL(url).searchParams.get('verify')).split('.')[0]
    expect(keyOf(after)).not.toBe(keyOf(before))
    expect((await follow(before)).status).toBe(200)
    expect((await follow(after)).status).toBe(200)
    const upload = (await withLinks(id)).photo.uploadUrl
    const ended = await service.call('POST', '/linkKeys', { body: { endLinks: true } })
    expect(ended).toMatchObject({ status: 201, body: { endedKeys: 2 } })
    for (const link of [before, after]) expect((await follow(link)).status).toBe(403)
    const { pathname, search } = new URL(upload)
    expect((await raw('PUT', `${pathname}${search}`, { body: PNG, key: null })).status).toBe(403)
    expect((await follow((await withLinks(id)).photo.signedUrl)).status).toBe(200)
  })

  it('are signed with a new key after a while, and the old one is kept for its links', async () => {
    await service.database.query(sql`
      update offshoot.link_keys set created_at = now() - interval '31 days'`)
    await renewLinkKeys(service.database)
    const keys = await service.database.query(sql`select id from offshoot.link_keys`)
    expect(keys).toHaveLength(2)
  })

  it.each([
    'text/html',
    'image/svg+xml',
    'application/xhtml+xml',
    'text/xml',
    'text/javascript',
    'application/pdf',
    'application/octet-stream',
  ])('never let %s act on the origin of the service', async (mediaType) => {
    const id = await create({
      open: { name: 'a.x', mediaType, base64Content: base64('<script>alert(1)</script>') },
    })
    const { url } = (await read(id)).open
    const answer = await follow(url)
    expect(answer.headers).toMatchObject({
      'content-type': mediaType,
      'content-disposition': 'attachment; filename="a.x"',
      'content-security-policy': "sandbox; default-src 'none'",
      'x-content-type-options': 'nosniff',
    })
    for (const use of ['script', 'iframe', 'serviceworker']) {
      expect((await follow(url, { 'sec-fetch-dest': use })).status).toBe(403)
    }
  })

  it('start with the public address of the service', async () => {
    const other = await createTestService({
      url: service.url,
      publicUrl: 'https://files.example.com',
      blobs: service.files.blobs,
    })
    try {
      const id = await create({ photo: { name: 'a' } })
      const via = branchCall(service, 'shop', { via: other })
      const answer = await via('GET', `/tables/people/data/${id}?columns=photo.url`)
      expect(answer.body.photo.url).toMatch(/^https:\/\/files\.example\.com\/file\//)
    } finally {
      await other.close()
    }
  })
})
