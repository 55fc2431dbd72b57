import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Description } from '../data/sql/evaluate.js'
import type { RowSink } from '../data/sql/row-sink.js'
import { MissingStorageError } from '../data/sql/run-sql.js'
import { isSchemaNode } from '../data/sql/schema/parse-schema.js'
import type { SavepointStep } from '../data/sql/sql-transaction.js'
import type { Need } from '../domain/access/scope.js'
import { LostBackendError } from '../postgres/bounds.js'
import { toAppError } from '../postgres/failures.js'
import type { Sql } from '../postgres/sql.js'
import { StaleError } from '../rows/running/staleness.js'
import type { BranchRunner, CursorFetch, HeldTransaction, StatementRun } from './branch-runner.js'
import type { CatalogueRows, CatalogueRun } from './catalogue/catalogue.js'
import { WireError } from './wire-error.js'

/**
 * How long a transaction may go on when others wait for it: a fork, a merge, a schema edit, or a write to the same row. A
 * short transaction ends in that time, so forks do not disturb it.
 */
const GRACE_MS = 1_000

/**
 * For how long a transaction relies on its key. Its snapshot does not show that the key was revoked, so PostgreSQL is asked
 * outside of it, but not with each of many statements.
 */
const KEY_TRUSTED_MS = 100

const REPEAT = { hint: 'Repeat the transaction from its beginning.' }

const waitedFor = () =>
  new WireError(
    '40001',
    'the transaction was ended, because a fork, a merge, a schema edit or another write waited for it',
    REPEAT,
  )
const idleTooLong = (ms: number) =>
  new WireError('25P03', `the transaction was ended: it waited ${ms} ms for its next statement`)
const tookTooLong = (ms: number) =>
  new WireError('25P04', `the transaction was ended: it took longer than ${ms} ms`, {
    hint: 'Divide the work, or ask the operator to raise OFFSHOOT_LIMIT_SQL_TRANSACTION_MS.',
  })

/** Never shown: the transaction ends without a commit. */
const rolledBack = () => new AppError('conflict', 'the transaction was rolled back')

/**
 * The transaction of a client, from its first statement to its end. It is ended if the client lets others wait, and the
 * client is told with its next statement.
 */
export class ClientTransaction {
  readonly #runner: BranchRunner
  readonly #limits: Limits
  readonly isReadOnly: boolean
  #inside: HeldTransaction | undefined
  /** Settles when PostgreSQL has ended the transaction. */
  #ended: Promise<void> = Promise.resolve()
  #finish: { commit(): void; fail(error: unknown): void } = { commit() {}, fail() {} }
  #isBusy = true
  /** The statement that has run last, or runs. */
  #running: Promise<unknown> = Promise.resolve()
  #hasWritten = false
  /** Whether it has the branch alone, because it changes the schema. Others wait then, as for any schema edit. */
  #isAlone: boolean
  /** Why the service has ended the transaction. */
  #reason: Error | undefined
  /** When the key was found valid. */
  #confirmedAt = performance.now()
  #idle: NodeJS.Timeout | undefined
  #grace: NodeJS.Timeout | undefined
  #total: NodeJS.Timeout | undefined

  private constructor(
    runner: BranchRunner,
    options: { limits: Limits; isReadOnly: boolean; isAlone: boolean },
  ) {
    this.#runner = runner
    this.#limits = options.limits
    this.isReadOnly = options.isReadOnly
    this.#isAlone = options.isAlone
  }

  static async begin(
    runner: BranchRunner,
    options: { limits: Limits; isReadOnly: boolean; isAlone: boolean; signal: AbortSignal },
  ): Promise<ClientTransaction> {
    const transaction = new ClientTransaction(runner, options)
    await transaction.#begin(options.signal)
    return transaction
  }

