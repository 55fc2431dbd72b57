import { setImmediate as turn } from 'node:timers/promises'
import { arrayLiteral } from '../postgres/carriers.js'
import type { CopyReader, CopyRow } from './copy-format.js'
import { invalidText } from './frames.js'
import { WireError } from './wire-error.js'

/** Rows, and characters of them, that are inserted at once. */
const ROWS_MAX = 1_000
const LENGTH_MAX = 512 * 1024
/** Bytes that are read before others have their turn. */
const SLICE_BYTES = 64 * 1024

/** Reads rows from bytes that arrive in parts. */
export interface RowReader {
  /** The bytes of the row that has no end yet. */
  readonly bytes: number
  push(bytes: Buffer): Iterable<CopyRow>
  end(): Iterable<CopyRow>
}

/** Reads rows of texts. A character may arrive in parts, too. */
export function readTexts(reader: CopyReader): RowReader {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  const decode = (bytes?: Buffer) => {
    try {
      return decoder.decode(bytes, { stream: bytes !== undefined })
    } catch {
      throw invalidText()
    }
  }
  return {
    get bytes() {
      return reader.bytes
    },
    push: (bytes) => reader.push(decode(bytes)),
    *end() {
      yield* reader.push(decode())
      yield* reader.end()
    },
  }
}

/** The rows that a client sends with COPY. */
export class CopyIn {
  readonly #reader: RowReader
  readonly #insert: (columns: readonly string[]) => Promise<void>
  /** The values of the rows that wait, by column. */
  #columns: (string | null)[][]
  #length = 0
  /** The number of rows that wait. */
  #waiting = 0
  #count = 0
  /** The insert that is running. Meanwhile the next rows are read. */
  #inserting: Promise<void> | undefined
  #insertingLength = 0

  /** `insert` inserts rows. Each of their columns is an array of PostgreSQL. */
  constructor(options: {
    reader: RowReader
    columnCount: number
    insert: (columns: readonly string[]) => Promise<void>
  }) {
    this.#reader = options.reader
    this.#columns = emptyColumns(options.columnCount)
    this.#insert = options.insert
  }

  /** The bytes that wait for the rest of their row, or to be inserted. */
  get bytes(): number {
    return this.#reader.bytes + this.#length + this.#insertingLength
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
    await this.settle()
    return this.#count
  }

  /** Waits for the insert that is running. Nothing else must run in its transaction before. */
  async settle(): Promise<void> {
    const inserting = this.#inserting
    this.#inserting = undefined
    await inserting
    this.#insertingLength = 0
  }

  async #add(rows: Iterable<CopyRow>): Promise<void> {
    for (const row of rows) {
      this.#count++
      const columns = this.#columns
      if (row.length !== columns.length) {
        const what = row.length < columns.length ? 'missing data for a' : 'extra data after last'
        throw new WireError('22P04', `COPY, row ${this.#count}: ${what} column`)
      }
      for (const [index, values] of columns.entries()) {
        const value = row[index] ?? null
        values.push(value)
        this.#length += (value?.length ?? 0) + 1
      }
      this.#waiting++
      if (this.#waiting >= ROWS_MAX || this.#length > LENGTH_MAX) await this.#send()
    }
  }

  async #send(): Promise<void> {
    if (this.#waiting === 0) return
    const columns = this.#columns
    const length = this.#length
    this.#columns = emptyColumns(columns.length)
    this.#waiting = 0
    this.#length = 0
    await this.settle()
    this.#insertingLength = length
    this.#inserting = this.#insert(columns.map(arrayLiteral))
    // A failure is reported with the next rows, or at the end.
    this.#inserting.catch(() => undefined)
  }
}

const emptyColumns = (count: number): (string | null)[][] => Array.from({ length: count }, () => [])
