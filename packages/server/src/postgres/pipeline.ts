import type pg from 'pg'
import { noteLastStatementFailed } from './failures.js'
import { MessageWriter } from './message-writer.js'
import { checkBatch } from './pooler.js'
import { type RowReader, readRowsOn } from './row-messages.js'
import { serverOf } from './server.js'
import {
  type Call,
  DESCRIBED_PARAMETERS_MAX,
  type Field,
  PARAMETERS_MAX,
  type Parameter,
  requireSendable,
  type Statement,
  statementName,
  type TextRows,
} from './statement.js'

/*
 * `pg` waits for the answer to each statement before it sends the next. The statements of a request
 * are mostly known beforehand, so a pipeline sends all of them at once and gets the answers in one
 * round trip. After a failure PostgreSQL skips the rest of the batch.
 */

/** The connection that `pg` passes to an object that implements the protocol itself. */
interface Connection {
  readonly stream: {
    readonly writable: boolean
    cork(): void
    write(bytes: Buffer): void
    uncork(): void
  }
  on(event: 'parameterDescription', listener: DescribeListener): void
  removeListener(event: 'parameterDescription', listener: DescribeListener): void
}

type DescribeListener = (message: { dataTypeIDs: readonly number[] }) => void

interface DataRowMessage {
  /** Size of the message in bytes. */
  readonly length: number
  readonly fields: (string | null)[]
}

interface RowDescriptionMessage {
  readonly fields: readonly Field[]
}

/** The unnamed prepared statement and its portal, which the next unnamed ones replace. */
const UNNAMED = ''

/** Prepared statements of one connection; beyond that, the least recently used one is closed. */
export const PREPARED_MAX = 500
/**
 * Characters of all prepared statements of one connection. Their parse trees and plans take many
 * times that memory in PostgreSQL.
 */
export const PREPARED_LENGTH_MAX = 1024 * 1024
/** A longer statement is not kept prepared; parsing it costs little compared with running it. */
export const PREPARED_TEXT_LENGTH_MAX = 16 * 1024

/** The prepared statements of a connection, by text, the least recently used first. */
class PreparedStatements {
  readonly #names = new Map<string, string>()
  #doubtful = new Set<string>()
  #length = 0

  /**
   * Returns the name of the prepared statement. If necessary, sends the messages that create it,
   * and notes them in `sent`.
   */
  use(batch: BatchWriter, text: string, sent: SentChanges): string {
    const known = this.#names.get(text)
    if (known !== undefined) {
      this.#names.delete(text)
      this.#names.set(text, known)
      return known
    }
    this.#makeRoom(batch, text.length, sent)
    const name = statementName('s', text)
    batch.parse(name, text)
    this.#names.set(text, name)
    this.#length += text.length
    sent.parsed.add(text)
    return name
  }

  /** After a failure it is unknown whether the server has the statement, so it is closed before its name is used again. */
  doubt(text: string): void {
    const name = this.#names.get(text)
    if (name === undefined) return
    this.#forget(text)
    this.#doubtful.add(name)
  }

  /** Closes statements whose closing may have been skipped. Closing one twice is a no-op. */
  closeAgain(names: readonly string[]): void {
    // A statement that was closed and prepared again in the same batch exists.
    const existing = new Set(this.#names.values())
    for (const name of names) if (!existing.has(name)) this.#doubtful.add(name)
  }

  #makeRoom(batch: BatchWriter, length: number, sent: SentChanges): void {
    const names = [...this.#doubtful]
    this.#doubtful.clear()
    // A map iterates in insertion order, so the least recently used entry is first.
    for (const [text, name] of this.#names) {
      const hasRoom =
        this.#names.size < PREPARED_MAX && this.#length + length <= PREPARED_LENGTH_MAX
      if (hasRoom) break
      this.#forget(text)
      names.push(name)
    }
    for (const name of names) batch.close(name)
    sent.closed.push(...names)
  }

  #forget(text: string): void {
    if (this.#names.delete(text)) this.#length -= text.length
  }
}

/**
 * Prepared statements that a batch creates and closes. After a failure these changes are uncertain.
 */
interface SentChanges {
  /** Texts of the statements. */
  readonly parsed: Set<string>
  /** Names of the statements. */
  readonly closed: string[]
}

/** A budget for the bytes of rows that are read. */
export interface ReadRoom {
  /**
   * Takes bytes from the budget. If it returns false, the batch fails when PostgreSQL has finished
   * it.
   */
  take(bytes: number): boolean
}

/** The rows exceeded their budget. The rest is discarded as it arrives. */
export class RoomSpentError extends Error {}

const preparedOf = new WeakMap<Connection, PreparedStatements>()

/** Bytes that the messages of most batches take. */
const BATCH_BYTES = 2048

/** The messages of a batch. */
class BatchWriter {
  #writer = new MessageWriter(undefined, { sizeBytes: BATCH_BYTES })
  /** What precedes the messages in the writer. */
  readonly #parts: Buffer[] = []

