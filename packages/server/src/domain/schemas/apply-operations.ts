import { AppError } from '@offshoot/contract/errors'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import type { SchemaChange } from '../../rows/heaps/schema-changes.js'
import { type EditOptions, SchemaDraft } from './schema-draft.js'

interface Applied {
  readonly schema: StoredSchema
  readonly changes: readonly SchemaChange[]
}

/** Applies a migration to a schema, in steps. Returns the new schema and the changes for the storage. */
export function* applyOperations(
  schema: StoredSchema,
  operations: readonly SchemaOperation[],
  options: EditOptions,
): Generator<undefined, Applied, undefined> {
  const { schemaOperationsMax } = options.limits
  if (operations.length > schemaOperationsMax) {
    throw new AppError(
      'invalid_schema',
      `a migration cannot have more than ${schemaOperationsMax} operations`,
    )
  }
  const draft = new SchemaDraft(schema, options)
  for (const operation of operations) {
    applyOperation(draft, operation)
    yield
  }
  return draft.finish()
}

function applyOperation(draft: SchemaDraft, operation: SchemaOperation): void {
  if ('addTable' in operation) draft.addTable(operation.addTable)
  else if ('removeTable' in operation) draft.removeTable(operation.removeTable.table)
  else if ('renameTable' in operation) draft.renameTable(operation.renameTable)
  else if ('addColumn' in operation) {
    draft.addColumn(operation.addColumn)
  } else if ('removeColumn' in operation) {
    draft.removeColumn(operation.removeColumn.table, operation.removeColumn.column)
  } else if ('renameColumn' in operation) {
    draft.renameColumn(operation.renameColumn.table, operation.renameColumn)
  } else if ('alterColumn' in operation) draft.alterColumn(operation.alterColumn)
  else if ('alterTable' in operation) draft.alterTable(operation.alterTable)
  else if ('addConstraint' in operation) {
    draft.addConstraint(operation.addConstraint.table, operation.addConstraint.constraint)
  } else
    draft.removeConstraint(operation.removeConstraint.table, operation.removeConstraint.constraint)
}
