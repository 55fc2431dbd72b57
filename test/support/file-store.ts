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

/** A store of file content in a folder of its own. */
export async function openLocalStore(): Promise<TestStore> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-files-'))
  const blobs = new LocalStore(folder)
  await blobs.prepare()
  return { blobs, close: () => rm(folder, { recursive: true, force: true }) }
}

/** The same behind a server that speaks S3. */
export async function openS3Store(): Promise<TestStore> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-files-'))
  const server = new S3rver({
    directory: path.join(folder, 's3'),
    address: '127.0.0.1',
    port: 0,
    silent: true,
    configureBuckets: [{ name: 'files', configs: [] }],
  })
  const { port } = await server.run()
  const blobs = new S3Store({
    endpoint: `http://127.0.0.1:${port}`,
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
    async close() {
      await server.close()
      await rm(folder, { recursive: true, force: true })
    },
  }
}
