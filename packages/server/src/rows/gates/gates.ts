import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { BranchCache } from '../../common/branch-cache.js'
import type { Database } from '../../postgres/database.js'
import { isLockTimeout, isUndefinedTable } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import {
  runStatements,
  runTransaction,
  type Transaction,
  type TransactionOptions,
} from '../../postgres/run-transaction.js'
import { serverOf } from '../../postgres/server.js'
import type { Sql } from '../../postgres/sql.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import { areBranches, createMissingGate, enterAloneCalls, enterGateCall } from './gate.js'
import { GateQueues } from './gate-queues.js'

/**
 * How long a transaction waits for a gate at first. Writers wait behind it, so it gives up soon, lets them
 * pass, and tries again with twice the time.
 */
const WAIT_FIRST_MS = 250
const WAIT_MAX_MS = 2_000
/** How long a request tries to get all gates that it needs. */
const TRY_MS = 30_000

/** How long a transaction that others share the gate with waits for them. They are told, and end in this time. */
const BECOME_WAIT_MS = 2_000

/** How long a writer waits in this process for the gate of its branch. */
const SHARED_WAIT_MS = 10_000
/** Branches whose calls to enter the gate are kept. */
const CALLS_MAX = 10_000

export type AloneOptions = Pick<
  TransactionOptions,
  'owner' | 'beginsLate' | 'isRepeatable' | 'bounds'
> & {
  /** Calls that run right after the gates are entered, in the same round trip. */
  readonly checks?: readonly Call[]
}

/** Runs a transaction that enters the gates when it begins, with the given options. */
type RunEntering<Result> = (opening: TransactionOptions) => Promise<Result>

/** The gates of all branches, as one process enters them. */
export class Gates {
  /** The queues in front of the gates. The writers of one branch take at most half of the pool. */
  readonly queues: GateQueues
  readonly #database: Database
  readonly #calls = new BranchCache<Call>({ max: CALLS_MAX })

  constructor(database: Database) {
    this.#database = database
    this.queues = new GateQueues({ sharedMax: Math.max(1, Math.floor(database.poolMax / 2)) })
  }

  /** Enters the gate of a branch as a writer, together with other writers. */
  enterCall(branchId: string): Call {
    let call = this.#calls.get(branchId)
    if (call === undefined) {
      call = enterGateCall(branchId)
      this.#calls.set(branchId, call)
    }
    return call
  }

