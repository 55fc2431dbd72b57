import type { UsageRow } from './queries.js'

/** Bytes that were written before a time of the clock of PostgreSQL. */
interface Written {
  readonly beforeMs: number
  readonly bytes: number
}

/**
 * The usage of a workspace as this process knows it: the last measurement, and the bytes that this
 * process has written since. Processes do not see the writes of each other, so together they may
 * exceed a quota by the bytes that they write between two measurements.
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

  /** Returns whether a write fits into the quota. A write of unknown size fits while any is left. */
  hasRoomFor(bytes: number): boolean {
    return this.#bytesMax === null || this.bytesUsed + Math.max(bytes, 1) <= this.#bytesMax
  }

  /** Counts bytes. A negative number subtracts bytes that were not written. */
  add(bytes: number): void {
    if (this.#bytesMax !== null) this.#recentBytes += bytes
  }

  /**
   * Starts a refresh; the returned function takes the usage that was read. Bytes that are added while
   * the statement runs may be written after its snapshot, so they stay in `#recentBytes`.
   */
  startRefresh(): (row: UsageRow) => void {
    const bytes = this.#recentBytes
    return (row) => {
      const { bytesMax, measuredAt, readAt } = row
      this.#bytesMax = bytesMax
      this.#measuredBytes = row.rowBytes + row.fileBytes
      this.#recentBytes -= bytes
      // A measurement includes the bytes that were written before it began.
      const measuredMs = measuredAt?.getTime() ?? Number.NEGATIVE_INFINITY
      this.#earlier = [...this.#earlier, { beforeMs: readAt.getTime(), bytes }].filter(
        (written) => written.bytes !== 0 && written.beforeMs > measuredMs,
      )
    }
  }
}
