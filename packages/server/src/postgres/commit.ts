import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { codeOf, isConflict, isLeftBusy, isOutcomeUnknown, NodeConflictError } from './failures.js'
import { sql } from './sql.js'
import { type Call, compileStatement } from './statement.js'

/*
 * Committing a transaction. A COMMIT must never be cancelled: with a synchronous standby, PostgreSQL
 * waits for the standby in it. A cancellation ends the wait but not the commit, and PostgreSQL then
 * reports success although the standby may lack the data. So the statement timeout is removed before
 * the COMMIT. If there is no answer, the outcome is reported as unknown.
 */

/** How long to wait for the answer to a COMMIT. */
const COMMIT_WAIT_MS = 30_000

const NO_TIMEOUT = sql`set local statement_timeout = 0`

/** Removes the statement timeout; the next statement is the COMMIT. */
const BEFORE_COMMIT: Call = { statement: compileStatement(NO_TIMEOUT), values: [] }
export const COMMIT: Call = { statement: compileStatement(sql`commit`), values: [] }

/** The calls that end a transaction with writes. */
export const COMMIT_CALLS: readonly Call[] = [BEFORE_COMMIT, COMMIT]

/** It is unknown whether the transaction was committed, or whether a synchronous standby has it. */
export class UnknownOutcomeError extends AppError {
  constructor(
    cause: unknown,
    /** The connection still waits for the answer. */
    readonly pending?: Promise<unknown>,
  ) {
    super(
      'commit_unknown',
      'PostgreSQL did not confirm the commit: check whether the changes were applied before you send them again',
      { cause },
    )
  }
}

/** Connections on which PostgreSQL has sent a warning since the last check. */
const warned = new WeakSet<object>()
/** Connections on which a node of a cluster has reported a conflict since the last check. */
const conflicting = new WeakSet<object>()

const WARNING = '01000'
const ADMIN_SHUTDOWN = '57P01'

/**
 * Watches for the warning that PostgreSQL sends if the wait for a standby is interrupted; it is the
 * only sign of that. If a node of a Citus cluster cannot commit, its reason is only sent as a warning, too.
 */
export function watchWarnings(client: pg.ClientBase): void {
  client.on('notice', (notice) => {
    const code = codeOf(notice)
    if (code === WARNING || code === ADMIN_SHUTDOWN) warned.add(client)
    if (isConflict(code)) conflicting.add(client)
  })
}

/**
 * Waits for a COMMIT. If PostgreSQL reports an error, nothing was committed. If the connection
 * breaks or there is no answer, the outcome is unknown.
 */
export async function settleCommit<Result>(
  client: pg.ClientBase,
  committing: Promise<Result>,
  waitMs = COMMIT_WAIT_MS,
): Promise<Result> {
  try {
    const result = await inTime(committing, waitMs)
    conflicting.delete(client)
    if (warned.delete(client)) throw new UnknownOutcomeError(new Error('PostgreSQL warned'))
    return result
  } catch (error) {
    warned.delete(client)
    const isConflicting = conflicting.delete(client)
    if (error instanceof AppError) throw error
    // The node has rolled back, and the coordinator with it.
    if (isConflicting) throw new NodeConflictError('', { cause: error })
    throw isOutcomeUnknown(error) ? new UnknownOutcomeError(error) : error
  }
}

/** Rejects if there is no result in time. Cheaper than `Promise.race`, which every write would pay for. */
function inTime<Result>(committing: Promise<Result>, waitMs: number): Promise<Result> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new UnknownOutcomeError(new Error('no answer in time'), committing)),
      waitMs,
    )
    committing.then(
      (result) => {
        clearTimeout(timer)
        resolve(result)
      },
      (error: unknown) => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}

/** How long to wait for the answer to a ROLLBACK. */
const ROLLBACK_WAIT_MS = 5_000

/**
 * Rolls back after a failure. Returns an error if the connection must be closed, because it is broken, or because a server
 * or a node of a cluster does not answer.
 */
export async function rollBack(
  client: pg.ClientBase,
  failure: unknown,
): Promise<Error | undefined> {
  if (isLeftBusy(failure)) return failure as Error
  let timer: NodeJS.Timeout | undefined
  const isLate = new Promise<Error>((resolve) => {
    timer = setTimeout(() => resolve(new Error('no answer to a rollback')), ROLLBACK_WAIT_MS)
  })
  const rolledBack = client.query('rollback').then(
    () => undefined,
    (error: unknown) => (error instanceof Error ? error : new Error('rollback failed')),
  )
  try {
    return await Promise.race([rolledBack, isLate])
  } finally {
    clearTimeout(timer)
  }
}

/** Releases a connection when nothing runs on it any more. */
export function releaseWhenSettled(client: pg.PoolClient, error: UnknownOutcomeError): void {
  const { pending } = error
  if (pending === undefined) {
    client.release(error)
    return
  }
  releaseAfter(client, pending)
}

/** Releases a connection when its last statement has ended; if that failed, the connection is closed. */
export function releaseAfter(client: pg.PoolClient, ending: Promise<unknown>): void {
  ending.then(
    () => client.release(),
    (failure: unknown) => client.release(failure instanceof Error ? failure : true),
  )
}
