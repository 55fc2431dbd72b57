import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { retries } from '../telemetry/events.js'
import { type Bounds, runBounded } from './bounds.js'
import {
  COMMIT_CALLS,
  releaseAfter,
  releaseWhenSettled,
  rollBack,
  settleCommit,
  UnknownOutcomeError,
} from './commit.js'
import type { Database, Queryable } from './database.js'
import { codeOf, isRetryable, toAppError, UNDEFINED_TABLE } from './failures.js'
import { runPipeline } from './pipeline.js'
import { QueryBatches } from './query-batches.js'
import { serverOf } from './server.js'
import { raw, type Sql, sql } from './sql.js'
import { type Call, type TextRows, toCall } from './statement.js'

export interface Transaction extends Queryable {
  /** The connection, for operations that need it, such as COPY. */
  readonly client: pg.PoolClient
  /** Runs a statement on another connection, which takes effect even if the transaction is rolled back. */
  aside<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]>
  /** Work that is done before the COMMIT. */
  readonly lastSteps: (() => Promise<unknown>)[]
  /** Statements that are sent with the COMMIT, in one round trip. Nobody reads their rows. */
  readonly lastStatements: Sql[]
}

export interface TransactionOptions {
  readonly isolation?: 'serializable' | 'repeatable read' | 'read committed'
  readonly readOnly?: boolean
  /** Further SQLSTATEs after which the transaction is retried. */
  readonly retried?: ReadonlySet<string>
  /** The work is done again if a crash undoes it, so its COMMIT need not wait for the disk. */
  readonly isRepeatable?: boolean
  /** Calls that are sent with the `begin`, in one round trip. */
  readonly opening?: readonly Call[]
  /** The `begin` is sent with the first query. Until then, the connection must not be used otherwise. */
  readonly beginsLate?: boolean
  /** Limits that replace the one of a request. The transaction is cancelled until its COMMIT is sent. */
  readonly bounds?: Bounds | undefined
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

/** Work that is found and done again if a crash undoes it. */
export const REPEATABLE_WORK = {
  isolation: 'read committed',
  isRepeatable: true,
} as const satisfies TransactionOptions

export const ATTEMPTS_MAX = 20
const BACKOFF_BASE_MS = 2
const BACKOFF_MAX_MS = 200

/** Limits the time for which the transaction waits for each lock. */
export async function setLockWait(transaction: Queryable, waitMs: number): Promise<void> {
  for (const statement of transaction.server.limitLockWait(waitMs)) {
    await transaction.query(statement)
  }
}

/**
 * Runs `body` in a transaction, serializable by default. Conflicts with other transactions are
 * retried, so `body` may run more than once and must have no side effects outside of it.
 */
export function runTransaction<Result>(
  database: Database,
  body: (transaction: Transaction) => Promise<Result>,
  options: TransactionOptions = {},
): Promise<Result> {
  return retry(options, () =>
    attempt(database, options, (client) =>
      runBounded({ database, client, bounds: options.bounds }, async (unbind) => {
        const batches = await begin(client, options)
        const transaction = transactionOn(database, client, batches)
        const result = await body(transaction)
        await batches.open()
        for (const step of transaction.lastSteps) await step()
        await unbind()
        // A COMMIT must not be cancelled, see `commit.ts`.
        if (!options.readOnly) {
          const calls = [...transaction.lastStatements.map(toCall), ...COMMIT_CALLS]
          await settleCommit(client, runPipeline(client, calls))
        }
        // A snapshot that only reads cannot fail at its COMMIT, so the caller does not wait for it.
        else if (options.isolation === 'repeatable read') {
          return { result, ending: client.query('commit') }
        } else await client.query('commit')
        return { result }
      }),
    ),
  )
}

/**
 * Runs statements as a transaction, in a single round trip. Returns the rows of each as texts. The statements must not
 * depend on a check of their results: they are committed.
 */
export function runStatements(
  database: Database,
  statements: readonly Sql[],
  options: TransactionOptions = {},
): Promise<TextRows[]> {
  return retry(options, () =>
    attempt(database, options, async (client) => {
      const opening = openingOf(client, options)
      const calls = [...opening, ...statements.map(toCall), ...COMMIT_CALLS]
      const rows = await settleCommit(client, runPipeline(client, calls))
      return { result: rows.slice(opening.length, opening.length + statements.length) }
    }),
  )
}

/** Runs work in a transaction that was begun elsewhere, up to what would be sent with its COMMIT. */
export async function runWithin<Result>(
  database: Database,
  client: pg.PoolClient,
  body: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  const server = serverOf(client)
  server.beginControl(client)
  try {
    const transaction = transactionOn(database, client, new QueryBatches(client))
    const result = await body(transaction)
    for (const step of transaction.lastSteps) await step()
    for (const statement of transaction.lastStatements) await transaction.query(statement)
    return result
  } finally {
    server.endControl(client)
  }
}

/** Repeats attempts that fail by a conflict with another transaction. */
async function retry<Result>(
  options: TransactionOptions,
  attemptOnce: () => Promise<Result>,
): Promise<Result> {
  for (let count = 1; ; count++) {
    try {
      return await attemptOnce()
    } catch (error) {
      const canRetry = isRetryable(error) || options.retried?.has(codeOf(error) ?? '')
      if (!canRetry || count === ATTEMPTS_MAX) throw toAppError(error)
      retries.add()
      await delay(backoffMs(count))
    }
  }
}

/** Exponential backoff with jitter, so that conflicting transactions do not collide again. */
export function backoffMs(attempt: number): number {
  return Math.random() * Math.min(BACKOFF_MAX_MS, BACKOFF_BASE_MS * 2 ** attempt)
}

/**
 * Runs a transaction once, which `work` begins and commits, and rolls it back if that fails. The connection is released
 * when `ending` has ended.
 */
async function attempt<Result>(
  database: Database,
  options: TransactionOptions,
  work: (
    client: pg.PoolClient,
  ) => Promise<{ readonly result: Result; readonly ending?: Promise<unknown> }>,
): Promise<Result> {
  const client = await database.acquire({ owner: options.owner })
  let broken: Error | undefined
  let unknown: UnknownOutcomeError | undefined
  let ending: Promise<unknown> | undefined
  try {
    if (!options.readOnly) serverOf(client).beginControl(client)
    const done = await work(client)
    ending = done.ending
    return done.result
  } catch (error) {
    if (error instanceof UnknownOutcomeError) {
      unknown = error
      throw error
    }
    // A connection that cannot roll back must not return to the pool.
    broken = await rollBack(client, error)
    throw error
  } finally {
    serverOf(client).endControl(client)
    if (unknown !== undefined) releaseWhenSettled(client, unknown)
    else if (ending !== undefined) releaseAfter(client, ending)
    else client.release(broken)
  }
}

function beginText({ isolation = 'serializable', readOnly }: TransactionOptions): string {
  return `begin isolation level ${isolation}${readOnly ? ' read only' : ''}`
}

/** Returns the calls that begin a transaction. */
function openingOf(client: pg.PoolClient, options: TransactionOptions): Call[] {
  const statement = { text: beginText(options), slots: [] }
  return [
    { statement, values: [] },
    ...(options.isRepeatable ? serverOf(client).beginRepeatable : []),
    ...(options.bounds ? [timeoutCall(options.bounds)] : []),
    ...(options.opening ?? []),
  ]
}

const timeoutCall = ({ timeoutMs }: Bounds): Call =>
  toCall(sql`set local statement_timeout = ${raw(String(timeoutMs))}`)

async function begin(client: pg.PoolClient, options: TransactionOptions): Promise<QueryBatches> {
  if (options.beginsLate) return new QueryBatches(client, openingOf(client, options))
  const opening = openingOf(client, options)
  if (opening.length === 1) await client.query(beginText(options))
  else await runPipeline(client, opening)
  return new QueryBatches(client)
}

function transactionOn(
  database: Database,
  client: pg.PoolClient,
  batches: QueryBatches,
): Transaction {
  return {
    client,
    aside: <Row extends pg.QueryResultRow>(statement: Sql) => database.queryAside<Row>(statement),
    lastSteps: [],
    lastStatements: [],
    server: serverOf(client),
    query: <Row extends pg.QueryResultRow>(statement: Sql) => batches.query<Row>(statement),
  }
}
