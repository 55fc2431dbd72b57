import type {
  ColumnChanges,
  ColumnDefinition,
  ConstraintDefinition,
  SchemaOperation,
} from '@offshoot/client'

/** Describes a schema operation in words. */
export function describeOperation(operation: SchemaOperation): string {
  if ('addTable' in operation) return `Add table ${operation.addTable.table}`
  if ('removeTable' in operation) return `Remove table ${operation.removeTable.table}`
  if ('renameTable' in operation) {
    const { oldName, newName } = operation.renameTable
    return `Rename table ${oldName} to ${newName}`
  }
  if ('addColumn' in operation) {
    const { table, column } = operation.addColumn
    return `Add column ${column.name} (${describeColumn(column)}) to ${table}`
  }
  if ('removeColumn' in operation) {
    const { table, column } = operation.removeColumn
    return `Remove column ${column} from ${table}`
  }
  if ('addConstraint' in operation) {
    const { table, constraint } = operation.addConstraint
    return `Add constraint ${constraint.name} (${describeConstraint(constraint)}) to ${table}`
  }
  if ('removeConstraint' in operation) {
    const { table, constraint } = operation.removeConstraint
    return `Remove constraint ${constraint} from ${table}`
  }

  if ('alterColumn' in operation) {
    const { table, column, ...changes } = operation.alterColumn
    return `Change column ${column} of ${table}: ${describeChanges(changes)}`
  }
  if ('alterTable' in operation) {
    const { table, history } = operation.alterTable
    return history === null
      ? `Keep no versions of records of ${table}`
      : `Keep versions of records of ${table} for ${history.keep}`
  }
  const { table, oldName, newName } = operation.renameColumn
  return `Rename column ${oldName} of ${table} to ${newName}`
}

/** Describes the rule of a constraint in words. */
export function describeConstraint(constraint: ConstraintDefinition): string {
  return 'unique' in constraint
    ? `unique ${constraint.unique.join(', ')}`
    : `check ${constraint.check}`
}

/** Describes what changes in a column. */
function describeChanges(changes: ColumnChanges): string {
  return Object.entries(changes)
    .map(
      ([field, value]) => `${field} ${typeof value === 'string' ? value : JSON.stringify(value)}`,
    )
    .join(', ')
}

/** Describes the type and the rules of a column in words. */
function describeColumn(column: ColumnDefinition): string {
  return [
    column.type === 'link' ? `link to ${column.link?.table}` : column.type,
    ...(column.vector === undefined ? [] : [`${column.vector.dimension} dimensions`]),
    ...(column.unique ? ['unique'] : []),
    ...(column.notNull ? ['not null'] : []),
    ...(column.generate === undefined ? [] : [`generated: ${column.generate}`]),
    ...(column.computed === undefined ? [] : [`computed: ${column.computed}`]),
    ...(column.defaultValue === undefined ? [] : [`default “${column.defaultValue}”`]),
  ].join(', ')
}
