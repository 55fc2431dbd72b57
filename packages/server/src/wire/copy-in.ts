import { StringDecoder } from 'node:string_decoder'
import { setImmediate as turn } from 'node:timers/promises'
import type { CopyReader, CopyRow } from './copy-format.js'
import { WireError } from './wire-error.js'

/** Rows, and characters of them, that are inserted at once. */
const ROWS_MAX = 1_000
const LENGTH_MAX = 512 * 1024
/** Bytes that are read before others have their turn. */
const SLICE_BYTES = 64 * 1024

/** Reads rows from bytes that arrive in parts. */
interface RowReader {
  /** The bytes of the row that has no end yet. */
  readonly bytes: number
  push(bytes: Buffer): Iterable<CopyRow>
  end(): Iterable<CopyRow>
}

/** Reads rows of texts. A character may arrive in parts, too. */
export function readTexts(reader: CopyReader): RowReader {
  const decoder = new StringDecoder('utf8')
  return {
    get bytes() {
      return reader.bytes
    },
    push: (bytes) => reader.push(decoder.write(bytes)),
    end: () => reader.end(),
  }
}

/** The rows that a client sends with COPY. */
export class CopyIn {
  readonly #reader: RowReader
  readonly #columnCount: number
  readonly #insert: (rows: string) => Promise<void>
  #rows: CopyRow[] = []
  #length = 0
  #count = 0

  /** `insert` inserts rows, which are lists of texts in JSON. */
  constructor(options: {
    reader: RowReader
    columnCount: number
    insert: (rows: string) => Promise<void>
  }) {
    this.#reader = options.reader
    this.#columnCount = options.columnCount
    this.#insert = options.insert
  }

  /** The bytes that wait for the rest of their row, or to be inserted. */
  get bytes(): number {
    return this.#reader.bytes + this.#length
  }

  async push(bytes: Buffer): Promise<void> {
    for (let start = 0; start < bytes.length; start += SLICE_BYTES) {
      if (start > 0) await turn()
      await this.#add(this.#reader.push(bytes.subarray(start, start + SLICE_BYTES)))
    }
  }

  /** Returns the number of rows. */
  async finish(): Promise<number> {
    await this.#add(this.#reader.end())
    await this.#send()
    return this.#count
  }

  async #add(rows: Iterable<CopyRow>): Promise<void> {
    for (const row of rows) {
      this.#count++
      if (row.length !== this.#columnCount) {
        const what = row.length < this.#columnCount ? 'missing data for a' : 'extra data after last'
        throw new WireError('22P04', `COPY, row ${this.#count}: ${what} column`)
      }
      this.#rows.push(row)
      for (const value of row) this.#length += (value?.length ?? 0) + 1
      if (this.#rows.length >= ROWS_MAX || this.#length > LENGTH_MAX) await this.#send()
    }
  }

  async #send(): Promise<void> {
    if (this.#rows.length === 0) return
    const rows = JSON.stringify(this.#rows)
    this.#rows = []
    this.#length = 0
    await this.#insert(rows)
  }
}