  parse(name: string, text: string): void {
    // PostgreSQL finds the types of all parameters.
    this.#writer.begin('P').text(name).text(text).int16(0)
  }

  describe(kind: 'S' | 'P', name: string): void {
    this.#writer.begin('D').letter(kind).text(name)
  }

  /** Binds the unnamed portal. All values are texts, and those of the rows, too, unless there are formats for them. */
  bind(
    statement: string,
    slots: Statement['slots'],
    { values, formats }: { values: readonly Parameter[]; formats: readonly number[] },
  ): void {
    const writer = this.#writer.begin('B').text(UNNAMED).text(statement).int16(0)
    writer.int16(slots.length)
    for (const slot of slots) {
      writer.value(typeof slot === 'string' ? slot : (values[slot] ?? null))
    }
    writer.int16(formats.length)
    for (const format of formats) writer.int16(format)
  }

  /** Executes the unnamed portal. */
  execute(): void {
    this.#writer.begin('E').text(UNNAMED).int32(0)
  }

  /** Sends the data of a COPY, without a copy of it. */
  copy(data: Buffer): void {
    const head = this.#writer.toBuffer()
    const dataHead = Buffer.alloc(5, 'd')
    dataHead.writeInt32BE(4 + data.length, 1)
    this.#parts.push(head, dataHead, data)
    this.#writer = new MessageWriter('c')
  }

  close(name: string): void {
    this.#writer.begin('C').letter('S').text(name)
  }

  /** Sends all messages, so that PostgreSQL answers them. */
  send({ stream }: Connection): void {
    this.#writer.begin('S')
    const last = this.#writer.toBuffer()
    if (!stream.writable) return
    if (this.#parts.length === 0) {
      stream.write(last)
      return
    }
    stream.cork()
    for (const part of this.#parts) stream.write(part)
    stream.write(last)
    stream.uncork()
  }
}

const TEXTS: readonly number[] = []

class Pipeline implements RowReader {
  readonly #calls: readonly Call[]
  readonly #rows: (string | null)[][][] = []
  readonly #sent: SentChanges = { parsed: new Set(), closed: [] }
  readonly #settle: { resolve(rows: TextRows[]): void; reject(error: Error): void }
  readonly #room: ReadRoom | undefined
  #current: (string | null)[][] = []
  #isSettled = false
  #isSpent = false
  /** Whether rows are handed on as messages, where calls want them so. */
  #forwards = false
  #stopListening: () => void = () => undefined

  constructor(
    calls: readonly Call[],
    settle: { resolve(rows: TextRows[]): void; reject(error: Error): void },
    room: ReadRoom | undefined,
  ) {
    this.#calls = calls
    this.#settle = settle
    this.#room = room
  }

  /** The number of calls that have succeeded. */
  get answered(): number {
    return this.#rows.length
  }

  /** The texts of the statements, for tracing. */
  get statements(): readonly string[] {
    return this.#calls.map((call) => call.passedText ?? call.statement.text)
  }

  /**
   * Sends the batch. An error is returned, not thrown, because `pg` does not handle exceptions
   * here.
   */
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
    if (this.#calls.some(({ describeParameters }) => describeParameters !== undefined)) {
      this.#listen(connection)
    }
    if (this.#calls.some(({ forward }) => forward !== undefined)) {
      this.#forwards = readRowsOn(connection, this)
    }
    const batch = new BatchWriter()
    for (const call of this.#calls) {
      const { statement, values, input, describes, forward } = call
      const isUnnamed = call.isUnnamed || statement.text.length > PREPARED_TEXT_LENGTH_MAX
      const name = isUnnamed ? UNNAMED : prepared.use(batch, statement.text, this.#sent)
      if (isUnnamed) batch.parse(name, statement.text)
      if (describes) {
        batch.describe('S', name)
        continue
      }
      const formats = (this.#forwards && forward?.formats) || TEXTS
      batch.bind(name, statement.slots, { values, formats })
      if (call.describeRows !== undefined) batch.describe('P', UNNAMED)
      batch.execute()
      // PostgreSQL reads the data when it reaches the COPY, and skips it if an earlier statement failed.
      if (input !== undefined) batch.copy(typeof input === 'string' ? Buffer.from(input) : input)
    }
    batch.send(connection)
  }

  /** `pg` has no handler for the types of parameters, which come before the columns of the same statement. */
  #listen(connection: Connection): void {
    const listener: DescribeListener = ({ dataTypeIDs }) =>
      this.#calls[this.#rows.length]?.describeParameters?.(dataTypeIDs)
    connection.on('parameterDescription', listener)
    this.#stopListening = () => connection.removeListener('parameterDescription', listener)
  }

