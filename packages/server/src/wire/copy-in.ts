import { setImmediate as turn } from 'node:timers/promises'
import { arrayLiteral } from '../postgres/carriers.js'
import type { CopyReader, CopyRow } from './copy-format.js'
import { invalidText } from './frames.js'
import { toWireError, WireError } from './wire-error.js'

/** Rows, and characters of them, that are inserted at once. */
const ROWS_MAX = 1_000
const LENGTH_MAX = 512 * 1024
/** Bytes that are read before others have their turn. */
const SLICE_BYTES = 64 * 1024

/** Reads rows from bytes that arrive in parts. */
export interface RowReader {
  /** The bytes of the row that has no end yet. */
  readonly bytes: number
  /** The number of the line that was read last. */
  readonly line: number
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
    get line() {
      return reader.line
    },
    push: (bytes) => reader.push(decode(bytes)),
    end() {
      decode()
      return reader.end()
    },
  }
}

/** The rows that a client sends with COPY. */
export class CopyIn {
  readonly #reader: RowReader
  readonly #table: string
  readonly #names: readonly string[]
  readonly #insert: (columns: readonly string[]) => Promise<void>
  /** The values of the rows that wait, by column. */
  #columns: (string | null)[][]
  #length = 0
  /** The number of rows that wait, and the line of the first of them. */
  #waiting = 0
  #firstLine = 0
  #count = 0
  /** The insert that is running. Meanwhile the next rows are read. */
  #inserting: Promise<void> | undefined
  #insertingLength = 0

  /** `names` are those of the columns. `insert` inserts rows. Each of their columns is an array of PostgreSQL. */
  constructor(options: {
    reader: RowReader
    table: string
    names: readonly string[]
    insert: (columns: readonly string[]) => Promise<void>
  }) {
    this.#reader = options.reader
    this.#table = options.table
    this.#names = options.names
    this.#columns = emptyColumns(options.names.length)
    this.#insert = options.insert
  }

  /** The bytes that wait for the rest of their row, or to be inserted. */
  get bytes(): number {
    return this.#reader.bytes + this.#length + this.#insertingLength
  }

  async push(bytes: Buffer): Promise<void> {
    for (let start = 0; start < bytes.length; start += SLICE_BYTES) {
      if (start > 0) await turn()
      const slice = bytes.subarray(start, start + SLICE_BYTES)
      await this.#add(() => this.#reader.push(slice))
    }
  }

  /** Returns the number of rows. */
  async finish(): Promise<number> {
    await this.#add(() => this.#reader.end())
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

  async #add(read: () => Iterable<CopyRow>): Promise<void> {
    let rows: Iterable<CopyRow> | undefined
    try {
      rows = read()
      for (const row of rows) {
        this.#keep(row)
        if (this.#waiting >= ROWS_MAX || this.#length > LENGTH_MAX) await this.#send()
      }
    } catch (error) {
      // Bytes that are no text have no lines.
      const line = rows === undefined ? 0 : this.#reader.line
      throw this.#placed(error, { first: line, last: line })
    }
  }

  #keep(row: CopyRow): void {
    this.#count++
    const columns = this.#columns
    if (row.length > columns.length) {
      throw new WireError('22P04', 'extra data after last expected column')
    }
    if (row.length < columns.length) {
      throw new WireError('22P04', `missing data for column "${this.#names[row.length]}"`)
    }
    if (this.#waiting === 0) this.#firstLine = this.#reader.line
    for (const [index, values] of columns.entries()) {
      const value = row[index] ?? null
      values.push(value)
      this.#length += (value?.length ?? 0) + 1
    }
    this.#waiting++
  }

  async #send(): Promise<void> {
    if (this.#waiting === 0) return
    const columns = this.#columns
    const length = this.#length
    const lines = { first: this.#firstLine, last: this.#reader.line }
    this.#columns = emptyColumns(columns.length)
    this.#waiting = 0
    this.#length = 0
    await this.settle()
    this.#insertingLength = length
    this.#inserting = this.#insert(columns.map(arrayLiteral)).catch((error: unknown) => {
      throw this.#placed(error, lines)
    })
    // A failure is reported with the next rows, or at the end.
    this.#inserting.catch(() => undefined)
  }

  /** Returns an error with the lines that it is about, unless it has some. 0: no line. */
  #placed(error: unknown, { first, last }: { first: number; last: number }): unknown {
    const { shown, hidden } = toWireError(error)
    if (hidden !== undefined || shown.fields.context !== undefined) return error
    const lines = first === last ? `line ${first}` : `lines ${first} to ${last}`
    const context = `COPY ${this.#table}${last === 0 ? '' : `, ${lines}`}`
    return new WireError(shown.code, shown.message, { ...shown.fields, context })
  }
}

const emptyColumns = (count: number): (string | null)[][] => Array.from({ length: count }, () => [])
