import { describe, expect, it } from 'vitest'
import { MessageWriter } from './message-writer.js'

describe('a writer of messages', () => {
  it('writes messages with their lengths, one after the other', () => {
    const writer = new MessageWriter('A').int16(0x1_0203).int32(-2)
    writer
      .begin('B')
      .letter('x')
      .bytes(Buffer.from([7, 8]))
    writer.begin('C')
    const expected = Buffer.from(
      ['41', '0000000a', '0203', 'fffffffe', '42', '00000007', '78', '0708', '43', '00000004'].join(
        '',
      ),
      'hex',
    )
    expect(writer.toBuffer()).toEqual(expected)
  })

  it('writes values with their lengths in bytes', () => {
    const writer = new MessageWriter('D').value('é').value(null).value('').value(Buffer.from('b'))
    expect(writer.toBuffer().subarray(5).toString('hex')).toBe(
      ['00000002', 'c3a9', 'ffffffff', '00000000', '00000001', '62'].join(''),
    )
  })

  it('ends a text at its first zero byte only', () => {
    expect(new MessageWriter('C').text('a\0b').toBuffer().subarray(5).toString()).toBe('ab\0')
  })

  it.each([1, 7, 8, 9, 300])('writes texts that do not fit in %i bytes', (sizeBytes) => {
    const texts = ['short', '€'.repeat(100), 'x'.repeat(10_000), '€'.repeat(1)]
    const writer = new MessageWriter('D', { sizeBytes })
    for (const text of texts) writer.value(text)
    const bytes = writer.toBuffer()
    expect(bytes.readInt32BE(1)).toBe(bytes.length - 1)
    let position = 5
    const found = texts.map(() => {
      const length = bytes.readInt32BE(position)
      position += 4 + length
      return bytes.toString('utf8', position - length, position)
    })
    expect(found).toEqual(texts)
    expect(position).toBe(bytes.length)
  })
})
