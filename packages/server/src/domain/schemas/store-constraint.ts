import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Constraint } from '@offshoot/contract/schema'
import type { EnumType } from '../../dialect/declared-types.js'
import {
  bindRowExpression,
  columnIdsIn,
  expressionText,
  type ParsedExpressions,
  type RowExpression,
} from '../../dialect/row-expression.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from '../../rows/columns/column-types.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import { checkName } from './check-name.js'

export type StoredConstraint = NonNullable<StoredTable['constraints']>[number]

/** What the definition of a constraint refers to. */
interface ConstraintContext {
  readonly id: number
  /** The name of the table. */
  readonly table: string
  readonly columns: readonly StoredColumn[]
  readonly limits: Limits
  readonly expressions: ParsedExpressions | undefined
}

/** Converts a constraint into the form that is stored. Throws if it is invalid. */
export function storeConstraint(
  constraint: Constraint,
  context: ConstraintContext,
): StoredConstraint {
  const { id, table, limits } = context
  const { name } = constraint
  const invalid = (fault: string) =>
    new AppError('invalid_schema', `table [${table}]: constraint [${name}]: ${fault}`)
  const nameFault = checkName(name, limits)
  if (nameFault !== undefined) throw invalid(nameFault)
  if ('unique' in constraint === 'check' in constraint) {
    throw invalid('exactly one of [unique] and [check] is required')
  }
  const { index: isIndex = false } = constraint
  if (isIndex && !('unique' in constraint)) throw invalid('[index] is for [unique] only')
  try {
    return 'unique' in constraint
      ? {
          ...{ id, name, unique: uniqueColumns(constraint.unique, context) },
          ...(isIndex && { index: true }),
        }
      : { id, name, check: bindCheck(constraint.check, context) }
  } catch (error) {
    throw error instanceof AppError ? invalid(error.message) : error
  }
}

interface PlacedColumn {
  readonly path: string
  readonly column: StoredColumn
}

/** Lists columns and those nested in them, with their dotted paths. */
function listPaths(columns: readonly StoredColumn[], prefix = ''): PlacedColumn[] {
  return columns.flatMap((column) => {
    const path = `${prefix}${column.name}`
    return [{ path, column }, ...listPaths(column.columns ?? [], `${path}.`)]
  })
}

function uniqueColumns(
  paths: readonly string[],
  { columns, limits }: ConstraintContext,
): readonly number[] {
  const { constraintColumnsMax } = limits
  if (paths.length === 0 || paths.length > constraintColumnsMax) {
    throw fault(`a unique constraint has 1 to ${constraintColumnsMax} columns`)
  }
  if (new Set(paths).size < paths.length) throw fault('a column is listed twice')
  const placed = listPaths(columns)
  return paths.map((path) => {
    const column = placed.find((each) => each.path === path)?.column
    if (column === undefined) throw fault(`column [${path}]: column not found`)
    if (column.computed) throw fault(`column [${path}]: a computed column cannot be unique`)
    if (!canBeUnique(column)) {
      throw fault(`column [${path}]: a column of type [${column.type}] cannot be unique`)
    }
    return column.id
  })
}

const canBeUnique = ({ type }: StoredColumn): boolean =>
  COLUMN_TYPE_ENTRIES[type].allows.index && type !== 'vector'

/** Returns a constraint that uses a column as it used the one that the column was made of. */
export function carryConstraint(
  constraint: StoredConstraint,
  { id, before, column }: { id: number; before: StoredColumn; column: StoredColumn },
): StoredConstraint | { readonly fault: string } {
  if ('unique' in constraint && !canBeUnique(column)) {
    return {
      fault: `a column of type [${column.type}] cannot be unique, as constraint [${constraint.name}] requires`,
    }
  }
  const idOf = (each: number) => (each === before.id ? column.id : each)
  return { ...withColumnIds(constraint, idOf), id }
}

/** Returns a constraint with other ids of its columns. */
export function withColumnIds(
  constraint: StoredConstraint,
  idOf: (id: number) => number,
): StoredConstraint {
  if ('unique' in constraint) return { ...constraint, unique: constraint.unique.map(idOf) }
  return { ...constraint, check: withIds(constraint.check, idOf) }
}

