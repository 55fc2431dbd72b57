import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { type ByteShare, type Reading, SMALL_ANSWER_BYTES } from '../common/byte-budget.js'
import type { Database } from './database.js'
import { codeOf, QUERY_CANCELED } from './failures.js'
import { type ReadRoom, RoomSpentError, runPipeline } from './pipeline.js'
import { sql } from './sql.js'
import type { Call, TextRows } from './statement.js'

/** Limits of the work that one request causes in PostgreSQL. */
export interface Bounds {
  /** Counted from the moment the request has a connection. */
  readonly timeoutMs: number
  /** Aborted when the client has closed its connection. */
  readonly signal?: AbortSignal | undefined
}

/** Why a statement exceeds its time: its own work, or waiting for a lock or a busy server. */
type Cause = 'work' | 'wait'

/** A cancel request between two statements has no effect, so it is repeated after this time. */
const AGAIN_MS = 100

/** How long a backend may continue after it was cancelled, before it is abandoned. */
const STOP_GRACE_MS = 2_000

/** Ends the limits: nothing is cancelled any more, so that a COMMIT can follow. */
export type Unbound = () => Promise<void>

/**
 * A backend did not react to its cancellation, because it is inside a function that does not check
 * for interrupts. Its connection is closed, and it ends at its next check.
 */
export class LostBackendError extends AppError {
  constructor(
    readonly processId: number,
    reason: AppError,
  ) {
    super(reason.code, reason.message, { cause: reason.cause })
  }
}

/**
 * Runs `body` on a connection, and cancels it in PostgreSQL when the time is up or the client has
 * disconnected. If `canLose` is set, a backend that does not react is abandoned.
 */
export async function runBounded<Result>(
  options: {
    database: Database
    client: pg.PoolClient
    bounds: Bounds | undefined
    canLose?: boolean
  },
  body: (unbind: Unbound) => Promise<Result>,
): Promise<Result> {
  const { database, client, bounds, canLose = false } = options
  if (bounds === undefined) return body(async () => undefined)
  const { timeoutMs, signal } = bounds
  if (signal?.aborted) throw new AppError('timeout', 'the client has disconnected')
  const { processID } = client as unknown as { processID: number }
  let giveUp: (error: LostBackendError) => void = () => undefined
  const lost = new Promise<never>((_resolve, reject) => {
    giveUp = reject
  })
  let isOver = false
  let first: Promise<Cause> | undefined
  let firstAt = 0
  let last: Promise<Cause> | undefined
  const stop = async (): Promise<void> => {
    last = stopBackend(database, processID)
    if (first === undefined) {
      first = last
      firstAt = performance.now()
    }
    await last
    if (canLose && performance.now() - firstAt > STOP_GRACE_MS) {
      giveUp(new LostBackendError(processID, tooLate(await first, timeoutMs, undefined)))
    } else if (!isOver) {
      timer = setTimeout(stop, AGAIN_MS)
    }
  }
  let timer = setTimeout(stop, timeoutMs)
  const onAbort = () => {
    clearTimeout(timer)
    void stop()
  }
  signal?.addEventListener('abort', onAbort, { once: true })
  const end = async () => {
    isOver = true
    signal?.removeEventListener('abort', onAbort)
    clearTimeout(timer)
    // Wait for the cancel request: a late one would cancel the next user of the connection.
    await last
    clearTimeout(timer)
  }
  const unbind = async () => {
    await end()
    if (first !== undefined) throw tooLate(await first, timeoutMs, undefined)
  }
  try {
    return await Promise.race([body(unbind), lost])
  } catch (error) {
    if (first === undefined || codeOf(error) !== QUERY_CANCELED) throw error
    throw tooLate(await first, timeoutMs, error)
  } finally {
    await end()
  }
}

/** Cancels the running statement of a connection. Resolves when the request was sent. */
async function stopBackend(database: Database, processId: number): Promise<Cause> {
  // If all connections are in use, the server is busy and the statement is not to blame.
  const isCrowded = database.isCrowded
  const stopped = await database
    .queryAside<{ isWaiting: boolean }>(sql`
      select wait_event_type is not distinct from 'Lock' as "isWaiting", pg_cancel_backend(pid)
      from pg_stat_activity
      where pid = ${processId}`)
    .catch(() => [])
  return isCrowded || stopped[0]?.isWaiting ? 'wait' : 'work'
}

/**
 * Runs calls and counts the bytes of their rows. PostgreSQL cancels them when one answer, or those of its owner, exceed
 * their limit.
 */
export class AnswerReader implements ReadRoom, Reading {
  readonly #database: Database
  readonly #client: pg.PoolClient
  readonly #share: ByteShare
  #bytes = 0
  /** Bytes that the budget counts. */
  readBytes = 0
  #refusal: AppError | undefined
  #stopped: Promise<unknown> | undefined

  constructor(database: Database, { client, owner }: { client: pg.PoolClient; owner: string }) {
    this.#database = database
    this.#client = client
    this.#share = database.budget.shareOf(owner)
  }

  async run(calls: readonly Call[]): Promise<TextRows[]> {
    this.#share.readings.add(this)
    try {
      return await runPipeline(this.#client, calls, this)
    } catch (error) {
      // Wait for the cancel request: a late one would cancel the next user of the connection.
      await this.#stopped
      throw error instanceof RoomSpentError ? this.#refusal : error
    } finally {
      this.#share.readings.delete(this)
      this.#database.budget.give(this.#share, this.readBytes)
      this.readBytes = 0
    }
  }

  take(bytes: number): boolean {
    const { answerBytesMax, budget } = this.#database
    this.#bytes += bytes
    if (this.#bytes > answerBytesMax) return this.#refuse(answerTooLarge(answerBytesMax))
    if (this.#bytes <= SMALL_ANSWER_BYTES) return true
    // The body of the request may be in memory, too.
    const ownBytes = this.readBytes + SMALL_ANSWER_BYTES
    if (!budget.take(this.#share, { bytes, ownBytes })) {
      if (!budget.mayReadOn(this.#share, this)) return this.#refuse(tooManyAnswers())
      budget.add(this.#share, bytes)
    }
    this.readBytes += bytes
    return true
  }

  #refuse(refusal: AppError): boolean {
    const { processID } = this.#client as unknown as { processID: number }
    this.#refusal = refusal
    this.#stopped = stopBackend(this.#database, processID)
    return false
  }
}

function tooManyAnswers(): AppError {
  return new AppError(
    'overloaded',
    'too many large answers of this API key are in memory; nothing was applied, read them or try again later',
  )
}

export function answerTooLarge(bytesMax: number): AppError {
  return new AppError(
    'query_too_costly',
    `the answer would take more than ${bytesMax} bytes of rows: request fewer records, for example with a smaller page, or fewer columns`,
  )
}

function tooLate(cause: Cause, timeoutMs: number, error: unknown): AppError {
  return cause === 'wait'
    ? new AppError('timeout', `the server is busy: the query was stopped after ${timeoutMs} ms`, {
        cause: error,
      })
    : new AppError(
        'query_too_costly',
        `the query is too costly: it was stopped after ${timeoutMs} ms`,
        { cause: error },
      )
}
