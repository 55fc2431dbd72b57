import path from 'node:path'
import type { BlobStore } from './blobs/blob-store.js'
import { LocalStore } from './blobs/local-store.js'
import { S3Store } from './blobs/s3-store.js'
import type { Config } from './config.js'

/** Creates the configured store for file content, by default a folder in the data folder. */
export function createBlobStore(config: Config): BlobStore {
  const folder = path.join(config.dataDir, 'files')
  if (config.files === null) return new LocalStore(folder)
  return new S3Store({
    ...config.files,
    keyId: config.filesKeyId ?? '',
    secret: config.filesSecret ?? '',
    spoolFolder: path.join(folder, 'incoming'),
  })
}
