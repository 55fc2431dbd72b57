import { access, mkdir, open, readdir, rename, rm } from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import { syncFolder } from '../common/sync-folder.js'
import {
  type BlobStore,
  type ByteRange,
  type PutOptions,
  type ReceivedBlob,
  requireSha256,
} from './blob-store.js'
import { Spool, toStorageFull } from './spool.js'

/** Chunk size of reads; larger chunks are not faster. */
const READ_BYTES = 256 * 1024

/** A store in a local folder, with two levels of subfolders so that none has too many entries. */
export class LocalStore implements BlobStore {
  readonly #folder: string
  readonly #spool: Spool
  /** Subfolders whose directory entries were synced, or are being synced. */
  readonly #synced = new Map<string, Promise<void>>()

  constructor(folder: string) {
    this.#folder = folder
    // On the same file system, so that a rename moves a file into place.
    this.#spool = new Spool(path.join(folder, 'incoming'))
  }

  prepare(): Promise<void> {
    return this.#spool.prepare()
  }

  async put(source: AsyncIterable<Buffer>, options: PutOptions): Promise<ReceivedBlob> {
    try {
      return await this.#spool.put(source, options, (spooled) =>
        this.#keep(spooled.path, this.#pathOf(spooled.sha256)),
      )
    } catch (error) {
      throw toStorageFull(error)
    }
  }

  async get(sha256: string, range?: ByteRange): Promise<Readable | undefined> {
    try {
      const handle = await open(this.#pathOf(sha256))
      const stream = handle.createReadStream({ ...range, highWaterMark: READ_BYTES })
      // Readers see a failure as well; one that comes before they listen must not end the process.
      return stream.on('error', () => undefined)
    } catch (error) {
      if (isMissing(error)) return undefined
      throw error
    }
  }

  /**
   * A file that another request has just stored may not be synced yet, so its name is synced here.
   */
  async has(sha256: string): Promise<boolean> {
    const file = this.#pathOf(sha256)
    try {
      await access(file)
      await this.#syncName(file)
      return true
    } catch (error) {
      if (isMissing(error)) return false
      throw error
    }
  }

  async delete(sha256: string): Promise<void> {
    await rm(this.#pathOf(sha256), { force: true })
  }

  async *list(): AsyncIterable<string> {
    for (const first of await this.#subfolders(this.#folder)) {
      for (const second of await this.#subfolders(path.join(this.#folder, first))) {
        yield* await readdir(path.join(this.#folder, first, second))
      }
    }
  }

  async #subfolders(folder: string): Promise<string[]> {
    return (await readdir(folder)).filter((name) => /^[0-9a-f]{2}$/.test(name))
  }

  #pathOf(sha256: string): string {
    const name = requireSha256(sha256)
    return path.join(this.#folder, name.slice(0, 2), name.slice(2, 4), name)
  }

  async #keep(from: string, to: string): Promise<void> {
    await mkdir(path.dirname(to), { recursive: true, mode: 0o700 })
    await rename(from, to)
    await this.#syncName(to)
  }

  /** Syncs the directory entry of the file and those of its parent folders. */
  async #syncName(file: string): Promise<void> {
    const folder = path.dirname(file)
    await Promise.all([syncFolder(folder), this.#syncParents(folder)])
  }

  /**
   * Syncs parent folders once, since folders are never deleted. Concurrent callers share the
   * promise.
   */
  #syncParents(folder: string): Promise<void> {
    const known = this.#synced.get(folder)
    if (known !== undefined) return known
    const syncing = syncFolder(path.dirname(folder)).then(() => syncFolder(this.#folder))
    this.#synced.set(folder, syncing)
    syncing.catch(() => this.#synced.delete(folder))
    return syncing
  }
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT'
}