  /**
   * Runs one attempt of a transaction that writes to a branch, together with other writers. `lacksGate` tells whether the
   * gate may be missing, so that it is created and the attempt repeated. A transaction that stays open for a client has
   * `onWaited`, which is called when another one waits that needs the gate alone.
   */
  async runShared<Result>(
    branchId: string,
    attempt: () => Promise<Result>,
    options: { lacksGate(error: unknown): boolean; onWaited?: (() => void) | undefined },
  ): Promise<Result> {
    const { lacksGate, onWaited } = options
    const mode = onWaited === undefined ? 'shared' : 'open'
    const entered = this.queues.enter(branchId, mode, SHARED_WAIT_MS)
    if (entered !== true && !(await entered)) throw busy()
    const stopWatching = onWaited && this.queues.watch(branchId, onWaited)
    try {
      return await attempt().catch(async (error: unknown) => {
        if (lacksGate(error) && (await createMissingGate(this.#database, branchId))) {
          return attempt()
        }
        throw error
      })
    } finally {
      stopWatching?.()
      this.queues.leave(branchId, mode)
    }
  }

  /**
   * Runs a transaction with the exclusive gates of branches: no writer and no other such transaction of these
   * branches runs meanwhile. Each statement sees everything that was committed before the gates were entered.
   * `body` may run more than once, each time on a transaction without effects of the earlier attempts.
   */
  runAlone<Result>(
    branchIds: readonly string[],
    body: (transaction: Transaction) => Promise<Result>,
    options: AloneOptions = {},
  ): Promise<Result> {
    return this.#enterAlone(branchIds, options, (opening) =>
      runTransaction(this.#database, body, opening),
    )
  }

  /**
   * Runs one attempt of such a transaction that a client keeps open. `attempt` begins it with the given calls, and must not
   * fail with the error of a lock when it has begun.
   */
  holdAlone<Result>(
    branchId: string,
    attempt: (entering: readonly Call[]) => Promise<Result>,
  ): Promise<Result> {
    return this.#enterAlone([branchId], {}, ({ opening = [] }) => attempt(opening))
  }

  /**
   * Enters a gate alone that an open transaction has entered together with others. Returns how to let others enter again
   * when the transaction has ended.
   */
  async becomeAlone(branchId: string, client: pg.PoolClient): Promise<() => void> {
    if (!this.queues.close(branchId)) throw contested()
    const reopen = () => this.queues.reopen(branchId)
    try {
      await runPipeline(client, enterAloneCalls(serverOf(client), [branchId], BECOME_WAIT_MS))
      return reopen
    } catch (error) {
      reopen()
      throw isLockTimeout(error) ? contested() : error
    }
  }

  /** Runs statements as such a transaction, in a single round trip. Returns the rows of each as texts. */
  runStatementsAlone(
    branchIds: readonly string[],
    statements: readonly Sql[],
    options: AloneOptions = {},
  ): Promise<TextRows[]> {
    return this.#enterAlone(branchIds, options, (opening) =>
      runStatements(this.#database, statements, opening),
    )
  }

  async #enterAlone<Result>(
    branchIds: readonly string[],
    options: AloneOptions,
    run: RunEntering<Result>,
  ): Promise<Result> {
    // A common order prevents deadlocks.
    const gates = [...new Set(branchIds)].sort()
    const endsAt = performance.now() + TRY_MS
    for (let waitMs = WAIT_FIRST_MS; ; waitMs = Math.min(2 * waitMs, WAIT_MAX_MS)) {
      const outcome = await this.#attempt({ ...options, gates, waitMs }, run)
      if (outcome !== undefined) return outcome.result
      // Writers that have waited pass meanwhile.
      const pauseMs = (waitMs * (1 + Math.random())) / 2
      if (performance.now() + pauseMs > endsAt) throw busy()
      await delay(pauseMs)
    }
  }

  /** Returns undefined if a lock was not granted in time. */
  async #attempt<Result>(
    options: AloneOptions & { gates: readonly string[]; waitMs: number },
    run: RunEntering<Result>,
  ): Promise<{ result: Result } | undefined> {
    const { gates, waitMs, owner, bounds, isRepeatable = false } = options
    const beginsLate = options.beginsLate ?? false
    const entered: string[] = []
    try {
      for (const gate of gates) {
        if (!(await this.queues.enter(gate, 'alone', waitMs))) return undefined
        entered.push(gate)
      }
      const enter = () =>
        run({
          isolation: 'read committed',
          isRepeatable,
          opening: [
            ...enterAloneCalls(this.#database.server, gates, waitMs),
            ...(options.checks ?? []),
          ],
          owner,
          beginsLate,
          bounds,
        })
      const result = await enter().catch(async (error: unknown) => {
        // The gate of a deleted branch may have been dropped a moment ago.
        if (!isUndefinedTable(error)) throw error
        if (!(await areBranches(this.#database, gates))) throw gone()
        return enter()
      })
      return { result }
    } catch (error) {
      if (isLockTimeout(error)) return undefined
      throw error
    } finally {
      for (const gate of entered) this.queues.leave(gate, 'alone')
    }
  }
}

/**
 * The error has no cause, because errors of PostgreSQL count as final. A session may be outdated instead: the
 * branch may exist again under the same name.
 */
function gone(): AppError {
  return new AppError('branch_not_found', 'the branch was deleted a moment ago')
}

function contested(): AppError {
  return new AppError('retry_limit', 'other transactions of the branch are open')
}

/** The error of a request that has waited for a gate in vain. */
function busy(): AppError {
  return new AppError(
    'timeout',
    'other requests kept the branch busy; nothing was applied, try again later',
  )
}
