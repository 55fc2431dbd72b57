/** A bound on bytes that are held in memory for requests. */
export class ByteBudget {
  readonly #bytesMax: number
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  get isSpent(): boolean {
    return this.#bytes >= this.#bytesMax
  }

  /** The first gets in whatever its size is, or it never would. */
  take(bytes: number): boolean {
    if (this.#bytes > 0 && this.#bytes + bytes > this.#bytesMax) return false
    this.#bytes += bytes
    return true
  }

  /** For what is there already and cannot be refused. */
  add(bytes: number): void {
    this.#bytes += bytes
  }

  give(bytes: number): void {
    this.#bytes -= bytes
  }
}
