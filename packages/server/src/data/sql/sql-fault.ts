import { AppError } from '@offshoot/contract/errors'

/** What is wrong with a statement, in words; positions are counted in characters, from 1. */
export function sqlFault(message: string, position?: number): AppError {
  const at = position === undefined ? '' : ` at position ${position}`
  return new AppError('invalid_sql', `invalid SQL: ${message}${at}`)
}

/** In the very words that clients know. */
export function unusedParameters(used: number, count: number): AppError {
  return sqlFault(`unused parameters: used ${used} of ${count} parameters`)
}

/** A statement that asks for more time, memory or answer than it can have. */
export function tooCostly(message: string, cause?: unknown): AppError {
  return new AppError('query_too_costly', message, { cause })
}
