/** Bytes that a writer has room for at first. Most messages are shorter. */
const FIRST_BYTES = 256
const BYTES_PER_CHARACTER_MAX = 3

const LENGTH_BYTES = 4

/**
 * Writes messages of the PostgreSQL protocol, version 3.0: a letter, the length in four bytes, and the content. All are
 * written in one piece of memory, because each piece that is sent costs more than the bytes in it.
 */
export class MessageWriter {
  #bytes: Buffer
  #position = 0
  /** Where the length of the last message is; -1 without a message. */
  #lengthAt = -1

  /** `type` is the letter of the first message. */
  constructor(type?: string, { sizeBytes = FIRST_BYTES } = {}) {
    this.#bytes = Buffer.allocUnsafe(sizeBytes)
    if (type !== undefined) this.begin(type)
  }

  /** Begins a message. The one before is complete. */
  begin(type: string): this {
    this.#complete()
    this.#reserve(1 + LENGTH_BYTES)
    this.#bytes[this.#position++] = type.charCodeAt(0)
    this.#lengthAt = this.#position
    this.#position += LENGTH_BYTES
    return this
  }

  int16(value: number): this {
    this.#reserve(2)
    this.#position = this.#bytes.writeUInt16BE(value & 0xffff, this.#position)
    return this
  }

  int32(value: number): this {
    this.#reserve(4)
    this.#position = this.#bytes.writeInt32BE(value, this.#position)
    return this
  }

  letter(value: string): this {
    this.#reserve(1)
    this.#bytes[this.#position++] = value.charCodeAt(0)
    return this
  }

  /** Writes a text that ends with a zero. It has no others. */
  text(value: string): this {
    this.#characters(value.includes('\0') ? value.replaceAll('\0', '') : value)
    this.#reserve(1)
    this.#bytes[this.#position++] = 0
    return this
  }

  /** Writes a value with its length. null has the length -1. */
  value(value: string | Buffer | null): this {
    if (value === null) return this.int32(-1)
    if (typeof value !== 'string') return this.int32(value.length).bytes(value)
    this.#reserve(LENGTH_BYTES)
    const lengthAt = this.#position
    this.#position += LENGTH_BYTES
    this.#characters(value)
    this.#bytes.writeInt32BE(this.#position - lengthAt - LENGTH_BYTES, lengthAt)
    return this
  }

  bytes(value: Buffer): this {
    this.#reserve(value.length)
    this.#position += value.copy(this.#bytes, this.#position)
    return this
  }

  /** Returns the messages. The writer is not used any more. */
  toBuffer(): Buffer {
    this.#complete()
    return this.#bytes.subarray(0, this.#position)
  }

  #complete(): void {
    if (this.#lengthAt === -1) return
    this.#bytes.writeInt32BE(this.#position - this.#lengthAt, this.#lengthAt)
  }

  #characters(value: string): void {
    // The size in bytes is only needed if there may be no room for it.
    const room = this.#bytes.length - this.#position
    if (room < BYTES_PER_CHARACTER_MAX * value.length) this.#reserve(Buffer.byteLength(value))
    this.#position += this.#bytes.write(value, this.#position)
  }

  #reserve(count: number): void {
    const needed = this.#position + count
    if (needed <= this.#bytes.length) return
    const larger = Buffer.allocUnsafe(Math.max(needed, 2 * this.#bytes.length))
    this.#bytes.copy(larger, 0, 0, this.#position)
    this.#bytes = larger
  }
}
