import { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import {
  type Blob,
  type BlobStore,
  BlobTooLargeError,
  type ByteRange,
  type ReceivedBlob,
} from '../../blobs/blob-store.js'
import { Turn } from '../../common/in-turns.js'
import type { Database } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { TextRows } from '../../postgres/statement.js'
import type { StoredFile } from '../../rows/columns/file-value.js'
import type { MetadataForm } from '../../rows/reading/record-json.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import { FileWriter, type FileWriterOptions, type PendingContent } from './file-input.js'
import { FileLinks } from './links.js'

/** The number of contents of one record that are stored concurrently. */
const STORES_AT_ONCE = 4

/** The contents of files, and the links to them. */
export class Files {
  readonly blobs: BlobStore
  readonly links = new FileLinks()
  readonly #database: Database
  readonly #limits: Limits

  constructor(database: Database, blobs: BlobStore, limits: Limits) {
    this.#database = database
    this.blobs = blobs
    this.#limits = limits
  }

  writer(options: FileWriterOptions): FileWriter {
    return new FileWriter(this.#limits, options)
  }

  /** Stores contents durably. A row may refer to a content only after this. */
  async store(pending: readonly PendingContent[], workspaceId: string): Promise<void> {
    const queue = [...new Map(pending.map((content) => [content.sha256, content])).values()]
    const worker = async () => {
      for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
        await this.#keep(next, workspaceId)
      }
    }
    await Promise.all(Array.from({ length: Math.min(STORES_AT_ONCE, queue.length) }, worker))
  }

  async #keep({ sha256, bytes }: PendingContent, workspaceId: string): Promise<void> {
    await claimContent(this.#database, { sha256, size: bytes.length }, workspaceId)
    if (await this.blobs.has(sha256)) return
    await this.blobs.put(Readable.from(chunksOf(bytes)), { bytesMax: bytes.length })
  }

  /** Stores content of any size from a stream, in constant memory. */
  async receive(source: AsyncIterable<Buffer>, workspaceId: string): Promise<ReceivedBlob> {
    const bytesMax = this.#limits.fileBytesMax
    try {
      const claim = (blob: Blob) => claimContent(this.#database, blob, workspaceId)
      return await this.blobs.put(source, { bytesMax, claim })
    } catch (error) {
      if (!(error instanceof BlobTooLargeError)) throw error
      throw fileTooLarge(bytesMax)
    }
  }

  /** Throws if the announced size exceeds the limit. */
  requireSize(bytes: number): void {
    if (bytes > this.#limits.fileBytesMax) throw fileTooLarge(this.#limits.fileBytesMax)
  }

  /** Opens the content of a file. */
  async open(file: StoredFile, range?: ByteRange): Promise<Readable> {
    const stream =
      file.sha256 === undefined ? Readable.from([]) : await this.blobs.get(file.sha256, range)
    if (stream === undefined) throw new Error(`content [${file.sha256}] is missing`)
    return stream
  }

  /** Reads the contents that a response includes. */
  async loadContents({ files }: MetadataForm, read: TableRead, rows: TextRows): Promise<void> {
    const wanted = read.listContents(rows)
    const bytesMax = this.#limits.requestBytesMax
    if (wanted.reduce((bytes, { size }) => bytes + size, 0) > bytesMax) {
      throw new AppError(
        'invalid_request',
        `columns: more than ${bytesMax} bytes of base64Content; read the files one by one`,
      )
    }
    for (const { sha256 } of wanted) {
      if (files?.contents.has(sha256)) continue
      files?.contents.set(sha256, await this.#readBase64(sha256))
    }
  }

  async #readBase64(sha256: string): Promise<string> {
    const stream = await this.blobs.get(sha256)
    if (stream === undefined) throw new Error(`content [${sha256}] is missing`)
    const texts: string[] = []
    let rest = Buffer.alloc(0)
    for await (const chunk of stream) {
      const bytes = Buffer.concat([rest, chunk as Buffer])
      // Three bytes are four characters. What remains is written with the next chunk.
      const end = bytes.length - (bytes.length % 3)
      texts.push(bytes.toString('base64', 0, end))
      rest = bytes.subarray(end)
    }
    texts.push(rest.toString('base64'))
    return texts.join('')
  }
}

/**
 * Marks content as recently used by a workspace before a row refers to it, so that the collector keeps it.
 * Waits while the collector checks or deletes the same content, and only then enters the workspace.
 */
export async function claimContent(
  database: Database,
  { sha256, size }: Blob,
  workspaceId: string,
): Promise<void> {
  await database.queryAside(sql`
    with claimed as (
      insert into offshoot.blobs (sha256, size)
      values (${Buffer.from(sha256, 'hex')}, ${size})
      on conflict (sha256) do update
      set put_at = clock_timestamp(), unused_since = null
      returning sha256, size
    )
    insert into offshoot.workspace_blobs (workspace_id, sha256, size)
    select ${workspaceId}, sha256, size
    from claimed
    on conflict (workspace_id, sha256) do nothing`)
}

/** Bytes of content that are hashed and written in one turn of the event loop. */
const CHUNK_BYTES = 1024 * 1024

async function* chunksOf(bytes: Buffer): AsyncGenerator<Buffer> {
  const turn = new Turn()
  for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
    yield bytes.subarray(start, start + CHUNK_BYTES)
    if (turn.isOver) await turn.end()
  }
}

function fileTooLarge(bytesMax: number): AppError {
  return new AppError('payload_too_large', `the file is larger than ${bytesMax} bytes`)
}
