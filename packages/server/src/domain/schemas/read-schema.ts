import { AppError } from '@offshoot/contract/errors'
import type { Schema } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { EMPTY_SCHEMA, type StoredSchema } from '../../rows/columns/stored-schema.js'
import { applyOperations } from './apply-operations.js'
import { compareSchemasByName } from './compare-schemas-by-name.js'
import type { EditOptions } from './schema-draft.js'

/** Converts a schema that a client sent, and validates it by the rules for schema edits, in steps. */
export function* readSchema(
  sent: Schema,
  options: EditOptions,
): Generator<undefined, StoredSchema, undefined> {
  const operations = additions(sent, options)
  const { schema } = yield* applyOperations(EMPTY_SCHEMA, operations, withoutMax(options))
  const { tablesOrder } = sent
  return tablesOrder ? { ...schema, tablesOrder } : schema
}

/** Returns the operations that create the schema. */
function additions(sent: Schema, { limits }: EditOptions): SchemaOperation[] {
  const { tablesPerBranchMax } = limits
  if (sent.tables.length > tablesPerBranchMax) {
    throw new AppError(
      'invalid_schema',
      `a branch cannot have more than ${tablesPerBranchMax} tables`,
    )
  }
  return compareSchemasByName({ tables: [] }, sent)
}

/** This limit is for migrations. A schema is bounded by the limits for tables and columns. */
function withoutMax(options: EditOptions): EditOptions {
  return {
    ...options,
    limits: { ...options.limits, schemaOperationsMax: Number.POSITIVE_INFINITY },
  }
}
