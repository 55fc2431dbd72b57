import { UnknownOutcomeError } from '../../postgres/commit.js'
import type { OpenBranch } from '../../rows/open-branch.js'

type Wanted = Parameters<OpenBranch['takeNumbers']>[0]

/** A state of a sequence: the last number that it has given, and a stamp that changes with each use. */
interface SequenceState {
  readonly last: number
  readonly stamp: string
}

/** The numbers that one request has taken of sequences. It gives them back if it is refused. */
export class TakenNumbers {
  readonly #branch: OpenBranch
  /** By the table or column: the stamp after the last use by the request, and the number before its first. */
  readonly #taken = new Map<number, SequenceState>()

  constructor(branch: OpenBranch) {
    this.#branch = branch
  }

  /** Takes numbers of a sequence. Returns the first of them. */
  async take(wanted: Wanted): Promise<number> {
    const { first, stamp, before } = await this.#branch.takeNumbers(wanted)
    const { itemId } = wanted
    const known = this.#taken.get(itemId)
    if (known !== undefined && before?.stamp === known.stamp) {
      this.#taken.set(itemId, { last: known.last, stamp })
    } else if (before !== undefined) this.#taken.set(itemId, { last: before.last, stamp })
    else this.#taken.delete(itemId)
    return first
  }

  /**
   * Gives back the numbers of a request that failed, so that a number that was refused does not move its sequence. Numbers that
   * others have taken since stay above them, and leave a gap.
   */
  async giveBack(error: unknown): Promise<void> {
    // The records may be stored.
    if (isOutcomeUnknown(error)) this.#taken.clear()
    else await this.giveBackAbove(new Map())
  }

  /** Gives back the numbers above those that are stored after all: the greatest one of each table or column. */
  async giveBackAbove(stored: ReadonlyMap<number, number>): Promise<void> {
    if (this.#taken.size === 0) return
    const taken = [...this.#taken]
    this.#taken.clear()
    for (const [itemId, { stamp, last }] of taken) {
      const kept = Math.max(last, stored.get(itemId) ?? 0)
      // Failing to do so leaves a gap, and is no reason to fail the request.
      await this.#branch.giveBackNumbers({ itemId, stamp, last: kept }).catch(() => undefined)
    }
  }
}

function isOutcomeUnknown(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof UnknownOutcomeError) return true
  }
  return false
}
