import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { AnswerReader, type Bounds, runBounded, type Unbound } from '../../postgres/bounds.js'
import { COMMIT, COMMIT_CALLS, settleCommit } from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import {
  isLockTimeout,
  isRetryable,
  isUndefinedTable,
  toAppError,
} from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import type { Gates } from '../gates/gates.js'
import { type Heap, layoutOf, type Moment } from '../layout/layout.js'
import {
  atMoment,
  BEGIN,
  BEGIN_ALONE,
  BEGIN_READS,
  type Linking,
  NO_TIMEOUT,
  ROLL_BACK,
} from './calls.js'
import { CONFLICTS_BEFORE_CLAIM, claimCalls } from './claims.js'
import { retryConflicts, withConnection } from './connection.js'
import {
  authorCalls,
  type Guard,
  guardCall,
  momentFrom,
  ownerOf,
  writerGuardCall,
} from './guard.js'
import { type Moments, withMoment } from './moments.js'
import { confirmed, StaleError } from './staleness.js'

/** What a process shares between the transactions that it runs on branches. */
export interface Running {
  readonly database: Database
  readonly gates: Gates
  readonly moments: Moments
}

/** Runs one attempt of a transaction that writes to a branch, together with other writers. */
function throughGate<Result>(
  { gates }: Running,
  { rows }: Guard,
  attempt: () => Promise<Result>,
  onWaited?: () => void,
): Promise<Result> {
  return gates.runShared(rows.branchId, attempt, {
    lacksGate: (error) => error instanceof StaleError && isUndefinedTable(error.cause),
    onWaited,
  })
}

/**
 * Runs writes as one transaction in a single round trip. For writes whose results need no check before the
 * commit.
 */
export function runWrites(
  running: Running,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  const attempt = (isKnown: boolean) => writeWhole(running, { guard, calls, isKnown })
  return retryConflicts(() => throughGate(running, guard, () => withMoment(attempt)))
}

async function writeWhole(
  running: Running,
  { guard, calls, isKnown }: { guard: Guard; calls: readonly Call[]; isKnown: boolean },
): Promise<TextRows[]> {
  const client = await running.database.acquire({ owner: ownerOf(guard) })
  return withConnection(client, async () => {
    const { opening, moment } = await openWrites(running, guard, { client, isKnown })
    const closed = [...opening, ...atMoment(client, calls, moment), ...COMMIT_CALLS]
    const rows = await runCommitting(client, closed)
    return rows.slice(opening.length, -COMMIT_CALLS.length)
  })
}

/**
 * Returns the calls that open a transaction behind the gate, and the moment that they check. If the moment is not
 * known, runs them instead, to read it.
 */
async function openWrites(
  { gates, moments }: Running,
  guard: Guard,
  options: { client: pg.PoolClient; isKnown: boolean; entering?: readonly Call[] },
): Promise<{ opening: readonly Call[]; moment: Moment }> {
  const { client, isKnown } = options
  const entering = [
    ...(options.entering ?? [BEGIN, gates.enterCall(guard.rows.branchId)]),
    ...authorCalls(guard),
  ]
  if (isKnown) {
    const moment = moments.recall(guard)
    return { opening: [...entering, writerGuardCall(guard, moment)], moment }
  }
  const rows = await runPipeline(client, [...entering, writerGuardCall(guard, undefined)])
  const moment = momentFrom(rows[entering.length])
  moments.remember(guard, moment)
  return { opening: [], moment }
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
  return retryConflicts(async () => {
    const owner = ownerOf(guard)
    const client = await database.acquire({ owner })
    return withConnection(client, async () => {
      const all = [BEGIN_READS, guardCall(guard), ...calls, COMMIT]
      const rows = await new AnswerReader(database, { client, owner }).run(all)
      return rows.slice(2, -1)
    })
  })
}

/** Runs calls that end with a COMMIT. */
function runCommitting(client: pg.PoolClient, calls: readonly Call[]): Promise<TextRows[]> {
  return settleCommit(client, runPipeline(client, calls))
}

