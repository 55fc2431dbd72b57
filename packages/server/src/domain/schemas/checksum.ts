import { createHash } from 'node:crypto'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'

/**
 * The checksum of a migration. It covers the operations and not the parent, so that a migration
 * keeps its checksum when it is taken to another branch or rebased onto another parent.
 */
export function checksumOf(operations: readonly SchemaOperation[]): string {
  return `1:${createHash('sha256').update(toCanonicalJson(operations)).digest('hex')}`
}

/** Clients rewrite migrations with their keys in another order, so the order must not matter. */
function toCanonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}
