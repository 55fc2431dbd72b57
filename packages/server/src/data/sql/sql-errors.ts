import { invalidSql, tooCostly } from '../../dialect/invalid-sql.js'
import { codeOf, isUndefinedName, PERMISSION_DENIED } from '../../postgres/failures.js'
import { StaleError } from '../../rows/running/staleness.js'

/** Classes of SQLSTATE for errors of the statement, not of the server. */
const STATEMENT_CLASSES = new Set(['0A', '20', '21', '22', '24', '2F', '34', '42', '44'])
/** A cursor cannot do what a statement asks for. */
const WRONG_STATE = '55000'
/** `chr` reports characters that no text can have as if a limit was exceeded. */
const INVALID_CHARACTER = /^null character not permitted|^requested character /
const TOO_LARGE_MESSAGES = /invalid memory alloc request size|out of memory|string buffer/i

/** Converts an error of PostgreSQL about a statement to an AppError. Returns other errors unchanged. */
export function toSqlError(error: unknown): unknown {
  const code = codeOf(error)
  const message = error instanceof Error ? error.message : ''
  if (code === undefined || !/^[0-9A-Z]{5}$/.test(code)) return error
  if (INVALID_CHARACTER.test(message)) return invalidSql(message, undefined, error)
  if (TOO_LARGE_MESSAGES.test(message) || code === '53400' || code.startsWith('54')) {
    return tooCostly('the statement is too costly: it takes more memory than it may', error)
  }
  // The read-only role lacks a privilege; see `ReaderRoles`. After they were renewed, this means that a statement has bypassed the rewriting. Access was
  // denied, and the error is reported as internal.
  if (code === PERMISSION_DENIED) return error
  if (!STATEMENT_CLASSES.has(code.slice(0, 2)) && code !== WRONG_STATE) return error
  const invalid = invalidSql(message, undefined, error)
  // Names are resolved before a statement runs, so a missing one means that the schema has changed.
  return isUndefinedName(error) ? new StaleError(code, { cause: invalid }) : invalid
}
