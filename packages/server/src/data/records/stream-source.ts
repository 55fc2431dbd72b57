import type { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'

/** What is read before a stream is used; most streams are not longer. */
export const READ_AHEAD_BYTES = 1024 * 1024
/** For each of so many bytes a stream that keeps others waiting may wait the whole time once. */
const PACE_BYTES = 256 * 1024

/**
 * The body of a request as it comes. Its beginning can be read before it is used, because the time
 * that the client takes for it is nobody else's as long as nothing is held.
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

  /** What was used of a stream cannot be read again. */
  get isUsed(): boolean {
    return this.#isUsed
  }

  /** The client went away. */
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

  /** From here on the client must not keep us waiting. */
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

  /** Whatever a refusal has left unread must go, or the connection is of no use any more. */
  async discard(): Promise<void> {
    this.#ahead.length = 0
    // A read that was given up would have to end first.
    if (!this.#isReading) await this.#chunks?.return?.()
    this.#source.resume()
  }

  /** What has failed once has failed for good: asked again, it would look like an end. */
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
    // A request must not be destroyed with its body half read: its answer has yet to be sent.
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
    'the stream came too slowly; nothing was inserted: send it faster, or with mode=partial',
  )
}
