/** A body that has not arrived as a whole. */
export interface Arriving {
  readonly heldBytes: number
  /** Refuses the request, and gives its bytes back at once. */
  giveUp(): void
}

/** Bytes that are held for one caller. */
export interface ByteShare {
  bytes: number
  readonly arriving: Set<Arriving>
}

export function newShare(): ByteShare {
  return { bytes: 0, arriving: new Set() }
}

/**
 * A bound on bytes that are held in memory for requests, shared fairly. A caller may hold as much as is
 * left for others: one alone gets half. One that holds less than an equal share gets room at the cost of
 * the one that holds most, whose bodies are given up as far as they have not arrived.
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

  /** Whether the caller has to wait for its own requests to end before it can start another. */
  isSpentFor(share: ByteShare): boolean {
    return share.bytes > 0 && share.bytes >= this.#bytesMax - this.#bytes
  }

  /**
   * Takes room for bytes that have arrived. A request that is the only one to hold any always gets
   * it, or a body larger than half of the budget could never be sent.
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

  /** For bytes that are there already and cannot be refused. */
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

  /** Ends the largest body that is on its way for the one who holds most, if that is another one. */
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
