/*
 * The part of the tar format that a backup needs: plain files, one after the other, in a stream. Any
 * tar can list and unpack what is written here.
 */

const BLOCK_BYTES = 512
const NAME_BYTES_MAX = 100
/** What fits into the eleven octal digits of the field; larger sizes are written in binary. */
const OCTAL_SIZE_MAX = 8 * 1024 ** 3 - 1

/** The stream is no archive, or a part of it is missing or altered. */
export class DamagedArchiveError extends Error {}

/** What an archive is written to. Resolves when more can be taken. */
export type Sink = (chunk: Buffer) => Promise<void>

export class TarWriter {
  readonly #sink: Sink

  constructor(sink: Sink) {
    this.#sink = sink
  }

  async add(name: string, content: Buffer): Promise<void> {
    await this.addStream(name, content.length, [content])
  }

  /** The content must have exactly the size that was announced. */
  async addStream(
    name: string,
    size: number,
    content: AsyncIterable<Buffer> | Iterable<Buffer>,
  ): Promise<void> {
    await this.#sink(headerOf(name, size))
    let written = 0
    for await (const chunk of content) {
      written += chunk.length
      if (written > size) break
      await this.#sink(chunk)
    }
    if (written !== size)
      throw new Error(`[${name}] does not have the ${size} bytes it should have`)
    await this.#sink(Buffer.alloc(paddingOf(size)))
  }

  /** Two empty blocks say that nothing is missing. */
  async end(): Promise<void> {
    await this.#sink(Buffer.alloc(2 * BLOCK_BYTES))
  }
}

function headerOf(name: string, size: number): Buffer {
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new Error(`[${name}] is too long a name`)
  const header = Buffer.alloc(BLOCK_BYTES)
  header.write(name, 0)
  header.write('0000600\0', 100)
  header.write('0000000\0', 108)
  header.write('0000000\0', 116)
  writeSize(header, size)
  header.write(
    `${Math.floor(Date.now() / 1000)
      .toString(8)
      .padStart(11, '0')}\0`,
    136,
  )
  header.write('0', 156)
  header.write('ustar\x0000', 257)
  header.write(`${checksumOf(header).toString(8).padStart(6, '0')}\0 `, 148)
  return header
}

function writeSize(header: Buffer, size: number): void {
  if (size <= OCTAL_SIZE_MAX) {
    header.write(`${size.toString(8).padStart(11, '0')}\0`, 124)
    return
  }
  header.writeUInt8(0x80, 124)
  header.writeBigUInt64BE(BigInt(size), 128)
}

function readSize(header: Buffer): number {
  if (header.readUInt8(124) === 0x80) return Number(header.readBigUInt64BE(128))
  return Number.parseInt(header.toString('latin1', 124, 135), 8)
}

/** The sum of all bytes, with spaces where the sum itself stands. */
function checksumOf(header: Buffer): number {
  let sum = 8 * 0x20
  for (const [position, byte] of header.entries()) {
    if (position < 148 || position >= 156) sum += byte
  }
  return sum
}

function paddingOf(size: number): number {
  return (BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES
}

export interface TarEntry {
  readonly name: string
  readonly size: number
  /** Has to be read to its end before the next entry is asked for. */
  readonly content: AsyncIterable<Buffer>
}

/** The entries of an archive in their order. Ends only where the archive says that it ends. */
export async function* readTar(source: AsyncIterable<Buffer>): AsyncGenerator<TarEntry> {
  const input = new Input(source)
  for (;;) {
    const header = await input.take(BLOCK_BYTES)
    if (header.every((byte) => byte === 0)) return
    const name = header.toString('utf8', 0, NAME_BYTES_MAX).replace(/\0.*$/s, '')
    const size = readSize(header)
    const sum = Number.parseInt(header.toString('latin1', 148, 154), 8)
    if (sum !== checksumOf(header) || !Number.isSafeInteger(size) || size < 0) {
      throw new DamagedArchiveError('it is no backup, or a part of it is damaged')
    }
    yield { name, size, content: input.stream(size) }
    await input.take(paddingOf(size))
  }
}

class Input {
  readonly #chunks: AsyncIterator<Buffer>
  #rest: Buffer = Buffer.alloc(0)

  constructor(source: AsyncIterable<Buffer>) {
    this.#chunks = source[Symbol.asyncIterator]()
  }

  async take(length: number): Promise<Buffer> {
    const parts: Buffer[] = []
    for await (const part of this.stream(length)) parts.push(part)
    return Buffer.concat(parts)
  }

  async *stream(length: number): AsyncGenerator<Buffer> {
    for (let missing = length; missing > 0; ) {
      if (this.#rest.length === 0) {
        const next = await this.#chunks.next()
        if (next.done === true) throw new DamagedArchiveError('it is cut short')
        this.#rest = next.value
        continue
      }
      const part = this.#rest.subarray(0, missing)
      this.#rest = this.#rest.subarray(part.length)
      missing -= part.length
      yield part
    }
  }
}