/** Returns a column that uses other ids of the columns that it is computed of. */
export function withUsedIds(column: StoredColumn, idOf: (id: number) => number): StoredColumn {
  return column.computed === undefined
    ? column
    : { ...column, computed: withIds(column.computed, idOf) }
}

function withIds(
  { text, sql, values }: RowExpression,
  idOf: (id: number) => number,
): RowExpression {
  return {
    text: text.map((part) => (typeof part === 'number' ? idOf(part) : part)),
    sql: sql.map((part) =>
      typeof part === 'string'
        ? part
        : typeof part === 'number'
          ? idOf(part)
          : { ...part, placeIn: idOf(part.placeIn) },
    ),
    ...(values && {
      values: values.map(({ column, value }) => ({ column: idOf(column), value })),
    }),
  }
}

function bindCheck(text: string, context: ExpressionContext): RowExpression {
  const check = bindExpression(text, context)
  if (columnIdsIn(check.sql).length === 0) throw fault('the check uses no column')
  return check
}

/** Converts the expression of a computed column. */
export function bindComputed(text: string, context: ExpressionContext): RowExpression {
  const computed = bindExpression(text, context)
  if (columnIdsIn(computed.sql).length === 0) throw fault('the expression uses no column')
  return computed
}

/** What the columns of an expression are found by. */
type ExpressionContext = Pick<ConstraintContext, 'columns' | 'expressions'>

/** Converts an expression over the columns of a record into the form that is stored. Throws if it is invalid. */
export function bindExpression(
  text: string,
  { columns, expressions }: ExpressionContext,
  options: Parameters<typeof bindRowExpression>[2] = {},
): RowExpression {
  const parsed = expressions?.get(text)
  if (parsed === undefined) throw new Error('expressions are parsed before they are applied')
  if (parsed instanceof AppError) throw parsed
  const known = listPaths(columns).filter(
    ({ column }) => column.type !== 'object' && !isFileType(column.type),
  )
  const bound = bindRowExpression(
    parsed,
    known.map(({ path, column }) => ({
      id: column.id,
      name: path,
      bytesMax: valueBytesMax(column),
      isText: TEXT_TYPES.has(column.type),
      enum: enumOf(column),
    })),
    options,
  )
  const used = new Set(columnIdsIn(bound.sql))
  const computed = columns.find((column) => column.computed && used.has(column.id))
  if (computed === undefined) return bound
  throw fault(`column [${computed.name}] is computed; use its expression instead`)
}

const TEXT_TYPES: ReadonlySet<StoredColumn['type']> = new Set([
  ...(['string', 'text', 'email', 'enum', 'link'] as const),
])

/** Errors name the column, because the type of an enum can have the name of the table, which can change. */
export const enumOf = ({
  name,
  enum: list,
}: Pick<StoredColumn, 'name' | 'enum'>): EnumType | undefined =>
  list && { kind: 'enum', name: list.type ?? name, values: list.values }

/** The size of a value that is neither a text nor a `decimal`. Two digits of a `decimal` take a byte. */
const SMALL_BYTES = 16

/** Returns the largest size of the values of a column, if its type is one to calculate with. */
function valueBytesMax({ type, decimal }: StoredColumn): number | undefined {
  switch (type) {
    case 'decimal':
      return SMALL_BYTES + Math.ceil((decimal?.precision ?? 0) / 2)
    case 'bool':
    case 'int':
    case 'float':
    case 'date':
    case 'datetime':
    case 'time':
    case 'uuid':
      return SMALL_BYTES
    default:
      return undefined
  }
}

function fault(message: string): AppError {
  return new AppError('invalid_schema', message)
}

/** Returns the ids of the columns that a constraint uses. */
export function columnIdsOf(constraint: StoredConstraint): readonly number[] {
  return 'unique' in constraint ? constraint.unique : columnIdsIn(constraint.check.sql)
}

/** Returns the ids of the columns that a computed column uses. Others use none. */
export function columnIdsUsedBy({ computed }: StoredColumn): readonly number[] {
  return computed === undefined ? [] : columnIdsIn(computed.sql)
}

export type TableOfExpressions = Pick<StoredTable, 'name' | 'columns' | 'constraints'>

