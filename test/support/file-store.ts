import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import S3rver from 's3rver'
import type { BlobStore } from '../../packages/server/src/blobs/blob-store.js'
import { LocalStore } from '../../packages/server/src/blobs/local-store.js'
import { S3Store } from '../../packages/server/src/blobs/s3-store.js'

export interface TestStore {
  readonly blobs: BlobStore
  close(): Promise<void>
}

/** A file store in a temporary folder. */
export async function openLocalStore(): Promise<TestStore> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-files-'))
  const blobs = new LocalStore(folder)
  await blobs.prepare()
  return { blobs, close: () => rm(folder, { recursive: true, force: true }) }
}

interface TestS3Store extends TestStore {
  /** Settings of a service that uses this store. */
  readonly settings: Record<string, string>
}

/** A file store behind an S3 server. */
export async function openS3Store(): Promise<TestS3Store> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-files-'))
  const server = new S3rver({
    directory: path.join(folder, 's3'),
    address: '127.0.0.1',
    port: 0,
    silent: true,
    configureBuckets: [{ name: 'files', configs: [] }],
  })
  const { port } = await server.run()
  const endpoint = `http://127.0.0.1:${port}`
  const blobs = new S3Store({
    endpoint,
    region: 'us-east-1',
    bucket: 'files',
    prefix: 'of/tests/',
    keyId: 'S3RVER',
    secret: 'S3RVER',
    spoolFolder: path.join(folder, 'incoming'),
  })
  await blobs.prepare()
  return {
    blobs,
    settings: {
      OFFSHOOT_FILES: `s3://files/of/tests?endpoint=${endpoint}&region=us-east-1`,
      OFFSHOOT_FILES_KEY_ID: 'S3RVER',
      OFFSHOOT_FILES_SECRET: 'S3RVER',
    },
    async close() {
      await server.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
