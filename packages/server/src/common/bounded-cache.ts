import { LRUCache } from 'lru-cache'

interface BoundedCacheOptions<Value extends {}>
  extends Pick<LRUCache.Options<string, Value, unknown>, 'ttl' | 'ttlResolution' | 'perf'> {
  /** The number of entries. */
  readonly max: number
  /** The total size of all entries; unlimited by default. */
  readonly maxSize?: number
  readonly sizeOf?: (value: Value, key: string) => number
  readonly updateAgeOnGet?: boolean
}

/**
 * A cache that evicts what was not used for the longest time. It grows with its entries: the package would set aside room
 * for `max` of them at once, which for all caches takes a tenth of the time of a start, and megabytes. So it is told a
 * total size only.
 */
export class BoundedCache<Value extends {}> extends LRUCache<string, Value> {
  readonly #entriesMax: number

  constructor(options: BoundedCacheOptions<Value>) {
    const { max, maxSize = max, sizeOf = () => 1, ...rest } = options
    super({ ...rest, maxSize, sizeCalculation: sizeOf })
    this.#entriesMax = max
  }

  override set(key: string, value: Value): this {
    super.set(key, value)
    if (this.size > this.#entriesMax) this.pop()
    return this
  }
}
