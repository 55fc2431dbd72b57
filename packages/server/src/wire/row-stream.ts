import type { Socket } from 'node:net'
import type pg from 'pg'
import type { Description, ResultColumn } from '../data/sql/evaluate.js'
import { type RowSink, TooManyRowsError } from '../data/sql/row-sink.js'
import { type ClientOutput, FLUSH_BYTES } from './client-output.js'
import { rowMessage } from './frames.js'
import { formatOf } from './row-description.js'
import { toBinary } from './values.js'
import { WireError } from './wire-error.js'

type Result = Parameters<RowSink['end']>[0]

const TAGS: Readonly<Record<Exclude<Result['kind'], 'truncate' | 'schema'>, string>> = {
  select: 'SELECT',
  insert: 'INSERT 0',
  update: 'UPDATE',
  delete: 'DELETE',
}

/** Bytes of rows that a quick statement can have. With more, it is a long one. */
const QUICK_BYTES_MAX = 8 * 1024 * 1024
/** Bytes that a row takes in memory beside its message. */
const ROW_BYTES = 120

const NO_ROW = Buffer.alloc(0)

interface RowStreamOptions {
  readonly output: ClientOutput
  /** Called with the columns before the statement runs. They are certain if it succeeds. Throws if it must not run. */
  judge?(columns: readonly ResultColumn[]): void
  /** Called once the columns are certain, and before any row is sent. */
  begin(columns: readonly ResultColumn[]): void
  /** One format for all columns, one for each, or none: texts. */
  readonly formats: readonly number[]
  /** Rows are kept until they are asked for. */
  readonly isKept: boolean
  /** Bytes of rows that can be kept until they are asked for. */
  readonly bytesMax: number
  /** Called when the statement begins, perhaps again: its rows so far are void. */
  restart?(): void
  /** Writes a row in another form, from its texts. */
  toMessage?(row: readonly (string | null)[], columns: readonly ResultColumn[]): Buffer
  /** Writes the message of a row in another form. */
  fromMessage?(message: Buffer): Buffer
}

/**
 * Turns rows into messages for a client. Rows of a quick statement are kept until it has ended, because it may be run again
 * as a long one. Those of a long one are sent as they arrive; while the client does not read, PostgreSQL waits.
 */
export class RowStream implements RowSink {
  readonly #options: RowStreamOptions
  /** Rows with texts can only be written in another form from their texts. */
  readonly forward: RowSink['forward']
  #rows: Buffer[] = []
  /** The first of the rows that were not taken yet. */
  #first = 0
  /** Bytes that the rows take. */
  #bytes = 0
  #count = 0
  #isSent = false
  #isTooLarge = false
  /** The connection that rows come from, if they are sent as they arrive. */
  #source: pg.ClientBase | undefined
  #failure: unknown
  #columns: readonly ResultColumn[] = []
  #result: Result = { kind: 'select', written: 0 }

  constructor(options: RowStreamOptions) {
    this.#options = options
    const { formats, toMessage, fromMessage } = options
    if (toMessage !== undefined && fromMessage === undefined) return
    this.forward = {
      formats,
      row: (message) => {
        if (!this.#isTooLarge) this.#add(fromMessage?.(message) ?? message)
      },
    }
  }

  describe({ columns }: Description): void {
    this.#options.judge?.(columns)
    const { length } = this.#options.formats
    if (length > 1 && length !== columns.length) {
      throw new WireError(
        '08P01',
        `bind message has ${length} result formats but query has ${columns.length} columns`,
      )
    }
    this.#columns = columns
  }

  begin({ source }: { source: pg.ClientBase | undefined }): void {
    // The client has rows of the first run already.
    if (this.#isSent) throw new WireError('40001', 'the statement was interrupted; repeat it')
    this.#options.restart?.()
    this.#rows = []
    this.#bytes = 0
    this.#count = 0
    this.#isTooLarge = false
    this.#failure = undefined
    this.#columns = []
    this.#source = this.#options.isKept ? undefined : source
  }

  row(row: readonly (string | null)[]): void {
    if (this.#isTooLarge || this.#failure !== undefined) return
    try {
      const message =
        this.#options.toMessage?.(row, this.#columns) ??
        rowMessage(this.#columns.map((_, column) => this.#encode(row[column] ?? null, column)))
      this.#add(message)
    } catch (error) {
      // It is reported when PostgreSQL has sent the rest.
      this.#failure = error
      this.#rows = []
    }
  }

  #add(message: Buffer): void {
    this.#count++
    this.#rows.push(message)
    this.#bytes += message.length + ROW_BYTES
    if (this.#source !== undefined) {
      if (this.#bytes > FLUSH_BYTES) this.#send(this.#source)
    } else if (this.#bytes > this.#bytesMax) {
      this.#isTooLarge = true
      this.#rows = []
    }
  }

  end(result: Result): void {
    this.#result = result
    if (this.#failure !== undefined) throw this.#failure
    if (this.#isTooLarge) {
      if (!this.#options.isKept) throw new TooManyRowsError()
      throw new WireError('54000', `the result takes more than ${this.#bytesMax} bytes`, {
        hint: 'In a transaction, rows are read in the parts that are asked for.',
      })
    }
    if (!this.#isSent) this.#options.begin(this.#columns)
  }

  /** The number of rows so far. */
  get count(): number {
    return this.#count
  }

  /** Bytes of rows that are kept. */
  get bytes(): number {
    return this.#bytes
  }

  /** What the statement has done to the schema, if it has changed it. */
  get changed(): Extract<Result, { kind: 'schema' }> | undefined {
    return this.#result.kind === 'schema' ? this.#result : undefined
  }

  /** In what the statement differs from PostgreSQL. */
  get notices(): readonly string[] {
    return this.#result.notices ?? []
  }

  /** Takes rows that are kept, up to a number. 0: all. */
  take(rowsMax: number): readonly Buffer[] {
    const end = rowsMax === 0 ? this.#rows.length : this.#first + rowsMax
    const rows = this.#rows.slice(this.#first, end)
    this.#rows.fill(NO_ROW, this.#first, this.#first + rows.length)
    this.#first += rows.length
    for (const row of rows) this.#bytes -= row.length + ROW_BYTES
    if (this.#first === this.#rows.length) {
      this.#rows = []
      this.#first = 0
    }
    return rows
  }

  /**
   * What the statement has done. `count` is the number of rows that were sent, if it was sent in parts. Statements that change
   * the schema can be several.
   */
  tags(count = this.#count): readonly string[] {
    const result = this.#result
    if (result.kind === 'schema') return result.tags
    if (result.kind === 'truncate') return ['TRUNCATE TABLE']
    return [`${TAGS[result.kind]} ${result.kind === 'select' ? count : result.written}`]
  }

  get #bytesMax(): number {
    const { isKept, bytesMax } = this.#options
    return isKept ? bytesMax : Math.min(bytesMax, QUICK_BYTES_MAX)
  }

  #encode(text: string | null, column: number): string | Buffer | null {
    if (text === null || formatOf(this.#options.formats, column) !== 1) return text
    return toBinary(Number(this.#columns[column]?.typeId), text)
  }

  #send(source: pg.ClientBase): void {
    const { output } = this.#options
    if (!this.#isSent) this.#options.begin(this.#columns)
    this.#isSent = true
    for (const row of this.#rows) output.write(row)
    this.#rows = []
    this.#bytes = 0
    const reading = output.send()
    if (reading === undefined) return
    const { stream } = (source as unknown as { connection: { stream: Socket } }).connection
    stream.pause()
    void reading.then(() => stream.resume())
  }
}
