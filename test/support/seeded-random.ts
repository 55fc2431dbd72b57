/** A pseudo-random number generator with a seed. */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** Returns a number from 0 to below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let value = this.#state
    value = Math.imul(value ^ (value >>> 15), value | 1)
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61)
    return ((value ^ (value >>> 14)) >>> 0) / 4_294_967_296
  }

  /** Returns an integer from 0 to below the limit. */
  below(limit: number): number {
    return Math.floor(this.next() * limit)
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<Item>(items: readonly Item[]): Item {
    const item = items[this.below(items.length)]
    if (item === undefined) throw new Error('there must be something to pick')
    return item
  }

  /** Returns a random subset; not empty if there are items. */
  some<Item>(items: readonly Item[], probability = 0.4): Item[] {
    const chosen = items.filter(() => this.chance(probability))
    return chosen.length > 0 || items.length === 0 ? chosen : [this.pick(items)]
  }

  weighted<Item>(items: readonly (readonly [weight: number, item: Item])[]): Item {
    let rest = this.next() * items.reduce((sum, [weight]) => sum + weight, 0)
    for (const [weight, item] of items) {
      rest -= weight
      if (rest < 0) return item
    }
    throw new Error('the weights must not be negative')
  }
}
