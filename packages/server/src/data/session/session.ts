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

/** A branch with its tables, ready to be read and written. */
export interface BranchSession {
  readonly guard: Guard
  readonly schema: CompiledSchema
  readonly tables: BranchTables
  /** How answers write records. */
  readonly metadata: MetadataForm
  /** Counts what the request adds to the workspace. */
  readonly growth: Growth
  /** The number of columns in its storage, by which sessions are weighed. */
  readonly columnCount: number
  table(name: string): BranchTable
  findTable(name: string): BranchTable | undefined
}

/**
 * A branch together with the key that reaches it. Processes keep sessions from request to request and use
 * them without asking: the transaction of each request compares the stamps of key and branch, so an
 * outdated session is noticed before it has any effect.
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

/** The statements that read columns of a table; refuses columns that it does not have. */
export function planColumns(table: BranchTable, columns: readonly string[]): CompiledRead {
  const read = table.read(columns)
  if ('plan' in read) return read
  throw new AppError(
    'invalid_request',
    read.map(({ message }) => `table [${table.codec.table.name}]: ${message}`).join('; '),
  )
}
