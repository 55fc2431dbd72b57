import type { Socket } from 'node:net'

/** Bytes that are collected before they are sent. */
export const FLUSH_BYTES = 64 * 1024

/** The messages for a client. They are collected until it waits for them, or until they are many. */
export class ClientOutput {
  readonly #socket: Socket
  readonly #stallMs: number
  #messages: Buffer[] = []
  #bytes = 0

  /** `stallMs`: how long a client may read nothing before its connection ends. */
  constructor(socket: Socket, { stallMs }: { stallMs: number }) {
    this.#socket = socket
    this.#stallMs = stallMs
  }

  /** Whether so much is collected that it should be sent. */
  get isFull(): boolean {
    return this.#bytes > FLUSH_BYTES
  }

  write(message: Buffer): void {
    this.#messages.push(message)
    this.#bytes += message.length
  }

  flush(): void {
    if (this.#messages.length === 0) return
    this.#socket.write(Buffer.concat(this.#messages))
    this.#messages = []
    this.#bytes = 0
  }

  /** Sends what is collected. Returns a promise if the client has to read before it gets more. */
  send(): Promise<void> | undefined {
    this.flush()
    const socket = this.#socket
    if (!socket.writableNeedDrain || socket.destroyed) return undefined
    return new Promise((resolve) => {
      const stalled = setTimeout(() => socket.destroy(), this.#stallMs)
      const goOn = () => {
        clearTimeout(stalled)
        socket.off('drain', goOn).off('close', goOn)
        resolve()
      }
      socket.once('drain', goOn).once('close', goOn)
    })
  }
}
