import { codeOf, isUndefinedName } from '../../postgres/failures.js'
import { StaleError } from '../../rows/read.js'
import { sqlFault, tooCostly } from './sql-fault.js'

/** Classes of SQLSTATE that are about the statement, and not about the server. */
const STATEMENT_CLASSES = new Set(['0A', '20', '21', '22', '2F', '42', '44'])
/** The reader lacks a right; see `renewReader`. */
export const PERMISSION_DENIED = '42501'
const TOO_LARGE_MESSAGES = /invalid memory alloc request size|out of memory|string buffer/i

/** The public form of what PostgreSQL refused about a statement; anything else is returned as it is. */
export function toSqlError(error: unknown): unknown {
  const code = codeOf(error)
  const message = error instanceof Error ? error.message : ''
  if (code === undefined || !/^[0-9A-Z]{5}$/.test(code)) return error
  if (TOO_LARGE_MESSAGES.test(message) || code === '53400' || code.startsWith('54')) {
    return tooCostly('the statement is too costly: it takes more memory than it may', error)
  }
  // Once the rights are renewed, a way past the translation: nothing was reached, and it is for us to know.
  if (code === PERMISSION_DENIED) return error
  if (!STATEMENT_CLASSES.has(code.slice(0, 2))) return error
  const fault = sqlFault(message)
  // Names are resolved before a statement runs, so one that is missing means that the schema has changed.
  return isUndefinedName(error) ? new StaleError(code, { cause: fault }) : fault
}
