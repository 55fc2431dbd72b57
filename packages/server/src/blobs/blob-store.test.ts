import { createHash, randomBytes } from 'node:crypto'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import S3rver from 's3rver'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type BlobStore, BlobTooLargeError } from './blob-store.js'
import { LocalStore } from './local-store.js'
import { S3Store } from './s3-store.js'

const BYTES_MAX = 64 * 1024 * 1024

let folder: string
let server: S3rver | undefined
const spoolFolder = () => path.join(folder, 'local', 'incoming')

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'offshoot-blobs-'))
})
afterAll(async () => {
  await server?.close()
  await rm(folder, { recursive: true, force: true })
})

async function openLocal(): Promise<BlobStore> {
  return new LocalStore(path.join(folder, 'local'))
}

async function openS3(): Promise<BlobStore> {
  server = new S3rver({
    directory: path.join(folder, 's3'),
    address: '127.0.0.1',
    port: 0,
    silent: true,
    configureBuckets: [{ name: 'files', configs: [] }],
  })
  const { port } = await server.run()
  return new S3Store({
    endpoint: `http://127.0.0.1:${port}`,
    region: 'us-east-1',
    bucket: 'files',
    prefix: 'of/tests/',
    keyId: 'S3RVER',
    secret: 'S3RVER',
    spoolFolder: spoolFolder(),
  })
}

const hashOf = (content: Buffer) => createHash('sha256').update(content).digest('hex')

describe.each([
  ['a local folder', openLocal],
  ['an S3-compatible store', openS3],
])('%s', (_name, openStore) => {
  let store: BlobStore
  const put = (content: Buffer, bytesMax = BYTES_MAX) =>
    store.put(Readable.from(pieces(content)), { bytesMax })
  const read = async (sha256: string, range?: { start: number; end: number }) => {
    const stream = await store.get(sha256, range)
    return stream === undefined ? undefined : buffer(stream)
  }
  const listAll = async () => {
    const names: string[] = []
    for await (const name of store.list()) names.push(name)
    return names.sort()
  }

  beforeAll(async () => {
    store = await openStore()
    await store.prepare()
  })

  it.each([0, 1, 65_536, 3_000_001])('gives back %i bytes as they were put', async (size) => {
    const content = randomBytes(size)
    const { sha256, size: kept } = await put(content)
    expect({ sha256, kept }).toEqual({ sha256: hashOf(content), kept: size })
    expect(await store.has(sha256)).toBe(true)
    expect(content.equals((await read(sha256)) ?? Buffer.from('missing'))).toBe(true)
    await store.delete(sha256)
  })

  it('gives a range, with both of its ends', async () => {
    const content = randomBytes(100_000)
    const { sha256 } = await put(content)
    for (const [start, end] of [
      [0, 0],
      [0, 1],
      [10, 99],
      [99_999, 99_999],
      [0, 99_999],
    ] as const) {
      const part = await read(sha256, { start, end })
      expect(part?.equals(content.subarray(start, end + 1)), `${start}-${end}`).toBe(true)
    }
    await store.delete(sha256)
  })

  it('keeps the same content once, and lists what it has', async () => {
    const content = randomBytes(1000)
    const other = randomBytes(1000)
    await Promise.all([put(content), put(content), put(other)])
    expect(await listAll()).toEqual([hashOf(content), hashOf(other)].sort())
    await store.delete(hashOf(other))
    await store.delete(hashOf(other))
    expect(await listAll()).toEqual([hashOf(content)])
    await store.delete(hashOf(content))
    expect(await store.has(hashOf(content))).toBe(false)
    expect(await read(hashOf(content))).toBeUndefined()
  })

  it('shows the first bytes of what it took', async () => {
    const content = randomBytes(500_000)
    const { head, sha256 } = await put(content)
    expect(head).toEqual(content.subarray(0, 256 * 1024))
    await store.delete(sha256)
  })

  it('asks for a claim when it has everything and before anybody can find it', async () => {
    const content = randomBytes(5000)
    const claims: unknown[] = []
    await store.put(Readable.from(pieces(content)), {
      bytesMax: BYTES_MAX,
      claim: async (blob) => {
        claims.push({ ...blob, found: await store.has(blob.sha256) })
      },
    })
    expect(claims).toEqual([{ sha256: hashOf(content), size: 5000, found: false }])
    await store.delete(hashOf(content))
  })

  it('leaves nothing of content that is too large, breaks off, or is not claimed', async () => {
    expect((await put(randomBytes(1000), 1000)).size).toBe(1000)
    const before = await listAll()
    await expect(put(randomBytes(1001), 1000)).rejects.toThrow(BlobTooLargeError)
    const broken = async function* () {
      yield randomBytes(2_000_000)
      throw new Error('hung up')
    }
    await expect(store.put(broken(), { bytesMax: BYTES_MAX })).rejects.toThrow('hung up')
    const claim = () => Promise.reject(new Error('no claim'))
    await expect(
      store.put(Readable.from(pieces(randomBytes(10))), { bytesMax: BYTES_MAX, claim }),
    ).rejects.toThrow('no claim')
    expect(await listAll()).toEqual(before)
    expect(await readdir(spoolFolder())).toEqual([])
  })

  it.each(['', '../../etc/passwd', 'A'.repeat(64), '0'.repeat(63)])(
    'takes nothing but a sha-256 for a name: %j',
    async (name) => {
      await expect(store.get(name)).rejects.toThrow('the name of content must be a SHA-256')
      await expect(store.delete(name)).rejects.toThrow('the name of content must be a SHA-256')
    },
  )
})

function* pieces(content: Buffer): Generator<Buffer> {
  for (let at = 0; at < content.length; at += 60_000) yield content.subarray(at, at + 60_000)
}
