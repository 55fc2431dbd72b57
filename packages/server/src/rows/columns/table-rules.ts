import { columnIdsIn, expressionSql } from '../../dialect/row-expression.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from './column-tree.js'
import { listStoredChecks, type StoredCheck } from './computed-columns.js'
import { listKeyColumns, type StoredColumn, type StoredTable } from './stored-schema.js'

/** Columns whose values together belong to one row only. A unique column is a key of one column. */
export interface UniqueKey {
  /** The id of the column or the constraint. The names of its indexes contain it. */
  readonly id: number
  /** The name of the constraint. undefined: the key is a unique column. */
  readonly name: string | undefined
  /** Clients of PostgreSQL see an index instead of a constraint. */
  readonly isIndex: boolean
  /** Indexes into the physical columns. */
  readonly columns: readonly number[]
}

/** A condition that no row fails. */
export interface CheckRule extends StoredCheck {
  /** Indexes into the physical columns. */
  readonly columns: readonly number[]
}

/** A column whose linked records must exist. */
export interface LinkRule {
  /** The id of the column. */
  readonly id: number
  readonly name: undefined
  /** Its index among the physical columns. */
  readonly column: number
  readonly columns: readonly [number]
  /** The linked table. */
  readonly tableId: number
  readonly onDelete: NonNullable<StoredColumn['onDelete']>
}

export function listRequiredLinks(physical: readonly PhysicalColumn[]): LinkRule[] {
  return physical.flatMap(({ id, column: { link, onDelete } }, index): LinkRule[] => {
    if (link === undefined || onDelete === undefined) return []
    const { tableId } = link
    return [{ id, name: undefined, column: index, columns: [index], tableId, onDelete }]
  })
}

export function listKeys(table: StoredTable, physical: readonly PhysicalColumn[]): UniqueKey[] {
  const { constraints = [] } = table
  const byId = new Map(constraints.map((each) => [each.id, each]))
  return [...listKeyColumns(table)].flatMap(([id, ids]): UniqueKey[] => {
    const columns = indexesOf(ids, physical)
    if (columns === undefined) return []
    const constraint = byId.get(id)
    const isIndex = constraint !== undefined && 'unique' in constraint && constraint.index === true
    return [{ id, name: constraint?.name, isIndex, columns }]
  })
}

export function listChecks(table: StoredTable, physical: readonly PhysicalColumn[]): CheckRule[] {
  return listStoredChecks(table).flatMap((check): CheckRule[] => {
    const columns = indexesOf(columnIdsIn(check.expression), physical)
    return columns === undefined ? [] : [{ ...check, columns }]
  })
}

/** Returns undefined if one of the columns is missing: a table may be compiled with some of its columns. */
function indexesOf(
  ids: readonly number[],
  physical: readonly PhysicalColumn[],
): number[] | undefined {
  const indexes = ids.map((id) => physical.findIndex((column) => column.id === id))
  return indexes.includes(-1) ? undefined : indexes
}

/** Returns the condition that a row fails the check. A check whose result is unknown is not failed. */
export function failsCheck(
  { expression }: Pick<StoredCheck, 'expression'>,
  columnSql: (id: number) => Sql,
): Sql {
  return sql`(${expressionSql(expression, columnSql)}) is false`
}
