import type { AppError } from '@offshoot/contract/errors'
import { invalidSql } from '../../../dialect/invalid-sql.js'

/** Returns an error for a statement that uses a feature that does not exist here. */
export function notSupported(feature: string, instead?: string): AppError {
  return invalidSql(`${feature} is not supported${instead === undefined ? '' : `: ${instead}`}`)
}

/**
 * Throws if a node has parts other than the known ones, which would change its meaning. `names` has the words of SQL for
 * parts.
 */
export function requireParts(
  content: object,
  known: readonly string[],
  { of, names = {} }: { of: string; names?: Readonly<Record<string, string>> },
): void {
  const other = findOtherPart(content, known, names)
  if (other !== undefined) throw notSupported(`${of}: ${other}`)
}

/** Returns the words for a part of a node that is not among the known ones. */
export function findOtherPart(
  content: object,
  known: readonly string[],
  names: Readonly<Record<string, string>>,
): string | undefined {
  const other = Object.entries(content).find(
    ([part, value]) => !known.includes(part) && value !== undefined && value !== false,
  )
  return other && (names[other[0]] ?? other[0])
}