/** A source of connections other than the pool that all requests share. */
export interface Connections {
  connect(signal: AbortSignal | undefined): Promise<pg.PoolClient>
}

/** Returns a connection for a request, from the given source or from its share of the pool. */
export function connectFor(request: {
  database: Database
  guard: Guard
  bounds?: Bounds | undefined
  connections?: Connections | undefined
}): Promise<pg.PoolClient> {
  const { database, guard, bounds, connections } = request
  if (connections !== undefined) return connections.connect(bounds?.signal)
  return database.acquire({ owner: ownerOf(guard), signal: bounds?.signal })
}

/** An open transaction, in which further calls can be run. */
export interface OpenTransaction {
  readonly client: pg.PoolClient
  run(calls: readonly Call[]): Promise<TextRows[]>
}

/** An open transaction that writes rows behind the gate. */
export interface WriteTransaction extends OpenTransaction {
  /** The epoch of rows that are written by COPY. */
  readonly epoch: number
  /** Notes links that were written by COPY. undefined: no links must exist. */
  noteLinks?(linking: Linking): void
  /** Carries out what deletions cause now, instead of at the end. Returns that. */
  settleLinks?(): Promise<LinkEffects>
}

/** The numbers of records of a table that a transaction has deleted, or removed a link of, because of deletions. */
export interface LinkEffect {
  readonly deleted: number
  readonly cleared: number
}

/** By the names of tables. */
export type LinkEffects = ReadonlyMap<string, LinkEffect>

/** A transaction that stays open between calls that a client makes. */
export interface HeldWrites extends WriteTransaction {
  /** Gets the branch alone, so that the schema can change. */
  becomeAlone(): Promise<void>
}

/** With `isLong`, the size of results is not limited, because the caller processes rows as they arrive. */
export function openTransaction(
  database: Database,
  guard: Guard,
  { client, isLong }: { client: pg.PoolClient; isLong?: boolean },
): OpenTransaction {
  if (isLong) return { client, run: (calls) => runPipeline(client, calls) }
  const reader = new AnswerReader(database, { client, owner: ownerOf(guard) })
  return { client, run: (calls) => reader.run(calls) }
}

export interface StepsOptions {
  /** Calls that run with the beginning of the transaction. */
  readonly first?: readonly Call[]
  /** The transaction may take long, and its rows are processed as they arrive. */
  readonly isLong?: boolean
  /** The tables that the transaction keeps other writers out of if it has failed by conflicts. */
  readonly claimed?: readonly Heap[]
  /** The transaction is rolled back when it has ended. */
  readonly isDryRun?: boolean
  /** The transaction is not repeated after a conflict. */
  readonly isOnce?: boolean
  /**
   * The transaction stays open between calls that a client makes. Called when a fork, a merge or another transaction waits
   * that needs the branch alone. The limit for the size of results is that of each call.
   */
  readonly onWaited?: (() => void) | undefined
  /** The transaction has the branch alone. */
  readonly isAlone?: boolean
  readonly bounds?: Bounds | undefined
  readonly connections?: Connections | undefined
}

/**
 * Runs a transaction in several steps. `body` may run more than once, each time on a transaction without
 * effects of the earlier attempts. If it throws, the transaction is rolled back.
 */