/** Lists the expressions of a table as their texts. */
export function listExpressions({
  columns,
  constraints = [],
}: TableOfExpressions): ({ check: string } | { computed: string })[] {
  const nameOf = pathsOf(columns)
  return [
    ...constraints.flatMap((each) =>
      'check' in each ? { check: expressionText(each.check.text, nameOf) } : [],
    ),
    ...columns.flatMap(({ computed }) =>
      computed ? { computed: expressionText(computed.text, nameOf) } : [],
    ),
  ]
}

/** Characters of the lists of the enums whose values an expression compares by their places. */
const LISTS_LENGTH_MAX = 256 * 1024

/** Returns why a constraint or a computed column of a table does not allow the values that its enums have. */
export function enumFault({
  columns,
  constraints = [],
}: Pick<StoredTable, 'columns' | 'constraints'>): string | undefined {
  const users = [
    ...constraints.flatMap((each) =>
      'check' in each ? { user: `constraint [${each.name}]`, ...each.check } : [],
    ),
    ...columns.flatMap(({ name, computed }) =>
      computed ? { user: `computed column [${name}]`, ...computed } : [],
    ),
  ]
  const find = (id: number): Partial<PlacedColumn> =>
    listPaths(columns).find(({ column }) => column.id === id) ?? {}
  for (const { user, ...expression } of users) {
    for (const { column: id, value } of expression.values ?? []) {
      const { path, column } = find(id)
      if (column?.enum === undefined || column.enum.values.includes(value)) continue
      return `column [${path}]: its value [${value}] is used by ${user}; change that first`
    }
    const lengths = expression.sql.map((part) => {
      const id = typeof part === 'object' && part.value === undefined ? part.placeIn : undefined
      const { column } = id === undefined ? {} : find(id)
      return column?.enum === undefined ? 0 : JSON.stringify(column.enum.values).length
    })
    if (lengths.reduce((sum, length) => sum + length, 0) > LISTS_LENGTH_MAX) {
      return `${user} compares too many values of enums by their order`
    }
  }
  return undefined
}

/** Throws if a constraint or a computed column uses a column that the table does not have any more. */
export function requireColumns(
  table: StoredTable,
  constraints: readonly StoredConstraint[],
  before: readonly StoredColumn[],
): void {
  const users = [
    ...constraints.map((each) => ({
      kind: 'constraint',
      name: each.name,
      uses: columnIdsOf(each),
    })),
    ...table.columns
      .filter(({ computed }) => computed)
      .map((each) => ({ kind: 'computed column', name: each.name, uses: columnIdsUsedBy(each) })),
  ]
  if (users.length === 0) return
  const ids = new Set(listAllColumns(table.columns).map(({ id }) => id))
  for (const { kind, name, uses } of users) {
    const missing = uses.find((id) => !ids.has(id))
    if (missing === undefined) continue
    const path = listPaths(before).find(({ column }) => column.id === missing)?.path
    throw fault(
      `table [${table.name}]: column [${path}]: is used by ${kind} [${name}]; ` +
        `remove that ${kind} first or in the same edit`,
    )
  }
}

/** Converts a constraint into the form that clients read. */
export function toPublicConstraint(
  constraint: StoredConstraint,
  columns: readonly StoredColumn[],
): Constraint {
  const pathOf = pathsOf(columns)
  const { name } = constraint
  return 'unique' in constraint
    ? {
        name,
        unique: constraint.unique.map(pathOf),
        ...(constraint.index && { index: true }),
      }
    : { name, check: expressionText(constraint.check.text, pathOf) }
}

/** Returns a function that returns the dotted path of a column, by its id. */
export function pathsOf(columns: readonly StoredColumn[]): (id: number) => string {
  const paths = new Map(listPaths(columns).map(({ path, column }) => [column.id, path]))
  return (id) => {
    const path = paths.get(id)
    if (path === undefined) throw new Error(`an expression uses column ${id}, which is not there`)
    return path
  }
}

export function constraintNotFound(table: string, name: string): AppError {
  return new AppError(
    'constraint_not_found',
    `table [${table}]: constraint [${name}]: constraint not found`,
  )
}
