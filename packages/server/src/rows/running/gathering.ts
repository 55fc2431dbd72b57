/*
 * Many small requests cost PostgreSQL, the kernel and this process more for being many than for what
 * they ask. Those that arrive together are therefore sent together.
 */

interface Waiting<Item, Result> {
  readonly item: Item
  resolve(result: Result): void
  reject(error: unknown): void
}

/** Says that items cannot be run together, that nothing of them was done, and that each may be alone. */
export class ApartError extends Error {}

/** Runs what is added under one key during one turn of the event loop at once, in order. */
export class Gathering<Item, Result> {
  readonly #max: number
  readonly #run: (items: readonly Item[]) => Promise<readonly Result[]>
  #waiting = new Map<string, Waiting<Item, Result>[]>()

  /** `run` must give a result for each item, in their order, or fail for all of them alike. */
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
