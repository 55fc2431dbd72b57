import { createHash, randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { AppError } from '@offshoot/contract/errors'
import { BlobTooLargeError, type PutOptions, type ReceivedBlob } from './blob-store.js'

/** Large enough to find the dimensions of an image behind the metadata that cameras write. */
const HEAD_BYTES = 256 * 1024
/** Size of one write; the next bytes are hashed meanwhile. */
const BATCH_BYTES = 1024 * 1024
/** Bytes between two syncs while content arrives, so that the last sync is short. */
const SYNC_BYTES = 32 * 1024 * 1024

/** A received file: complete and synced, but not yet moved to its final name. */
interface SpooledBlob extends ReceivedBlob {
  readonly path: string
}

/** A folder for incoming files. It belongs to one process. */
export class Spool {
  constructor(readonly folder: string) {}

  /** Removes incomplete files of an earlier process. */
  async prepare(): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 })
    for (const name of await readdir(this.folder)) {
      await rm(path.join(this.folder, name), { force: true })
    }
  }

  /** Receives content, and lets `keep` store it. The received file is removed in the end. */
  async put(
    source: AsyncIterable<Buffer>,
    options: PutOptions,
    keep: (spooled: SpooledBlob) => Promise<unknown>,
  ): Promise<ReceivedBlob> {
    const spooled = await this.#receive(source, options.bytesMax)
    try {
      const { sha256, size, head } = spooled
      await options.claim?.({ sha256, size })
      await keep(spooled)
      return { sha256, size, head }
    } finally {
      await rm(spooled.path, { force: true })
    }
  }

  /** Receives content in constant memory. Leaves nothing behind if it fails. */
  async #receive(source: AsyncIterable<Buffer>, bytesMax: number): Promise<SpooledBlob> {
    const file = path.join(this.folder, randomUUID())
    const handle = await open(file, 'wx', 0o600).catch((error: unknown) => {
      throw toStorageFull(error)
    })
    const hash = createHash('sha256')
    const heads: Buffer[] = []
    let size = 0
    let batch: Buffer[] = []
    let batchBytes = 0
    let unsyncedBytes = 0
    let writing: Promise<unknown> = Promise.resolve()
    let syncing: Promise<unknown> = Promise.resolve()
    try {
      for await (const chunk of source) {
        if (size < HEAD_BYTES) heads.push(Buffer.from(chunk.subarray(0, HEAD_BYTES - size)))
        size += chunk.length
        if (size > bytesMax) throw new BlobTooLargeError(bytesMax)
        batch.push(chunk)
        batchBytes += chunk.length
        if (batchBytes >= BATCH_BYTES) {
          await writing
          writing = writeAll(handle, batch)
          unsyncedBytes += batchBytes
          if (unsyncedBytes >= SYNC_BYTES) {
            unsyncedBytes = 0
            syncing = syncing.then(() => handle.datasync())
            syncing.catch(() => undefined)
          }
          // The next write or the end awaits this promise and reports the failure.
          writing.catch(() => undefined)
          batch = []
          batchBytes = 0
        }
        hash.update(chunk)
      }
      await writing
      await writeAll(handle, batch)
      await syncing
      await handle.sync()
      await handle.close()
      return { path: file, sha256: hash.digest('hex'), size, head: Buffer.concat(heads) }
    } catch (error) {
      await Promise.allSettled([writing, syncing])
      await handle.close().catch(() => undefined)
      await rm(file, { force: true })
      throw toStorageFull(error)
    }
  }
}

const NO_SPACE_CODES: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT'])

/** Maps a full disk to a public error. Returns other errors unchanged. */
export function toStorageFull(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException
  if (!NO_SPACE_CODES.has(code)) return error
  return new AppError('storage_full', 'there is no space left to store the file', { cause: error })
}

/** Writes all bytes; one system call may write fewer. */
async function writeAll(
  handle: Awaited<ReturnType<typeof open>>,
  chunks: readonly Buffer[],
): Promise<void> {
  const total = chunks.reduce((bytes, chunk) => bytes + chunk.length, 0)
  if (total === 0) return
  const { bytesWritten } = await handle.writev(chunks as Buffer[])
  if (bytesWritten === total) return
  let rest = Buffer.concat(chunks as Buffer[]).subarray(bytesWritten)
  while (rest.length > 0) {
    const written = await handle.write(rest)
    rest = rest.subarray(written.bytesWritten)
  }
}
