import type pg from 'pg'
import { type Call, requireSendable, type TextRows } from './statement.js'

/*
 * `pg` waits for the answer to each statement before it sends the next. What a request needs of
 * PostgreSQL is mostly known beforehand, so here all of it is sent at once and answered in one round
 * trip. PostgreSQL skips everything after the first failure, up to the end of the batch.
 */

/** What `pg` gives to, and asks of, an object that talks to the server itself. */
interface Connection {
  readonly stream: { cork(): void; uncork(): void }
  parse(message: { name: string; text: string; types: number[] }): void
  bind(message: { portal: string; statement: string; values: readonly unknown[] }): void
  execute(message: { portal: string; rows: number }): void
  sendCopyFromChunk(chunk: Buffer): void
  endCopyFrom(): void
  describe(message: { type: 'S'; name: string }): void
  close(message: { type: 'S'; name: string }): void
  sync(): void
}

interface DataRowMessage {
  /** Bytes of the message. */
  readonly length: number
  readonly fields: (string | null)[]
}

interface RowDescriptionMessage {
  readonly fields: readonly { readonly name: string; readonly dataTypeID: number }[]
}

/** The next statement without a name takes its place. */
const UNNAMED = ''

/** Statements a connection keeps prepared; beyond that those longest unused are dropped. */
export const PREPARED_MAX = 500
/** Characters of all of them together. PostgreSQL takes many times that, for their trees and plans. */
export const PREPARED_LENGTH_MAX = 1024 * 1024
/** A longer statement is parsed each time, which costs little beside running it. */
export const PREPARED_TEXT_LENGTH_MAX = 16 * 1024

/** The prepared statements of a connection, by text, the most recently used last. */
class PreparedStatements {
  readonly #names = new Map<string, string>()
  #doubtful: string[] = []
  #count = 0
  #length = 0

  /** The name to run the text under. What it takes to have it is sent and noted in `sent`. */
  use(connection: Connection, text: string, sent: SentChanges): string {
    const known = this.#names.get(text)
    if (known !== undefined) {
      this.#names.delete(text)
      this.#names.set(text, known)
      return known
    }
    this.#makeRoom(connection, text.length, sent)
    const name = `s${++this.#count}`
    connection.parse({ name, text, types: [] })
    this.#names.set(text, name)
    this.#length += text.length
    sent.parsed.add(text)
    return name
  }

  /** After a failure the server may have the statement or not; its name is not used again. */
  doubt(text: string): void {
    const name = this.#names.get(text)
    if (name === undefined) return
    this.#forget(text)
    this.#doubtful.push(name)
  }

  /** Closing a statement that is closed does no harm. */
  closeAgain(names: readonly string[]): void {
    this.#doubtful.push(...names)
  }

  #makeRoom(connection: Connection, length: number, sent: SentChanges): void {
    const names = this.#doubtful
    this.#doubtful = []
    // The entries of a map come in the order in which they were put there.
    for (const [text, name] of this.#names) {
      const hasRoom =
        this.#names.size < PREPARED_MAX && this.#length + length <= PREPARED_LENGTH_MAX
      if (hasRoom) break
      this.#forget(text)
      names.push(name)
    }
    for (const name of names) connection.close({ type: 'S', name })
    sent.closed.push(...names)
  }

  #forget(text: string): void {
    if (this.#names.delete(text)) this.#length -= text.length
  }
}

/** What a batch changes about the prepared statements; after a failure it may not have happened. */
interface SentChanges {
  /** By text. */
  readonly parsed: Set<string>
  /** By name. */
  readonly closed: string[]
}

/** How much may be read. */
export interface ReadRoom {
  /** Whether so many bytes more fit. If not, the batch fails once PostgreSQL has come to its end. */
  take(bytes: number): boolean
}

/** More rows came than there was room for. They are thrown away as they arrive. */
export class RoomSpentError extends Error {}

const preparedOf = new WeakMap<Connection, PreparedStatements>()

class Pipeline {
  readonly #calls: readonly Call[]
  readonly #rows: (string | null)[][][] = []
  readonly #sent: SentChanges = { parsed: new Set(), closed: [] }
  readonly #settle: { resolve(rows: TextRows[]): void; reject(error: Error): void }
  readonly #room: ReadRoom | undefined
  #current: (string | null)[][] = []
  #isSettled = false
  #isSpent = false

