import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { Statement } from '../../postgres/statement.js'

/** Flushing at about this size is faster than handing over each line, or all of them. */
const CHUNK_LENGTH = 64 * 1024
/** What may wait for PostgreSQL before writers have to. */
const BUFFER_BYTES = 1024 * 1024

/** Takes what is left to send after a failure. */
const NOWHERE = { stream: { write: () => true }, sendCopyFail: () => undefined }

/** Takes lines of COPY for a heap and passes them on as they come. */
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
      // The library has let go of its connection, but still tries to hand over what waits for it.
      Object.assign(this.#stream, { connection: NOWHERE })
    })
  }

  /** Resolves when there is room for more. */
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

  /** Makes PostgreSQL forget everything that was written. */
  async abort(): Promise<void> {
    this.#stream.destroy(new Error('the import was given up'))
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
