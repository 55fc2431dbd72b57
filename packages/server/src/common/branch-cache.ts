import { BoundedCache } from './bounded-cache.js'

/** How long an entry is kept that is not used, at least. It is evicted before twice that time has passed. */
const UNUSED_MS = 120_000
/** Times of uses are known to this precision: to ask for the time costs more than to find an entry. */
const PRECISION_MS = 1_000

interface BranchCacheOptions<Value> {
  readonly max: number
  /** The total size of all entries; unlimited by default. */
  readonly maxSize?: number
  sizeOf?(value: Value, key: string): number
}

/**
 * A cache with entries for each branch. What was not used for some minutes is evicted: most branches live shortly, and what is
 * cached for one that is gone would otherwise stay until thousands of others have followed. One timer looks after all entries,
 * because a use of an entry is more frequent than anything else.
 */
export class BranchCache<Value extends object> {
  readonly #values: BoundedCache<Value>
  #sweep: NodeJS.Timeout | undefined

  constructor({ max, maxSize, sizeOf }: BranchCacheOptions<Value>) {
    this.#values = new BoundedCache({
      max,
      ...(maxSize !== undefined && { maxSize }),
      ...(sizeOf !== undefined && { sizeOf }),
      ttl: UNUSED_MS,
      ttlResolution: PRECISION_MS,
      updateAgeOnGet: true,
      // The clock of this moment, and not the one that was there when the package was loaded: tests set their own.
      perf: { now: () => performance.now() },
    })
  }

  get size(): number {
    return this.#values.size
  }

  get(key: string): Value | undefined {
    return this.#values.get(key)
  }

  set(key: string, value: Value): void {
    this.#values.set(key, value)
    this.#sweep ??= this.#sweepLater()
  }

  delete(key: string): void {
    this.#values.delete(key)
  }

  #sweepLater(): NodeJS.Timeout {
    return setTimeout(() => {
      this.#values.purgeStale()
      this.#sweep = this.#values.size === 0 ? undefined : this.#sweepLater()
    }, UNUSED_MS).unref()
  }
}
