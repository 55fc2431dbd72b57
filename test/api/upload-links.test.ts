import { randomBytes } from 'node:crypto'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checkBlobs, collectBlobs } from '../../packages/server/src/data/files/collect.js'
import { collectUploadClaims } from '../../packages/server/src/data/files/upload-claim.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { openLocalStore, type TestStore } from '../support/file-store.js'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, createTables, expectOk } from '../support/tables.js'

const FILE_BYTES_MAX = 100_000
const NOW = { graceSeconds: 0, recheckSeconds: 0 }

let store: TestStore
/** Two processes of one instance. */
let services: readonly [TestService, TestService]
let call: BranchCall

beforeAll(async () => {
  store = await openLocalStore()
  const options = { limits: { fileBytesMax: FILE_BYTES_MAX }, blobs: store.blobs }
  const first = await createTestService(options)
  services = [first, await createTestService({ ...options, url: first.url })]
  call = await createTables(first, 'shop', { people: [{ name: 'photo', type: 'file' }] })
})
afterAll(async () => {
  await services[1].close()
  await services[0].close()
  await store.close()
})

async function createLink(): Promise<{ id: string; link: string }> {
  const body = { photo: { name: 'a.bin' } }
  const { id } = expectOk(await call('POST', '/tables/people/data', { body })).body
  const path = `/tables/people/data/${id}?columns=photo.uploadUrl`
  const { pathname, search } = new URL(
    expectOk(await call('GET', path)).body.photo.uploadUrl as string,
  )
  return { id, link: `${pathname}${search}` }
}

async function upload(link: string, body: Buffer | Readable, service = services[0]) {
  const response = await service.app.inject({
    method: 'PUT',
    url: link,
    headers: { 'content-type': 'application/octet-stream' },
    payload: body,
  })
  return { status: response.statusCode, body: response.json() }
}

async function listStored(): Promise<string[]> {
  const names: string[] = []
  for await (const name of store.blobs.list()) names.push(name)
  return names
}

async function countRows(table: 'blobs' | 'upload_claims'): Promise<number> {
  const [row] = await services[0].database.query<{ count: number }>(
    table === 'blobs'
      ? sql`select count(*)::integer as count from offshoot.blobs`
      : sql`select count(*)::integer as count from offshoot.upload_claims`,
  )
  return row?.count ?? 0
}

describe('an upload link', () => {
  it('takes one of sixty simultaneous uploads, and nothing of the others is stored', async () => {
    const { id, link } = await createLink()
    const before = (await listStored()).length
    const contents = Array.from({ length: 60 }, () => randomBytes(5000))
    const answers = await Promise.all(
      contents.map((content, index) => upload(link, content, services[index % 2])),
    )
    const winners = answers.flatMap(({ status }, index) => (status === 201 ? [index] : []))
    expect(winners).toHaveLength(1)
    for (const { status, body } of answers.filter((answer) => answer.status !== 201)) {
      expect([status, body.code]).toEqual(
        status === 409 ? [409, 'link_in_use'] : [404, 'file_not_found'],
      )
    }
    expect(await listStored()).toHaveLength(before + 1)
    expect(await countRows('blobs')).toBe(before + 1)
    expect(await countRows('upload_claims')).toBe(0)
    const read = await services[0].app.inject({
      url: `${services[0].workspace}/db/shop:main/tables/people/data/${id}/column/photo/file`,
      headers: { authorization: `Bearer ${services[0].key}` },
    })
    expect(read.rawPayload).toEqual(contents[winners[0] ?? -1])
  })

  it('is refused while an upload is under way, and works again after that one failed', async () => {
    const { link } = await createLink()
    const slow = new Readable({ read: () => undefined })
    const first = upload(link, slow)
    slow.push(Buffer.alloc(1000))
    await expect.poll(() => countRows('upload_claims')).toBe(1)
    const second = await upload(link, randomBytes(10), services[1])
    expect(second).toMatchObject({ status: 409, body: { code: 'link_in_use' } })
    slow.push(Buffer.alloc(FILE_BYTES_MAX))
    slow.push(null)
    expect((await first).status).toBe(413)
    expect(await countRows('upload_claims')).toBe(0)
    expect((await upload(link, randomBytes(10), services[1])).status).toBe(201)
    expect((await upload(link, randomBytes(10))).status).toBe(404)
  })

  it('works again when the process that used it died', async () => {
    const { link } = await createLink()
    const slow = new Readable({ read: () => undefined })
    const first = upload(link, slow)
    slow.push(Buffer.alloc(1000))
    await expect.poll(() => countRows('upload_claims')).toBe(1)
    // Let the lease expire, as if its process had died.
    await services[0].database.query(sql`update offshoot.upload_claims set expires_at = now()`)
    expect((await upload(link, randomBytes(10), services[1])).status).toBe(201)
    // The first upload resumes after it lost its lease, and is refused.
    slow.push(null)
    expect((await first).status).toBe(404)
    expect(await countRows('upload_claims')).toBe(0)
  })

  it('leaves no lease behind that nobody holds', async () => {
    await services[0].database.query(sql`
      insert into offshoot.upload_claims (link_hash, holder, expires_at)
      values ('\\x01', gen_random_uuid(), now() - interval '1 second'),
        ('\\x02', gen_random_uuid(), now() + interval '1 minute')`)
    expect(await collectUploadClaims(services[0].database)).toBe(false)
    expect(await countRows('upload_claims')).toBe(1)
    await services[0].database.query(sql`delete from offshoot.upload_claims`)
  })

  it('leaves no content behind when the process dies before the record mentions it', async () => {
    const before = new Set(await listStored())
    // Simulate two crashes: after the content was stored, and before.
    await services[0].files.receive(Readable.from([randomBytes(1000)]), 'home')
    await services[0].database.query(sql`
      insert into offshoot.blobs (sha256, size) values (${randomBytes(32)}, 10)`)
    expect(await listStored()).toHaveLength(before.size + 1)
    while (await checkBlobs(services[0].database, NOW));
    while (await collectBlobs({ ...services[0], blobs: store.blobs }, NOW));
    const left = await listStored()
    expect(left.filter((name) => !before.has(name))).toEqual([])
    expect(await countRows('blobs')).toBe(left.length)
  })
})
