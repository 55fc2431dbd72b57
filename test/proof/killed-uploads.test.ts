import { createHash, randomBytes } from 'node:crypto'
import { readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { makeDataFolder } from '../support/data-folder.js'
import { type Banner, endAll, request, startOffshoot, until } from '../support/process.js'

const RECORDS = 8
const ROUNDS = 3

let folder: string

beforeAll(async () => {
  folder = await makeDataFolder('files-crash')
})
afterAll(async () => {
  await endAll([folder])
  await rm(folder, { recursive: true, force: true })
})

const base = (banner: Banner) => `/${banner.workspaceId}.local/db/shop:main`
const table = (banner: Banner) => `${base(banner)}/tables/people`

async function upload(banner: Banner, key: string, options: { id: string; content: Buffer }) {
  const url = `${banner.address}${table(banner)}/data/${options.id}/column/photo/file`
  const response = await fetch(url, {
    method: 'PUT',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/octet-stream' },
    body: options.content,
  })
  await response.text()
  return response.status
}

/**
 * Uploads and inserts files until the server is gone. Records the hash of each acknowledged content
 * in `kept`.
 */
async function uploadUntilGone(
  banner: Banner,
  key: string,
  options: { worker: number; kept: Map<string, string> },
): Promise<void> {
  const id = `record_${options.worker}`
  for (let count = 0; ; count++) {
    const content = randomBytes(200_000 + count)
    const sha256 = createHash('sha256').update(content).digest('hex')
    try {
      if (count % 3 === 2) {
        const record = {
          id: `${id}_${count}_${sha256.slice(0, 8)}`,
          photo: { name: 'a', base64Content: content.toString('base64') },
        }
        const body = { records: [record] }
        const answer = await request(banner.address, 'POST', `${table(banner)}/bulk`, { key, body })
        if (answer.status === 0) return
        if (answer.status === 200) options.kept.set(record.id, sha256)
      } else {
        const status = await upload(banner, key, { id, content })
        if (status < 300) options.kept.set(id, sha256)
      }
    } catch {
      return
    }
  }
}

describe('a server that is killed while files arrive', () => {
  it('never has a record whose content is missing, and keeps what it said it keeps', async () => {
    const env = { OFFSHOOT_API_KEY: 'off_crash_Hd7Qm3ZxTw9VbRc5' }
    const key = env.OFFSHOOT_API_KEY
    let service = startOffshoot(folder, { env })
    let banner = await service.ready()
    const call = (method: string, url: string, body?: unknown) =>
      request(banner.address, method, url, { key, body })
    await call('PUT', `/workspaces/${banner.workspaceId}/dbs/shop`, { region: 'local' })
    const photo = { addColumn: { table: 'people', column: { name: 'photo', type: 'file' } } }
    const made = await call('POST', `${base(banner)}/schema/update`, {
      operations: [{ addTable: { table: 'people' } }, photo],
    })
    expect(made.status).toBe(200)
    const ids = new Set<string>()
    const kept = new Map<string, string>()
    for (let worker = 0; worker < RECORDS; worker++) {
      ids.add(`record_${worker}`)
      await call('PUT', `${table(banner)}/data/record_${worker}`, {})
    }
    let files = 0
    for (let round = 0; round < ROUNDS; round++) {
      const running = Array.from({ length: RECORDS }, (_, worker) =>
        uploadUntilGone(banner, key, { worker, kept }),
      )
      const enough = kept.size + RECORDS
      await until(async () => kept.size >= enough)
      await delay(Math.random() * 500)
      await service.end('SIGKILL')
      await Promise.all(running)
      service = startOffshoot(folder, { env })
      banner = await service.ready()
      expect(await readdir(path.join(folder, 'files', 'incoming'))).toEqual([])
      for (const id of new Set([...ids, ...kept.keys()])) {
        const record = await call('GET', `${table(banner)}/data/${id}?columns=photo.size`)
        expect(record.status, id).toBe(200)
        const url = `${banner.address}${table(banner)}/data/${id}/column/photo/file`
        const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } })
        if (record.body.photo === undefined) {
          expect(response.status).toBe(204)
          expect(kept.has(id)).toBe(false)
          continue
        }
        expect(response.status).toBe(200)
        const content = Buffer.from(await response.arrayBuffer())
        expect(content.length).toBe(record.body.photo.size)
        const sha256 = createHash('sha256').update(content).digest('hex')
        expect(response.headers.get('etag')).toBe(`"${sha256}"`)
        // Bulk inserts use a new record each, which is never overwritten, so its content is exactly
        // what was sent.
        if (!ids.has(id)) expect(sha256).toBe(kept.get(id))
        files++
      }
    }
    expect(files).toBeGreaterThan(RECORDS)
    expect(await service.end('SIGTERM')).toMatchObject({ code: 0 })
  })
})
