/** Weight of entries, such as the length of a text. */
export interface Weights<Key, Value> {
  readonly weightMax: number
  weigh(key: Key, value: Value): number
}

/** A map that evicts the least recently used entry. */
export class LruMap<Key, Value> {
  readonly #entries = new Map<Key, Value>()
  readonly #sizeMax: number
  readonly #weights: Weights<Key, Value> | undefined
  readonly #weightMax: number
  #weight = 0

  /** Bounds the number of entries and, if entries differ in size, their total weight. */
  constructor(sizeMax: number, weights?: Weights<Key, Value>) {
    this.#sizeMax = sizeMax
    this.#weights = weights
    this.#weightMax = weights?.weightMax ?? Number.POSITIVE_INFINITY
  }

  get(key: Key): Value | undefined {
    const value = this.#entries.get(key)
    // The order matters only when evictions are near, so a map that is not half full skips the
    // update.
    if (value === undefined || !this.#isHalfFull()) return value
    this.#entries.delete(key)
    this.#entries.set(key, value)
    return value
  }

  set(key: Key, value: Value): void {
    this.delete(key)
    this.#entries.set(key, value)
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
    const value = this.#entries.get(key)
    if (value !== undefined) this.#weight -= this.#weigh(key, value)
    this.#entries.delete(key)
  }

  #weigh(key: Key, value: Value): number {
    return this.#weights?.weigh(key, value) ?? 0
  }

  #isHalfFull(): boolean {
    return this.#entries.size * 2 >= this.#sizeMax || this.#weight * 2 >= this.#weightMax
  }

  #isOverfull(): boolean {
    return this.#entries.size > this.#sizeMax || this.#weight > this.#weightMax
  }
}
