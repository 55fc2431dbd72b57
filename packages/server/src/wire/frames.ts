import { MessageWriter } from '../postgres/message-writer.js'

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

/** Cuts the bytes of a client into messages. What is not complete is kept, up to the limit of a message. */
export class FrameReader {
  #chunks: Buffer[] = []
  #bytes = 0
  /** Whether the next message has no letter. */
  isStarting = true
  /** Bytes of one message. */
  bytesMax: number

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  /** The bytes that are waiting. */
  get bytes(): number {
    return this.#bytes
  }

  /** The bytes of the message that has begun, as far as they are known. */
  get expectedBytes(): number {
    const typeBytes = this.isStarting ? 0 : 1
    const head = this.#peek(typeBytes + LENGTH_BYTES)
    return head === undefined ? 0 : Math.max(0, head.readInt32BE(typeBytes))
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
  }

  /** Takes all bytes that are waiting: they are not part of a message. */
  takeRest(): Buffer {
    const rest = Buffer.concat(this.#chunks)
    this.#chunks = []
    this.#bytes = 0
    return rest
  }

  /** Returns the next message, or undefined if it is not complete. */
  next(): Frame | undefined {
    const typeBytes = this.isStarting ? 0 : 1
    const head = this.#peek(typeBytes + LENGTH_BYTES)
    if (head === undefined) return undefined
    const length = head.readInt32BE(typeBytes)
    if (length < LENGTH_BYTES || length - LENGTH_BYTES > this.bytesMax) {
      throw new ProtocolError('invalid length of message')
    }
    const whole = this.#peek(typeBytes + length)
    if (whole === undefined) return undefined
    this.#drop(typeBytes + length)
    return {
      type: this.isStarting ? undefined : String.fromCharCode(head[0] ?? 0),
      body: whole.subarray(typeBytes + LENGTH_BYTES),
    }
  }

  /** Returns the next bytes, if they have arrived. */
  #peek(count: number): Buffer | undefined {
    if (this.#bytes < count) return undefined
    const [first] = this.#chunks
    if (first !== undefined && first.length >= count) return first.subarray(0, count)
    const joined = Buffer.concat(this.#chunks)
    this.#chunks = [joined]
    return joined.subarray(0, count)
  }

  #drop(count: number): void {
    const [first = Buffer.alloc(0), ...rest] = this.#chunks
    this.#bytes -= count
    this.#chunks = first.length === count ? rest : [first.subarray(count), ...rest]
  }
}

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
    return this.#take(2).readUInt16BE()
  }

  int32(): number {
    return this.#take(4).readInt32BE()
  }

  letter(): string {
    return this.#take(1).toString('latin1')
  }

  /** Reads a text that ends with a zero. */
  text(): string {
    const end = this.#body.indexOf(0, this.#position)
    if (end === -1) throw new ProtocolError('a text of a message has no end')
    const text = this.#body.toString('utf8', this.#position, end)
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
    const end = this.#position + count
    if (count < 0 || end > this.#body.length) throw new ProtocolError('a message is too short')
    const taken = this.#body.subarray(this.#position, end)
    this.#position = end
    return taken
  }
}

/** Writes a row. It takes no more memory than its bytes, because many may be kept. */
export function rowMessage(values: readonly (string | Buffer | null)[]): Buffer {
  let sizeBytes = 1 + LENGTH_BYTES + 2
  for (const value of values)
    sizeBytes += LENGTH_BYTES + (value === null ? 0 : Buffer.byteLength(value))
  const writer = new MessageWriter('D', { sizeBytes }).int16(values.length)
  for (const value of values) writer.value(value)
  return writer.toBuffer()
}
