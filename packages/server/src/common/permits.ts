import { Shares } from './shares.js'
import { Turns } from './turns.js'

interface PlaceLimits {
  readonly permitsMax: number
  /** Permits of one owner; otherwise its share of them, see `Shares`. */
  readonly permitsPerOwnerMax?: number
  /** Requests that wait for a permit, in all and of one owner; more are refused. */
  readonly waitingMax?: number
  readonly waitingPerOwnerMax?: number
  readonly waitMs: number
}

/** Permits that several owners share. Owners that wait take turns. */
export class Permits {
  readonly #limits: PlaceLimits
  readonly #refusal: () => Error
  readonly #shares: Shares
  readonly #turns = new Turns<() => void>()

  /** `refusal` creates the error for requests that find no permit. */
  constructor(limits: PlaceLimits, refusal: () => Error) {
    this.#limits = limits
    this.#refusal = refusal
    this.#shares = new Shares(limits.permitsMax, limits.permitsPerOwnerMax)
  }

  get held(): number {
    return this.#shares.held
  }

  get waiting(): number {
    return this.#turns.size
  }

  /** Takes a permit if there is one at once. It must be given back by `leave`. */
  tryEnter(owner: string): boolean {
    const hasRoom = this.#shares.hasRoom(owner)
    if (hasRoom) this.#shares.take(owner)
    return hasRoom
  }

  /** Takes a permit, at once or when it is the owner's turn. It must be given back by `leave`. */
  async enter(owner: string, signal?: AbortSignal): Promise<void> {
    if (this.tryEnter(owner)) return
    const { waitingMax = Infinity, waitingPerOwnerMax = Infinity, waitMs } = this.#limits
    const isFull = this.waiting >= waitingMax || this.#turns.sizeOf(owner) >= waitingPerOwnerMax
    if (signal?.aborted || isFull) throw this.#refusal()
    await new Promise<void>((resolve, reject) => {
      const stopWaiting = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', giveUp)
        this.#turns.remove(owner, start)
      }
      const giveUp = () => {
        stopWaiting()
        reject(this.#refusal())
      }
      const start = () => {
        stopWaiting()
        this.#shares.take(owner)
        resolve()
      }
      const timer = setTimeout(giveUp, waitMs)
      signal?.addEventListener('abort', giveUp, { once: true })
      this.#turns.add(owner, start)
    })
  }

  leave(owner: string): void {
    this.#shares.give(owner)
    // The share of an owner grows with the permits that others give back, so several can start.
    const hasRoom = (waiting: string) => this.#shares.hasRoom(waiting)
    for (let start = this.#turns.next(hasRoom); start; start = this.#turns.next(hasRoom)) start()
  }
}
