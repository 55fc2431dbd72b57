import { AppError } from '@offshoot/contract/errors'
import type { Schema } from '@offshoot/contract/schema'
import { EMPTY_SCHEMA, type StoredSchema } from '../../rows/columns.js'
import { applyOperations } from './apply-operations.js'
import { compareSchemasByName } from './compare-schemas-by-name.js'
import type { EditOptions } from './schema-draft.js'

/** A schema that a client sent, checked by all the rules for edits. */
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
    // The limit is one of migrations; what bounds a schema are its tables and columns.
    limits: { ...options.limits, schemaOperationsMax: Number.POSITIVE_INFINITY },
  })
  return sent.tablesOrder ? { ...schema, tablesOrder: sent.tablesOrder } : schema
}
