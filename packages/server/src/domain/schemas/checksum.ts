import { createHash } from 'node:crypto'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { toCanonicalJson } from '../../common/write-json.js'

/**
 * Computes the checksum of a migration. It covers the operations, but not the parent, so that a
 * migration keeps its checksum on another branch and after a rebase. Clients may write the keys of a
 * migration in another order.
 */
export function checksumOf(operations: readonly SchemaOperation[]): string {
  return `1:${createHash('sha256').update(toCanonicalJson(operations)).digest('hex')}`
}
