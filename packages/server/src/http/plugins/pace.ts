import type { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { answerClientError } from '../client-errors.js'

/** A request body or an answer in transfer. */
interface Transfer {
  /** Called at regular intervals. */
  check(elapsedMs: number): 'moving' | 'over' | 'slow'
  cut(): void
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The transfer of the body; undefined if the body arrived with the headers. */
    bodyTransfer: Transfer | undefined
  }
}

interface Pace {
  readonly stallTimeoutMs: number
  readonly transferBytesPerSecondMin: number
}

/** Maximum interval of the one timer that checks all transfers. */
const CHECK_MS_MAX = 1000
/** Bytes of an unwanted body that are read and discarded. */
const LEFTOVER_BYTES_MAX = 1024 * 1024
/** Time for the client to read the answer while it still sends an unwanted body. */
const LEFTOVER_MS_MAX = 5000
/** Chunks of such a body; a chunk costs as much as a thousand bytes. */
const LEFTOVER_CHUNKS_MAX = 1024
/** Maximum size of a chunk of a streamed answer, and of its unsent data. */
const PIECE_BYTES = 128 * 1024
/** Smaller answers fit into the buffers of the operating system. */
const LARGE_ANSWER_BYTES = 64 * 1024

/**
 * A body that has not arrived completely. Time in which the server does not read it does not count.
 */
class BodyTransfer implements Transfer {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #pace: Pace
  #waitedMs = 0
  #bytes: number

  constructor(request: IncomingMessage, response: ServerResponse, pace: Pace) {
    this.#request = request
    this.#response = response
    this.#pace = pace
    this.#bytes = request.socket.bytesRead
  }

