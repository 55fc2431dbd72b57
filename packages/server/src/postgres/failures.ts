import { AppError, type ErrorCode } from '@offshoot/contract/errors'

/** What PostgreSQL or the socket reported; `code` is a SQLSTATE or a system error name. */
interface CodedError {
  readonly code: string
  readonly constraint?: string
}

export function codeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { code } = error as Partial<CodedError>
  return typeof code === 'string' ? code : undefined
}

/** The constraint or index a failed statement ran into. */
export function constraintOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null) return undefined
  const { constraint } = error as Partial<CodedError>
  return typeof constraint === 'string' ? constraint : undefined
}

export const UNIQUE_VIOLATION = '23505'
const FOREIGN_KEY_VIOLATION = '23503'
const SERIALIZATION_FAILURE = '40001'
const DEADLOCK = '40P01'
export const QUERY_CANCELED = '57014'
const IDLE_IN_TRANSACTION = '25P03'
const LOCK_NOT_AVAILABLE = '55P03'
const DISK_FULL = '53100'
const INTERNAL = 'XX000'

/** Failures that a new attempt of the whole transaction can get past. */
export function isRetryable(error: unknown): boolean {
  const code = codeOf(error)
  return code === SERIALIZATION_FAILURE || code === DEADLOCK || isOutrun(error)
}

/** Someone else has changed the same table, its rights for example, which takes no lock on it. */
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

/** `pg` reports these without a code. */
const UNREACHABLE_MESSAGES =
  /connection terminated|timeout exceeded when trying to connect|client has encountered a connection error|not queryable/i

export function isUnreachable(error: unknown): boolean {
  const code = codeOf(error)
  if (code !== undefined && (UNREACHABLE.has(code) || /^(08|53|58)/.test(code))) return true
  return error instanceof Error && UNREACHABLE_MESSAGES.test(error.message)
}

/** What the catalogue's foreign keys point at, by the ends of their names, once it is gone. */
const GONE: readonly (readonly [suffix: string, code: ErrorCode, message: string])[] = [
  ['_user_id_fkey', 'invalid_api_key', 'Invalid API key'],
  ['_workspace_id_fkey', 'workspace_not_found', 'the workspace was deleted a moment ago'],
  ['_database_id_fkey', 'database_not_found', 'the database was deleted a moment ago'],
]

/** Something was deleted between the check that it is there and its use. */
function toGoneError(error: unknown): AppError | undefined {
  if (codeOf(error) !== FOREIGN_KEY_VIOLATION) return undefined
  const found = GONE.find(([suffix]) => constraintOf(error)?.endsWith(suffix))
  return found && new AppError(found[1], found[2], { cause: error })
}

/** The public form of a failure of PostgreSQL itself; anything else is returned as it is. */
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
    return new AppError('unavailable', 'the database cannot be reached', { cause: error })
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
