import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { retries } from '../telemetry/events.js'
import { COMMIT_CALLS, releaseWhenSettled, settleCommit, UnknownOutcomeError } from './commit.js'
import type { Database, Queryable } from './database.js'
import { codeOf, isRetryable, toAppError, UNDEFINED_TABLE } from './failures.js'
import { runPipeline } from './pipeline.js'
import type { Sql } from './sql.js'
import { type Call, toQuery } from './statement.js'

export interface Transaction extends Queryable {
  /** The connection, for operations that need it, such as COPY. */
  readonly client: pg.PoolClient
}

export interface TransactionOptions {
  readonly isolation?: 'serializable' | 'repeatable read' | 'read committed'
  readonly readOnly?: boolean
  /** Further SQLSTATEs after which the transaction is retried. */
  readonly retried?: ReadonlySet<string>
  /** Calls that are sent with the `begin`, in one round trip. */
  readonly opening?: readonly Call[]
  /** Whose share of the connections is used; none for the process itself and the control plane. */
  readonly owner?: string | undefined
}

/**
 * A read-only snapshot for reading a lot of data. A snapshot does not keep tables from being
 * dropped.
 */
export const SNAPSHOT = {
  isolation: 'repeatable read',
  readOnly: true,
  retried: new Set([UNDEFINED_TABLE]),
} as const satisfies TransactionOptions

/** A snapshot for work that needs temporary tables, which a read-only transaction cannot create. */
export const WRITABLE_SNAPSHOT = {
  ...SNAPSHOT,
  readOnly: false,
} as const satisfies TransactionOptions

export const ATTEMPTS_MAX = 20
const BACKOFF_BASE_MS = 2
const BACKOFF_MAX_MS = 200

/**
 * Runs `body` in a transaction, serializable by default. Conflicts with other transactions are
 * retried, so `body` may run more than once and must have no side effects outside of it.
 */
export async function runTransaction<Result>(
  database: Database,
  body: (transaction: Transaction) => Promise<Result>,
  options: TransactionOptions = {},
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await attemptTransaction(database, body, options)
    } catch (error) {
      const canRetry = isRetryable(error) || options.retried?.has(codeOf(error) ?? '')
      if (!canRetry || attempt === ATTEMPTS_MAX) throw toAppError(error)
      retries.add()
      await delay(backoffMs(attempt))
    }
  }
}

/** Exponential backoff with jitter, so that conflicting transactions do not collide again. */
export function backoffMs(attempt: number): number {
  return Math.random() * Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt)
}

async function attemptTransaction<Result>(
  database: Database,
  body: (transaction: Transaction) => Promise<Result>,
  options: TransactionOptions,
): Promise<Result> {
  const client = await database.acquire({ owner: options.owner })
  let broken: Error | undefined
  let unknown: UnknownOutcomeError | undefined
  try {
    await begin(client, options)
    const result = await body(transactionOn(client))
    // A COMMIT must not be cancelled, see `commit.ts`.
    if (options.readOnly) await client.query('commit')
    else await settleCommit(client, runPipeline(client, COMMIT_CALLS))
    return result
  } catch (error) {
    if (error instanceof UnknownOutcomeError) {
      unknown = error
      throw error
    }
    try {
      await client.query('rollback')
    } catch (rollbackError) {
      // A connection that cannot roll back is broken and must not return to the pool.
      broken = rollbackError instanceof Error ? rollbackError : new Error('rollback failed')
    }
    throw error
  } finally {
    if (unknown === undefined) client.release(broken)
    else releaseWhenSettled(client, unknown)
  }
}

async function begin(client: pg.PoolClient, options: TransactionOptions): Promise<void> {
  const { isolation = 'serializable', readOnly, opening } = options
  const text = `begin isolation level ${isolation}${readOnly ? ' read only' : ''}`
  if (opening === undefined) await client.query(text)
  else await runPipeline(client, [{ statement: { text, slots: [] }, values: [] }, ...opening])
}

function transactionOn(client: pg.PoolClient): Transaction {
  return {
    client,
    async query<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]> {
      return (await client.query<Row>(toQuery(statement))).rows
    },
  }
}
