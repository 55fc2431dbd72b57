import { describe, expect, it } from 'vitest'
import { MessageWriter } from '../postgres/message-writer.js'
import { FrameReader, ProtocolError } from './frames.js'

const sent = [
  new MessageWriter('B').text('portal').int32(7).toBuffer(),
  new MessageWriter('S').toBuffer(),
  new MessageWriter('Q').text('x'.repeat(10_000)).toBuffer(),
  new MessageWriter('S').toBuffer(),
]

const newReader = (bytesMax = 200_000) => {
  const reader = new FrameReader(bytesMax)
  reader.isStarting = false
  return reader
}

describe('messages of a client', () => {
  it('are the same however their bytes arrive', () => {
    const bytes = Buffer.concat(sent)
    for (const size of [1, 3, 5, 17, 4096, bytes.length]) {
      const reader = newReader()
      const found: Buffer[] = []
      for (let at = 0; at < bytes.length; at += size) {
        reader.push(bytes.subarray(at, at + size))
        for (let frame = reader.next(); frame; frame = reader.next()) {
          found.push(new MessageWriter(frame.type).bytes(frame.body).toBuffer())
        }
      }
      expect(found, `chunks of ${size}`).toEqual(sent)
      expect(reader.bytes).toBe(0)
    }
  })

  it('are counted while they wait, with the length that the next one announces', () => {
    const reader = newReader()
    const [first = Buffer.alloc(0)] = sent
    reader.push(first.subarray(0, 3))
    expect([reader.next(), reader.bytes, reader.expectedBytes]).toEqual([undefined, 3, 0])
    reader.push(first.subarray(3, 8))
    expect([reader.next(), reader.bytes, reader.expectedBytes]).toEqual([
      undefined,
      8,
      first.length - 1,
    ])
    reader.push(Buffer.concat([first.subarray(8), Buffer.from('rest')]))
    expect(reader.next()?.type).toBe('B')
    expect(reader.takeRest().toString()).toBe('rest')
    expect(reader.bytes).toBe(0)
  })

  it('have at most the allowed length', () => {
    const message = (length: number) =>
      new MessageWriter('Q').bytes(Buffer.alloc(length)).toBuffer()
    const allowed = newReader(10)
    allowed.push(message(10))
    expect(allowed.next()?.body.length).toBe(10)
    const refused = newReader(10)
    refused.push(message(11).subarray(0, 5))
    expect(() => refused.next()).toThrow(ProtocolError)
  })
})
