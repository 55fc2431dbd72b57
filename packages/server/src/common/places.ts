export interface PlaceLimits {
  /** Places in all, and for one owner. */
  readonly placesMax: number
  readonly placesPerOwnerMax: number
  /** Requests that wait for a place, in all and of one owner; more are refused. */
  readonly waitingMax: number
  readonly waitingPerOwnerMax: number
  readonly waitMs: number
}

type Waiting = () => void

/**
 * Places that several owners share. Owners that wait take turns, so that one with many requests does
 * not keep the others waiting for all of them.
 */
export class Places {
  readonly #limits: PlaceLimits
  readonly #refusal: () => Error
  readonly #held = new Map<string, number>()
  /** By owner, the one whose turn it is first. */
  readonly #waiting = new Map<string, Set<Waiting>>()
  #heldInAll = 0
  #waitingInAll = 0

  /** `refusal` is what those get that find no place. */
  constructor(limits: PlaceLimits, refusal: () => Error) {
    this.#limits = limits
    this.#refusal = refusal
  }

  get held(): number {
    return this.#heldInAll
  }

  get waiting(): number {
    return this.#waitingInAll
  }

  /** Takes a place, at once or when it is the owner's turn. It must be given back by `leave`. */
  async enter(owner: string, signal?: AbortSignal): Promise<void> {
    if (this.#hasPlace(owner)) {
      this.#take(owner)
      return
    }
    const { waitingMax, waitingPerOwnerMax, waitMs } = this.#limits
    const others = this.#waiting.get(owner)?.size ?? 0
    if (signal?.aborted || this.#waitingInAll >= waitingMax || others >= waitingPerOwnerMax) {
      throw this.#refusal()
    }
    await new Promise<void>((resolve, reject) => {
      const stopWaiting = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', giveUp)
        this.#remove(owner, start)
      }
      const giveUp = () => {
        stopWaiting()
        reject(this.#refusal())
      }
      const start = () => {
        stopWaiting()
        this.#take(owner)
        resolve()
      }
      const timer = setTimeout(giveUp, waitMs)
      signal?.addEventListener('abort', giveUp, { once: true })
      this.#add(owner, start)
    })
  }

  leave(owner: string): void {
    this.#heldInAll--
    const left = (this.#held.get(owner) ?? 1) - 1
    if (left === 0) this.#held.delete(owner)
    else this.#held.set(owner, left)
    this.#startNext()
  }

  #startNext(): void {
    for (const [owner, requests] of this.#waiting) {
      const [start] = requests
      if (start === undefined || !this.#hasPlace(owner)) continue
      start()
      // Its next request waits for all other owners.
      const rest = this.#waiting.get(owner)
      if (rest !== undefined) {
        this.#waiting.delete(owner)
        this.#waiting.set(owner, rest)
      }
      return
    }
  }

  #hasPlace(owner: string): boolean {
    const { placesMax, placesPerOwnerMax } = this.#limits
    return this.#heldInAll < placesMax && (this.#held.get(owner) ?? 0) < placesPerOwnerMax
  }

  #take(owner: string): void {
    this.#heldInAll++
    this.#held.set(owner, (this.#held.get(owner) ?? 0) + 1)
  }

  #add(owner: string, start: Waiting): void {
    const requests = this.#waiting.get(owner) ?? new Set()
    requests.add(start)
    this.#waiting.set(owner, requests)
    this.#waitingInAll++
  }

  #remove(owner: string, start: Waiting): void {
    const requests = this.#waiting.get(owner)
    if (!requests?.delete(start)) return
    this.#waitingInAll--
    if (requests.size === 0) this.#waiting.delete(owner)
  }
}
