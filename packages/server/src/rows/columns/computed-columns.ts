import { LIMITS } from '@offshoot/contract/limits'
import {
  columnIdsIn,
  type ExpressionParts,
  expressionSql,
  type RowExpression,
  type StoredParts,
  shownParts,
  toParts,
} from '../../dialect/row-expression.js'
import { join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { slot } from '../../postgres/statement.js'
import { COLUMN_TYPE_ENTRIES } from './column-types.js'
import { fitsPrecision, isValueOf } from './conversions.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredConstraint,
  type StoredTable,
} from './stored-schema.js'
import { UNIQUE_BYTES_MAX } from './text-types.js'
import { inRangeSql, wholeRange } from './whole-numbers.js'

/*
 * The value of a computed column is not stored. Statements have its expression where they would name the column of
 * another one. A check on the heap makes sure that the expression has a value for each row, which reading it therefore
 * never fails to calculate.
 */

export type ComputedColumn = StoredColumn & { readonly computed: RowExpression }

export function isComputed(column: StoredColumn): column is ComputedColumn {
  return column.computed !== undefined
}

/** Returns SQL for the value of a computed column of a table. `columnSql` returns an expression for a column, by its id. */
export function computedSql(
  column: ComputedColumn,
  { columns }: Pick<StoredTable, 'columns'>,
  columnSql: (id: number) => Sql,
): Sql {
  const value = sql`(${expressionSql(asStored(column.computed.sql, columns), columnSql)})`
  const { sqlType } = COLUMN_TYPE_ENTRIES[column.type]
  if (column.type === 'datetime' && !column.computed.isOnce && usesZoneless(column, columns)) {
    // A time with or without a zone, by operators that do not look at the zone of the session.
    return sql`((timestamp 'epoch' + (${value} - 'epoch')) at time zone 'UTC')`
  }
  if (column.type !== 'decimal') return sql`(${value}::${raw(sqlType)})`
  return sql`round(${value}::numeric, ${raw(String(column.decimal?.scale ?? 0))})`
}

function usesZoneless({ computed }: ComputedColumn, columns: readonly StoredColumn[]): boolean {
  const ids = new Set(columnIdsIn(computed.sql))
  return listAllColumns(columns).some(({ id, withoutZone }) => withoutZone && ids.has(id))
}

/**
 * Returns an expression for columns as they are stored. Links and enums are stored as texts, and all times with a zone. In
 * expressions, as in statements, links have the type of the ids, values of an enum the order of its list, and times without
 * a zone none.
 */
function asStored(parts: StoredParts, columns: readonly StoredColumn[]): ExpressionParts {
  const byId = new Map(listAllColumns(columns).map((column) => [column.id, column]))
  return parts.flatMap((part): ExpressionParts => {
    if (typeof part === 'string') return [part]
    if (typeof part === 'number') {
      const { link, withoutZone } = byId.get(part) ?? {}
      if (withoutZone) return ['(', part, ` at time zone 'UTC')`]
      const type = link?.idType
      return type === undefined ? [part] : ['(', part, `)::${LINK_TYPES[type]}`]
    }
    const list = byId.get(part.placeIn)?.enum
    // Without the column, the expression is not used.
    if (list === undefined) return [part.placeIn]
    if (part.value !== undefined) return [String(list.values.indexOf(part.value) + 1)]
    const values = sql`array[${join(list.values.map(literal), ', ')}]::pg_catalog.text[]`
    return toParts(sql`pg_catalog.array_position(${values} collate pg_catalog."C", `)
  })
}

/** Returns SQL for the value of a computed column, for columns with the types that are shown. */
export function shownComputedSql(column: ComputedColumn, columnSql: (id: number) => Sql): Sql {
  const { computed } = column
  const shown = { ...computed, sql: shownParts(computed.sql) }
  return computedSql({ ...column, computed: shown }, { columns: [] }, columnSql)
}

const LINK_TYPES = { int: 'bigint', uuid: 'uuid' } as const

/** A check of rows, as a condition over columns. */
export interface StoredCheck {
  readonly id: number
  readonly name: string
  readonly expression: ExpressionParts
  /** The computed column whose values are checked. undefined: the check is a constraint. */
  readonly computed?: ComputedColumn
}

