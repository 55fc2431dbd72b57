import { AppError, type ErrorCode } from '@offshoot/contract/errors'

/** An error of PostgreSQL or of the socket; `code` is a SQLSTATE or the name of a system error. */
interface CodedError {
  readonly code: string
  readonly constraint?: string
}

export function codeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { code } = error as Partial<CodedError>
  return typeof code === 'string' ? code : undefined
}

/** Returns whether an expression has failed, such as a division by zero. */
export function isDataException(error: unknown): boolean {
  return codeOf(error)?.startsWith('22') === true
}

/** The constraint or index that a failed statement violated. */
export function constraintOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { constraint } = error as Partial<CodedError>
  return typeof constraint === 'string' ? constraint : constraintOfShard(error)
}

/** Citus reports errors of nodes by their messages, where the number of the shard follows the name. */
function constraintOfShard(error: object): string | undefined {
  const code = codeOf(error)
  if (code !== UNIQUE_VIOLATION && code !== CHECK_VIOLATION) return undefined
  // The message can name the table, too.
  return /constraint "([^"]+)_[0-9]+"/.exec((error as Error).message)?.[1]
}

export const UNIQUE_VIOLATION = '23505'
export const CHECK_VIOLATION = '23514'
export const INVALID_PARAMETER_VALUE = '22023'
export const UNDEFINED_TABLE = '42P01'
const UNDEFINED_SCHEMA = '3F000'
const UNDEFINED_COLUMN = '42703'
const FOREIGN_KEY_VIOLATION = '23503'
const SERIALIZATION_FAILURE = '40001'
const DEADLOCK = '40P01'
export const QUERY_CANCELED = '57014'
/** A role lacks a privilege. */
export const PERMISSION_DENIED = '42501'
const IDLE_IN_TRANSACTION = '25P03'
const LOCK_NOT_AVAILABLE = '55P03'
const DISK_FULL = '53100'
const INTERNAL = 'XX000'

/** The names of system errors can have five letters too, but have no digit. */
export function isSqlState(code: string): boolean {
  return /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code)
}

/** A statement names a table that does not exist. Some statements report a missing schema instead. */
export function isUndefinedTable(error: unknown): boolean {
  return [UNDEFINED_TABLE, UNDEFINED_SCHEMA].includes(codeOf(error) ?? '')
}

/** A lock was not granted within `lock_timeout`. The error may be mapped to a public one. */
export function isLockTimeout(error: unknown): boolean {
  return [error, (error as Error).cause].some((cause) => codeOf(cause) === LOCK_NOT_AVAILABLE)
}

/** A statement names a table or a column that does not exist. */
export function isUndefinedName(error: unknown): boolean {
  return isUndefinedTable(error) || codeOf(error) === UNDEFINED_COLUMN
}

/** Errors of the last statement of a batch. In a batch that ends a transaction, this is the COMMIT. */
const ofLastStatement = new WeakSet<object>()

export function noteLastStatementFailed(error: Error): void {
  ofLastStatement.add(error)
}

/** Messages of Citus for a COMMIT that failed before any node was told to commit. */
const NOT_COMMITTED = /^(failure on connection marked as essential|failed to prepare transaction)/

/**
 * Returns whether it is unknown what a batch with a COMMIT has done. After an internal error in the COMMIT, a node of a
 * cluster may have committed: Citus reports so that the node did not answer, or that the coordinator ends.
 */
export function isOutcomeUnknown(error: unknown): boolean {
  const code = codeOf(error)
  if (isReportedBeforeCommit(error)) return false
  if (code === undefined || !isSqlState(code) || /^(57P|08)/.test(code)) return true
  if (code !== INTERNAL || !ofLastStatement.has(error as object)) return false
  return !NOT_COMMITTED.test((error as Error).message)
}

/**
 * Returns whether the coordinator of a cluster, over a working connection, has reported that a statement before the COMMIT
 * could not reach its node. The COMMIT was skipped.
 */
function isReportedBeforeCommit(error: unknown): boolean {
  const { severity } = error as { severity?: unknown }
  const isReported = NODE_UNREACHABLE.has(codeOf(error) ?? '') && severity === 'ERROR'
  return isReported && !ofLastStatement.has(error as object)
}

/** Returns whether running the whole transaction again can succeed. */
export function isRetryable(error: unknown): boolean {
  return isConflict(codeOf(error)) || isOutrun(error) || isInDoubt(error)
}

/**
 * The code of the function on the nodes of a cluster if a crash has left a transaction in doubt that has changed the
 * same database. See `in-doubt.ts`.
 */
export const IN_DOUBT = 'OS001'

export function isInDoubt(error: unknown): boolean {
  return codeOf(error) === IN_DOUBT
}

/** Errors after which a connection may not answer for long. */
const leftBusy = new WeakSet<object>()

/**
 * Notes that a statement was cancelled on a cluster. The coordinator reports that, and only then cancels it on the node. If
 * the node does not answer, the connection does not answer either, so it must not be used again.
 */
export function noteCancelled(error: unknown): void {
  if (codeOf(error) === QUERY_CANCELED) leftBusy.add(error as object)
}

/** Returns whether the connection of a failed statement must be closed, because it may not answer. */
export function isLeftBusy(error: unknown): boolean {
  if (typeof error !== 'object' || error === null) return false
  return leftBusy.has(error) || isLeftBusy((error as Error).cause)
}

/** Returns whether PostgreSQL has ended a transaction because of another one. */
export function isConflict(code: string | undefined): boolean {
  return code === SERIALIZATION_FAILURE || code === DEADLOCK
}

