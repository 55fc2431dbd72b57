import { AppError } from '@offshoot/contract/errors'
import type { Schema } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { EMPTY_SCHEMA, type StoredSchema } from '../../rows/columns.js'
import { applyInTurns, applyOperations } from './apply-operations.js'
import { compareSchemasByName } from './compare-schemas-by-name.js'
import type { EditOptions } from './schema-draft.js'

/** Converts a schema that a client sent, and validates it by the rules for schema edits. */
export function readSchema(sent: Schema, options: EditOptions): StoredSchema {
  const { schema } = applyOperations(EMPTY_SCHEMA, additions(sent, options), withoutMax(options))
  return withOrder(sent, schema)
}

/** Converts a schema that a client sent, and yields to the event loop if it takes long. */
export async function readSchemaInTurns(sent: Schema, options: EditOptions): Promise<StoredSchema> {
  const operations = additions(sent, options)
  const { schema } = await applyInTurns(EMPTY_SCHEMA, operations, withoutMax(options))
  return withOrder(sent, schema)
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

function withOrder({ tablesOrder }: Schema, schema: StoredSchema): StoredSchema {
  return tablesOrder ? { ...schema, tablesOrder } : schema
}
