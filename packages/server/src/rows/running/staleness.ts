import { UnknownOutcomeError } from '../../postgres/commit.js'
import { codeOf, isSqlState, isUndefinedName } from '../../postgres/failures.js'
import type { BranchRows } from '../layout/layout.js'
import { GUARD_FAILED } from './guard.js'

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
export class StaleError extends Error {}

/** The branch has got storage for its first write to a table. */
export class NewStorageError extends StaleError {
  constructor(
    /** The rows with that storage, if nothing else of the branch has changed. */
    readonly rows: BranchRows | undefined,
  ) {
    super('the branch has new storage')
  }
}

const confirmedErrors = new WeakSet<object>()

/** Marks an error that occurred after PostgreSQL had checked the stamps. Returns the error. */
export function confirmed<Thrown>(error: Thrown): Thrown {
  if (typeof error === 'object' && error !== null) confirmedErrors.add(error)
  return error
}

/**
 * Returns whether an error or one of its causes is confirmed. Errors with a SQLSTATE occur after the guard.
 */
export function isConfirmed(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = codeOf(cause)
    if (confirmedErrors.has(cause) || (code !== undefined && isSqlState(code))) return true
    // The transaction may have been committed, so it must never start over.
    if (cause instanceof UnknownOutcomeError) return true
  }
  return false
}

/** Awaits work with a guard of the key. Converts a failure of the guard to a `StaleError`. */
export function confirmKey<Result>(work: Promise<Result>): Promise<Result> {
  return work.catch((error: unknown) => {
    throw codeOf(error) === GUARD_FAILED ? new StaleError(GUARD_FAILED) : error
  })
}

/** Converts a failure of the guard, or one that an outdated layout can explain, to a `StaleError`. */
export function toStaleError(error: unknown): unknown {
  const code = codeOf(error)
  if (code === GUARD_FAILED) return new StaleError(code)
  return isUndefinedName(error) ? new StaleError(code, { cause: error }) : error
}
