import type { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'
import type { FastifyRequest } from 'fastify'
import { overloaded } from './admission/ticket.js'

/** Smaller pieces are copied together: each piece on its own would take more than its content. */
const PIECE_BYTES_MIN = 4096
/** As many are kept as they are before any is copied; most bodies are one or two. */
const PIECES_MAX = 8
const SEGMENT_BYTES = 8 * 1024

type Done = (error: Error | null, body?: Buffer) => void

/**
 * Reads a body into memory. Its bytes count for the key of the request as they arrive, so a body that
 * stands still holds what has arrived and no more. Bodies of requests without a known key are not read.
 */
export function readBody(request: FastifyRequest, payload: Readable, done: Done): void {
  const { ticket } = request
  const { bodyLimit } = request.routeOptions
  if (ticket?.caller === undefined) {
    done(new AppError('invalid_api_key', 'a body is only read with a valid API key'))
    return
  }
  const announced = Number(request.headers['content-length'])
  if (announced > bodyLimit) {
    done(tooLarge(bodyLimit))
    return
  }
  const pieces = new Pieces()

  const end = (error: Error | null, body?: Buffer) => {
    payload.off('data', onData).off('end', onEnd).off('error', onBreak).off('close', onBreak)
    // An error that comes later is of no interest, but must not be without a listener.
    payload.on('error', ignore)
    ticket.endBody()
    if (error !== null) ticket.giveBytes()
    done(error, body)
  }
  const onData = (chunk: Buffer) => {
    if (pieces.bytes + chunk.length > bodyLimit) end(tooLarge(bodyLimit))
    else if (!ticket.takeBytes(chunk.length)) end(overloaded())
    else pieces.add(chunk)
  }
  const onEnd = () => {
    if (!Number.isNaN(announced) && announced !== pieces.bytes) {
      end(
        new AppError(
          'invalid_request',
          'the body is not as long as the header content-length says',
        ),
      )
    } else {
      end(null, pieces.join())
    }
  }
  ticket.startBody(() => end(overloaded()))
  const onBreak = () => end(new AppError('invalid_request', 'the request cannot be read'))

  payload.on('data', onData).on('end', onEnd).on('error', onBreak).on('close', onBreak)
  payload.resume()
}

function ignore(): void {
  // The request is over.
}

function tooLarge(bodyLimit: number): AppError {
  return new AppError(
    'payload_too_large',
    `the request body is larger than the limit of ${bodyLimit} bytes`,
  )
}

/** The parts of a body in order, however small the client has cut them. */
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
    if (this.#segment !== undefined && this.#used + chunk.length > SEGMENT_BYTES) {
      this.#closeSegment()
    }
    this.#segment ??= Buffer.allocUnsafe(SEGMENT_BYTES)
    this.#used += chunk.copy(this.#segment, this.#used)
  }

  /** Always a copy, so that nothing else that came in the same packet is kept. */
  join(): Buffer {
    this.#closeSegment()
    return Buffer.concat(this.#list, this.#bytes)
  }

  #closeSegment(): void {
    if (this.#segment === undefined) return
    // What is not used of a segment must not be held, and may be most of it.
    this.#list.push(Buffer.from(this.#segment.subarray(0, this.#used)))
    this.#segment = undefined
    this.#used = 0
  }
}