  /** Sent only after a Describe message. */
  handleRowDescription({ fields }: RowDescriptionMessage): void {
    const call = this.#calls[this.#rows.length]
    if (call?.describeRows !== undefined) call.describeRows(fields)
    else this.#rows.push(fields.map(({ name, dataTypeID }) => [name, String(dataTypeID)]))
  }

  handleCopyInResponse(): void {
    // The data was already sent with the statement.
  }

  rowReceiver(): ((message: Buffer) => void) | undefined {
    return this.#calls[this.#rows.length]?.forward?.row
  }

  handleDataRow(message: DataRowMessage): void {
    const call = this.#calls[this.#rows.length]
    if (call?.receiveRow !== undefined) {
      call.receiveRow(message.fields)
      return
    }
    if (this.#room !== undefined && !this.#hasRoom(this.#room, message.length)) return
    this.#current.push(message.fields)
  }

  #hasRoom(room: ReadRoom, bytes: number): boolean {
    if (this.#isSpent) return false
    if (room.take(bytes)) return true
    this.#isSpent = true
    // Discard the rows; only the number of answered calls is still needed.
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
    // Sent only after an Execute with a row limit.
  }

  handleReadyForQuery(connection: Connection): void {
    if (this.#isSettled) return
    this.#settled(connection)
    if (this.#isSpent) this.#settle.reject(new RoomSpentError())
    else this.#settle.resolve(this.#rows)
  }

  #settled(connection: Connection): void {
    this.#isSettled = true
    this.#stopListening()
    if (this.#forwards) readRowsOn(connection, undefined)
  }

  handleError(error: Error, connection: Connection): void {
    if (this.#isSettled) return
    this.#settled(connection)
    const prepared = preparedOf.get(connection)
    // Of the statements that the batch prepared, the failed one may not exist on the server, and
    // the later ones do not.
    for (const { statement } of this.#calls.slice(this.#rows.length)) {
      if (this.#sent.parsed.has(statement.text)) prepared?.doubt(statement.text)
    }
    prepared?.closeAgain(this.#sent.closed)
    if (this.#rows.length === this.#calls.length - 1) noteLastStatementFailed(error)
    this.#settle.reject(this.#isSpent ? new RoomSpentError('', { cause: error }) : error)
  }
}

/**
 * Runs the calls in order, in one round trip. Returns the rows of each call, with values as texts.
 */
export function runPipeline(
  client: pg.ClientBase,
  calls: readonly Call[],
  room?: ReadRoom,
): Promise<TextRows[]> {
  if (!calls.some(({ before }) => before !== undefined)) return sendAll(client, calls, room)
  const all = calls.flatMap((call) => [...(call.before ?? []), call])
  const asked = new Set(calls)
  return sendAll(client, all, room).then((rows) =>
    rows.filter((_, index) => asked.has(all[index] as Call)),
  )
}

function sendAll(
  client: pg.ClientBase,
  calls: readonly Call[],
  room?: ReadRoom,
): Promise<TextRows[]> {
  return serverOf(client).run(client, calls, (sent) => sendCalls(client, sent, room))
}

/** Sends calls as they are, in one round trip. */
export function sendCalls(
  client: pg.ClientBase,
  calls: readonly Call[],
  room?: ReadRoom,
): Promise<TextRows[]> {
  return new Promise((resolve, reject) => {
    for (const { statement, describes } of calls) {
      const parametersMax = describes ? DESCRIBED_PARAMETERS_MAX : PARAMETERS_MAX
      requireSendable(statement.text, statement.slots.length, parametersMax)
    }
    const checked = checkBatch(client, calls)
    const settle = {
      resolve: (rows: TextRows[]) => resolve(checked?.restore(rows) ?? rows),
      reject: (error: Error) => reject(checked?.explain(error, pipeline.answered) ?? error),
    }
    const pipeline = new Pipeline(checked?.calls ?? calls, settle, room)
    client.query(pipeline as unknown as pg.Submittable)
  })
}
