import type { UsageRow } from './queries.js'

/** Bytes that were written before some moment, by the clock of PostgreSQL. */
interface Written {
  readonly beforeMs: number
  readonly bytes: number
}

/**
 * What this process knows of the usage of a workspace: the last measurement, and the bytes that it has
 * written since. Other processes do the same, so all of them together may exceed a quota by what they
 * write between two measurements.
 */
export class WorkspaceRoom {
  #bytesMax: number | null
  #measuredBytes: number
  #earlier: readonly Written[] = []
  #recentBytes = 0

  constructor(row: UsageRow) {
    this.#bytesMax = row.bytesMax
    this.#measuredBytes = row.rowBytes + row.fileBytes
  }

  get bytesMax(): number | null {
    return this.#bytesMax
  }

  get bytesUsed(): number {
    const earlier = this.#earlier.reduce((sum, { bytes }) => sum + bytes, 0)
    return Math.max(this.#measuredBytes, this.#measuredBytes + earlier + this.#recentBytes)
  }

  /** Whether a write still fits. One of unknown size fits while there is any room. */
  hasRoomFor(bytes: number): boolean {
    return this.#bytesMax === null || this.bytesUsed + Math.max(bytes, 1) <= this.#bytesMax
  }

  /** Counts bytes; negative ones take back what was not written after all. */
  add(bytes: number): void {
    if (this.#bytesMax !== null) this.#recentBytes += bytes
  }

  /**
   * Begins to take in what was read of the workspace. Bytes that are added while the statement runs may
   * be later than what it reads, so they stay recent.
   */
  startRefresh(): (row: UsageRow) => void {
    const bytes = this.#recentBytes
    return (row) => {
      const { bytesMax, measuredAt, readAt } = row
      this.#bytesMax = bytesMax
      this.#measuredBytes = row.rowBytes + row.fileBytes
      this.#recentBytes -= bytes
      // A measurement has seen what was written before it began.
      const measuredMs = measuredAt?.getTime() ?? Number.NEGATIVE_INFINITY
      this.#earlier = [...this.#earlier, { beforeMs: readAt.getTime(), bytes }].filter(
        (written) => written.bytes !== 0 && written.beforeMs > measuredMs,
      )
    }
  }
}
