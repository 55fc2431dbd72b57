/** Branches with a sliding expiry that this process has used and not yet told PostgreSQL about. */
export class BranchUses {
  readonly #used = new Set<string>()
  readonly #running = new Map<string, number>()

  /** A use that lasts until the returned function is called; a long one counts all the while. */
  start(branchId: string): () => void {
    this.#used.add(branchId)
    this.#running.set(branchId, (this.#running.get(branchId) ?? 0) + 1)
    return () => {
      this.#used.add(branchId)
      const others = (this.#running.get(branchId) ?? 0) - 1
      if (others > 0) this.#running.set(branchId, others)
      else this.#running.delete(branchId)
    }
  }

  /** Hands out what was used since the last time, and what is in use now. */
  take(): string[] {
    const ids = new Set([...this.#used, ...this.#running.keys()])
    this.#used.clear()
    return [...ids]
  }

  /** Takes back what could not be written. */
  restore(branchIds: readonly string[]): void {
    for (const id of branchIds) this.#used.add(id)
  }
}
