import type { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'

/** The number of bytes read before a transaction is opened. Most streams are shorter. */
export const READ_AHEAD_BYTES = 1024 * 1024
/** The waiting time of a stream starts over after this many bytes. */
const PACE_BYTES = 256 * 1024

/**
 * The body of a request as a stream. Its beginning can be read ahead: as long as no lock is held, a slow client
 * keeps no other request waiting.
 */
export class StreamSource implements AsyncIterable<Buffer> {
  readonly #source: Readable
  readonly #ahead: Buffer[] = []
  #chunks: AsyncIterator<Buffer> | undefined
  #isUsed = false
  #isReading = false
  #failure: Error | undefined
  #waitMsMax: number | undefined
  #waitedMs = 0
  #paceBytes = 0

  constructor(source: Readable) {
    this.#source = source
  }

  /** Whether reading has started. A stream cannot be read twice. */
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
      if (chunk === undefined) return
      this.#ahead.push(chunk)
      bytes += chunk.length
    }
  }

  /** Limits the waiting time from here on, because locks are held. */
  hurry(waitMsMax: number): void {
    this.#waitMsMax = waitMsMax
    this.#waitedMs = 0
    this.#paceBytes = 0
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
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
    const startedAt = performance.now()
    this.#isReading = true
    const next = this.#chunks.next().finally(() => {
      this.#isReading = false
    })
    const result = this.#waitMsMax === undefined ? await next : await this.#inTime(next)
    if (result.done) return undefined
    this.#notePace(result.value.length, performance.now() - startedAt)
    return result.value
  }

  #notePace(bytes: number, waitedMs: number): void {
    this.#waitedMs += waitedMs
    this.#paceBytes += bytes
    if (this.#paceBytes < PACE_BYTES) return
    this.#waitedMs = 0
    this.#paceBytes = 0
  }

  async #inTime<Result>(next: Promise<Result>): Promise<Result> {
    let timer: NodeJS.Timeout | undefined
    const late = new Promise<never>((_resolve, reject) => {
      const leftMs = Math.max(0, (this.#waitMsMax ?? 0) - this.#waitedMs)
      timer = setTimeout(() => reject(tooSlow()), leftMs)
    })
    try {
      return await Promise.race([next, late])
    } finally {
      clearTimeout(timer)
    }
  }
}

function tooSlow(): AppError {
  return new AppError(
    'request_timeout',
    'the stream was too slow; nothing was inserted: send it faster, or with mode=partial',
  )
}
