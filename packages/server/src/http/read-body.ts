import type { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { inTurns } from '../common/in-turns.js'
import { overloaded } from './admission/ticket.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** Bytes of a body that was read into memory. */
    bodyBytes: number
  }
}

/**
 * Smaller pieces are copied into segments, because a Buffer of its own would take more memory than
 * its content.
 */
const PIECE_BYTES_MIN = 4096
/** The first pieces are kept without a copy; most bodies have one or two. */
const PIECES_MAX = 8
const SEGMENT_BYTES_MIN = 8 * 1024
const SEGMENT_BYTES_MAX = 256 * 1024
/** A segment is at most this part of what has arrived, so that its unused rest is small. */
const SEGMENT_PART = 1 / 8
/** Larger bodies are joined in turns: copying tens of megabytes blocks the event loop. */
const JOINED_BYTES = 1024 * 1024

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Reads a body into memory. Its bytes count against the budget of the API key as they arrive, so a
 * stalled body holds only what has arrived. Bodies of requests without a valid key are not read.
 */
export function readBody(request: FastifyRequest, payload: Readable, done: Done): void {
  const { ticket } = request
  const { bodyLimit } = request.routeOptions
  if (ticket?.caller === undefined) {
    done(new AppError('invalid_api_key', 'a request body requires a valid API key'))
    return
  }
  const announced = Number(request.headers['content-length'])
  if (announced > bodyLimit) {
    done(tooLarge(bodyLimit))
    return
  }
  const pieces = new Pieces()

  const stop = () => {
    payload.off('data', onData).off('end', onEnd).off('error', onBreak).off('close', onBreak)
    // Later errors are ignored; a stream error without a listener would end the process.
    payload.on('error', ignore)
    ticket.endBody()
  }
  const end = (error: Error | null, body?: Buffer) => {
    if (error !== null) {
      stop()
      ticket.giveBytes()
    }
    request.bodyBytes = body?.length ?? 0
    done(error, body)
  }
  const onData = (chunk: Buffer) => {
    if (pieces.bytes + chunk.length > bodyLimit) end(tooLarge(bodyLimit))
    else if (!ticket.takeBytes(chunk.length)) end(overloaded())
    else pieces.add(chunk)
  }
  const onEnd = () => {
    if (!Number.isNaN(announced) && announced !== pieces.bytes) {
      end(new AppError('invalid_request', 'header [content-length]: is not the length of the body'))
    } else {
      stop()
      const body = pieces.join()
      if (Buffer.isBuffer(body)) end(null, body)
      else void body.then((joined) => end(null, joined), end)
    }
  }
  ticket.startBody(() => end(overloaded()))
  const onBreak = () =>
    end(new AppError('invalid_request', 'the request was not received completely'))

  payload.on('data', onData).on('end', onEnd).on('error', onBreak).on('close', onBreak)
  payload.resume()
}

/** Sets the body limit of all routes that are registered after it and have none of their own. */
export function limitBodies(app: FastifyInstance, bytesMax: number): void {
  app.addHook('onRoute', (route) => {
    route.bodyLimit ??= Math.min(bytesMax, app.initialConfig.bodyLimit ?? bytesMax)
  })
}

function ignore(): void {
  // The request has ended already.
}

function tooLarge(bodyLimit: number): AppError {
  return new AppError(
    'payload_too_large',
    `the request body is larger than the limit of ${bodyLimit} bytes`,
  )
}

/**
 * Collects the pieces of a body. Memory stays close to the content however small the pieces are.
 */
class Pieces {
  readonly #list: Buffer[] = []
  #segment: Buffer | undefined
  #used = 0
  #bytes = 0

  get bytes(): number {
    return this.#bytes
  }

  add(chunk: Buffer): void {
    this.#bytes += chunk.length
    if (this.#list.length < PIECES_MAX || chunk.length >= PIECE_BYTES_MIN) {
      this.#closeSegment()
      this.#list.push(chunk)
      return
    }
    if (this.#segment !== undefined && this.#used + chunk.length > this.#segment.length) {
      this.#closeSegment()
    }
    this.#segment ??= Buffer.allocUnsafe(this.#segmentBytes())
    this.#used += chunk.copy(this.#segment, this.#used)
  }

  /** Always copies: a piece is a view of a larger network buffer, which would be kept alive. */
  join(): Buffer | Promise<Buffer> {
    this.#closeSegment()
    if (this.#bytes > JOINED_BYTES) return inTurns(this.#joinSteps())
    return Buffer.concat(this.#list, this.#bytes)
  }

  *#joinSteps(): Generator<undefined, Buffer, undefined> {
    const body = Buffer.allocUnsafe(this.#bytes)
    let bytes = 0
    for (const piece of this.#list) {
      bytes += piece.copy(body, bytes)
      yield
    }
    return body
  }

  #segmentBytes(): number {
    const part = Math.floor(this.#bytes * SEGMENT_PART)
    return Math.min(Math.max(part, SEGMENT_BYTES_MIN), SEGMENT_BYTES_MAX)
  }

  #closeSegment(): void {
    if (this.#segment === undefined) return
    const content = this.#segment.subarray(0, this.#used)
    // Copied if a large part of the segment is unused, so that it is freed.
    this.#list.push(this.#used < this.#segment.length / 2 ? Buffer.from(content) : content)
    this.#segment = undefined
    this.#used = 0
  }
}
