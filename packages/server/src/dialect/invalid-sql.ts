import { AppError } from '@offshoot/contract/errors'

/** Returns an error for an invalid statement. Positions are counted in characters, from 1. */
export function invalidSql(message: string, position?: number, cause?: unknown): AppError {
  const at = position === undefined ? '' : ` at position ${position}`
  return new AppError('invalid_sql', `invalid SQL: ${message}${at}`, { cause })
}

/** Clients compare this message literally. */
export function unusedParameters(used: number, count: number): AppError {
  return invalidSql(`unused parameters: used ${used} of ${count} parameters`)
}

/** Returns an error for a statement that exceeds the limits of time, memory or result size. */
export function tooCostly(message: string, cause?: unknown): AppError {
  return new AppError('query_too_costly', message, { cause })
}
