/*
 * For small requests, the cost of the round trip exceeds that of the work. Requests that arrive in the same
 * turn of the event loop are therefore sent to PostgreSQL as one batch.
 */

interface Waiting<Item, Result> {
  readonly item: Item
  resolve(result: Result): void
  reject(error: unknown): void
}

/** The batch failed and had no effect. Each item is retried alone. */
export class ApartError extends Error {}

/** How long items wait for the batch before them at most. A batch takes longer if PostgreSQL has to wait for a lock. */
const WAIT_MS = 2

/** The items of one key. */
interface Gathered<Item, Result> {
  waiting: Waiting<Item, Result>[]
  /** Batches that have not ended. */
  running: number
  /** Whether it is looked at when this turn of the event loop ends. */
  isDue: boolean
  late: NodeJS.Timeout | undefined
}

interface GatheringOptions {
  /** Items of a batch. */
  readonly max: number
  /** Items wait while this number of batches of their key run, because a larger batch costs less for each of them. */
  readonly runningMax: number
}

/** Runs items that are added under one key during one turn of the event loop as a batch, in order. */
export class Gathering<Item, Result> {
  readonly #options: GatheringOptions
  readonly #run: (items: readonly Item[]) => Promise<readonly Result[]>
  readonly #keys = new Map<string, Gathered<Item, Result>>()

  /** `run` must return a result for each item, in order, or fail for all of them. */
  constructor(
    options: GatheringOptions,
    run: (items: readonly Item[]) => Promise<readonly Result[]>,
  ) {
    this.#options = options
    this.#run = run
  }

  add(key: string, item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      let gathered = this.#keys.get(key)
      if (gathered === undefined) {
        gathered = { waiting: [], running: 0, isDue: false, late: undefined }
        this.#keys.set(key, gathered)
      }
      gathered.waiting.push({ item, resolve, reject })
      if (gathered.waiting.length >= this.#options.max) this.#flush(key, gathered)
      else if (!gathered.isDue) this.#flushSoon(key, gathered)
    })
  }

  #flushSoon(key: string, gathered: Gathered<Item, Result>): void {
    gathered.isDue = true
    setImmediate(() => {
      gathered.isDue = false
      if (gathered.running < this.#options.runningMax) this.#flush(key, gathered)
      else gathered.late ??= setTimeout(() => this.#flush(key, gathered), WAIT_MS)
    })
  }

  #flush(key: string, gathered: Gathered<Item, Result>): void {
    clearTimeout(gathered.late)
    gathered.late = undefined
    const { waiting } = gathered
    if (waiting.length > 0) {
      gathered.waiting = []
      gathered.running++
      void this.#settle(waiting).then(() => {
        gathered.running--
        // Those who got their results may ask again in this turn.
        if (!gathered.isDue) this.#flushSoon(key, gathered)
      })
    } else if (gathered.running === 0) this.#keys.delete(key)
  }

  async #settle(list: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await this.#run(list.map(({ item }) => item))
      for (const [index, waiting] of list.entries()) waiting.resolve(results[index] as Result)
    } catch (error) {
      if (error instanceof ApartError) for (const waiting of list) void this.#settle([waiting])
      else for (const waiting of list) waiting.reject(error)
    }
  }
}
