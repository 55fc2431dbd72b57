/**
 * A request in the queue of a lane. Either `admit` or `refuse` is called once, unless it abandons
 * the queue.
 */
export interface Waiting {
  admit(): void
  refuse(): void
}

export interface LaneOptions {
  readonly atOnceMax: number
  readonly waitingMax: number
  readonly waitMs: number
}

/** Interval at which the queue is checked for requests that have waited too long. */
const SWEEP_MS = 50
/**
 * A queue that lasts longer than twice the maximum wait is not a burst. Waiting would only delay
 * all answers, so the maximum wait is then reduced to `CROWDED_PART`.
 */
const CROWDED_TIMES = 2
const CROWDED_PART = 0.1

/**
 * A limit on concurrent requests, with a bounded queue. A request is refused if the queue is full
 * or if it waits too long; a refusal costs almost nothing.
 */
export class Lane {
  readonly #options: LaneOptions
  /** Waiting requests with the time they started to wait, oldest first. */
  readonly #waiting = new Map<Waiting, number>()
  /** Waiting requests that were admitted before. They have cost work already, so they go first. */
  readonly #returning = new Map<Waiting, number>()
  #inside = 0
  #refused = 0
  #crowdedSince = Number.NEGATIVE_INFINITY
  #emptySince = Number.NEGATIVE_INFINITY
  #sweep: NodeJS.Timeout | undefined

  constructor(options: LaneOptions) {
    this.#options = options
  }

  get inside(): number {
    return this.#inside
  }

  get waiting(): number {
    return this.#waiting.size + this.#returning.size
  }

  /** Number of refusals since the start. */
  get refused(): number {
    return this.#refused
  }

  enter(request: Waiting, options: { isReturning: boolean }): 'inside' | 'waiting' | 'refused' {
    if (this.#inside < this.#options.atOnceMax) {
      this.#inside++
      return 'inside'
    }
    const queue = options.isReturning ? this.#returning : this.#waiting
    if (queue.size >= this.#options.waitingMax) {
      this.#refused++
      return 'refused'
    }
    if (this.waiting === 0) this.#startQueue()
    queue.set(request, performance.now())
    return 'waiting'
  }

  /** Frees the slot, or passes it to the next request in the queue. */
  leave(): void {
    const queue = this.#returning.size > 0 ? this.#returning : this.#waiting
    const [next] = queue.keys()
    if (next === undefined) {
      this.#inside--
      return
    }
    this.abandon(next)
    next.admit()
  }

  /** Removes a waiting request from the queue. */
  abandon(request: Waiting): void {
    const isKnown = this.#returning.delete(request) || this.#waiting.delete(request)
    if (isKnown && this.waiting === 0) this.#endQueue()
  }

  #startQueue(): void {
    const now = performance.now()
    // A short time without a queue does not end an overload.
    if (now - this.#emptySince > this.#options.waitMs) this.#crowdedSince = now
    this.#sweep = setInterval(() => this.#refuseLate(), SWEEP_MS).unref()
  }

  #endQueue(): void {
    this.#emptySince = performance.now()
    clearInterval(this.#sweep)
  }

  #refuseLate(): void {
    const { waitMs } = this.#options
    const now = performance.now()
    const isCrowded = now - this.#crowdedSince > waitMs * CROWDED_TIMES
    const patienceMs = isCrowded ? waitMs * CROWDED_PART : waitMs
    for (const queue of [this.#returning, this.#waiting]) {
      for (const [request, since] of queue) {
        if (now - since < patienceMs) break
        this.#refused++
        this.abandon(request)
        request.refuse()
      }
    }
  }
}
