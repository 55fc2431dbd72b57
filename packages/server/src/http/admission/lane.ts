/** A request that waits for its turn. It is told once how that ended, unless it leaves before. */
export interface Waiting {
  admit(): void
  refuse(): void
}

export interface LaneOptions {
  readonly atOnceMax: number
  readonly waitingMax: number
  readonly waitMs: number
}

/** How often the queue is looked through for those who have waited long enough. */
const SWEEP_MS = 50
/**
 * A queue that has been there for twice the time one may wait is no burst. Waiting in it only makes
 * all answers late, so it is kept short.
 */
const CROWDED_TIMES = 2
const CROWDED_PART = 0.1

/**
 * Room for so many requests at once, and for some that wait for their turn. Whoever finds neither, or
 * waits for too long, is refused at next to no cost.
 */
export class Lane {
  readonly #options: LaneOptions
  /** Since when each has been waiting, the longest first. */
  readonly #waiting = new Map<Waiting, number>()
  /** Those who were in before and have been at work already; they go first. */
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

  /** How many were refused since the start. */
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

  /** Gives the place to the next one, if there is one. */
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

  /** Takes one that waits out of the queue. */
  abandon(request: Waiting): void {
    const isKnown = this.#returning.delete(request) || this.#waiting.delete(request)
    if (isKnown && this.waiting === 0) this.#endQueue()
  }

  #startQueue(): void {
    const now = performance.now()
    // A moment without a queue is not the end of what fills it.
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
