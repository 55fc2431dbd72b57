import { AppError } from '@offshoot/contract/errors'
import type { Schema } from '@offshoot/contract/schema'
import { EMPTY_SCHEMA, type StoredSchema } from '../../rows/columns.js'
import { applyOperations } from './apply-operations.js'
import { compareSchemasByName } from './compare-schemas-by-name.js'
import type { EditOptions } from './schema-draft.js'

/** Converts a schema that a client sent, and validates it by the rules for schema edits. */
export function readSchema(sent: Schema, options: EditOptions): StoredSchema {
  const { tablesPerBranchMax } = options.limits
  if (sent.tables.length > tablesPerBranchMax) {
    throw new AppError(
      'invalid_schema',
      `a branch cannot have more than ${tablesPerBranchMax} tables`,
    )
  }
  const { schema } = applyOperations(EMPTY_SCHEMA, compareSchemasByName({ tables: [] }, sent), {
    ...options,
    // This limit is for migrations. A schema is bounded by the limits for tables and columns.
    limits: { ...options.limits, schemaOperationsMax: Number.POSITIVE_INFINITY },
  })
  return sent.tablesOrder ? { ...schema, tablesOrder: sent.tablesOrder } : schema
}
