import { invalidBinary } from './wire-error.js'

/* The binary forms of ranges and multiranges. */

/** Converts the bounds of a range. */
interface BoundType {
  encode(text: string): Buffer
  decode(bytes: Buffer): string
}

const FLAGS = {
  isEmpty: 1,
  hasLower: 2,
  hasUpper: 4,
  isLowerInfinite: 8,
  isUpperInfinite: 16,
} as const

/** A bound is a run of characters; those with a meaning are quoted, and quotes inside are doubled or escaped. */
const BOUND = String.raw`((?:"(?:[^"\\]|\\.|"")*"|[^",()[\]\\]|\\.)*)`
const RANGE = new RegExp(`([[(])${BOUND},${BOUND}([\\])])|(empty)`, 'gs')

const unquoted = (bound: string): string =>
  bound.replace(/^"(.*)"$/s, '$1').replace(/\\(.)|"(")/gs, '$1$2')

const quoted = (bound: string): string => `"${bound.replace(/["\\]/g, '\\$&')}"`

function withLength(bytes: Buffer): Buffer[] {
  const length = Buffer.alloc(4)
  length.writeInt32BE(bytes.length)
  return [length, bytes]
}

function encodeMatch(
  [, open, lower = '', upper = '', close, empty]: RegExpMatchArray,
  bounds: BoundType,
): Buffer {
  if (empty !== undefined) return Buffer.from([FLAGS.isEmpty])
  const flags =
    (lower === '' ? FLAGS.isLowerInfinite : open === '[' ? FLAGS.hasLower : 0) |
    (upper === '' ? FLAGS.isUpperInfinite : close === ']' ? FLAGS.hasUpper : 0)
  const given = [lower, upper].filter((bound) => bound !== '')
  const parts = given.flatMap((bound) => withLength(bounds.encode(unquoted(bound))))
  return Buffer.concat([Buffer.from([flags]), ...parts])
}

export function encodeRange(text: string, bounds: BoundType): Buffer {
  const [found] = text.matchAll(RANGE)
  if (found === undefined) throw new Error('a range must have bounds')
  return encodeMatch(found, bounds)
}

export function encodeMultirange(text: string, bounds: BoundType): Buffer {
  const ranges = [...text.matchAll(RANGE)].map((found) => encodeMatch(found, bounds))
  const count = Buffer.alloc(4)
  count.writeInt32BE(ranges.length)
  return Buffer.concat([count, ...ranges.flatMap(withLength)])
}

/** Reads values that follow their length. */
class Reader {
  #position = 0

  constructor(readonly bytes: Buffer) {}

  byte(): number {
    const byte = this.bytes[this.#position++]
    if (byte === undefined) throw invalidBinary()
    return byte
  }

  int32(): number {
    if (this.#position + 4 > this.bytes.length) throw invalidBinary()
    this.#position += 4
    return this.bytes.readInt32BE(this.#position - 4)
  }

  value(): Buffer {
    const length = this.int32()
    if (length < 0 || this.#position + length > this.bytes.length) throw invalidBinary()
    this.#position += length
    return this.bytes.subarray(this.#position - length, this.#position)
  }

  end(): void {
    if (this.#position !== this.bytes.length) throw invalidBinary()
  }
}

export function decodeRange(bytes: Buffer, bounds: BoundType): string {
  const reader = new Reader(bytes)
  const flags = reader.byte()
  const has = (flag: number) => (flags & flag) !== 0
  const read = (isInfinite: boolean) => (isInfinite ? '' : quoted(bounds.decode(reader.value())))
  const isEmpty = has(FLAGS.isEmpty)
  const lower = isEmpty ? '' : read(has(FLAGS.isLowerInfinite))
  const upper = isEmpty ? '' : read(has(FLAGS.isUpperInfinite))
  reader.end()
  if (isEmpty) return 'empty'
  return `${has(FLAGS.hasLower) ? '[' : '('}${lower},${upper}${has(FLAGS.hasUpper) ? ']' : ')'}`
}

export function decodeMultirange(bytes: Buffer, bounds: BoundType): string {
  const reader = new Reader(bytes)
  const count = reader.int32()
  // A range takes five bytes with its length.
  if (count < 0 || 5 * count > bytes.length) throw invalidBinary()
  const ranges = Array.from({ length: count }, () => decodeRange(reader.value(), bounds))
  reader.end()
  return `{${ranges.join(',')}}`
}
