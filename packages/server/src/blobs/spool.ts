import { createHash, randomUUID } from 'node:crypto'
import { mkdir, open, readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { AppError } from '@offshoot/contract/errors'
import { BlobTooLargeError, type ReceivedBlob } from './blob-store.js'

/** Enough to find the size of an image behind what cameras put in front of it. */
const HEAD_BYTES = 256 * 1024
/** Written at a time, while the next bytes are hashed. */
const BATCH_BYTES = 1024 * 1024
/** Sent to the disk while more arrives, so that little is left to wait for at the end. */
const SYNC_BYTES = 32 * 1024 * 1024

/** A file on its way in: complete and on disk, but not yet under its name. */
export interface SpooledBlob extends ReceivedBlob {
  readonly path: string
}

/** A folder for what is on its way in. It belongs to one process. */
export class Spool {
  constructor(readonly folder: string) {}

  /** Removes what an earlier process did not finish. */
  async prepare(): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 })
    for (const name of await readdir(this.folder)) {
      await rm(path.join(this.folder, name), { force: true })
    }
  }

  /** Takes everything in, in constant memory. Leaves nothing when it fails. */
  async receive(source: AsyncIterable<Buffer>, bytesMax: number): Promise<SpooledBlob> {
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
          // A failure is met where the next write, or the end, waits for it.
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

/** The public form of a disk that is full; anything else is returned as it is. */
export function toStorageFull(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException
  if (!NO_SPACE_CODES.has(code)) return error
  return new AppError('storage_full', 'there is no space left to keep the file', { cause: error })
}

/** One system call may take less than it is given. */
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
