import type pg from 'pg'
import { AnswerReader, type Bounds, runBounded, type Unbound } from '../../postgres/bounds.js'
import { COMMIT, COMMIT_CALLS, settleCommit } from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import { toAppError } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import { BEGIN, BEGIN_READS, isCopyCall, NO_TIMEOUT } from './calls.js'
import { retryConflicts, withConnection } from './connection.js'
import { enterGateCall } from './gate.js'
import { epochOf, type Guard, guardCall, ownerOf } from './guard.js'
import { throughGate } from './shared-gate.js'
import { confirmed } from './staleness.js'

/**
 * Runs writes as one transaction in a single round trip. For writes whose results need no check before the
 * commit.
 */
export function runWrites(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  const { branchId } = guard.rows
  const transaction = {
    opening: [BEGIN, enterGateCall(branchId), guardCall(guard)],
    calls,
    closing: COMMIT_CALLS,
    run: runCommitting,
  }
  return retryConflicts(() =>
    throughGate(database, branchId, () => runWhole(database, guard, transaction)),
  )
}

/**
 * Runs reads in one round trip, in a serializable transaction: all see one snapshot that is consistent with
 * the serial order of the writes. The reads do not enter the gate. A transaction with the exclusive gate
 * runs without concurrent writers, so every snapshot sees all or nothing of it; the reads would only wait.
 */
export function runSerialReads(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  const transaction: WholeTransaction = {
    opening: [BEGIN_READS, guardCall(guard)],
    calls,
    closing: [COMMIT],
    run: (client, all) => new AnswerReader(database, client).run(all),
  }
  return retryConflicts(() => runWhole(database, guard, transaction))
}

interface WholeTransaction {
  readonly opening: readonly Call[]
  readonly calls: readonly Call[]
  readonly closing: readonly Call[]
  run(client: pg.PoolClient, calls: readonly Call[]): Promise<TextRows[]>
}

/** Runs a transaction in one round trip. Returns the rows of `calls`. */
async function runWhole(
  database: Database,
  guard: Guard,
  { opening, calls, closing, run }: WholeTransaction,
): Promise<TextRows[]> {
  const client = await database.acquire({ owner: ownerOf(guard) })
  return withConnection(client, async () => {
    const rows = await run(client, [...opening, ...calls, ...closing])
    return rows.slice(opening.length, -closing.length)
  })
}

/** Runs calls that end with a COMMIT. */
export function runCommitting(client: pg.PoolClient, calls: readonly Call[]): Promise<TextRows[]> {
  return settleCommit(client, runPipeline(client, calls))
}

/** A source of connections other than the pool that all requests share. */
export interface Connections {
  connect(): Promise<pg.PoolClient>
}

/** Returns a connection for a request, from the given source or from its share of the pool. */
export function connectFor(request: {
  database: Database
  guard: Guard
  bounds?: Bounds | undefined
  connections?: Connections | undefined
}): Promise<pg.PoolClient> {
  const { database, guard, bounds, connections } = request
  if (connections !== undefined) return connections.connect()
  return database.acquire({ owner: ownerOf(guard), signal: bounds?.signal })
}

/** An open transaction, in which further calls can be run. */
export interface OpenTransaction {
  readonly client: pg.PoolClient
  run(calls: readonly Call[]): Promise<TextRows[]>
}

/** An open transaction that writes rows behind the gate. */
export interface WriteTransaction extends OpenTransaction {
  /** The epoch of rows that are written by COPY. Statements read it themselves. */
  readonly epoch: string
}

/** With `isLong`, the size of results is not limited, because the caller processes rows as they arrive. */
export function openTransaction(
  database: Database,
  client: pg.PoolClient,
  options: { isLong?: boolean } = {},
): OpenTransaction {
  if (options.isLong) return { client, run: (calls) => runPipeline(client, calls) }
  const reader = new AnswerReader(database, client)
  return { client, run: (calls) => reader.run(calls) }
}

/**
 * Runs a transaction in several steps. `body` may run more than once, each time on a transaction without
 * effects of the earlier attempts. If it throws, the transaction is rolled back.
 */
export function runSteps<Result>(
  database: Database,
  guard: Guard,
  body: (transaction: WriteTransaction, first: readonly TextRows[]) => Promise<Result>,
  options: {
    first?: readonly Call[]
    isLong?: boolean
    isOnce?: boolean
    bounds?: Bounds | undefined
    connections?: Connections | undefined
  } = {},
): Promise<Result> {
  let endsAt: number | undefined
  const attemptInside = async () => {
    const client = await connectFor({ database, guard, ...options })
    // The time limit covers all attempts together.
    endsAt ??= performance.now() + (options.bounds?.timeoutMs ?? 0)
    const bounds = options.bounds && {
      ...options.bounds,
      timeoutMs: Math.max(1, Math.round(endsAt - performance.now())),
    }
    const run = async (unbind: Unbound): Promise<Result> => {
      const { transaction, rows } = await beginWrites(database, guard, { client, ...options })
      const result = await body(transaction, rows).catch((error) => {
        throw confirmed(error)
      })
      await unbind()
      await runCommitting(client, COMMIT_CALLS)
      return result
    }
    const canLose = options.connections !== undefined
    return withConnection(client, () => runBounded({ database, client, bounds, canLose }, run))
  }
  const attempt = () => throughGate(database, guard.rows.branchId, attemptInside)
  return options.isOnce
    ? attempt().catch((error) => Promise.reject(toAppError(error)))
    : retryConflicts(attempt)
}

/** Begins a transaction behind the gate. Runs the first calls in the same round trip, if they are complete. */
async function beginWrites(
  database: Database,
  guard: Guard,
  options: { client: pg.PoolClient; first?: readonly Call[]; isLong?: boolean },
): Promise<{ transaction: WriteTransaction; rows: TextRows[] }> {
  const { client, first = [] } = options
  const entering = [BEGIN, enterGateCall(guard.rows.branchId)]
  const opening = [...entering, guardCall(guard), ...(options.isLong ? [NO_TIMEOUT] : [])]
  const opened = openTransaction(database, client, options)
  const canRun = !first.some(isCopyCall)
  const rows = await opened.run(canRun ? [...opening, ...first] : opening)
  const epoch = epochOf(rows[entering.length])
  const run = (calls: readonly Call[]) =>
    opened.run(
      calls.map((call) => (isCopyCall(call) ? { ...call, input: call.linesIn(epoch) } : call)),
    )
  return {
    transaction: { client, epoch, run },
    rows: canRun ? rows.slice(opening.length) : await run(first),
  }
}