/** Lists the checks of a table: its constraints, and that its computed columns have values of their types. */
export function listStoredChecks(
  table: Pick<StoredTable, 'columns' | 'constraints'>,
): StoredCheck[] {
  const { columns, constraints = [] } = table
  return [
    ...constraints.flatMap((constraint) => checkOf(constraint, table) ?? []),
    ...columns.filter(isComputed).map((column) => checkOfComputed(column, table)),
  ]
}

export function checkOf(
  constraint: StoredConstraint,
  { columns }: Pick<StoredTable, 'columns'>,
): StoredCheck | undefined {
  if (!('check' in constraint)) return undefined
  const { id, name, check } = constraint
  return { id, name, expression: asStored(check.sql, columns) }
}

export function checkOfComputed(
  column: ComputedColumn,
  table: Pick<StoredTable, 'columns'>,
): StoredCheck {
  const { id, name, notNull } = column
  const value = computedSql(column, table, (columnId) => sql`${slot(columnId)}`)
  // The count of nulls has a result for any value, so it makes PostgreSQL calculate the value.
  const isCalculated = notNull ? sql`num_nulls(${value}) = 0` : sql`num_nulls(${value}) >= 0`
  const fits = fitsColumn(value, column)
  const condition = fits === undefined ? isCalculated : sql`${isCalculated} and ${fits}`
  return { id, name, expression: toParts(condition), computed: column }
}

/**
 * Returns the condition that a value is one that a column can have. undefined: all values of its SQL type are. Only values that
 * are going to be stored can have a size or be unique.
 */
function fitsColumn(value: Sql, column: ComputedColumn): Sql | undefined {
  const { bits, maxLength, unique } = column
  const conditions = [
    fitsType(value, column),
    bits && inRangeSql(value, wholeRange(bits)),
    maxLength === undefined ? undefined : sql`char_length(${value}) <= ${raw(String(maxLength))}`,
    unique && column.type === 'string'
      ? sql`octet_length(${value}) <= ${raw(String(UNIQUE_BYTES_MAX))}`
      : undefined,
  ].filter((condition) => condition !== undefined)
  return conditions.length === 0 ? undefined : join(conditions, ' and ')
}

function fitsType(value: Sql, column: ComputedColumn): Sql | undefined {
  switch (column.type) {
    case 'int':
      return sql`abs(${value}) <= ${raw(String(Number.MAX_SAFE_INTEGER))}`
    case 'float':
      // Infinity and NaN have no form in JSON. NaN is larger than any other number.
      return sql`abs(${value}) < 'Infinity'::double precision`
    case 'decimal':
      return fitsPrecision(value, column)
    case 'string':
      return sql`char_length(${value}) <= ${raw(String(LIMITS.stringLengthMax))}`
    case 'text':
      return sql`octet_length(${value}) <= ${raw(String(LIMITS.recordBytesMax))}`
    case 'date':
      return sql`${value} between '0001-01-01'::date and '9999-12-31'::date`
    case 'datetime':
      return sql`${value} >= '0001-01-01T00:00:00Z'::timestamptz and ${value} < '10000-01-01T00:00:00Z'::timestamptz`
    case 'enum':
      return isValueOf(value, column)
    case 'time':
      return sql`${value} < '24:00:00'::time`
    default:
      return undefined
  }
}

/** Returns the ids of the constraints that only the later version of a table has, and of its new or changed checks. */
export function listNewRules(before: StoredTable | undefined, after: StoredTable): number[] {
  const checks = new Map(
    listStoredChecks(before ?? { columns: [] }).map(({ id, expression }) => [
      id,
      expression.join(),
    ]),
  )
  const keys = new Set((before?.constraints ?? []).map(({ id }) => id))
  return [
    ...listStoredChecks(after)
      .filter(({ id, expression }) => checks.get(id) !== expression.join())
      .map(({ id }) => id),
    ...(after.constraints ?? [])
      .filter((constraint) => 'unique' in constraint && !keys.has(constraint.id))
      .map(({ id }) => id),
  ]
}
