import { UnknownOutcomeError } from '../../postgres/commit.js'
import { codeOf, isSqlState, isUndefinedName } from '../../postgres/failures.js'
import type { Call } from '../../postgres/statement.js'
import type { BranchRows } from '../layout/layout.js'
import { GUARD_FAILED, keyGuardCall } from './guard.js'

/*
 * A session may be outdated when a request uses it. The kind of an error tells whether that can be its
 * reason:
 *
 * - A `StaleError` without a cause: the stamps have changed. The request starts over.
 * - A `StaleError` with a cause: a table or column does not exist, so the layout of the session is outdated. The request
 *   starts over, whatever the stamps are. If that does not help, the cause is the error.
 * - A confirmed error: it occurred after PostgreSQL had checked the stamps in this request. It is final.
 * - Any other error depends on the session only, such as an unknown column. The stamps are checked.
 */

/** The session of a request no longer matches the branch or the key. */
export class StaleError extends Error {
  /** The rows of the branch, if it has only got storage for its first write to a table. */
  readonly rows: BranchRows | undefined

  constructor(
    message?: string,
    { rows, cause }: { rows?: BranchRows | undefined; cause?: unknown } = {},
  ) {
    super(message, cause === undefined ? undefined : { cause })
    this.rows = rows
  }
}

const CONFIRMED = Symbol('confirmed')

/** Marks an error that occurred after PostgreSQL had checked the stamps. Returns the error. */
export function confirmed<Thrown>(error: Thrown): Thrown {
  if (error instanceof Error) Object.defineProperty(error, CONFIRMED, { value: true })
  return error
}

/**
 * Returns whether an error or one of its causes is confirmed. Errors with a SQLSTATE occur after the guard.
 */
export function isConfirmed(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = codeOf(cause)
    if (CONFIRMED in cause || (code !== undefined && isSqlState(code))) return true
    // The transaction may have been committed, so it must never start over.
    if (cause instanceof UnknownOutcomeError) return true
  }
  return false
}

/**
 * Does work that runs `check` in its transaction: the key of the request must still have its stamp. Otherwise throws a
 * `StaleError`. For operations that look at the branch themselves in the same transaction.
 */
export async function guardedByKey<Result>(
  key: { readonly keyId: string; readonly keyStamp: string },
  work: (check: Call) => Promise<Result>,
): Promise<Result> {
  try {
    return await work(keyGuardCall(key))
  } catch (error) {
    throw codeOf(error) === GUARD_FAILED ? new StaleError(GUARD_FAILED) : error
  }
}

/** Converts a failure of the guard, or one that an outdated layout can explain, to a `StaleError`. */
export function toStaleError(error: unknown): unknown {
  const code = codeOf(error)
  if (code === GUARD_FAILED) return new StaleError(code)
  return isUndefinedName(error) ? new StaleError(code, { cause: error }) : error
}
