import { BranchCache } from './branch-cache.js'

/** A part of a cache, with keys of its own. */
export interface CachePart<Value> {
  get(key: string): Value | undefined
  set(key: string, value: Value): void
}

interface SharedCacheOptions<Value> {
  readonly max: number
  readonly maxSize: number
  sizeOf(value: Value): number
}

/** A cache with one limit for many owners, which come and go with their branches. Each has a part of its own. */
export class SharedCache<Value extends object> {
  readonly #values: BranchCache<Value>
  #parts = 0

  /** An entry has the size of its value, and the length of its key. */
  constructor({ max, maxSize, sizeOf }: SharedCacheOptions<Value>) {
    this.#values = new BranchCache({
      max,
      maxSize,
      sizeOf: (value, key) => key.length + sizeOf(value),
    })
  }

  createPart(): CachePart<Value> {
    const number = ++this.#parts
    return {
      get: (key) => this.#values.get(`${number} ${key}`),
      set: (key, value) => {
        this.#values.set(`${number} ${key}`, value)
      },
    }
  }
}
