/*
 * Detects the media type of a file and the size of an image from the first bytes. The bytes are untrusted
 * input, so every position is checked against the length.
 */

interface ImageSize {
  readonly width: number
  readonly height: number
}

type Signature = readonly [mediaType: string, offset: number, bytes: string]

/** Bytes are written as latin-1. The first matching signature decides. */
const SIGNATURES: readonly Signature[] = [
  ['image/png', 0, '\x89PNG\r\n\x1a\n'],
  ['image/jpeg', 0, '\xff\xd8\xff'],
  ['image/gif', 0, 'GIF87a'],
  ['image/gif', 0, 'GIF89a'],
  ['image/webp', 8, 'WEBP'],
  ['audio/wav', 8, 'WAVE'],
  ['image/avif', 4, 'ftypavif'],
  ['image/heic', 4, 'ftypheic'],
  ['video/quicktime', 4, 'ftypqt'],
  ['video/mp4', 4, 'ftyp'],
  ['image/tiff', 0, 'II*\0'],
  ['image/tiff', 0, 'MM\0*'],
  ['image/bmp', 0, 'BM'],
  ['application/pdf', 0, '%PDF-'],
  ['application/zip', 0, 'PK\x03\x04'],
  ['application/gzip', 0, '\x1f\x8b\x08'],
  ['application/zstd', 0, '\x28\xb5\x2f\xfd'],
  ['video/webm', 0, '\x1a\x45\xdf\xa3'],
  ['audio/ogg', 0, 'OggS'],
  ['audio/flac', 0, 'fLaC'],
  ['audio/mpeg', 0, 'ID3'],
]

/** Detects the media type. Returns undefined if it is unknown. */
export function sniffMediaType(head: Buffer): string | undefined {
  const start = head.toString('latin1', 0, 16)
  const found = SIGNATURES.find(([, offset, bytes]) => start.startsWith(bytes, offset))
  // WEBP and WAVE at offset 8 are valid only in a RIFF container.
  if (found?.[1] === 8 && !start.startsWith('RIFF')) return undefined
  return found?.[0]
}

/**
 * Returns the size of a PNG, JPEG, GIF or WebP image. undefined for other types, or if the size is not found.
 */
export function imageSize(head: Buffer): ImageSize | undefined {
  const size = readSize(head)
  return size !== undefined && size.width > 0 && size.height > 0 ? size : undefined
}

function readSize(head: Buffer): ImageSize | undefined {
  switch (sniffMediaType(head)) {
    case 'image/png':
      if (head.length < 24 || head.toString('latin1', 12, 16) !== 'IHDR') return undefined
      return { width: head.readUInt32BE(16), height: head.readUInt32BE(20) }
    case 'image/gif':
      if (head.length < 10) return undefined
      return { width: head.readUInt16LE(6), height: head.readUInt16LE(8) }
    case 'image/jpeg':
      return jpegSize(head)
    case 'image/webp':
      return webpSize(head)
    default:
      return undefined
  }
}

/**
 * Returns whether a marker starts a frame, which has the size: C0 to CF, except DHT (C4), JPG (C8) and DAC
 * (CC).
 */
function isFrame(marker: number): boolean {
  return marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)
}

function jpegSize(head: Buffer): ImageSize | undefined {
  let at = 2
  while (at + 9 <= head.length) {
    if (head[at] !== 0xff) return undefined
    const marker = head[at + 1] ?? 0
    if (marker === 0xff) {
      at++
      continue
    }
    if (isFrame(marker)) {
      return { width: head.readUInt16BE(at + 7), height: head.readUInt16BE(at + 5) }
    }
    at += 2 + head.readUInt16BE(at + 2)
  }
  return undefined
}

function webpSize(head: Buffer): ImageSize | undefined {
  if (head.length < 30) return undefined
  switch (head.toString('latin1', 12, 16)) {
    case 'VP8X':
      return { width: 1 + head.readUIntLE(24, 3), height: 1 + head.readUIntLE(27, 3) }
    case 'VP8 ':
      return { width: head.readUInt16LE(26) & 0x3fff, height: head.readUInt16LE(28) & 0x3fff }
    case 'VP8L': {
      const bits = head.readUInt32LE(21)
      return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >> 14) & 0x3fff) }
    }
    default:
      return undefined
  }
}
