export interface LruOptions<Key, Value> {
  /** Bounds the total weight of the entries. */
  readonly weightMax?: number
  /** The weight of an entry, such as the length of a text. */
  weigh?(key: Key, value: Value): number
  /** An entry that was not used for this time is evicted, at the latest after twice this time. */
  readonly unusedMsMax?: number
}

/**
 * The `unusedMsMax` of caches with entries for each branch. Most branches live shortly, and what is cached for one that is
 * gone would otherwise stay until thousands of others have followed.
 */
export const BRANCH_UNUSED_MS_MAX = 120_000

interface Entry<Value> {
  readonly value: Value
  /** The period of the last use. */
  period: number
}

/** A map that evicts the least recently used entry. */
export class LruMap<Key, Value> {
  /** The least recently used first, at least by period. */
  readonly #entries = new Map<Key, Entry<Value>>()
  readonly #sizeMax: number
  readonly #options: LruOptions<Key, Value>
  readonly #weightMax: number
  #weight = 0
  #period = 0
  #periodEndsAtMs = Number.NEGATIVE_INFINITY

  /** Bounds the number of entries, and more with `options`. */
  constructor(sizeMax: number, options: LruOptions<Key, Value> = {}) {
    this.#sizeMax = sizeMax
    this.#options = options
    this.#weightMax = options.weightMax ?? Number.POSITIVE_INFINITY
  }

  get(key: Key): Value | undefined {
    const entry = this.#entries.get(key)
    if (entry === undefined) return undefined
    // Within a period, the order matters only when evictions are near, so a map that is not half full skips the update.
    if (entry.period === this.#period && !this.#isHalfFull()) return entry.value
    entry.period = this.#period
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    return entry.value
  }

  set(key: Key, value: Value): void {
    this.delete(key)
    this.#startPeriod()
    this.#entries.set(key, { value, period: this.#period })
    this.#weight += this.#weigh(key, value)
    for (const oldest of this.#entries.keys()) {
      if (!this.#isOverfull()) return
      this.delete(oldest)
    }
  }

  /** Iterates from the least recently used entry on. */
  keys(): IterableIterator<Key> {
    return this.#entries.keys()
  }

  delete(key: Key): void {
    const entry = this.#entries.get(key)
    if (entry !== undefined) this.#weight -= this.#weigh(key, entry.value)
    this.#entries.delete(key)
  }

  /** When a period is over, starts the next one, and evicts the entries that were not used in the last one. */
  #startPeriod(): void {
    const { unusedMsMax } = this.#options
    if (unusedMsMax === undefined) return
    const now = Date.now()
    if (now < this.#periodEndsAtMs) return
    for (const [key, { period }] of this.#entries) {
      if (period === this.#period) break
      this.delete(key)
    }
    this.#period++
    this.#periodEndsAtMs = now + unusedMsMax
  }

  #weigh(key: Key, value: Value): number {
    return this.#options.weigh?.(key, value) ?? 0
  }

  #isHalfFull(): boolean {
    return this.#entries.size * 2 >= this.#sizeMax || this.#weight * 2 >= this.#weightMax
  }

  #isOverfull(): boolean {
    return this.#entries.size > this.#sizeMax || this.#weight > this.#weightMax
  }
}
