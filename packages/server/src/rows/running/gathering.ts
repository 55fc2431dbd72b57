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

/** Runs items that are added under one key during one turn of the event loop as a batch, in order. */
export class Gathering<Item, Result> {
  readonly #max: number
  readonly #run: (items: readonly Item[]) => Promise<readonly Result[]>
  #waiting = new Map<string, Waiting<Item, Result>[]>()

  /** `run` must return a result for each item, in order, or fail for all of them. */
  constructor(max: number, run: (items: readonly Item[]) => Promise<readonly Result[]>) {
    this.#max = max
    this.#run = run
  }

  add(key: string, item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      if (this.#waiting.size === 0) setImmediate(() => this.#flush())
      const known = this.#waiting.get(key)
      const list = known ?? []
      if (known === undefined) this.#waiting.set(key, list)
      list.push({ item, resolve, reject })
      if (list.length < this.#max) return
      this.#waiting.set(key, [])
      void this.#settle(list)
    })
  }

  #flush(): void {
    const lists = this.#waiting
    this.#waiting = new Map()
    for (const list of lists.values()) {
      if (list.length > 0) void this.#settle(list)
    }
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