  check(elapsedMs: number): 'moving' | 'over' | 'slow' {
    const { complete, destroyed, readableLength, socket } = this.#request
    if (complete || destroyed) return 'over'
    if (readableLength > 0) return 'moving'
    this.#waitedMs += elapsedMs
    const { stallTimeoutMs, transferBytesPerSecondMin } = this.#pace
    if (this.#waitedMs < stallTimeoutMs) return 'moving'
    const moved = socket.bytesRead - this.#bytes
    if (moved * 1000 < transferBytesPerSecondMin * this.#waitedMs) return 'slow'
    this.#waitedMs = 0
    this.#bytes = socket.bytesRead
    return 'moving'
  }

  cut(): void {
    const { socket } = this.#request
    // No second answer can be sent once one has started, or while an earlier one of the connection
    // is pending.
    if (this.#response.headersSent || this.#response.socket === null) {
      socket.destroy()
      return
    }
    const timeout = Object.assign(new Error('slow'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' })
    answerClientError(timeout, socket)
    socket.destroySoon()
  }
}

/**
 * The rest of a body whose request is already answered. It is discarded, up to a limit; the bytes
 * beyond it stay unread. Then the client has some time to read the answer and close the connection:
 * closing it at once would reset it, and a client that still sends would not get the answer.
 */
class Leftover implements Transfer {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #closes: boolean
  #bytes = 0
  #chunks = 0
  #leftMs: number

  constructor(request: IncomingMessage, response: ServerResponse, pace: Pace) {
    this.#request = request
    this.#response = response
    this.#leftMs = Math.min(LEFTOVER_MS_MAX, pace.stallTimeoutMs)
    this.#closes = !response.shouldKeepAlive || mayStayUnread(request)
    // Node would close the connection at the end of the answer.
    response.shouldKeepAlive = true
    response.once('prefinish', () => {
      ;(response as unknown as { _last: boolean })._last = false
    })
    request.on('error', () => undefined)
    request.on('data', (chunk: Buffer) => {
      this.#bytes += chunk.length
      this.#chunks++
      const isTooMuch = this.#bytes > LEFTOVER_BYTES_MAX || this.#chunks > LEFTOVER_CHUNKS_MAX
      if (isTooMuch) request.pause()
    })
    request.once('end', () => {
      if (!this.#closes) return
      if (response.writableFinished) request.socket.destroySoon()
      else response.once('finish', () => request.socket.destroySoon())
    })
    request.resume()
  }

  /** Whether the client must not send another request on the connection. */
  get closes(): boolean {
    return this.#closes
  }

  check(elapsedMs: number): 'moving' | 'over' | 'slow' {
    const { complete, destroyed } = this.#request
    if (complete || destroyed) return 'over'
    if (!this.#response.writableFinished) return 'moving'
    this.#leftMs -= elapsedMs
    return this.#leftMs < 0 ? 'slow' : 'moving'
  }

  cut(): void {
    this.#request.socket.destroy()
  }
}

/**
 * Whether a part of the body may stay unread. A request that the client sent behind it would not be read
 * either.
 */
function mayStayUnread({ headers }: IncomingMessage): boolean {
  const length = headers['content-length']
  return length === undefined || Number(length) > LEFTOVER_BYTES_MAX
}

/**
 * A streamed answer. It must keep the minimum rate in every window. An average over its whole
 * length would let the reader of a large file pause for days.
 */
class StreamTransfer implements Transfer {
  readonly #response: ServerResponse
  readonly #bytesMin: number
  readonly #windowMs: number
  #waitedMs = 0
  #sentBytes: number

  constructor(response: ServerResponse, { stallTimeoutMs, transferBytesPerSecondMin }: Pace) {
    this.#response = response
    // A chunk counts when it is sent completely, so the window must be long enough for several.
    this.#windowMs = stallTimeoutMs + (PIECE_BYTES * 1000) / transferBytesPerSecondMin
    this.#bytesMin = (transferBytesPerSecondMin * this.#windowMs) / 1000 - PIECE_BYTES
    const { socket } = response
    this.#sentBytes = (socket?.bytesWritten ?? 0) - (socket?.writableLength ?? 0)
    if (socket instanceof Socket) socket.setTimeout(stallTimeoutMs)
  }

  check(elapsedMs: number): 'moving' | 'over' | 'slow' {
    const { writableFinished, destroyed, socket } = this.#response
    if (writableFinished || destroyed || socket === null) return 'over'
    // The client has read everything so far and waits for the server.
    if (socket.writableLength === 0) this.#waitedMs = 0
    this.#waitedMs += elapsedMs
    if (this.#waitedMs < this.#windowMs) return 'moving'
    const sentBytes = socket.bytesWritten - socket.writableLength
    if (sentBytes - this.#sentBytes < this.#bytesMin) return 'slow'
    this.#waitedMs = 0
    this.#sentBytes = sentBytes
    return 'moving'
  }

  cut(): void {
    this.#response.destroy()
  }
}

/** An answer that is in memory and not yet read by the client. */
class AnswerTransfer implements Transfer {
  readonly #response: ServerResponse
  #leftMs: number

  constructor(response: ServerResponse, options: { bytes: number; pace: Pace }) {
    const { stallTimeoutMs, transferBytesPerSecondMin } = options.pace
    this.#response = response
    this.#leftMs = stallTimeoutMs + (options.bytes * 1000) / transferBytesPerSecondMin
    // Node resets the timeout after the answer. An injected request has no connection.
    if (response.socket instanceof Socket) response.socket.setTimeout(stallTimeoutMs)
  }

  check(elapsedMs: number): 'moving' | 'over' | 'slow' {
    if (this.#response.writableFinished || this.#response.destroyed) return 'over'
    this.#leftMs -= elapsedMs
    return this.#leftMs > 0 ? 'moving' : 'slow'
  }

  cut(): void {
    this.#response.destroy()
  }
}

/** Aborts bodies and answers that stall or are slower than the minimum transfer rate. */
export const pacePlugin = fastifyPlugin(
  async (app: FastifyInstance, { limits }: { limits: Limits }) => {
    const transfers = new Set<Transfer>()
    const intervalMs = Math.min(CHECK_MS_MAX, Math.ceil(limits.stallTimeoutMs / 10))
    let checkedAt = performance.now()
    const timer = setInterval(() => {
      const now = performance.now()
      // If the machine did not let this process run, no transfer could move: that time does not count.
      const elapsedMs = Math.min(now - checkedAt, 2 * intervalMs)
      checkedAt = now
      for (const transfer of transfers) {
        const state = transfer.check(elapsedMs)
        if (state === 'moving') continue
        transfers.delete(transfer)
        if (state === 'slow') transfer.cut()
      }
    }, intervalMs).unref()
    app.addHook('onClose', async () => clearInterval(timer))

    // Bodies that have arrived by now are not tracked, and bodies that are parsed as a whole are
    // removed before validation: entries that stay in the set long cost more garbage collection.
    app.decorateRequest('bodyTransfer', undefined)
    app.addHook('preParsing', (request, reply, _payload, done) => {
      if (!request.raw.complete) {
        request.bodyTransfer = new BodyTransfer(request.raw, reply.raw, limits)
        transfers.add(request.bodyTransfer)
      }
      done()
    })
    app.addHook('preValidation', (request, _reply, done) => {
      const { bodyTransfer, raw } = request
      if (bodyTransfer !== undefined && raw.complete) transfers.delete(bodyTransfer)
      done()
    })
    app.addHook('onSend', (request, reply, payload, done) => {
      const { raw } = request
      // A timed-out connection (408) is closed anyway. An injected request has no connection.
      if (!raw.complete && raw.socket instanceof Socket && reply.statusCode !== 408) {
        if (request.bodyTransfer !== undefined) transfers.delete(request.bodyTransfer)
        const leftover = new Leftover(raw, reply.raw, limits)
        transfers.add(leftover)
        if (leftover.closes) reply.header('connection', 'close')
        else reply.removeHeader('connection')
      }
      const bytes = answerBytes(payload, reply.getHeader('content-length'))
      if (bytes > LARGE_ANSWER_BYTES) {
        const isStream = typeof payload !== 'string' && !Buffer.isBuffer(payload)
        transfers.add(
          isStream
            ? new StreamTransfer(reply.raw, limits)
            : new AnswerTransfer(reply.raw, { bytes, pace: limits }),
        )
      }
      done()
    })
  },
)

function answerBytes(payload: unknown, contentLength: unknown): number {
  if (typeof payload === 'string' || Buffer.isBuffer(payload)) return payload.length
  return payload === null || payload === undefined ? 0 : Number(contentLength ?? 0)
}
