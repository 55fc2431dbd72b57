import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import { UnknownOutcomeError } from '../../postgres/commit.js'
import type { OpenBranch } from '../../rows/open-branch.js'

type Wanted = Parameters<OpenBranch['takeNumbers']>[0]

/** A state of a sequence: the last number that it has given, and a stamp that changes with each use. */
interface SequenceState {
  readonly last: number
  readonly stamp: string
}

/** The use of a sequence by a request: the stamp after the last number it took, and the number before the first. */
interface Used extends SequenceState {
  /** The table or column, as messages name it, if numbers were generated. */
  readonly generatedFor: string | undefined
}

/** The rule that a refused record breaks. */
export type BrokenRule = Pick<FaultEntry, 'code' | 'table' | 'column' | 'columns'>

/** The numbers that one request has taken of sequences. It gives them back if it is refused. */
export class TakenNumbers {
  readonly #branch: OpenBranch
  /** By the table or column. */
  readonly #taken = new Map<number, Used>()

  constructor(branch: OpenBranch) {
    this.#branch = branch
  }

  /** Takes numbers of a sequence. Returns the first of them. */
  async take(wanted: Wanted): Promise<number> {
    const { first, stamp, before } = await this.#branch.takeNumbers(wanted)
    const { itemId, count, of } = wanted
    const known = this.#taken.get(itemId)
    const generatedFor = count > 0 ? of : known?.generatedFor
    if (known !== undefined && before?.stamp === known.stamp) {
      this.#taken.set(itemId, { last: known.last, stamp, generatedFor })
    } else if (before !== undefined) {
      this.#taken.set(itemId, { last: before.last, stamp, generatedFor })
    } else this.#taken.delete(itemId)
    return first
  }

  /**
   * Gives back the numbers of a request that failed, so that a number that was refused does not move its sequence. Numbers that
   * others have taken since stay above them, and leave a gap.
   */
  async giveBack(error: unknown): Promise<void> {
    // The records may be stored.
    if (isOutcomeUnknown(error)) this.#taken.clear()
    else await this.giveBackAbove(new Map(), error instanceof AppError ? rulesOf(error) : [])
  }

  /**
   * Gives back the numbers above those that are stored after all: the greatest one of each table or column. A sequence whose
   * numbers were refused because they are taken goes on after them. Otherwise it would give them again.
   */
  async giveBackAbove(
    stored: ReadonlyMap<number, number>,
    broken: Iterable<BrokenRule>,
  ): Promise<void> {
    if (this.#taken.size === 0) return
    const taken = [...this.#taken]
    this.#taken.clear()
    const repeated = new Set<string | undefined>()
    for (const { code, table, column, columns = [] } of broken) {
      if (code !== 'unique_violation') continue
      for (const name of [column, ...columns]) repeated.add(`table [${table}]: column [${name}]`)
    }
    for (const [itemId, { stamp, last, generatedFor }] of taken) {
      if (repeated.has(generatedFor)) continue
      const kept = Math.max(last, stored.get(itemId) ?? 0)
      // Failing to do so leaves a gap, and is no reason to fail the request.
      await this.#branch.giveBackNumbers({ itemId, stamp, last: kept }).catch(() => undefined)
    }
  }
}

/** Returns the rules that the records of a request have broken. */
function rulesOf({ code, details, errors = [] }: AppError): BrokenRule[] {
  return [{ ...details, code } as BrokenRule, ...errors]
}

function isOutcomeUnknown(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof UnknownOutcomeError) return true
  }
  return false
}
