import { createBackup, type DatabaseName } from '../../packages/server/src/backup/create-backup.js'
import type { BlobStore } from '../../packages/server/src/blobs/blob-store.js'
import { Database } from '../../packages/server/src/postgres/database.js'

/** Connects to a database as the commands for backups do. The caller closes it. */
export function openForBackup(url: string, { distributes = true } = {}): Database {
  const database = new Database({
    poolMax: 6,
    distributes,
    statementTimeoutMs: 0,
    onIdleError: () => undefined,
  })
  database.connect({ url })
  return database
}

/** Makes a backup of an instance, or of one database of it. */
export async function makeArchive(from: {
  database: Database
  blobs: BlobStore
  only?: DatabaseName | undefined
}): Promise<Buffer> {
  const chunks: Buffer[] = []
  await createBackup({
    ...from,
    // Copied, because the backup reuses the memory of a chunk.
    sink: async (chunk) => void chunks.push(Buffer.from(chunk)),
    onProgress: () => undefined,
  })
  return Buffer.concat(chunks)
}

/** Yields an archive in parts. */
export async function* inChunks(archive: Buffer): AsyncGenerator<Buffer> {
  for (let start = 0; start < archive.length; start += 10_000) {
    yield archive.subarray(start, start + 10_000)
  }
}
