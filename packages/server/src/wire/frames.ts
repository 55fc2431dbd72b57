import { isUtf8 } from 'node:buffer'
import { MessageWriter } from '../postgres/message-writer.js'
import { WireError } from './wire-error.js'

/*
 * Messages of the PostgreSQL protocol, version 3.0. A message has a letter, its length in four bytes, and its content. The
 * first ones of a connection have no letter.
 */

/** A message of a client. */
export interface Frame {
  /** The letter; undefined for the first messages of a connection. */
  readonly type: string | undefined
  readonly body: Buffer
}

/** A client does not keep to the protocol. Its connection ends. */
export class ProtocolError extends Error {}

const LENGTH_BYTES = 4
const NO_BYTES = Buffer.alloc(0)

/** Cuts the bytes of a client into messages. What is not complete is kept, up to the limit of a message. */
export class FrameReader {
  /** The bytes that messages are cut from, from a position on. */
  #current: Buffer = NO_BYTES
  #position = 0
  /** What has arrived since. */
  #later: Buffer[] = []
  #laterBytes = 0
  /** Whether the next message has no letter. */
  isStarting = true
  /** Bytes of one message. */
  bytesMax: number

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  /** The bytes that are waiting. */
  get bytes(): number {
    return this.#current.length - this.#position + this.#laterBytes
  }

  /** The bytes of the message that has begun, as far as they are known. */
  get expectedBytes(): number {
    const typeBytes = this.isStarting ? 0 : 1
    if (!this.#has(typeBytes + LENGTH_BYTES)) return 0
    return Math.max(0, this.#current.readInt32BE(this.#position + typeBytes))
  }

  push(chunk: Buffer): void {
    if (this.#position === this.#current.length && this.#laterBytes === 0) {
      this.#current = chunk
      this.#position = 0
      return
    }
    this.#later.push(chunk)
    this.#laterBytes += chunk.length
  }

  /** Takes all bytes that are waiting: they are not part of a message. */
  takeRest(): Buffer {
    this.#join()
    const rest = this.#current.subarray(this.#position)
    this.#current = NO_BYTES
    this.#position = 0
    return rest
  }

  /** Returns the next message, or undefined if it is not complete. */
  next(): Frame | undefined {
    const typeBytes = this.isStarting ? 0 : 1
    if (!this.#has(typeBytes + LENGTH_BYTES)) return undefined
    const length = this.#current.readInt32BE(this.#position + typeBytes)
    if (length < LENGTH_BYTES || length - LENGTH_BYTES > this.bytesMax) {
      throw new ProtocolError('invalid length of message')
    }
    if (!this.#has(typeBytes + length)) return undefined
    const bytes = this.#current
    const from = this.#position
    this.#position = from + typeBytes + length
    return {
      type: this.isStarting ? undefined : String.fromCharCode(bytes[from] ?? 0),
      body:
        length === LENGTH_BYTES
          ? NO_BYTES
          : bytes.subarray(from + typeBytes + LENGTH_BYTES, this.#position),
    }
  }

  /** Returns whether a number of bytes has arrived, and puts them into one piece. */
  #has(count: number): boolean {
    if (this.#current.length - this.#position >= count) return true
    if (this.bytes < count) return false
    this.#join()
    return true
  }

  #join(): void {
    if (this.#laterBytes === 0) return
    this.#current = Buffer.concat([this.#current.subarray(this.#position), ...this.#later])
    this.#position = 0
    this.#later = []
    this.#laterBytes = 0
  }
}

const REPLACED = '\uFFFD'

/** Returns the text that bytes are. Throws if they are none: characters that are replaced would be stored. */
export function textIn(bytes: Buffer, from = 0, to = bytes.length): string {
  const text = bytes.toString('utf8', from, to)
  // Bytes that are no text are replaced by this character, which a text can also have.
  if (text.includes(REPLACED) && !isUtf8(bytes.subarray(from, to))) throw invalidText()
  return text
}

export const invalidText = () => new WireError('22021', 'invalid byte sequence for encoding "UTF8"')

/** Reads the content of a message. Throws if it ends too early. */
export class FrameContent {
  readonly #body: Buffer
  #position = 0

  constructor(body: Buffer) {
    this.#body = body
  }

  get isAtEnd(): boolean {
    return this.#position >= this.#body.length
  }

  int16(): number {
    return this.#body.readUInt16BE(this.#pass(2))
  }

  int32(): number {
    return this.#body.readInt32BE(this.#pass(4))
  }

  letter(): string {
    return String.fromCharCode(this.#body[this.#pass(1)] ?? 0)
  }

  /** Reads a text that ends with a zero. */
  text(): string {
    const end = this.#body.indexOf(0, this.#position)
    if (end === -1) throw new ProtocolError('a text of a message has no end')
    const text = textIn(this.#body, this.#position, end)
    this.#position = end + 1
    return text
  }

  /** Reads a value. null has the length -1. */
  value(): Buffer | null {
    const length = this.int32()
    return length === -1 ? null : this.#take(length)
  }

  /** Reads a list whose length comes first. */
  list<Item>(read: () => Item): Item[] {
    const count = this.int16()
    // Each item takes a byte at least.
    if (count > this.#body.length) throw new ProtocolError('a list of a message is too long')
    const items: Item[] = []
    for (let index = 0; index < count; index++) items.push(read())
    return items
  }

  rest(): Buffer {
    return this.#take(this.#body.length - this.#position)
  }

  #take(count: number): Buffer {
    const start = this.#pass(count)
    return this.#body.subarray(start, this.#position)
  }

  /** Passes over bytes, and returns where they begin. */
  #pass(count: number): number {
    const start = this.#position
    if (count < 0 || start + count > this.#body.length) {
      throw new ProtocolError('a message is too short')
    }
    this.#position = start + count
    return start
  }
}

/** Returns the content of the message of a row: the number of its values, and each with its length. */
export const rowContent = (message: Buffer): Buffer => message.subarray(1 + LENGTH_BYTES)

/** Writes a row. It takes no more memory than its bytes, because many may be kept. */
export function rowMessage(values: readonly (string | Buffer | null)[]): Buffer {
  let sizeBytes = 1 + LENGTH_BYTES + 2
  for (const value of values)
    sizeBytes += LENGTH_BYTES + (value === null ? 0 : Buffer.byteLength(value))
  const writer = new MessageWriter('D', { sizeBytes }).int16(values.length)
  for (const value of values) writer.value(value)
  return writer.toBuffer()
}
