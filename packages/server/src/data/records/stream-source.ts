import type { Readable } from 'node:stream'

/** Longer streams are staged in PostgreSQL. Most streams are shorter. */
export const READ_AHEAD_BYTES = 1024 * 1024

/**
 * The body of a request as a stream. Its beginning can be read ahead: as long as no lock is held, a slow client
 * keeps no other request waiting.
 */
export class StreamSource implements AsyncIterable<Buffer> {
  readonly #source: Readable
  readonly #ahead: Buffer[] = []
  #chunks: AsyncIterator<Buffer> | undefined
  #isUsed = false
  #isWhole = false
  #isReading = false
  #failure: Error | undefined

  constructor(source: Readable) {
    this.#source = source
  }

  /** Whether the whole body was read ahead. Such a stream can be read repeatedly. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  /** Whether reading has started. Only a stream that was read ahead as a whole can be read twice. */
  get isUsed(): boolean {
    return this.#isUsed
  }

  /** Whether the client has disconnected. */
  get isAborted(): boolean {
    return this.#source.readableAborted
  }

  async readAhead(bytesMax: number): Promise<void> {
    let bytes = this.#ahead.reduce((sum, chunk) => sum + chunk.length, 0)
    while (bytes < bytesMax) {
      const chunk = await this.#read()
      if (chunk === undefined) {
        this.#isWhole = true
        return
      }
      this.#ahead.push(chunk)
      bytes += chunk.length
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    if (this.#isWhole) {
      yield* this.#ahead
      return
    }
    this.#isUsed = true
    for (;;) {
      const chunk = this.#ahead.shift() ?? (await this.#read())
      if (chunk === undefined) return
      yield chunk
    }
  }

  /** Reads and discards the rest of the body, so that the connection can be used for the response. */
  async discard(): Promise<void> {
    this.#ahead.length = 0
    // The iterator cannot return while a read is pending.
    if (!this.#isReading) await this.#chunks?.return?.()
    this.#source.resume()
  }

  /** Remembers a failure, because a failed iterator reports the end of the stream when it is read again. */
  async #read(): Promise<Buffer | undefined> {
    if (this.#failure !== undefined) throw this.#failure
    try {
      return await this.#readNext()
    } catch (error) {
      this.#failure = error as Error
      throw error
    }
  }

  async #readNext(): Promise<Buffer | undefined> {
    // Destroying the request before its body is read would close the connection before the response.
    this.#chunks ??= this.#source.iterator({ destroyOnReturn: false })
    this.#isReading = true
    const result = await this.#chunks.next().finally(() => {
      this.#isReading = false
    })
    return result.done ? undefined : result.value
  }
}
