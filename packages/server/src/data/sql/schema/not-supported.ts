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
  for (const [part, value] of Object.entries(content)) {
    if (known.includes(part) || value === undefined || value === false) continue
    throw notSupported(`${of}: ${names[part] ?? part}`)
  }
}