export function runSteps<Result>(
  running: Running,
  guard: Guard,
  body: (transaction: HeldWrites, first: readonly TextRows[]) => Promise<Result>,
  options: StepsOptions = {},
): Promise<Result> {
  const { database, gates } = running
  const { branchId } = guard.rows
  const claims = claimCalls(database.server, options.claimed ?? [])
  let endsAt: number | undefined
  let hasBegun = false
  let entering: readonly Call[] | undefined
  let reopen: (() => void) | undefined
  const attemptInside = async (isKnown: boolean) => {
    const client = await connectFor({ database, guard, ...options })
    // The time limit covers all attempts together.
    endsAt ??= performance.now() + (options.bounds?.timeoutMs ?? 0)
    const bounds = options.bounds && {
      ...options.bounds,
      timeoutMs: Math.max(1, Math.round(endsAt - performance.now())),
    }
    const run = async (unbind: Unbound): Promise<Result> => {
      hasBegun = false
      const beginning = { ...options, client, isKnown, ...(entering && { entering }) }
      const { transaction, rows } = await beginWrites(running, guard, beginning)
      hasBegun = true
      const becomeAlone = async () => {
        if (options.isAlone || reopen !== undefined) return
        reopen = await gates.becomeAlone(branchId, client)
      }
      const result = await body({ ...transaction, becomeAlone }, rows).catch((error) => {
        throw confirmed(error)
      })
      await unbind()
      if (options.isDryRun) await runPipeline(client, [ROLL_BACK])
      else await runCommitting(client, COMMIT_CALLS)
      return result
    }
    const canLose = options.connections !== undefined
    return withConnection(client, () => runBounded({ database, client, bounds, canLose }, run))
  }
  const inside = () => withMoment(attemptInside, () => hasBegun).finally(() => reopen?.())
  const insideAlone = (calls: readonly Call[]) => {
    entering = [BEGIN_ALONE, ...calls]
    return inside().catch((error: unknown) => {
      // Only the gate itself is waited for once more.
      throw hasBegun && isLockTimeout(error) ? waitedTooLong() : error
    })
  }
  const attempt = (conflicts = 0) => {
    if (options.isAlone) return gates.holdAlone(branchId, insideAlone)
    if (claims.length > 0 && conflicts >= CONFLICTS_BEFORE_CLAIM) {
      entering = [BEGIN, gates.enterCall(branchId), ...claims]
    }
    return throughGate(running, guard, inside, options.onWaited)
  }
  const isConflict = (error: unknown) => isRetryable(error) || (!hasBegun && isLockTimeout(error))
  return options.isOnce
    ? attempt().catch((error) => Promise.reject(toAppError(error)))
    : retryConflicts(attempt, isConflict)
}

const waitedTooLong = () =>
  new AppError('retry_limit', 'the transaction has waited too long for another one')

/** Begins a transaction behind the gate, and runs the first calls, in one round trip if the moment is known. */
async function beginWrites(
  running: Running,
  guard: Guard,
  options: Pick<StepsOptions, 'first' | 'isLong' | 'onWaited'> & {
    client: pg.PoolClient
    isKnown: boolean
    entering?: readonly Call[]
  },
): Promise<{ transaction: WriteTransaction; rows: TextRows[] }> {
  const { client, first = [] } = options
  const { opening: entering, moment } = await openWrites(running, guard, options)
  const opening = [...entering, ...(options.isLong ? [NO_TIMEOUT] : [])]
  const opened = openTransaction(running.database, guard, options)
  const calls = [...opening, ...atMoment(client, first, moment)]
  const rows = calls.length === 0 ? [] : await opened.run(calls)
  const transaction =
    options.onWaited === undefined
      ? {
          client,
          epoch: moment.epoch,
          run: (further: readonly Call[]) => opened.run(atMoment(client, further, moment)),
        }
      : heldWrites(running.database, guard, { client, moment })
  return { transaction, rows: rows.slice(opening.length) }
}

/** A transaction whose calls each have the limit for the size of results. */
function heldWrites(
  database: Database,
  guard: Guard,
  { client, moment }: { client: pg.PoolClient; moment: Moment },
): WriteTransaction {
  return {
    client,
    epoch: moment.epoch,
    run: (calls) =>
      openTransaction(database, guard, { client }).run(atMoment(client, calls, moment)),
  }
}

/**
 * Goes on with a held transaction that has changed the schema of its branch. The guard is that of the new schema. The key was
 * checked when the transaction began, and is checked again when it ends: until then its stamp can change for other reasons.
 */
export async function goOnWriting(
  { database }: Running,
  guard: Guard,
  client: pg.PoolClient,
): Promise<WriteTransaction> {
  const ofBranch = { ...guard, keyId: undefined, keyStamp: undefined }
  const [found] = await runPipeline(client, [writerGuardCall(ofBranch, undefined)])
  const { hasForks, ...layout } = layoutOf(guard.rows)
  return heldWrites(database, guard, { client, moment: hasForks ? momentFrom(found) : layout })
}
