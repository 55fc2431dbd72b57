import type {
  ColumnChanges,
  ColumnDefinition,
  ConstraintDefinition,
  DataLoss,
  LinkAction,
  SchemaOperation,
} from '@offshoot/client'

const ON_DELETE_WORDS: Readonly<Record<LinkAction, string | false>> = {
  none: false,
  restrict: 'whose deletion is refused',
  setNull: 'removed if that record is deleted',
  cascade: 'deleted together with that record',
}

/** Describes a type with its size: `string(20)`, or `int, 32 bits`. */
export function describeType({ type, bits, maxLength, withoutZone }: ColumnDefinition): string {
  if (bits !== undefined) return `${type}, ${bits} bits`
  if (withoutZone) return `${type} without zone`
  return maxLength === undefined ? type : `${type}(${maxLength})`
}

/** Describes the options of a column in words. */
export function describeColumn(column: ColumnDefinition): string {
  return [
    describeType(column),
    column.link && `to ${column.link.table}`,
    column.link?.onDelete !== undefined && ON_DELETE_WORDS[column.link.onDelete],
    column.link?.constraint !== undefined && `rule ${column.link.constraint}`,
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
  if ('addTable' in operation) {
    const { table, idType, idBits, hiddenId, history } = operation.addTable
    const options = [
      idType !== undefined && `ids of type ${idType}`,
      idBits !== undefined && `${idBits} bits`,
      hiddenId && 'ids that SQL lists only by name',
      history !== undefined && `versions kept for ${history.keep}`,
    ].filter(Boolean)
    return `Add table ${table}${options.length === 0 ? '' : `: ${options.join(', ')}`}`
  }
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
    return `Change column ${table}.${column}: ${describeChanges(changes)}`
  }
  if ('alterTable' in operation) {
    const { table, history, idBits } = operation.alterTable
    const changes = [
      idBits !== undefined && `Change the ids of ${table} to ${idBits ?? 64} bits`,
      history === null && `Keep no versions of records of ${table}`,
      history && `Keep versions of records of ${table} for ${history.keep}`,
    ]
    return changes.filter(Boolean).join('. ')
  }
  const { table, oldName, newName } = operation.renameColumn
  return `Rename column ${table}.${oldName} to ${newName}`
}

const CHANGE_WORDS: Readonly<
  Partial<Record<keyof ColumnChanges, (value: never) => string | undefined>>
> = {
  name: (name: string) => `name ${name}`,
  type: (type: string) => type,
  using: (expression: string) => `converted by ${expression}`,
  link: ({ table, onDelete, constraint }: NonNullable<ColumnChanges['link']>) =>
    [
      table !== undefined && `to ${table}`,
      onDelete !== undefined && (ON_DELETE_WORDS[onDelete] || 'linked records need not exist'),
      constraint !== undefined && `rule ${constraint ?? 'with its usual name'}`,
    ]
      .filter(Boolean)
      .join(', '),
  vector: ({ dimension }: { dimension: number }) => `of ${dimension} numbers`,
  decimal: ({ precision, scale }: { precision: number; scale: number }) =>
    `of ${precision} digits, ${scale} decimals`,
  bits: (bits: number | null) => `${bits ?? 64} bits`,
  maxLength: (length: number | null) =>
    length === null ? 'no limit of characters' : `at most ${length} characters`,
  withoutZone: (isZoneless: boolean) => (isZoneless ? 'without zone' : 'with zone'),
  enum: ({ values }: { values: readonly string[] }) => `values ${values.join(', ')}`,
  notNull: (isRequired: boolean) => (isRequired ? 'required' : 'not required'),
  unique: (isUnique: boolean) => (isUnique ? 'unique' : 'not unique'),
  defaultValue: (value: string | null) => (value === null ? 'no default' : `default ${value}`),
  generate: (generator: string | null) =>
    generator === null ? 'not generated' : `generated: ${generator}`,
  computed: (expression: string) => `computed: ${expression}`,
  description: (text: string | null) => (text === null ? 'no description' : 'description'),
  fillNulls: (isFilled: boolean) => (isFilled ? 'empty records get the default' : undefined),
}

function describeChanges(changes: ColumnChanges): string {
  return Object.entries(changes)
    .map(([field, value]) => CHANGE_WORDS[field as keyof ColumnChanges]?.(value as never) ?? field)
    .join(', ')
}

/** Describes values that would be lost. */
export function describeLoss({ table, column, records, more }: DataLoss): string {
  const amount = `${more ? 'at least ' : ''}${records.toLocaleString()} ${records === 1 ? 'record' : 'records'}`
  return column === undefined
    ? `Table ${table}: ${amount}`
    : `Column ${table}.${column}: the values of ${amount}`
}

/** Describes the rule of a constraint in words. */
function describeConstraint(constraint: ConstraintDefinition): string {
  return 'unique' in constraint
    ? `unique ${constraint.unique.join(', ')}`
    : `check ${constraint.check}`
}
