interface Named {
  readonly id: number
  readonly name: string
}

/** Items with ids and names, in the order they were added. Names are unique regardless of case. */
export class NamedList<Item extends Named> {
  readonly #byId = new Map<number, Item>()
  readonly #byName = new Map<string, Item>()

  constructor(items: readonly Item[]) {
    for (const item of items) this.set(item)
  }

  /** Adds an item, or replaces the item with the same id. */
  set(item: Item): void {
    this.#forgetName(item.id)
    this.#byId.set(item.id, item)
    this.#byName.set(item.name.toLowerCase(), item)
  }

  /** Puts an item, which may have another id, in the place of an item. */
  replace(id: number, item: Item): void {
    const items = this.items().map((each) => (each.id === id ? item : each))
    this.#byId.clear()
    this.#byName.clear()
    for (const each of items) this.set(each)
  }

  delete(id: number): void {
    this.#forgetName(id)
    this.#byId.delete(id)
  }

  get(id: number): Item | undefined {
    return this.#byId.get(id)
  }

  find(name: string): Item | undefined {
    const item = this.findIgnoringCase(name)
    return item?.name === name ? item : undefined
  }

  findIgnoringCase(name: string): Item | undefined {
    return this.#byName.get(name.toLowerCase())
  }

  items(): Item[] {
    return [...this.#byId.values()]
  }

  #forgetName(id: number): void {
    const item = this.#byId.get(id)
    if (item) this.#byName.delete(item.name.toLowerCase())
  }
}
