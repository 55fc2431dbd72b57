/** Part of the permits that no other owner holds which an owner leaves free. */
const RESERVED_PART = 1 / 4

/** Permits that the process takes for itself; only their total is limited. */
export const NO_OWNER = ''

/**
 * Counts permits that owners hold. An owner can take three quarters of those that no other owner holds,
 * so that the next owner always finds some: of 20 permits, a first owner gets 15, a second one 3.
 */
export class Shares {
  readonly #permitsMax: number
  readonly #perOwnerMax: number | undefined
  readonly #held = new Map<string, number>()
  #heldInAll = 0

  /** `perOwnerMax` replaces the share of an owner by a fixed number. */
  constructor(permitsMax: number, perOwnerMax?: number) {
    this.#permitsMax = permitsMax
    this.#perOwnerMax = perOwnerMax
  }

  get held(): number {
    return this.#heldInAll
  }

  hasRoom(owner: string): boolean {
    const free = this.#permitsMax - this.#heldInAll
    if (free <= 0 || owner === NO_OWNER) return free > 0
    const own = this.#held.get(owner) ?? 0
    return own < (this.#perOwnerMax ?? shareOf(free + own))
  }

  take(owner: string): void {
    this.#heldInAll++
    this.#held.set(owner, (this.#held.get(owner) ?? 0) + 1)
  }

  give(owner: string): void {
    this.#heldInAll--
    const left = (this.#held.get(owner) ?? 1) - 1
    if (left === 0) this.#held.delete(owner)
    else this.#held.set(owner, left)
  }
}

/** Returns how many of the given permits one owner may hold. */
export function shareOf(permits: number): number {
  return Math.max(1, permits - Math.ceil(permits * RESERVED_PART))
}
