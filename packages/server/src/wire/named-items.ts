/** Statements or portals of a connection, by name, with the bytes that they take together. */
export class NamedItems<Item> {
  readonly #sizeOf: (item: Item) => number
  readonly #items = new Map<string, { item: Item; bytes: number }>()
  #bytes = 0

  constructor(sizeOf: (item: Item) => number) {
    this.#sizeOf = sizeOf
  }

  get size(): number {
    return this.#items.size
  }

  get bytes(): number {
    return this.#bytes
  }

  get(name: string): Item | undefined {
    return this.#items.get(name)?.item
  }

  /** Puts an item under its name, or measures it again. */
  set(name: string, item: Item): void {
    this.delete(name)
    const bytes = this.#sizeOf(item)
    this.#items.set(name, { item, bytes })
    this.#bytes += bytes
  }

  delete(name: string): void {
    this.#bytes -= this.#items.get(name)?.bytes ?? 0
    this.#items.delete(name)
  }

  clear(): void {
    this.#items.clear()
    this.#bytes = 0
  }

  *values(): Generator<Item> {
    for (const { item } of this.#items.values()) yield item
  }
}
