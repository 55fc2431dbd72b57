import { UnknownOutcomeError } from '../../postgres/commit.js'
import { codeOf, isSqlState, isUndefinedName } from '../../postgres/failures.js'
import { GUARD_FAILED } from './guard.js'

/*
 * A session may be out of date when a request uses it. The error of a request says whether that can be
 * the reason:
 *
 * - A `StaleError` without a cause: the stamps have changed. The request starts over.
 * - A `StaleError` with a cause: a table or column is gone, most likely because the schema has changed.
 *   The stamps decide; if they still hold, the cause is the error.
 * - A confirmed error: PostgreSQL had checked the stamps in this request before it came to this. It is
 *   final.
 * - Any other error rests on the session alone, such as an unknown column. The stamps decide.
 */

/** The session of a request does not match the branch or the key any more. */
export class StaleError extends Error {}

const confirmedErrors = new WeakSet<object>()

/** Marks an error that was found after PostgreSQL had checked the stamps. Returns the error. */
export function confirmed<Thrown>(error: Thrown): Thrown {
  if (typeof error === 'object' && error !== null) confirmedErrors.add(error)
  return error
}

/** Whether an error, or one that caused it, is confirmed. SQLSTATEs come after the guard. */
export function isConfirmed(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = codeOf(cause)
    if (confirmedErrors.has(cause) || (code !== undefined && isSqlState(code))) return true
    // The transaction may have been committed, so it must never start over.
    if (cause instanceof UnknownOutcomeError) return true
  }
  return false
}

/** Turns a failure that the guard or an old layout explains into a `StaleError`. */
export function toStaleError(error: unknown): unknown {
  const code = codeOf(error)
  if (code === GUARD_FAILED) return new StaleError(code)
  return isUndefinedName(error) ? new StaleError(code, { cause: error }) : error
}
