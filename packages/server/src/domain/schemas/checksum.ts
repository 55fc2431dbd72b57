import { createHash } from 'node:crypto'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'

/**
 * Computes the checksum of a migration. It covers the operations, but not the parent, so that a
 * migration keeps its checksum on another branch and after a rebase.
 */
export function checksumOf(operations: readonly SchemaOperation[]): string {
  return `1:${createHash('sha256').update(toCanonicalJson(operations)).digest('hex')}`
}

/** Sorts the keys of objects, because clients may write the keys of a migration in another order. */
function toCanonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
