/** A map that forgets what was longest unused. */
export class LruMap<Key, Value> {
  readonly #entries = new Map<Key, Value>()
  readonly #sizeMax: number

  constructor(sizeMax: number) {
    this.#sizeMax = sizeMax
  }

  get(key: Key): Value | undefined {
    const value = this.#entries.get(key)
    // As long as nothing has to go soon, their order does not matter.
    if (value === undefined || this.#entries.size * 2 < this.#sizeMax) return value
    this.#entries.delete(key)
    this.#entries.set(key, value)
    return value
  }

  set(key: Key, value: Value): void {
    this.#entries.delete(key)
    this.#entries.set(key, value)
    if (this.#entries.size <= this.#sizeMax) return
    const [oldest] = this.#entries.keys()
    if (oldest !== undefined) this.#entries.delete(oldest)
  }

  delete(key: Key): void {
    this.#entries.delete(key)
  }
}
