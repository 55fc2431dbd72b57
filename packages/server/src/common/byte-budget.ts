import { LRUCache } from 'lru-cache'

/**
 * Bytes of rows and answers up to this size are not counted, and never refused: the operating system buffers such an
 * answer, and there are few at the same time.
 */
export const SMALL_ANSWER_BYTES = 64 * 1024
/** Shares are given without room up to this many times the budget. */
const OVERFULL_FACTOR = 2
/** Owners whose shares are remembered. */
const OWNERS_MAX = 10_000

/** A body that has not arrived completely. */
export interface Arriving {
  readonly heldBytes: number
  /** Refuses the request and releases its bytes. */
  giveUp(): void
}

/** An answer that is being read from the database. */
export interface Reading {
  readonly readBytes: number
}

/** Bytes in memory for one caller. */
export interface ByteShare {
  bytes: number
  readonly arriving: Set<Arriving>
  readonly readings: Set<Reading>
}

export function newShare(): ByteShare {
  return { bytes: 0, arriving: new Set(), readings: new Set() }
}

/**
 * Limits the bytes in memory for requests: their bodies, the rows that are read for them, and large answers until they are
 * sent. Shares them fairly: a caller can hold as much as remains free, so one alone gets half. If the budget is full, a
 * caller with less than an equal share gets room from the caller with the most, whose incomplete bodies are aborted. If
 * there are none, because others do not read their answers, it gets its equal share on top, up to twice the budget in all.
 * A caller with less than a small answer always gets room.
 */
export class ByteBudget {
  readonly #bytesMax: number
  readonly #holders = new Set<ByteShare>()
  readonly #shares = new LRUCache<string, ByteShare>({ max: OWNERS_MAX })
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Returns the share of an owner, such as a key. */
  shareOf(owner: string): ByteShare {
    const share = this.#shares.get(owner) ?? newShare()
    this.#shares.set(owner, share)
    return share
  }

  /** Returns whether a caller must wait for its own requests to end before it starts another. */
  isSpentFor(share: ByteShare): boolean {
    const isMost = share.bytes >= this.#bytesMax - this.#bytes
    return share.bytes > 0 && isMost && share.bytes >= this.#equalShare(share)
  }

  /** The part of the budget that a caller gets if all others that hold bytes, and one more, get as much. */
  #equalShare(share: ByteShare): number {
    const others = this.#holders.size - (this.#holders.has(share) ? 1 : 0)
    return this.#bytesMax / (others + 2)
  }

  /**
   * Reserves bytes that have arrived. Returns false if there is no room. A request that is the only
   * holder always gets room, because a body or an answer larger than half of the budget could otherwise
   * never be sent.
   */
  take(share: ByteShare, options: { bytes: number; ownBytes: number }): boolean {
    const { bytes, ownBytes } = options
    const wanted = share.bytes + bytes
    const hasRoom = () => this.#bytes <= ownBytes || wanted <= this.#bytesMax - this.#bytes
    if (!hasRoom()) {
      if (wanted > this.#equalShare(share)) return false
      while (!hasRoom()) if (!this.#reclaim(share)) break
      if (!hasRoom() && wanted > SMALL_ANSWER_BYTES && this.#isOverfull) return false
    }
    this.add(share, bytes)
    return true
  }

  /**
   * Returns whether an answer may be read on without room. Of those that a caller reads at the same time, the longest may, if
   * the caller holds less than its share otherwise: else all of them would be refused halfway.
   */
  mayReadOn(share: ByteShare, reading: Reading): boolean {
    let bytes = 0
    let longest = reading
    for (const other of share.readings) {
      bytes += other.readBytes
      if (other.readBytes > longest.readBytes) longest = other
    }
    const isShort = share.bytes - bytes < this.#equalShare(share)
    return longest === reading && isShort && !this.#isOverfull
  }

  get #isOverfull(): boolean {
    return this.#bytes >= OVERFULL_FACTOR * this.#bytesMax
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
