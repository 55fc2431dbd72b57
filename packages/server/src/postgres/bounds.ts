import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import type { Database } from './database.js'
import { codeOf, QUERY_CANCELED } from './failures.js'
import { sql } from './sql.js'

/** How far what a request asks of PostgreSQL may go. */
export interface Bounds {
  /** From when it has a connection. */
  readonly timeoutMs: number
  /** Nobody waits for the answer any more. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Runs `body` on a connection and has PostgreSQL stop what it does there when the time is up or the
 * caller is gone.
 */
export async function runBounded<Result>(
  options: { database: Database; client: pg.PoolClient; bounds: Bounds | undefined },
  body: () => Promise<Result>,
): Promise<Result> {
  const { database, client, bounds } = options
  if (bounds === undefined) return body()
  const { timeoutMs, signal } = bounds
  if (signal?.aborted) throw new AppError('timeout', 'the caller is gone')
  let cancelling: Promise<unknown> | undefined
  let isLate = false
  const cancel = () => {
    const { processID } = client as unknown as { processID: number }
    cancelling ??= database
      .queryAside(sql`select pg_cancel_backend(${processID}::integer)`)
      .catch(() => undefined)
  }
  const timer = setTimeout(() => {
    isLate = true
    cancel()
  }, timeoutMs)
  signal?.addEventListener('abort', cancel, { once: true })
  try {
    return await body()
  } catch (error) {
    if (isLate && codeOf(error) === QUERY_CANCELED) throw tooLate(database, bounds, error)
    throw error
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', cancel)
    // Whoever gets the connection next must not be stopped in our place.
    await cancelling
  }
}

/** What took too long on a server that was free is too much to ask; otherwise the server is. */
function tooLate(database: Database, { timeoutMs }: Bounds, cause: unknown): AppError {
  if (database.isCrowded) {
    return new AppError(
      'timeout',
      `the server is busy: the query took longer than ${timeoutMs} ms`,
      {
        cause,
      },
    )
  }
  return new AppError(
    'query_too_costly',
    `the query is too costly: it was stopped after ${timeoutMs} ms`,
    { cause },
  )
}
