import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { codeOf } from './failures.js'
import { sql } from './sql.js'
import { type Call, compileStatement } from './statement.js'

/*
 * How a transaction ends. A COMMIT is never cancelled: with a synchronous standby PostgreSQL waits in
 * it for the standby, and a cancellation ends the wait but not the commit, which is then reported as
 * done. So the limit of time is taken away before it, and whoever would stop the transaction has to
 * do so earlier. When the answer does not come, the outcome is reported as unknown.
 */

/** How long a transaction that has been told to commit is waited for. */
export const COMMIT_WAIT_MS = 60_000

const NO_TIMEOUT = sql`set local statement_timeout = 0`

/** Takes the limit of time away; the next statement is the COMMIT. */
export const BEFORE_COMMIT: Call = { statement: compileStatement(NO_TIMEOUT), values: [] }
export const COMMIT: Call = { statement: compileStatement(sql`commit`), values: [] }

/** What ends a transaction that has written. */
export const COMMIT_CALLS: readonly Call[] = [BEFORE_COMMIT, COMMIT]

/** Nobody can say whether the transaction was committed, at least not on all servers it has to be on. */
export class UnknownOutcomeError extends AppError {
  constructor(
    cause: unknown,
    /** The connection still waits for the answer. */
    readonly pending?: Promise<unknown>,
  ) {
    super(
      'commit_unknown',
      'the database did not say whether the changes were committed: look before you send them again',
      { cause },
    )
  }
}

/** Connections on which PostgreSQL warned since the last look. */
const warned = new WeakSet<object>()

const WARNING = '01000'
const ADMIN_SHUTDOWN = '57P01'

/** The wait for a standby that somebody ended is reported by a warning, and by nothing else. */
export function watchWarnings(client: pg.ClientBase): void {
  client.on('notice', (notice) => {
    const code = codeOf(notice)
    if (code === WARNING || code === ADMIN_SHUTDOWN) warned.add(client)
  })
}

/**
 * Waits for what ends with a COMMIT. Failures that PostgreSQL reports mean that nothing was committed;
 * a connection that breaks, or an answer that does not come, leaves it open.
 */
export async function settleCommit<Result>(
  client: pg.ClientBase,
  committing: Promise<Result>,
  waitMs = COMMIT_WAIT_MS,
): Promise<Result> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new UnknownOutcomeError(new Error('no answer in time'), committing)),
      waitMs,
    )
  })
  try {
    const result = await Promise.race([committing, late])
    if (warned.delete(client)) throw new UnknownOutcomeError(new Error('PostgreSQL warned'))
    return result
  } catch (error) {
    warned.delete(client)
    if (error instanceof AppError || isReported(error)) throw error
    throw new UnknownOutcomeError(error)
  } finally {
    clearTimeout(timer)
  }
}

/** A failure of a statement, or of the COMMIT; the server itself goes on. */
function isReported(error: unknown): boolean {
  const code = codeOf(error)
  return code !== undefined && /^(?=.*\d)[0-9A-Z]{5}$/.test(code) && !/^(57P|08)/.test(code)
}

/** Gives a connection back once nothing runs on it any more. */
export function releaseWhenSettled(client: pg.PoolClient, error: UnknownOutcomeError): void {
  const { pending } = error
  if (pending === undefined) {
    client.release(error)
    return
  }
  pending.then(
    () => client.release(),
    (failure: unknown) => client.release(failure instanceof Error ? failure : true),
  )
}
