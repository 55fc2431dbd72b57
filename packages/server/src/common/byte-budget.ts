import { BoundedCache } from './bounded-cache.js'

/**
 * Bytes of rows and answers up to this size are not counted, and never refused: the operating system buffers such an
 * answer, and there are few at the same time.
 */
export const SMALL_ANSWER_BYTES = 64 * 1024
/** Shares are given without room up to this many times the budget. */
const OVERFULL_FACTOR = 2
/** All callers of a workspace together get shares without room up to this many times the budget. The rest is for others. */
const WORKSPACE_FACTOR = 1.5
/** Owners, and workspaces, whose shares are remembered. */
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

/** Bytes in memory for all callers of one workspace. */
interface WorkspaceShare {
  bytes: number
  /** The number of callers that hold them. */
  holders: number
}

/** Bytes in memory for one caller. */
export interface ByteShare {
  bytes: number
  readonly arriving: Set<Arriving>
  readonly readings: Set<Reading>
  /** The workspace that the caller has used last. A caller that has used none is counted as one. */
  workspace: WorkspaceShare
}

export function newShare(): ByteShare {
  const workspace = { bytes: 0, holders: 0 }
  return { bytes: 0, arriving: new Set(), readings: new Set(), workspace }
}

/**
 * Limits the bytes in memory for requests: their bodies, the rows that are read for them, and large answers until they are
 * sent. Shares them fairly: a caller can hold as much as remains free, so one alone gets half. If the budget is full, a
 * caller with less than an equal share gets room from the caller with the most, whose incomplete bodies are aborted. If
 * there are none, because others do not read their answers, it gets its equal share on top, up to twice the budget in all.
 * A caller with less than a small answer always gets room. The callers of another workspace count as one, and cannot take
 * everything on top, so a workspace with many keys leaves others as much as one with a single key.
 */
export class ByteBudget {
  readonly #bytesMax: number
  readonly #holders = new Set<ByteShare>()
  readonly #shares = new BoundedCache<ByteShare>({ max: OWNERS_MAX })
  readonly #workspaces = new BoundedCache<WorkspaceShare>({ max: OWNERS_MAX })
  /** The number of workspaces that hold bytes. */
  #holdingWorkspaces = 0
  #bytes = 0

  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Returns the share of an owner, such as a key. */
  shareOf(owner: string): ByteShare {
    const known = this.#shares.get(owner)
    if (known !== undefined) return known
    const share = newShare()
    this.#shares.set(owner, share)
    return share
  }

  /** Counts all that an owner holds for the workspace that it uses now. */
  useWorkspace(owner: string, workspaceId: string): void {
    const share = this.shareOf(owner)
    let workspace = this.#workspaces.get(workspaceId)
    if (workspace === undefined) {
      workspace = { bytes: 0, holders: 0 }
      this.#workspaces.set(workspaceId, workspace)
    }
    if (share.workspace === workspace) return
    const { bytes } = share
    this.give(share, bytes)
    share.workspace = workspace
    this.add(share, bytes)
  }

  /** Returns whether a caller must wait for its own requests to end before it starts another. */
  isSpentFor(share: ByteShare): boolean {
    const isMost = share.bytes >= this.#bytesMax - this.#bytes
    return share.bytes > 0 && isMost && share.bytes >= this.#equalShare(share)
  }

  /**
   * The part of the budget that a caller gets if all others of its workspace that hold bytes, each other workspace, and one
   * more, get as much.
   */
  #equalShare(share: ByteShare): number {
    const { holders } = share.workspace
    const others = holders - (this.#holders.has(share) ? 1 : 0)
    const otherWorkspaces = this.#holdingWorkspaces - (holders > 0 ? 1 : 0)
    return this.#bytesMax / (others + otherWorkspaces + 2)
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
      if (!hasRoom() && wanted > SMALL_ANSWER_BYTES && this.#isOverfull(share)) return false
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
    return longest === reading && isShort && !this.#isOverfull(share)
  }

  /** Returns whether a caller gets nothing without room: everything, or the part of its workspace, is taken. */
  #isOverfull({ workspace }: ByteShare): boolean {
    if (workspace.bytes >= WORKSPACE_FACTOR * this.#bytesMax) return true
    return this.#bytes >= OVERFULL_FACTOR * this.#bytesMax
  }

  /** Adds bytes that are already in memory and cannot be refused. */
  add(share: ByteShare, bytes: number): void {
    this.#count(share, bytes)
    if (share.bytes === 0 || this.#holders.has(share)) return
    this.#holders.add(share)
    if (share.workspace.holders++ === 0) this.#holdingWorkspaces++
  }

  give(share: ByteShare, bytes: number): void {
    this.#count(share, -bytes)
    if (share.bytes > 0 || !this.#holders.delete(share)) return
    if (--share.workspace.holders === 0) this.#holdingWorkspaces--
  }

  #count(share: ByteShare, bytes: number): void {
    this.#bytes += bytes
    share.bytes += bytes
    share.workspace.bytes += bytes
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
