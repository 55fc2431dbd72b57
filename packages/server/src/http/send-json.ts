import { Readable } from 'node:stream'
import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { FastifyReply } from 'fastify'
import { inTurns } from '../common/in-turns.js'
import { writeJson } from '../common/write-json.js'

/** Shorter texts are sent as they are; longer ones in pieces of this many characters. */
const PIECE_LENGTH = 64 * 1024
/** Pieces that are sent before others have their turn. */
const PIECES_PER_TURN = 16

/** Sends JSON text. A long one is encoded piece by piece, as fast as the client reads it. */
export function sendJson(reply: FastifyReply, text: string): FastifyReply {
  reply.type('application/json; charset=utf-8')
  if (text.length <= PIECE_LENGTH) return reply.send(text)
  // It is in memory until it is sent.
  reply.request.ticket?.addBytes(text.length)
  reply.header('content-length', Buffer.byteLength(text))
  return reply.send(Readable.from(pieces(text), { objectMode: false }))
}

/**
 * Sends a value that may be large, such as a schema. It is written in steps, not by the serializer of
 * the route, which would block the event loop.
 */
export async function sendLarge(reply: FastifyReply, value: unknown): Promise<FastifyReply> {
  return sendJson(reply, await inTurns(writeJson(value)))
}

async function* pieces(text: string): AsyncGenerator<Buffer> {
  let count = 0
  for (let start = 0; start < text.length; ) {
    let end = Math.min(start + PIECE_LENGTH, text.length)
    if (end < text.length && isHighSurrogate(text.charCodeAt(end - 1))) end--
    yield Buffer.from(text.slice(start, end))
    start = end
    if (++count % PIECES_PER_TURN === 0) await yieldToOthers()
  }
}

/** The first half of a character, whose other half must not be in another piece. */
function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff
}
