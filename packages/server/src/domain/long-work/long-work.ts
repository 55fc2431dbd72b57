import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Operation, OperationKind, Progress } from '@offshoot/contract/operations'
import { newOperationId } from '../../common/ids.js'
import type { Bounds } from '../../postgres/bounds.js'
import type { Database } from '../../postgres/database.js'
import type { Sql } from '../../postgres/sql.js'
import type { BranchAccess } from '../access/resolve.js'
import { endOperation, insertOperation, type Outcome, updateProgress } from './queries.js'

/** How often the process notes the progress of an operation, and asks whether it was cancelled. */
export const BEAT_MS = 1000
/** How often the end of an operation is stored again after a failure. Then the operation counts as interrupted. */
const END_ATTEMPTS = 5

export const cancelled = (): AppError =>
  new AppError('operation_cancelled', 'the operation was cancelled; it has changed nothing')

/**
 * The work of a request that may take longer than its answer. Most of it ends in time, and leaves no trace. Otherwise the
 * request is answered by an operation, a row that has the progress and the outcome. The transaction in which the work takes
 * effect stores the outcome, so that a process that is killed never leaves an operation that says something else.
 */
export class LongWork {
  readonly #id = newOperationId()
  readonly #database: Database
  readonly #kind: OperationKind
  readonly #limits: Limits
  readonly #startedAt = new Date()
  readonly #stopping = new AbortController()
  /** The branch of the request, as soon as it is known. */
  readonly #access: Promise<BranchAccess>
  /** Names the branch of the request. */
  belongTo: (access: BranchAccess) => void = () => undefined
  /** The end of an upload. It comes before the time in which a request is answered begins. */
  readonly uploaded: Promise<void>
  endUpload: () => void = () => undefined
  #progress: Progress = { step: 'starting', done: 0, total: 1 }
  /** The transaction that takes effect is about to end, and the answer comes at once. */
  #isEnding = false
  /** Whether the row is stored. undefined: the request is not answered yet. */
  #stored: Promise<boolean> | undefined
  #beat: NodeJS.Timeout | undefined

  constructor(database: Database, { kind, limits }: { kind: OperationKind; limits: Limits }) {
    this.#database = database
    this.#kind = kind
    this.#limits = limits
    this.#access = new Promise((resolve) => {
      this.belongTo = resolve
    })
    this.uploaded = new Promise((resolve) => {
      this.endUpload = resolve
    })
  }

  /** Limits of the statements of the work. */
  get bounds(): Bounds {
    return { timeoutMs: this.#limits.operationTimeoutMs, signal: this.#stopping.signal }
  }

  /** Why it was cancelled. undefined: it was not. */
  get cancelled(): AppError | undefined {
    return this.#stopping.signal.aborted ? (this.#stopping.signal.reason as AppError) : undefined
  }

  /** Names the step that begins. Throws if the work was cancelled. */
  begin(progress: Progress): void {
    if (this.cancelled) throw this.cancelled
    this.#progress = progress
  }

  /** Stores the result by a query of the transaction that takes effect, if the request is answered already. */
  async keep(
    query: (statement: Sql) => Promise<readonly unknown[]>,
    result: object,
  ): Promise<void> {
    this.#isEnding = true
    if (!(await this.#stored)) return
    const ended = await query(endOperation(this.#id, { state: 'done', result }))
    // Someone has given up on it, because this process has not said anything for long.
    if (ended.length === 0) throw cancelled()
  }

  /** Returns the branch of the request. undefined: `running` ends before its branch is known. */
  findBranch(running: Promise<unknown>): Promise<BranchAccess | undefined> {
    const ended = running.then(
      () => undefined,
      () => undefined,
    )
    return Promise.race([this.#access, ended])
  }

  /**
   * Turns the work into an operation, whose `end` must be called. Returns undefined if the work takes effect at this
   * moment. It can be called again.
   */
  async toOperation({
    databaseId,
    databaseName,
    branchName,
  }: BranchAccess): Promise<Operation | undefined> {
    if (this.#isEnding) return undefined
    const known = { id: this.#id, kind: this.#kind, progress: this.#progress }
    const row = { ...known, databaseId, branchName, startedAt: this.#startedAt }
    this.#stored ??= this.#database.queryAside(insertOperation(row)).then(
      () => true,
      () => false,
    )
    if (!(await this.#stored)) return undefined
    this.#beat ??= setInterval(() => void this.#tell(), BEAT_MS)
    return {
      id: this.#id,
      kind: this.#kind,
      state: 'running',
      database: databaseName,
      branch: branchName,
      startedAt: this.#startedAt.toISOString(),
      progress: this.#progress,
    }
  }

  /** Notes the progress. If PostgreSQL does not answer, the work fails by itself. */
  async #tell(): Promise<void> {
    const update = updateProgress({ id: this.#id, progress: this.#progress })
    const rows = await this.#database.queryAside(update).catch(() => undefined)
    if (rows?.length === 0 && !this.#isEnding) this.cancel()
  }

  /** Stops the work, unless it takes effect at this moment. */
  cancel(reason: AppError = cancelled()): void {
    this.#stopping.abort(reason)
  }

  /** Stores how the operation has ended, unless its last transaction has. */
  async end(outcome: Outcome): Promise<void> {
    for (let attempt = 1; attempt <= END_ATTEMPTS; attempt++) {
      try {
        await this.#database.queryAside(endOperation(this.#id, outcome))
        break
      } catch {
        await delay(BEAT_MS, undefined, { ref: false })
      }
    }
    clearInterval(this.#beat)
  }
}
