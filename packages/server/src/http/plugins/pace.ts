import type { IncomingMessage, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { answerClientError } from '../client-errors.js'

/** Something that is on its way between a client and us. */
export interface Transfer {
  /** Called once in a while. */
  check(elapsedMs: number): 'moving' | 'over' | 'slow'
  cut(): void
}

declare module 'fastify' {
  interface FastifyRequest {
    /** The body, unless it was there at once. */
    bodyTransfer: Transfer | undefined
  }
}

interface Pace {
  readonly stallTimeoutMs: number
  readonly transferBytesPerSecondMin: number
}

/** No more often than this, and no timer for each request. */
const CHECK_MS_MAX = 1000
/** What is read of a body that nobody wants, so that the client gets to read the answer. */
const LEFTOVER_BYTES_MAX = 1024 * 1024
const LEFTOVER_MS_MAX = 5000
/** What a stream may hand over at once and have on its way. */
const PIECE_BYTES = 128 * 1024
/** Smaller answers are handed to the system in one go. */
const LARGE_ANSWER_BYTES = 64 * 1024

/** A body that has not arrived. The time in which it is us who do not read does not count. */
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
    // With an answer on its way, or another before it, there is no place for one more.
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
 * The rest of a body whose request is answered already. It is thrown away, within bounds: were the
 * connection closed at once, the client would be told so before it has read the answer.
 */
class Leftover implements Transfer {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #closes: boolean
  #bytes = 0
  #leftMs: number

  constructor(request: IncomingMessage, response: ServerResponse, pace: Pace) {
    this.#request = request
    this.#response = response
    this.#leftMs = Math.min(LEFTOVER_MS_MAX, pace.stallTimeoutMs)
    // Node would close the connection with the end of the answer.
    this.#closes = !response.shouldKeepAlive
    response.shouldKeepAlive = true
    request.on('error', () => undefined)
    request.on('data', (chunk: Buffer) => {
      this.#bytes += chunk.length
      if (this.#bytes > LEFTOVER_BYTES_MAX) request.pause()
    })
    request.once('end', () => {
      if (!this.#closes) return
      if (response.writableFinished) request.socket.destroySoon()
      else response.once('finish', () => request.socket.destroySoon())
    })
    request.resume()
  }

  check(elapsedMs: number): 'moving' | 'over' | 'slow' {
    const { complete, destroyed } = this.#request
    if (complete || destroyed) return 'over'
    if (!this.#response.writableFinished) return 'moving'
    this.#leftMs -= elapsedMs
    return this.#leftMs < 0 || this.#bytes > LEFTOVER_BYTES_MAX ? 'slow' : 'moving'
  }

  cut(): void {
    this.#request.socket.destroy()
  }
}

/**
 * An answer that is sent piece by piece. It has to keep up the pace all the time: measured by its whole
 * length, the reader of a large file could stop for days.
 */
class StreamTransfer implements Transfer {
  readonly #response: ServerResponse
  readonly #bytesMin: number
  readonly #windowMs: number
  #waitedMs = 0
  #sentBytes: number

  constructor(response: ServerResponse, { stallTimeoutMs, transferBytesPerSecondMin }: Pace) {
    this.#response = response
    // A piece counts when all of it is sent, so the time must be long enough for some.
    this.#windowMs = stallTimeoutMs + (PIECE_BYTES * 1000) / transferBytesPerSecondMin
    this.#bytesMin = (transferBytesPerSecondMin * this.#windowMs) / 1000 - PIECE_BYTES
    const { socket } = response
    this.#sentBytes = (socket?.bytesWritten ?? 0) - (socket?.writableLength ?? 0)
    if (socket instanceof Socket) socket.setTimeout(stallTimeoutMs)
  }

  check(elapsedMs: number): 'moving' | 'over' | 'slow' {
    const { writableFinished, destroyed, socket } = this.#response
    if (writableFinished || destroyed || socket === null) return 'over'
    // Whoever has read everything that is there waits for us.
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

/** An answer that the client has not read. */
class AnswerTransfer implements Transfer {
  readonly #response: ServerResponse
  #leftMs: number

  constructor(response: ServerResponse, options: { bytes: number; pace: Pace }) {
    const { stallTimeoutMs, transferBytesPerSecondMin } = options.pace
    this.#response = response
    this.#leftMs = stallTimeoutMs + (options.bytes * 1000) / transferBytesPerSecondMin
    // Node sets it back when the answer is out. An injected request has no connection.
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

/** Gives up on clients that keep a body or an answer from moving on. */
export const pacePlugin = fastifyPlugin(
  async (app: FastifyInstance, { limits }: { limits: Limits }) => {
    const transfers = new Set<Transfer>()
    let checkedAt = performance.now()
    const timer = setInterval(
      () => {
        const elapsedMs = performance.now() - checkedAt
        checkedAt += elapsedMs
        for (const transfer of transfers) {
          const state = transfer.check(elapsedMs)
          if (state === 'moving') continue
          transfers.delete(transfer)
          if (state === 'slow') transfer.cut()
        }
      },
      Math.min(CHECK_MS_MAX, Math.ceil(limits.stallTimeoutMs / 10)),
    ).unref()
    app.addHook('onClose', async () => clearInterval(timer))

    // A body that is short may be here by now, and those that are read as a whole are here when it is
    // looked at. What is kept in the set for longer costs the garbage collector more than us.
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
      // What is late already is closed; an injected request has no connection.
      if (!raw.complete && raw.socket instanceof Socket && reply.statusCode !== 408) {
        reply.removeHeader('connection')
        if (request.bodyTransfer !== undefined) transfers.delete(request.bodyTransfer)
        transfers.add(new Leftover(raw, reply.raw, limits))
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
