import { Shares, shareOf } from '../../common/shares.js'
import { Turns } from '../../common/turns.js'

/**
 * A request in the queue of a lane. Either `admit` or `refuse` is called once, unless it abandons
 * the queue.
 */
export interface Waiting {
  /** The key or address that the request counts for. It must not change while the request waits. */
  readonly owner: string
  admit(): void
  refuse(): void
}

interface LaneOptions {
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

/** Waiting requests with the time they started to wait, oldest first, and in the order of their turns. */
class Queue {
  readonly since = new Map<Waiting, number>()
  readonly turns = new Turns<Waiting>()

  add(request: Waiting): void {
    this.since.set(request, performance.now())
    this.turns.add(request.owner, request)
  }

  /** Returns false if the request does not wait. */
  remove(request: Waiting): boolean {
    this.turns.remove(request.owner, request)
    return this.since.delete(request)
  }
}

/**
 * A limit on concurrent requests, with a bounded queue. A request is refused if the queue is full
 * or if it waits too long; a refusal costs almost nothing. Each owner has a share of the permits and
 * of the queue, and owners that wait take turns.
 */
export class Lane {
  readonly #options: LaneOptions
  readonly #shares: Shares
  readonly #waiting = new Queue()
  /** Waiting requests that were admitted before. They have cost work already, so they go first. */
  readonly #returning = new Queue()
  #refused = 0
  #crowdedSince = Number.NEGATIVE_INFINITY
  #emptySince = Number.NEGATIVE_INFINITY
  #sweep: NodeJS.Timeout | undefined

  constructor(options: LaneOptions) {
    this.#options = options
    this.#shares = new Shares(options.atOnceMax)
  }

  get inside(): number {
    return this.#shares.held
  }

  get waiting(): number {
    return this.#waiting.since.size + this.#returning.since.size
  }

  /** Number of refusals since the start. */
  get refused(): number {
    return this.#refused
  }

  enter(request: Waiting, options: { isReturning: boolean }): 'inside' | 'waiting' | 'refused' {
    if (this.#shares.hasRoom(request.owner)) {
      this.#shares.take(request.owner)
      return 'inside'
    }
    const queue = options.isReturning ? this.#returning : this.#waiting
    if (!this.#mayWait(queue.turns, request.owner)) {
      this.#refused++
      return 'refused'
    }
    if (this.waiting === 0) this.#startQueue()
    queue.add(request)
    return 'waiting'
  }

  /** Frees the permit of an owner, and admits the next requests in the queue. */
  leave(owner: string): void {
    this.#shares.give(owner)
    const hasRoom = (waiting: string) => this.#shares.hasRoom(waiting)
    while (this.waiting > 0) {
      const next = this.#returning.turns.next(hasRoom) ?? this.#waiting.turns.next(hasRoom)
      if (next === undefined) return
      this.abandon(next)
      this.#shares.take(next.owner)
      next.admit()
    }
  }

  /** Removes a waiting request from the queue. */
  abandon(request: Waiting): void {
    const isKnown = this.#returning.remove(request) || this.#waiting.remove(request)
    if (isKnown && this.waiting === 0) this.#endQueue()
  }

  #mayWait(turns: Turns<Waiting>, owner: string): boolean {
    const free = this.#options.waitingMax - turns.size
    const own = turns.sizeOf(owner)
    return free > 0 && own < shareOf(free + own)
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
      for (const [request, since] of queue.since) {
        if (now - since < patienceMs) break
        this.#refused++
        this.abandon(request)
        request.refuse()
      }
    }
  }
}