  constructor(
    calls: readonly Call[],
    settle: { resolve(rows: TextRows[]): void; reject(error: Error): void },
    room: ReadRoom | undefined,
  ) {
    this.#calls = calls
    this.#settle = settle
    this.#room = room
  }

  /** For whoever follows what is asked of PostgreSQL. */
  get statements(): readonly string[] {
    return this.#calls.map((call) => call.statement.text)
  }

  /** What fails while it is sent fails this batch: `pg` has no one to tell of what is thrown here. */
  submit(connection: Connection): Error | undefined {
    try {
      this.#send(connection)
      return undefined
    } catch (error) {
      return error instanceof Error ? error : new Error('a batch could not be sent')
    }
  }

  #send(connection: Connection): void {
    const prepared = preparedOf.get(connection) ?? new PreparedStatements()
    preparedOf.set(connection, prepared)
    connection.stream.cork()
    try {
      for (const call of this.#calls) {
        const { statement, values, input, describes } = call
        const isUnnamed = call.isUnnamed || statement.text.length > PREPARED_TEXT_LENGTH_MAX
        const name = isUnnamed ? UNNAMED : prepared.use(connection, statement.text, this.#sent)
        if (isUnnamed) connection.parse({ name, text: statement.text, types: [] })
        if (describes) {
          connection.describe({ type: 'S', name })
          continue
        }
        const { slots } = statement
        const parameters = new Array<string | null>(slots.length)
        for (let index = 0; index < slots.length; index++) {
          const slot = slots[index]
          parameters[index] = typeof slot === 'string' ? slot : (values[slot as number] ?? null)
        }
        connection.bind({ portal: '', statement: name, values: parameters })
        connection.execute({ portal: '', rows: 0 })
        if (input !== undefined) {
          // PostgreSQL reads it once it comes to the statement, and passes over it if it never does.
          connection.sendCopyFromChunk(Buffer.from(input))
          connection.endCopyFrom()
        }
      }
      connection.sync()
    } finally {
      connection.stream.uncork()
    }
  }

  /** Comes only where it was asked for. */
  handleRowDescription({ fields }: RowDescriptionMessage): void {
    this.#rows.push(fields.map(({ name, dataTypeID }) => [name, String(dataTypeID)]))
  }

  handleCopyInResponse(): void {
    // The input is under way already.
  }

  handleDataRow(message: DataRowMessage): void {
    if (this.#room !== undefined && !this.#hasRoom(this.#room, message.length)) return
    this.#current.push(message.fields)
  }

  #hasRoom(room: ReadRoom, bytes: number): boolean {
    if (this.#isSpent) return false
    if (room.take(bytes)) return true
    this.#isSpent = true
    // What has been read is not needed any more; how many calls have been answered is.
    this.#current = []
    this.#rows.fill([])
    return false
  }

  handleCommandComplete(): void {
    this.#rows.push(this.#current)
    this.#current = []
  }

  handleEmptyQuery(): void {
    this.handleCommandComplete()
  }

  handlePortalSuspended(): void {
    // Only when a row limit was sent.
  }

  handleReadyForQuery(): void {
    if (this.#isSettled) return
    this.#isSettled = true
    if (this.#isSpent) this.#settle.reject(new RoomSpentError())
    else this.#settle.resolve(this.#rows)
  }

  handleError(error: Error, connection: Connection): void {
    if (this.#isSettled) return
    this.#isSettled = true
    const prepared = preparedOf.get(connection)
    // Of the statements new to the server, the failed one may not have been parsed, and those
    // after it have not.
    for (const { statement } of this.#calls.slice(this.#rows.length)) {
      if (this.#sent.parsed.has(statement.text)) prepared?.doubt(statement.text)
    }
    prepared?.closeAgain(this.#sent.closed)
    this.#settle.reject(this.#isSpent ? new RoomSpentError('', { cause: error }) : error)
  }
}

/** Runs the calls in order, in one round trip. All rows are texts, in the order of the calls. */
export function runPipeline(
  client: pg.ClientBase,
  calls: readonly Call[],
  room?: ReadRoom,
): Promise<TextRows[]> {
  return new Promise((resolve, reject) => {
    for (const { statement } of calls) requireSendable(statement.text, statement.slots.length)
    const pipeline = new Pipeline(calls, { resolve, reject }, room)
    client.query(pipeline as unknown as pg.Submittable)
  })
}
