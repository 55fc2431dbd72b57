import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { imageSize, sniffMediaType } from './media.js'

const latin1 = (text: string) => Buffer.from(text, 'latin1')
const hex = (text: string) => Buffer.from(text.replaceAll(' ', ''), 'hex')

const GIF = Buffer.concat([latin1('GIF89a'), hex('0a00 1400 0000')])
const JPEG = hex(
  'ffd8 ffe0 0010 4a46494600010100000100010000 ffff c0 0011 08 0020 0030 03 012200 021101 031101',
)
const riff = (chunk: string, rest: string) =>
  Buffer.concat([latin1(`RIFF\0\0\0\0WEBP${chunk}`), hex(rest), Buffer.alloc(10)])

describe('sniffMediaType', () => {
  it.each([
    [latin1('\x89PNG\r\n\x1a\n'), 'image/png'],
    [GIF, 'image/gif'],
    [JPEG, 'image/jpeg'],
    [riff('VP8 ', ''), 'image/webp'],
    [latin1('xxxx\0\0\0\0WEBP'), undefined],
    [latin1('RIFF\0\0\0\0WAVE'), 'audio/wav'],
    [latin1('%PDF-1.7'), 'application/pdf'],
    [latin1('\0\0\0 ftypisom'), 'video/mp4'],
    [latin1('<svg xmlns='), undefined],
    [latin1('<html>'), undefined],
    [Buffer.alloc(0), undefined],
  ])('knows a type by its first bytes (%#)', (head, mediaType) => {
    expect(sniffMediaType(head)).toBe(mediaType)
  })
})

describe('imageSize', () => {
  it.each([
    ['GIF', GIF, { width: 10, height: 20 }],
    ['JPEG', JPEG, { width: 48, height: 32 }],
    ['WebP, extended', riff('VP8X', '0a000000 00000000 630000 310000'), { width: 100, height: 50 }],
    ['WebP, lossy', riff('VP8 ', '00000000 000000 9d012a 6400 3200'), { width: 100, height: 50 }],
    ['WebP, lossless', riff('VP8L', '00000000 2f 63400c00'), { width: 100, height: 50 }],
    ['a cut JPEG', JPEG.subarray(0, 24), undefined],
    ['no image', latin1('hello'), undefined],
  ])('reads the size of %s', (_name, head, size) => {
    expect(imageSize(head)).toEqual(size)
  })

  it('never fails, whatever the bytes are', () => {
    const starts = [GIF, JPEG, riff('VP8X', ''), latin1('\x89PNG\r\n\x1a\n')]
    fc.assert(
      fc.property(fc.constantFrom(...starts), fc.uint8Array({ maxLength: 64 }), (start, rest) => {
        imageSize(Buffer.concat([start, rest]))
        imageSize(start.subarray(0, rest.length))
      }),
    )
  })
})
