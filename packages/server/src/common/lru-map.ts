/** How much entries take, such as characters of text. */
export interface Weights<Key, Value> {
  readonly weightMax: number
  weigh(key: Key, value: Value): number
}

/** A map that forgets what was longest unused. */
export class LruMap<Key, Value> {
  readonly #entries = new Map<Key, Value>()
  readonly #sizeMax: number
  readonly #weights: Weights<Key, Value> | undefined
  #weight = 0

  /** Bounded in the number of entries and, where they can be of any size, in their weight. */
  constructor(sizeMax: number, weights?: Weights<Key, Value>) {
    this.#sizeMax = sizeMax
    this.#weights = weights
  }

  get(key: Key): Value | undefined {
    const value = this.#entries.get(key)
    // As long as nothing has to go soon, their order does not matter.
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

  delete(key: Key): void {
    const value = this.#entries.get(key)
    if (value !== undefined) this.#weight -= this.#weigh(key, value)
    this.#entries.delete(key)
  }

  #weigh(key: Key, value: Value): number {
    return this.#weights?.weigh(key, value) ?? 0
  }

  #isHalfFull(): boolean {
    const { weightMax } = this.#weights ?? { weightMax: Number.POSITIVE_INFINITY }
    return this.#entries.size * 2 >= this.#sizeMax || this.#weight * 2 >= weightMax
  }

  #isOverfull(): boolean {
    const { weightMax } = this.#weights ?? { weightMax: Number.POSITIVE_INFINITY }
    return this.#entries.size > this.#sizeMax || this.#weight > weightMax
  }
}
