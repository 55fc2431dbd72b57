import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { Statement } from '../../postgres/statement.js'

/** Chunks of about this size are faster than single lines or a single large text. */
const CHUNK_LENGTH = 64 * 1024
/** The size of the buffer. When it is full, writers wait for PostgreSQL. */
const BUFFER_BYTES = 1024 * 1024

/** Discards data that is still to be sent after a failure. */
const NOWHERE = { stream: { write: () => true }, sendCopyFail: () => undefined }

/** Streams COPY lines to a heap. */
export class RowCopy {
  readonly #stream: ReturnType<typeof copyFrom>
  readonly #done: Promise<void>
  #pending = ''
  #failure: Error | undefined

  constructor(client: pg.PoolClient, { text }: Statement) {
    this.#stream = client.query(copyFrom(text, { highWaterMark: BUFFER_BYTES }))
    this.#done = finished(this.#stream)
    this.#done.catch((error: Error) => {
      this.#failure = error
      // pg-copy-streams has released its connection, but still tries to send buffered data.
      Object.assign(this.#stream, { connection: NOWHERE })
    })
  }

  /** Resolves when the buffer has room for more. */
  async write(lines: string): Promise<void> {
    this.#pending += lines
    if (this.#pending.length < CHUNK_LENGTH) return
    await this.#flush()
  }

  async end(): Promise<void> {
    await this.#flush()
    this.#stream.end()
    await this.#done
  }

  /** Makes the COPY fail, which discards everything that was written. */
  async abort(): Promise<void> {
    this.#stream.destroy(new Error('the import was aborted'))
    await this.#done.catch(() => undefined)
  }

  async #flush(): Promise<void> {
    if (this.#failure !== undefined) throw this.#failure
    if (this.#pending === '') return
    const chunk = this.#pending
    this.#pending = ''
    if (this.#stream.write(chunk)) return
    await Promise.race([once(this.#stream, 'drain'), this.#done])
    if (this.#failure !== undefined) throw this.#failure
  }
}
