import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { invalidQuery } from './invalid-query.js'

/** Maximum nesting of values. No valid query is nested as deeply. */
const DEPTH_MAX = 200

/** Throws if a query exceeds the size limit. Stops reading it at the limit. */
export function requireQuerySize(...parts: readonly unknown[]): void {
  const max = QUERY_LIMITS.queryLengthMax
  let length = 0

  function add(characters: number): void {
    length += characters
    if (length > max) {
      throw invalidQuery(`the query is too long: it can have at most ${max} characters`)
    }
  }

  function measure(value: unknown, depth: number): void {
    if (depth > DEPTH_MAX) {
      throw invalidQuery(`the query is nested more than ${DEPTH_MAX} levels deep`)
    }
    if (typeof value === 'string') add(value.length + 2)
    else if (Array.isArray(value)) {
      add(1)
      for (const item of value) {
        add(1)
        measure(item, depth + 1)
      }
    } else if (typeof value === 'object' && value !== null) {
      add(1)
      for (const key in value) {
        add(key.length + 4)
        measure((value as Readonly<Record<string, unknown>>)[key], depth + 1)
      }
    } else add(String(value).length)
  }

  for (const part of parts) if (part !== undefined) measure(part, 0)
}
