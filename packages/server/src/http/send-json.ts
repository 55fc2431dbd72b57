import { Readable } from 'node:stream'
import type { FastifyReply } from 'fastify'
import { inTurns, Turn } from '../common/in-turns.js'
import { type JsonText, writeJson } from '../common/write-json.js'

/** Shorter texts are sent as they are; longer ones in pieces of this many characters. */
const PIECE_LENGTH = 64 * 1024

/** Sends JSON text. A long one is encoded piece by piece, as fast as the client reads it. */
export function sendJson(
  reply: FastifyReply,
  text: JsonText,
): FastifyReply | Promise<FastifyReply> {
  reply.type('application/json; charset=utf-8')
  const isShort = typeof text === 'string' && text.length <= PIECE_LENGTH
  return isShort ? reply.send(text) : sendParts(reply, typeof text === 'string' ? [text] : text)
}

async function sendParts(reply: FastifyReply, parts: readonly string[]): Promise<FastifyReply> {
  // They are in memory until they are sent.
  reply.request.ticket?.addBytes(parts.reduce((sum, part) => sum + part.length, 0))
  reply.header('content-length', await inTurns(countBytes(parts)))
  return reply.send(Readable.from(pieces(parts), { objectMode: false }))
}

/**
 * Sends a value that may be large, such as a schema. It is written in steps, not by the serializer of
 * the route, which would block the event loop.
 */
export async function sendLarge(reply: FastifyReply, value: unknown): Promise<FastifyReply> {
  return sendJson(reply, await inTurns(writeJson(value)))
}

/** Sends lines of JSON, as fast as the client reads them. */
export function sendLines(reply: FastifyReply, lines: AsyncIterable<string>): FastifyReply {
  reply.type('application/x-ndjson; charset=utf-8')
  return reply.send(Readable.from(lines, { objectMode: false }))
}

function* countBytes(parts: readonly string[]): Generator<undefined, number, undefined> {
  let bytes = 0
  for (const part of parts) {
    bytes += Buffer.byteLength(part)
    yield
  }
  return bytes
}

/** Divides long parts into pieces, and joins short ones. */
async function* pieces(parts: readonly string[]): AsyncGenerator<Buffer> {
  const turn = new Turn()
  let pending = ''
  for (const part of parts) {
    if (pending !== '' && pending.length + part.length > PIECE_LENGTH) {
      yield Buffer.from(pending)
      pending = ''
    }
    let start = 0
    while (part.length - start > PIECE_LENGTH) {
      let end = start + PIECE_LENGTH
      if (isHighSurrogate(part.charCodeAt(end - 1))) end--
      yield Buffer.from(part.slice(start, end))
      start = end
      if (turn.isOver) await turn.end()
    }
    pending += start === 0 ? part : part.slice(start)
  }
  if (pending !== '') yield Buffer.from(pending)
}

/** The first half of a character, whose other half must not be in another piece. */
function isHighSurrogate(unit: number): boolean {
  return unit >= 0xd800 && unit <= 0xdbff
}
