import { AppError } from '@offshoot/contract/errors'
import type { Principal } from '../../domain/access/principal.js'
import type { BranchAccess } from '../../domain/access/resolve.js'
import type { Growth } from '../../domain/quotas/quotas.js'
import { tableNotFound } from '../../domain/schemas/operations.js'
import type { Guard, MetadataForm } from '../../rows/read.js'
import {
  type BranchTable,
  BranchTables,
  type CompiledRead,
  countStoredColumns,
} from '../../rows/tables.js'
import type { CompiledSchema } from './compiled-schema.js'

/** A branch with its compiled tables. */
export interface BranchSession {
  readonly guard: Guard
  readonly schema: CompiledSchema
  readonly tables: BranchTables
  /** How responses write records. */
  readonly metadata: MetadataForm
  /** Counts the storage that the request adds to the workspace. */
  readonly growth: Growth
  /** The number of columns in the storage of the branch: the weight of the session in the cache. */
  readonly columnCount: number
  table(name: string): BranchTable
  findTable(name: string): BranchTable | undefined
}

/**
 * A branch together with the API key of a request. Processes cache sessions and use them without checking them
 * first. The transaction of each request compares the stamps of key and branch, so an outdated session is
 * detected before it has any effect.
 */
export interface Session extends BranchSession {
  readonly principal: Principal
  readonly access: BranchAccess
  /** Authenticates the cursors of queries. */
  readonly cursorSecret: Buffer
}

export function createSession(options: {
  guard: Guard
  schema: CompiledSchema
  metadata: MetadataForm
  growth: Growth
}): BranchSession {
  const { guard, schema, metadata, growth } = options
  const tables = new BranchTables(guard.rows, schema)
  return {
    guard,
    schema,
    tables,
    metadata,
    growth,
    columnCount: countStoredColumns(guard.rows),
    findTable: (name) => tables.find(name),
    table(name) {
      const table = tables.find(name)
      if (table === undefined) throw tableNotFound(name)
      return table
    },
  }
}

/** Compiles statements that read columns of a table. Throws if a column does not exist. */
export function planColumns(table: BranchTable, columns: readonly string[]): CompiledRead {
  const read = table.read(columns)
  if ('plan' in read) return read
  throw new AppError(
    'invalid_request',
    read.map(({ message }) => `table [${table.codec.table.name}]: ${message}`).join('; '),
  )
}
