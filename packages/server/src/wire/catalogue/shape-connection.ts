import type { Socket } from 'node:net'
import type pg from 'pg'
import { type Frame, FrameReader } from '../frames.js'
import { WireError } from '../wire-error.js'

/** The connection to a shape has ended. Nothing but reading was done there, so that the statement can be repeated. */
export class LostShapeError extends Error {}

/**
 * A connection to a shape. Messages are sent and received as they are, so that clients get values in the form that they have
 * asked for, of all types that the catalogue has.
 */
export class ShapeConnection {
  readonly #client: pg.Client
  readonly #socket: Socket
  readonly #reader: FrameReader
  #wake: () => void = () => undefined
  #isLost = false

  /** Takes over a connection that `pg` has opened. */
  constructor(client: pg.Client, { bytesMax }: { bytesMax: number }) {
    this.#client = client
    this.#socket = (client as unknown as { connection: { stream: Socket } }).connection.stream
    this.#reader = new FrameReader(bytesMax)
    this.#reader.isStarting = false
    this.#socket.removeAllListeners('data')
    this.#socket.on('data', (chunk) => {
      this.#reader.push(chunk)
      this.#wake()
    })
    this.#socket.once('close', () => {
      this.#isLost = true
      this.#wake()
    })
  }

  get isLost(): boolean {
    return this.#isLost
  }

  /** Sends messages, and returns what is answered, up to each of a number of ReadyForQuery. */
  async exchange(
    messages: readonly Buffer[],
    { rounds, bytesMax }: { rounds: number; bytesMax: number },
  ): Promise<Frame[][]> {
    this.#socket.write(Buffer.concat(messages))
    const answers: Frame[][] = [[]]
    let bytes = 0
    for (;;) {
      const frame = this.#reader.next()
      if (frame === undefined) {
        await this.#more()
        continue
      }
      bytes += frame.body.length
      if (bytes > bytesMax) {
        this.end()
        throw new WireError('54000', `the result has more than ${bytesMax} bytes`)
      }
      if (frame.type === 'Z' && answers.length === rounds) return answers
      if (frame.type === 'Z') answers.push([])
      // The buffer of the message is used again.
      else answers.at(-1)?.push({ type: frame.type, body: Buffer.from(frame.body) })
    }
  }

  async #more(): Promise<void> {
    if (this.#isLost) throw new LostShapeError('the connection to a shape was lost')
    await new Promise<void>((resolve) => {
      this.#wake = resolve
    })
  }

  /** Ends the connection at once. PostgreSQL notices that soon, also while a statement runs. */
  end(): void {
    this.#socket.destroy()
    this.#client.end().catch(() => undefined)
  }
}
