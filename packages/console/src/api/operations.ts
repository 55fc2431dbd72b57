import type { ColumnDefinition, DataLoss, LinkAction, SchemaOperation } from '@offshoot/client'
import { describeConstraint } from '../ui/schema-words.js'

const ON_DELETE_WORDS: Readonly<Record<LinkAction, string | false>> = {
  none: false,
  restrict: 'whose deletion is refused',
  setNull: 'removed if that record is deleted',
  cascade: 'deleted together with that record',
}

/** Describes the options of a column in words. */
export function describeColumn(column: ColumnDefinition): string {
  return [
    column.type,
    column.link && `to ${column.link.table}`,
    column.link?.onDelete !== undefined && ON_DELETE_WORDS[column.link.onDelete],
    column.vector && `of ${column.vector.dimension} numbers`,
    column.decimal && `of ${column.decimal.precision} digits, ${column.decimal.scale} decimals`,
    column.enum && `of ${column.enum.values.join(', ')}`,
    column.columns && `of ${column.columns.map(({ name }) => name).join(', ')}`,
    column.unique === true && 'unique',
    column.notNull === true && 'required',
    column.generate !== undefined && `generated: ${column.generate}`,
    column.computed !== undefined && `computed: ${column.computed}`,
    column.defaultValue !== undefined && `default ${column.defaultValue}`,
  ]
    .filter(Boolean)
    .join(', ')
}

/** Describes a schema operation in words. */
export function describeOperation(operation: SchemaOperation): string {
  if ('addTable' in operation) return `Create table ${operation.addTable.table}`
  if ('removeTable' in operation) return `Remove table ${operation.removeTable.table}`
  if ('renameTable' in operation) {
    return `Rename table ${operation.renameTable.oldName} to ${operation.renameTable.newName}`
  }
  if ('addColumn' in operation) {
    const { table, column } = operation.addColumn
    return `Add column ${table}.${column.name}: ${describeColumn(column)}`
  }
  if ('removeColumn' in operation) {
    return `Remove column ${operation.removeColumn.table}.${operation.removeColumn.column}`
  }
  if ('addConstraint' in operation) {
    const { table, constraint } = operation.addConstraint
    return `Add constraint ${table}.${constraint.name}: ${describeConstraint(constraint)}`
  }
  if ('removeConstraint' in operation) {
    const { table, constraint } = operation.removeConstraint
    return `Remove constraint ${table}.${constraint}`
  }
  if ('alterColumn' in operation) {
    const { table, column, ...changes } = operation.alterColumn
    return `Change column ${table}.${column}: ${Object.keys(changes).join(', ')}`
  }
  if ('alterTable' in operation) {
    const { table, history } = operation.alterTable
    return `Change table ${table}: history ${history?.keep ?? 'none'}`
  }
  const { table, oldName, newName } = operation.renameColumn
  return `Rename column ${table}.${oldName} to ${newName}`
}

/** Describes values that would be lost. */
export function describeLoss({ table, column, records, more }: DataLoss): string {
  const amount = `${more ? 'at least ' : ''}${records.toLocaleString()} ${records === 1 ? 'record' : 'records'}`
  return column === undefined
    ? `Table ${table}: ${amount}`
    : `Column ${table}.${column}: the values of ${amount}`
}

/** Operations that take something away. */
export function isRemoval(operation: SchemaOperation): boolean {
  return ['removeTable', 'removeColumn', 'removeConstraint'].some((kind) => kind in operation)
}
