import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type NetConnectOpts, type Socket } from 'node:net'

/** Sides of a connection whose bytes are counted. */
type Direction = 'request' | 'response'

interface Hold {
  readonly direction: Direction
  readonly text: string
  readonly after: string
  reached(release: () => void): void
}

/** A TCP proxy that resets connections in the middle of a transfer. */
export class CuttingProxy {
  readonly #server = createServer((client) => this.#join(client))
  readonly #target: NetConnectOpts
  readonly #open = new Set<Socket>()
  #cut: { direction: Direction; bytes: number } | undefined
  #cuts = 0
  #hold: Hold | undefined

  private constructor(target: NetConnectOpts) {
    this.#target = target
  }

  static async start(target: NetConnectOpts): Promise<CuttingProxy> {
    const proxy = new CuttingProxy(target)
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    return proxy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Number of connections that were reset. */
  get cuts(): number {
    return this.#cuts
  }

  /** Resets every connection that transfers more than these bytes in this direction from now on. */
  cutAfter(direction: Direction, bytes: number): void {
    this.#cut = { direction, bytes }
  }

  heal(): void {
    this.#cut = undefined
  }

  /**
   * Holds the next transfer that contains a text, on a connection that has transferred another text before, and all that
   * follows there. Resolves when it is held, with a function that lets it pass.
   */
  holdAt(direction: Direction, text: string, options: { after: string }): Promise<() => void> {
    return new Promise((reached) => {
      this.#hold = { direction, text, after: options.after, reached }
    })
  }

  async close(): Promise<void> {
    for (const socket of this.#open) socket.destroy()
    this.#server.close()
    await once(this.#server, 'close')
  }

  #join(client: Socket): void {
    const target = connect(this.#target)
    for (const [socket, other] of [
      [client, target],
      [target, client],
    ] as const) {
      this.#open.add(socket)
      socket.on('error', () => other.destroy())
      socket.on('close', () => {
        this.#open.delete(socket)
        other.destroy()
      })
    }
    this.#pass('request', { client, target })
    this.#pass('response', { client, target })
  }

  #pass(direction: Direction, { client, target }: { client: Socket; target: Socket }): void {
    const [from, to] = direction === 'request' ? [client, target] : [target, client]
    let cut = this.#cut
    let bytes = 0
    let passed: Hold | undefined
    from.on('data', (chunk: Buffer) => {
      const hold = this.#hold
      if (hold?.direction === direction) {
        if (chunk.includes(hold.after)) passed = hold
        if (passed === hold && chunk.includes(hold.text)) {
          this.#hold = undefined
          from.pause()
          hold.reached(() => {
            to.write(chunk)
            from.resume()
          })
          return
        }
      }
      // A connection of a pool may have been used before.
      if (cut !== this.#cut) [cut, bytes] = [this.#cut, 0]
      bytes += chunk.length
      if (cut?.direction === direction && bytes > cut.bytes) {
        this.#cuts++
        client.resetAndDestroy()
        target.destroy()
      } else if (!to.write(chunk)) {
        from.pause()
        to.once('drain', () => from.resume())
      }
    })
  }
}
