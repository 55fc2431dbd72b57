/** Branches with a sliding expiry whose uses in this process are not written to PostgreSQL yet. */
export class BranchUses {
  readonly #used = new Set<string>()
  readonly #running = new Map<string, number>()

  /** Starts a use. It lasts, and keeps the branch from expiring, until the returned function is called. */
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

  /** Returns the branches that were used since the last call, and those in use now. */
  take(): string[] {
    const ids = new Set([...this.#used, ...this.#running.keys()])
    this.#used.clear()
    return [...ids]
  }

  /** Puts back branches whose use could not be written. */
  restore(branchIds: readonly string[]): void {
    for (const id of branchIds) this.#used.add(id)
  }
}
