/** A body that has not arrived completely. */
export interface Arriving {
  readonly heldBytes: number
  /** Refuses the request and releases its bytes. */
  giveUp(): void
}

/** Bytes in memory for one caller. */
export interface ByteShare {
  bytes: number
  readonly arriving: Set<Arriving>
}

export function newShare(): ByteShare {
  return { bytes: 0, arriving: new Set() }
}

/**
 * Limits the bytes in memory for requests, and shares them fairly. A caller can hold as much as
 * remains free: one alone gets half. If the budget is full, a caller with less than an equal share
 * gets room from the caller with the most, whose incomplete bodies are aborted.
 */
export class ByteBudget {
  readonly #bytesMax: number
  readonly #holders = new Set<ByteShare>()
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Returns whether a caller must wait for its own requests to end before it starts another. */
  isSpentFor(share: ByteShare): boolean {
    return share.bytes > 0 && share.bytes >= this.#bytesMax - this.#bytes
  }

  /**
   * Reserves bytes that have arrived. Returns false if there is no room. A request that is the only
   * holder always gets room, because a body larger than half of the budget could otherwise never be
   * sent.
   */
  take(share: ByteShare, options: { bytes: number; ownBytes: number }): boolean {
    const { bytes, ownBytes } = options
    const wanted = share.bytes + bytes
    const hasRoom = () => this.#bytes === ownBytes || wanted <= this.#bytesMax - this.#bytes
    if (!hasRoom()) {
      const others = this.#holders.size - (this.#holders.has(share) ? 1 : 0)
      if (wanted > this.#bytesMax / (others + 2)) return false
      while (!hasRoom()) if (!this.#reclaim(share)) return false
    }
    this.add(share, bytes)
    return true
  }

  /** Adds bytes that are already in memory and cannot be refused. */
  add(share: ByteShare, bytes: number): void {
    this.#bytes += bytes
    share.bytes += bytes
    if (share.bytes > 0) this.#holders.add(share)
  }

  give(share: ByteShare, bytes: number): void {
    this.#bytes -= bytes
    share.bytes -= bytes
    if (share.bytes === 0) this.#holders.delete(share)
  }

  /**
   * Aborts the largest incomplete body of the caller with the most bytes. Returns false if that is
   * the given caller itself.
   */
  #reclaim(share: ByteShare): boolean {
    let most = share
    for (const holder of this.#holders) {
      if (holder.bytes > most.bytes && holder.arriving.size > 0) most = holder
    }
    if (most === share) return false
    let largest: Arriving | undefined
    for (const body of most.arriving) {
      if (largest === undefined || body.heldBytes > largest.heldBytes) largest = body
    }
    if (largest === undefined || largest.heldBytes === 0) return false
    largest.giveUp()
    return true
  }
}
