import type { CopyRow } from './copy-format.js'
import { fromBinary, toBinary } from './values.js'
import { WireError } from './wire-error.js'

/* The binary format of COPY. A row has the number of its values, and for each its length and its bytes. */

const SIGNATURE = Buffer.from('PGCOPY\n\xff\r\n\0', 'latin1')
/** The signature, flags, and the length of an extension of the head. */
const HEAD_BYTES = SIGNATURE.length + 8
/** Bytes that a part takes beside its content. */
const PART_BYTES = 100
/** PostgreSQL writes no extension. */
const EXTENSION_BYTES_MAX = 1024
/** No flag is known here. The lower ones can be ignored. */
const CRITICAL_FLAGS = 0xffff0000

export const BINARY_HEAD = Buffer.concat([SIGNATURE, Buffer.alloc(8)])
export const BINARY_END = Buffer.from([0xff, 0xff])

const invalid = (message: string) => new WireError('22P04', `COPY: ${message}`)

/** Writes a row. `typeIds` are the oids of the types of its columns. */
export function binaryRow(row: CopyRow, typeIds: readonly number[]): Buffer {
  const count = Buffer.alloc(2)
  count.writeInt16BE(row.length)
  const parts = row.flatMap((text, column) => {
    const value = text === null ? undefined : toBinary(typeIds[column] ?? 0, text)
    const length = Buffer.alloc(4)
    length.writeInt32BE(value?.length ?? -1)
    return value === undefined ? [length] : [length, value]
  })
  return Buffer.concat([count, ...parts])
}

/** Reads rows that arrive in parts. */
export class BinaryReader {
  readonly #typeIds: readonly number[]
  readonly #bytesMax: number
  /** The parts of what is not a whole row yet. */
  #parts: Buffer[] = []
  #length = 0
  /** The bytes that the row has at least. Parts are joined when they are there. */
  #expected = 0
  #hasHead = false
  #isAtEnd = false
  #count = 0

  /** `bytesMax`: bytes of one row. */
  constructor(typeIds: readonly number[], bytesMax: number) {
    this.#typeIds = typeIds
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#length + this.#parts.length * PART_BYTES
  }

  /** The number of the row that was read last. PostgreSQL calls it a line, too. */
  get line(): number {
    return this.#count
  }

  *push(bytes: Buffer): Generator<CopyRow> {
    if (this.#isAtEnd) return
    // The buffer of the message is used again.
    this.#parts.push(Buffer.from(bytes))
    this.#length += bytes.length
    if (this.#length < this.#expected) return
    const all = Buffer.concat(this.#parts)
    let at = this.#hasHead ? 0 : this.#readHead(all)
    for (let next = this.#endOfRow(all, at); next !== undefined; next = this.#endOfRow(all, at)) {
      if (all.readInt16BE(at) === -1) {
        this.#isAtEnd = true
        this.#keep(Buffer.alloc(0))
        return
      }
      this.#count++
      yield this.#row(all.subarray(at, next))
      at = next
    }
    this.#keep(Buffer.from(all.subarray(at)))
  }

  #keep(rest: Buffer): void {
    this.#parts = [rest]
    this.#length = rest.length
  }

  /** Checks that the data is whole. As in PostgreSQL, the mark of the end can be missing, which pgx leaves out. */
  end(): readonly CopyRow[] {
    if (this.#isAtEnd || (this.#hasHead && this.#length === 0)) return []
    throw this.#refused(invalid('the data has no end'))
  }

  /** Returns where the rows begin, or 0 if the head is not complete. */
  #readHead(all: Buffer): number {
    if (all.length < HEAD_BYTES) return 0
    if (!all.subarray(0, SIGNATURE.length).equals(SIGNATURE)) {
      throw invalid('the data does not have the binary format')
    }
    if ((all.readUInt32BE(SIGNATURE.length) & CRITICAL_FLAGS) !== 0) {
      throw invalid('the data has unknown flags')
    }
    const extension = all.readUInt32BE(SIGNATURE.length + 4)
    if (extension > EXTENSION_BYTES_MAX) throw invalid('the head is too long')
    if (all.length < HEAD_BYTES + extension) return 0
    this.#hasHead = true
    return HEAD_BYTES + extension
  }

  /** Returns where a row ends, or undefined if it is not complete. */
  #endOfRow(all: Buffer, start: number): number | undefined {
    this.#expected = 0
    if (!this.#hasHead || start + 2 > all.length) return undefined
    const count = all.readInt16BE(start)
    let at = start + 2
    if (count === -1) return at
    if (count !== this.#typeIds.length) {
      throw this.#refused(
        invalid(`a row has ${count} values, and ${this.#typeIds.length} are expected`),
      )
    }
    for (let column = 0; column < count; column++) {
      this.#expected = at + 4 - start
      if (at + 4 > all.length) return undefined
      const length = all.readInt32BE(at)
      if (length < -1) throw this.#refused(invalid('the length of a value is negative'))
      at += 4 + Math.max(0, length)
      if (at - start > this.#bytesMax) {
        throw this.#refused(
          new WireError('54000', `a row can have at most ${this.#bytesMax} bytes`),
        )
      }
    }
    this.#expected = at - start
    return at <= all.length ? at : undefined
  }

  /** Counts a row that is refused before it is read. */
  #refused(error: WireError): WireError {
    this.#count++
    return error
  }

  #row(bytes: Buffer): CopyRow {
    let at = 2
    return this.#typeIds.map((typeId) => {
      const length = bytes.readInt32BE(at)
      at += 4
      if (length === -1) return null
      at += length
      return fromBinary(typeId, bytes.subarray(at - length, at))
    })
  }
}
