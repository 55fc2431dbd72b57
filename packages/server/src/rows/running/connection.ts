import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { LostBackendError } from '../../postgres/bounds.js'
import { releaseWhenSettled, rollBack, UnknownOutcomeError } from '../../postgres/commit.js'
import { codeOf, isLeftBusy, isRetryable, isSqlState, toAppError } from '../../postgres/failures.js'
import { ATTEMPTS_MAX, backoffMs } from '../../postgres/run-transaction.js'
import { retries } from '../../telemetry/events.js'
import { ApartError } from './gathering.js'
import { StaleError, toStaleError } from './staleness.js'

/** Retries a transaction that fails for a conflict with another one, with random backoff. */
export async function retryConflicts<Result>(
  attempt: (conflicts: number) => Promise<Result>,
  isConflict: (error: unknown) => boolean = isRetryable,
): Promise<Result> {
  for (let count = 1; ; count++) {
    try {
      return await attempt(count - 1)
    } catch (error) {
      if (!isConflict(error) || count === ATTEMPTS_MAX) throw toAppError(error)
      retries.add()
      await delay(backoffMs(count))
    }
  }
}

/**
 * Runs a transaction and releases its connection. After an error, rolls back, or closes a broken connection.
 */
export async function withConnection<Result>(
  client: pg.PoolClient,
  body: () => Promise<Result>,
): Promise<Result> {
  let broken: Error | undefined
  let unknown: UnknownOutcomeError | undefined
  try {
    return await body()
  } catch (error) {
    if (error instanceof UnknownOutcomeError) unknown = error
    else broken = brokenConnection(error)
    if (broken === undefined && unknown === undefined) broken = await rollBack(client, error)
    throw toStaleError(error)
  } finally {
    if (unknown === undefined) client.release(broken)
    else releaseWhenSettled(client, unknown)
  }
}

/**
 * Returns the error if it means that the connection is broken. An error with a SQLSTATE was reported over a
 * working connection, unless the server is shutting down (57P).
 */
export function brokenConnection(error: unknown): Error | undefined {
  const code = codeOf(error)
  if (error instanceof LostBackendError) return error
  if (isLeftBusy(error)) return error as Error
  if (code !== undefined && isSqlState(code) && !code.startsWith('57P')) return undefined
  // This process raises these errors itself; the connection works.
  if (error instanceof AppError || error instanceof StaleError || error instanceof ApartError) {
    return undefined
  }
  return error instanceof Error ? error : new Error('unknown failure')
}