  #begin(signal: AbortSignal): Promise<void> {
    const { sqlTransactionMs } = this.#limits
    return new Promise((resolve, reject) => {
      const hold = (inside: HeldTransaction) =>
        new Promise<void>((commit, fail) => {
          this.#inside = inside
          this.#finish = { commit, fail }
          this.#confirmedAt = performance.now()
          this.#total = setTimeout(() => this.#end(tookTooLong(sqlTransactionMs)), sqlTransactionMs)
          this.#rest()
          resolve()
        })
      const options = {
        isReadOnly: this.isReadOnly,
        isAlone: this.#isAlone,
        onWaited: () => this.#yield(),
        signal,
      }
      this.#ended = this.#runner.hold(options, hold)
      this.#ended.catch(reject).finally(() => this.#clear())
    })
  }

  /** Runs a statement. */
  run(run: StatementRun, sink: RowSink): Promise<void> {
    this.#hasWritten ||= run.statement.isWrite
    if (isSchemaNode(run.statement.node)) {
      this.#isAlone = true
      clearTimeout(this.#grace)
    }
    return this.#work((inside) => inside.run(run, sink))
  }

  /** Whether only the transaction itself knows the schema that it sees. */
  get hasChangedSchema(): boolean {
    return this.#isAlone
  }

  describe(run: StatementRun): Promise<Description> {
    return this.#work((inside) => inside.describe(run))
  }

  describeCatalogue(run: CatalogueRun): Promise<Description> {
    return this.#work((inside) => inside.describeCatalogue(run))
  }

  runCatalogue(run: CatalogueRun): Promise<CatalogueRows> {
    return this.#work((inside) => inside.runCatalogue(run))
  }

  savepoint(step: SavepointStep): Promise<void> {
    return this.#work((inside) => inside.savepoint(step))
  }

  /** Carries out what deletions cause, and throws if a link is broken. */
  judgeLinks(): Promise<void> {
    return this.#work((inside) => inside.judgeLinks())
  }

  /** Creates a cursor. `words` precede its query. */
  declare(run: StatementRun, words: Sql, sink: Pick<RowSink, 'describe'>): Promise<void> {
    return this.#work((inside) => inside.declare(run, words, sink))
  }

  fetch(fetch: CursorFetch, sink: RowSink): Promise<void> {
    return this.#work((inside) => inside.fetch(fetch, sink))
  }

  /** Runs a statement about cursors. */
  control(statement: Sql): Promise<void> {
    return this.#work((inside) => inside.control(statement))
  }

  async commit(): Promise<void> {
    this.#requireOpen()
    this.#isBusy = true
    try {
      // The snapshot of the transaction does not show that its key was revoked meanwhile.
      await this.#runner.confirm(this.#need)
    } catch (error) {
      this.#isBusy = false
      await this.rollBack()
      throw error
    }
    if (this.#reason !== undefined) {
      await this.rollBack()
      throw this.#reason
    }
    this.#finish.commit()
    await this.#ended.catch(async (error: unknown) => {
      throw error instanceof MissingStorageError ? await this.#makeStorage(error) : error
    })
  }

  /** Ends the transaction without effect. Resolves when PostgreSQL has ended it. */
  async rollBack(): Promise<void> {
    this.#finish.fail(rolledBack())
    await this.#ended.catch(() => undefined)
  }

  /** Throws the reason if the service has ended the transaction. */
  #requireOpen(): void {
    if (this.#reason !== undefined) throw this.#reason
  }

  /**
   * Ends the transaction of a client that is gone. Its statement may still run, and needs the connection until it has ended: it
   * may take several steps, and those behind the ROLLBACK would be committed one by one.
   */
  async leave(): Promise<void> {
    await this.#running.catch(() => undefined)
    await this.rollBack()
  }

  /** Throws and ends the transaction if its key was revoked or restricted, or its branch is gone. */
  confirmKey(): Promise<void> {
    return this.#work(async () => undefined)
  }

  async #confirmKey(): Promise<void> {
    const now = performance.now()
    if (now - this.#confirmedAt <= KEY_TRUSTED_MS) return
    try {
      await this.#runner.confirm(this.#need)
    } catch (error) {
      const reason = toAppError(error)
      if (reason instanceof Error) this.#reason ??= reason
      throw reason
    }
    this.#confirmedAt = now
  }

  /** The access that the key must still have. */
  get #need(): Need {
    return this.#hasWritten ? 'write' : 'read'
  }

  #work<Result>(work: (inside: HeldTransaction) => Promise<Result>): Promise<Result> {
    const running = this.#workOnce(work)
    this.#running = running
    return running
  }

  async #workOnce<Result>(work: (inside: HeldTransaction) => Promise<Result>): Promise<Result> {
    this.#requireOpen()
    if (this.#inside === undefined) throw new Error('a transaction must have begun')
    this.#isBusy = true
    clearTimeout(this.#idle)
    let result: Result
    try {
      await this.#confirmKey()
      result = await work(this.#inside)
    } catch (error) {
      if (error instanceof MissingStorageError) throw await this.#makeStorage(error)
      // Its connection cannot be used any more.
      if (error instanceof LostBackendError) this.#finish.fail(error)
      throw error instanceof StaleError ? (error.cause ?? changed()) : toAppError(error)
    } finally {
      this.#rest()
    }
    if (this.#reason !== undefined) {
      await this.rollBack()
      throw this.#reason
    }
    return result
  }

  /** Creates the storage of tables, which needs the branch alone: the transaction has to end before. */
  async #makeStorage({ tables }: MissingStorageError): Promise<WireError> {
    const reason = new WireError(
      '40001',
      `the first write to [${tables.join(', ')}] on this branch has created storage`,
      REPEAT,
    )
    this.#reason = reason
    await this.rollBack()
    await this.#runner.makeWritable(tables)
    return reason
  }

  /** The client has its turn. */
  #rest(): void {
    this.#isBusy = false
    const { sqlTransactionIdleMs } = this.#limits
    if (this.#reason === undefined) {
      const endIdle = () => this.#end(idleTooLong(sqlTransactionIdleMs))
      this.#idle = setTimeout(endIdle, sqlTransactionIdleMs)
    } else this.#finish.fail(rolledBack())
  }

  #yield(): void {
    if (this.#isAlone) return
    this.#grace ??= setTimeout(() => this.#end(waitedFor()), GRACE_MS)
  }

  /** Ends the transaction: now, or when its running statement has ended. */
  #end(reason: WireError): void {
    this.#reason ??= reason
    if (!this.#isBusy) this.#finish.fail(rolledBack())
  }

  #clear(): void {
    for (const timer of [this.#idle, this.#grace, this.#total]) clearTimeout(timer)
  }
}

const changed = () => new WireError('40001', 'the branch has changed', REPEAT)
