/**
 * A queue in which owners take turns, so that an owner with many items does not keep the others
 * waiting for all of them. The items of one owner stay in order.
 */
export class Turns<Item> {
  /** By owner, the one whose turn it is first. */
  readonly #items = new Map<string, Set<Item>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  sizeOf(owner: string): number {
    return this.#items.get(owner)?.size ?? 0
  }

  add(owner: string, item: Item): void {
    const items = this.#items.get(owner)
    if (items === undefined) this.#items.set(owner, new Set([item]))
    else items.add(item)
    this.#size++
  }

  /** Returns false if the item does not wait. */
  remove(owner: string, item: Item): boolean {
    const items = this.#items.get(owner)
    if (!items?.delete(item)) return false
    this.#size--
    if (items.size === 0) this.#items.delete(owner)
    return true
  }

  /** Removes and returns the next item whose owner may have a turn. */
  next(mayStart: (owner: string) => boolean): Item | undefined {
    for (const [owner, items] of this.#items) {
      const [item] = items
      if (item === undefined || !mayStart(owner)) continue
      this.remove(owner, item)
      // Its next item waits for all other owners.
      if (this.#items.delete(owner)) this.#items.set(owner, items)
      return item
    }
    return undefined
  }
}
