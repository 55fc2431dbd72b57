import { IncomingMessage, type Server } from 'node:http'
import { answerClientError } from './client-errors.js'

/** Chunks of a body that may have any size. */
export const ANY_CHUNKS_MAX = 1000
/** Average bytes of a chunk in bodies with more chunks. Shorter ones cost more than their content. */
export const CHUNK_BYTES_MIN = 16
/** The event of a body whose chunks are too small. */
const TOO_SMALL = 'chunksTooSmall'

/**
 * A request that counts the chunks of its body. Each chunk costs a call of the parser and an event, so a
 * body of one-byte chunks would cost many times what it transfers. Such a body is dropped from the point
 * at which it is recognised, and never ends.
 */
export class CountedMessage extends IncomingMessage {
  #chunks = 0
  #bytes = 0
  #isDropped = false

  override push(chunk: Buffer | null, encoding?: BufferEncoding): boolean {
    if (this.#isDropped) return false
    if (chunk !== null && !this.#count(chunk.length)) {
      this.#isDropped = true
      this.emit(TOO_SMALL)
      return false
    }
    return super.push(chunk, encoding)
  }

  #count(bytes: number): boolean {
    this.#chunks++
    this.#bytes += bytes
    return this.#chunks <= ANY_CHUNKS_MAX || this.#bytes >= this.#chunks * CHUNK_BYTES_MIN
  }
}

/** Refuses bodies of a server whose chunks are too small, and closes their connections. */
export function refuseSmallChunks(server: Server): void {
  server.prependListener('request', (request, response) => {
    request.once(TOO_SMALL, () => {
      const { socket } = request
      // No second answer can be sent once one has started, or while an earlier one is pending.
      if (response.headersSent || response.socket === null) {
        socket.destroy()
        return
      }
      const refusal = Object.assign(new Error(TOO_SMALL), { code: 'OFFSHOOT_CHUNKS_TOO_SMALL' })
      answerClientError(refusal, socket)
      socket.destroySoon()
    })
  })
}
