import { BranchCache } from '../../common/branch-cache.js'
import { layoutOf, type Moment } from '../layout/layout.js'
import { type Guard, isMomentPassed, type momentFrom } from './guard.js'

/*
 * Writers need the epoch of their branch, and whether a fork can see a row that they change. Both are values of their
 * statements, so that these do not read the catalogue. This process remembers the moment of each branch, and the guard
 * compares it behind the gate. If the branch was forked meanwhile, the transaction is repeated, and reads the moment
 * before it writes: a branch that is forked all the time makes writers take another round trip, but never refuses one.
 */

const BRANCHES_MAX = 10_000

/** The last known moments of branches. */
export class Moments {
  readonly #known = new BranchCache<Moment>({ max: BRANCHES_MAX })

  recall({ rows }: Guard): Moment {
    const layout = layoutOf(rows)
    return (layout.hasForks ? this.#known.get(rows.branchId) : undefined) ?? layout
  }

  /** Remembers the moment that `momentFrom` has read. */
  remember({ rows }: Guard, moment: ReturnType<typeof momentFrom>): void {
    this.#known.set(rows.branchId, moment)
  }
}

/**
 * Runs an attempt with the known moment, and if it has passed, one that reads the moment. `hasBegun` tells whether an
 * error is one of later statements.
 */
export async function withMoment<Result>(
  attempt: (isKnown: boolean) => Promise<Result>,
  hasBegun = () => false,
): Promise<Result> {
  try {
    return await attempt(true)
  } catch (error) {
    if (!isMomentPassed(error) || hasBegun()) throw error
    return attempt(false)
  }
}
