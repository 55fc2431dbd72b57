import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { LostBackendError } from '../../postgres/bounds.js'
import { releaseWhenSettled, UnknownOutcomeError } from '../../postgres/commit.js'
import { codeOf, isRetryable, isSqlState, toAppError } from '../../postgres/failures.js'
import { ATTEMPTS_MAX, backoffMs } from '../../postgres/run-transaction.js'
import { retries } from '../../telemetry/events.js'
import { ApartError } from './gathering.js'
import { StaleError, toStaleError } from './staleness.js'

/** Runs a transaction again while it fails for conflicts with others, with random pauses. */
export async function retryConflicts<Result>(attempt: () => Promise<Result>): Promise<Result> {
  for (let count = 1; ; count++) {
    try {
      return await attempt()
    } catch (error) {
      if (!isRetryable(error) || count === ATTEMPTS_MAX) throw toAppError(error)
      retries.add()
      await delay(backoffMs(count))
    }
  }
}

/** Runs a transaction and gives the connection back: rolled back if it failed, or closed if broken. */
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
    if (broken === undefined && unknown === undefined) {
      try {
        await client.query('rollback')
      } catch (rollbackError) {
        broken = rollbackError as Error
      }
    }
    throw toStaleError(error)
  } finally {
    if (unknown === undefined) client.release(broken)
    else releaseWhenSettled(client, unknown)
  }
}

/** Errors with a SQLSTATE were reported over a connection that works; others were not. */
export function brokenConnection(error: unknown): Error | undefined {
  const code = codeOf(error)
  if (error instanceof LostBackendError) return error
  if (code !== undefined && isSqlState(code) && !code.startsWith('57P')) return undefined
  // Errors that this process raises itself leave the connection as it is.
  if (error instanceof AppError || error instanceof StaleError || error instanceof ApartError) {
    return undefined
  }
  return error instanceof Error ? error : new Error('unknown failure')
}