/** A transaction that a node of a cluster could not commit, because of another transaction there. */
export class NodeConflictError extends Error {
  readonly code = SERIALIZATION_FAILURE
}

/**
 * Returns whether another transaction changed the catalogue entry of a table at the same time, such
 * as its privileges, which takes no lock.
 */
function isOutrun(error: unknown): boolean {
  return codeOf(error) === INTERNAL && /^tuple concurrently /.test((error as Error).message)
}

const UNREACHABLE = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ENOENT',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  '57P01',
  '57P02',
  '57P03',
  '25006',
])

/** The coordinator of a cluster reports these if it cannot connect to a node. Clients do not see them otherwise. */
const NODE_UNREACHABLE = new Set(['08000', '08001', '08003', '08006'])

/** A node does not answer, and so is treated like one to which the coordinator cannot connect. */
export class NodeSilentError extends Error {
  readonly code = '08001'
}

/**
 * Messages of Citus with the code of an internal error, if a node breaks its connection. Some are those of libpq, which has
 * no codes.
 */
const NODE_LOST =
  /^(failure on connection marked as essential|failed to prepare transaction|execution cannot recover from multiple connection failures|server closed the connection unexpectedly|no connection to the server|connection not open|could not (receive data from|send data to) server|SSL (error|SYSCALL error|connection has been closed))/

/** The message of Citus, with the code of an internal error, if the coordinator was killed while it waited for a node. */
const COORDINATOR_LOST = /^postmaster was shut down/

/** Returns whether the coordinator of a cluster has lost a node in a transaction, which it has rolled back. */
function isNodeLost(error: unknown): boolean {
  return codeOf(error) === INTERNAL && NODE_LOST.test((error as Error).message)
}

/**
 * Returns whether a node of a cluster cannot be reached. The coordinator and other nodes may well be. The error may be
 * mapped to a public one.
 */
export function isNodeUnreachable(error: unknown): boolean {
  return [error, (error as Error).cause].some(
    (cause) => NODE_UNREACHABLE.has(codeOf(cause) ?? '') || isNodeLost(cause),
  )
}

/** Returns whether the coordinator of a cluster has ended while a statement waited for a node. */
function isCoordinatorLost(error: unknown): boolean {
  return codeOf(error) === INTERNAL && COORDINATOR_LOST.test((error as Error).message)
}

/**
 * Returns whether Citus has refused to define a table because the database is being moved to another node. Citus does not
 * wait for that.
 */
function isBeingMoved(error: unknown): boolean {
  return (
    codeOf(error) === INTERNAL &&
    /^could not acquire the lock required to /.test((error as Error).message)
  )
}

/** Messages of `pg` for connection failures without a code. */
const UNREACHABLE_MESSAGES =
  /connection terminated|timeout exceeded when trying to connect|client has encountered a connection error|not queryable/i

export function isUnreachable(error: unknown): boolean {
  const code = codeOf(error)
  if (code !== undefined && (UNREACHABLE.has(code) || /^(08|53|58)/.test(code))) return true
  if (isNodeLost(error) || isCoordinatorLost(error)) return true
  return error instanceof Error && UNREACHABLE_MESSAGES.test(error.message)
}

/**
 * The error for each foreign key of the catalogue whose target was deleted, by the end of its name.
 */
const GONE: readonly (readonly [suffix: string, code: ErrorCode, message: string])[] = [
  ['_user_id_fkey', 'invalid_api_key', 'Invalid API key'],
  ['_workspace_id_fkey', 'workspace_not_found', 'the workspace was deleted a moment ago'],
  ['_database_id_fkey', 'database_not_found', 'the database was deleted a moment ago'],
]

/** Returns whether a row of the catalogue that a statement refers to does not exist. */
export function isForeignKeyViolation(error: unknown): boolean {
  return codeOf(error) === FOREIGN_KEY_VIOLATION
}

/** Maps a foreign key violation: its target was deleted after it had been checked. */
function toGoneError(error: unknown): AppError | undefined {
  if (!isForeignKeyViolation(error)) return undefined
  const found = GONE.find(([suffix]) => constraintOf(error)?.endsWith(suffix))
  return found && new AppError(found[1], found[2], { cause: error })
}

/** Maps failures of PostgreSQL to public errors. Returns other errors unchanged. */
export function toAppError(error: unknown): unknown {
  if (error instanceof AppError) return error
  if (codeOf(error) === DISK_FULL) {
    return new AppError(
      'storage_full',
      'there is no space left on the disk of the database; nothing was applied',
      { cause: error },
    )
  }
  if (isUnreachable(error)) {
    const message = isNodeUnreachable(error)
      ? 'a node of the database cluster cannot be reached'
      : 'the database cannot be reached'
    return new AppError('unavailable', message, { cause: error })
  }
  if (isBeingMoved(error)) {
    return new AppError('unavailable', 'the database is being moved to another node; try again', {
      cause: error,
    })
  }
  if (isInDoubt(error)) {
    return new AppError('unavailable', 'a node of the database cluster is recovering', {
      cause: error,
    })
  }
  if (isRetryable(error)) {
    return new AppError(
      'retry_limit',
      'other requests kept changing the same data; nothing was applied, please try again',
      { cause: error },
    )
  }
  const code = codeOf(error)
  if (code === QUERY_CANCELED || code === IDLE_IN_TRANSACTION) {
    return new AppError('timeout', 'the request took longer than its limit; nothing was applied', {
      cause: error,
    })
  }
  if (code === LOCK_NOT_AVAILABLE) {
    return new AppError(
      'timeout',
      'another operation on the same data took too long; nothing was applied',
      { cause: error },
    )
  }
  return toGoneError(error) ?? error
}
