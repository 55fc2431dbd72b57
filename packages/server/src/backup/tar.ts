import { EventEmitter, once } from 'node:events'
import type { Writable } from 'node:stream'
import { type Entry, type Extract, extract, pack } from 'tar-stream'

/*
 * A backup is written to and read from a stream of plain files in the tar format. Any tar can list
 * and unpack it.
 */

const BLOCK_BYTES = 512
/** Unpacked files are readable by their owner only. */
const MODE = 0o600

/** The stream is not an archive, or a part of it is missing or altered. */
export class DamagedArchiveError extends Error {}

/** Receives the bytes of an archive. Resolves when it is ready for more. */
export type Sink = (chunk: Buffer) => Promise<void>

/** Writes one archive, file by file. */
export class TarWriter {
  readonly #pack = pack()
  readonly #written: Promise<void>

  constructor(sink: Sink) {
    // Each failure reaches the caller through the entry it is writing, or through `end`.
    this.#pack.on('error', () => undefined)
    this.#written = this.#writeTo(sink)
    this.#written.catch(() => undefined)
  }

  async #writeTo(sink: Sink): Promise<void> {
    try {
      for await (const chunk of this.#pack) await sink(chunk)
    } catch (error) {
      this.#pack.destroy(error as Error)
      throw error
    }
  }

  async add(name: string, content: Buffer): Promise<void> {
    await this.addStream(name, content.length, [content])
  }

  /** Adds a file. Fails unless the content has exactly the announced size. */
  async addStream(
    name: string,
    size: number,
    content: AsyncIterable<Buffer> | Iterable<Buffer>,
  ): Promise<void> {
    // The sink may have failed since the last file.
    if (this.#pack.destroyed) await this.#written
    const { entry, ended } = this.#open(name, size)
    try {
      for await (const chunk of exactly(size, content, name)) {
        if (entry.destroyed) break
        if (!entry.write(chunk)) await drained(entry)
      }
      entry.end()
      await ended
    } catch (error) {
      entry.destroy(error as Error)
      throw error
    }
  }

  #open(name: string, size: number): { entry: Writable; ended: Promise<void> } {
    const end = new EventEmitter()
    const ended = once(end, 'end').then(() => undefined)
    ended.catch(() => undefined)
    const entry = this.#pack.entry({ name, size, mode: MODE, type: 'file' }, (error) =>
      error ? end.emit('error', error) : end.emit('end'),
    )
    entry.on('error', () => undefined)
    return { entry, ended }
  }

  /** Writes the end of the archive. */
  async end(): Promise<void> {
    this.#pack.finalize()
    await this.#written
  }
}

async function* exactly(
  size: number,
  content: AsyncIterable<Buffer> | Iterable<Buffer>,
  name: string,
): AsyncGenerator<Buffer> {
  let bytes = 0
  for await (const chunk of content) {
    bytes += chunk.length
    if (bytes > size) break
    yield chunk
  }
  if (bytes !== size) throw new Error(`[${name}] does not have the announced size of ${size} bytes`)
}

/** Resolves when a stream is ready for more, or closed. */
async function drained(stream: NodeJS.WritableStream): Promise<void> {
  await new Promise<void>((resolve) => {
    const done = () => {
      stream.off('drain', done)
      stream.off('close', done)
      resolve()
    }
    stream.on('drain', done)
    stream.on('close', done)
  })
}

export interface TarEntry {
  readonly name: string
  readonly size: number
  /** Must be read to its end before the next entry is asked for. */
  readonly content: AsyncIterable<Buffer>
}

/** Yields the entries of an archive in their order. Fails unless the archive has its end mark. */
export async function* readTar(source: AsyncIterable<Buffer>): AsyncGenerator<TarEntry> {
  const archive = extract()
  archive.on('error', () => undefined)
  const feed = new Feed(source, archive)
  const done = feed.run()
  try {
    for await (const entry of archive) {
      const { name, size = 0 } = entry.header
      yield { name, size, content: read(entry, feed) }
    }
    await done
    if (!feed.endsWithEmptyBlock) throw new DamagedArchiveError('it is truncated')
  } catch (error) {
    throw feed.explain(error)
  } finally {
    archive.destroy()
  }
}

async function* read(entry: Entry, feed: Feed): AsyncGenerator<Buffer> {
  try {
    yield* entry
  } catch (error) {
    throw feed.explain(error)
  }
}

/**
 * Feeds a source to the parser, and distinguishes failures of the source from damage of the
 * archive.
 */
class Feed {
  readonly #source: AsyncIterable<Buffer>
  readonly #archive: Extract
  #failure: { error: unknown } | undefined
  /** The number of zero bytes that the source ended with so far. */
  #zeroBytes = 0

  constructor(source: AsyncIterable<Buffer>, archive: Extract) {
    this.#source = source
    this.#archive = archive
  }

  /** An archive ends with empty blocks; without them it is truncated. */
  get endsWithEmptyBlock(): boolean {
    return this.#zeroBytes >= BLOCK_BYTES
  }

  async run(): Promise<void> {
    try {
      for await (const chunk of this.#source) {
        if (this.#archive.destroyed) return
        this.#countZeros(chunk)
        if (!this.#archive.write(chunk)) await drained(this.#archive)
      }
      this.#archive.end()
    } catch (error) {
      this.#failure = { error }
      this.#archive.destroy(error as Error)
    }
  }

  #countZeros(chunk: Buffer): void {
    let zeros = 0
    while (zeros < chunk.length && zeros < BLOCK_BYTES && chunk[chunk.length - 1 - zeros] === 0) {
      zeros++
    }
    this.#zeroBytes = zeros === chunk.length ? this.#zeroBytes + zeros : zeros
  }

  explain(error: unknown): unknown {
    if (this.#failure !== undefined) return this.#failure.error
    if (error instanceof DamagedArchiveError) return error
    const isCut = (error as Error).message === 'Unexpected end of data'
    return new DamagedArchiveError(
      isCut ? 'it is truncated' : 'it is not a backup, or it is damaged',
    )
  }
}
