import type { Socket } from 'node:net'
import type pg from 'pg'

/*
 * `pg` decodes each value of each row. Rows that are handed on to a client of PostgreSQL are left as they are: their messages
 * are taken out of what a connection receives, and `pg` gets the rest.
 */

const DATA_ROW = 'D'.charCodeAt(0)
/** A letter, and the length of a message in four bytes, which counts itself. */
const HEAD_BYTES = 5
const LENGTH_BYTES = 4

/** The query that runs on a connection, as far as it wants rows as messages. */
export interface RowReader {
  /** Returns what receives the messages of rows now. undefined: `pg` reads them. */
  rowReceiver(): ((message: Buffer) => void) | undefined
}

/** Takes the messages of rows out of the bytes that a connection receives. */
class RowMessages {
  readonly #pass: (bytes: Buffer) => void
  /** The parts of a message that has not arrived completely. */
  #parts: Buffer[] = []
  #partBytes = 0
  /** Bytes that the parts must have before they are looked at again. */
  #expectedBytes = HEAD_BYTES
  reader: RowReader | undefined

  /** `pass` reads all other messages. */
  constructor(pass: (bytes: Buffer) => void) {
    this.#pass = pass
  }

  push(chunk: Buffer): void {
    if (this.#partBytes === 0) {
      this.#read(chunk)
      return
    }
    this.#parts.push(chunk)
    this.#partBytes += chunk.length
    if (this.#partBytes < this.#expectedBytes) return
    const bytes = Buffer.concat(this.#parts)
    this.#parts = []
    this.#partBytes = 0
    this.#read(bytes)
  }

  #read(bytes: Buffer): void {
    let passedTo = 0
    let at = 0
    const passUpTo = (end: number) => {
      if (end > passedTo) this.#pass(bytes.subarray(passedTo, end))
      passedTo = end
    }
    for (;;) {
      const isHeadThere = at + HEAD_BYTES <= bytes.length
      const length = isHeadThere ? bytes.readUInt32BE(at + 1) : LENGTH_BYTES
      if (length < LENGTH_BYTES) throw new Error('invalid length of a message')
      const end = at + 1 + length
      if (!isHeadThere || end > bytes.length) {
        this.#expectedBytes = end - at
        break
      }
      if (bytes[at] === DATA_ROW) {
        // Earlier messages tell which statement the row belongs to.
        passUpTo(at)
        const receive = this.reader?.rowReceiver()
        if (receive !== undefined) {
          receive(bytes.subarray(at, end))
          passedTo = end
        }
      }
      at = end
    }
    passUpTo(at)
    if (at === bytes.length) return
    this.#parts = [bytes.subarray(at)]
    this.#partBytes = bytes.length - at
  }
}

const messagesOf = new WeakMap<object, RowMessages>()

/** Makes a new connection able to hand on rows as messages. */
export function handOnRows(client: pg.ClientBase): void {
  const { connection } = client as unknown as { connection: { stream: Socket } }
  const { stream } = connection
  const listeners = stream.listeners('data') as ((chunk: Buffer) => void)[]
  const messages = new RowMessages((bytes) => {
    for (const listener of listeners) listener.call(stream, bytes)
  })
  stream.removeAllListeners('data')
  stream.on('data', (chunk: Buffer) => messages.push(chunk))
  messagesOf.set(connection, messages)
}

/** Sets the query that runs on a connection. Returns false if the connection cannot hand on rows. */
export function readRowsOn(connection: object, reader: RowReader | undefined): boolean {
  const messages = messagesOf.get(connection)
  if (messages === undefined) return false
  messages.reader = reader
  return true
}
