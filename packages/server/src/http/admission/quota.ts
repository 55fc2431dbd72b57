/** Counts concurrent uses by name. Names without uses take no memory. */
export class Quota {
  readonly #counts = new Map<string, number>()

  /** Counts a use. Returns false if the name has reached the maximum. */
  start(name: string, atOnceMax: number): boolean {
    const count = this.#counts.get(name) ?? 0
    if (count >= atOnceMax) return false
    this.#counts.set(name, count + 1)
    return true
  }

  end(name: string): void {
    const count = this.#counts.get(name) ?? 0
    if (count <= 1) this.#counts.delete(name)
    else this.#counts.set(name, count - 1)
  }
}
