import type { DataLoss } from '@offshoot/contract/data-loss'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { Queryable } from '../../postgres/database.js'
import {
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'

/** Losses that the error message names. */
const MESSAGE_LOSSES_MAX = 5
/** Losses that the error body lists. */
const LOSSES_LISTED_MAX = 100

/** A table that is removed, or the removed columns of a table. */
export interface Removal {
  readonly table: StoredTable
  /** Undefined if the whole table is removed. */
  readonly columns: readonly StoredColumn[] | undefined
}

/** Lists the tables and columns that the later schema lacks. They are compared by id, not by name. */
export function listRemovals(before: StoredSchema, after: StoredSchema): Removal[] {
  const kept = new Map(after.tables.map((table) => [table.id, table]))
  return before.tables.flatMap((table): Removal[] => {
    const remaining = kept.get(table.id)
    if (remaining === undefined) return [{ table, columns: undefined }]
    // The values of a column that another one was made of are those of the other one.
    const ids = new Set(
      remaining.columns.flatMap((column) => [column, ...listOrigins(column)].map(({ id }) => id)),
    )
    // A computed column has no values of its own.
    const columns = table.columns.filter((column) => !ids.has(column.id) && !column.computed)
    return columns.length === 0 ? [] : [{ table, columns }]
  })
}

/** Lists what an edit removes, without the columns whose values an expression makes new ones of. */
export function listLost(before: StoredSchema, after: StoredSchema): Removal[] {
  const columns = after.tables.flatMap((table) => table.columns)
  const replaced = new Set(columns.flatMap((column) => column.replaced ?? []))
  return withoutColumns(listRemovals(before, after), ({ id }) => replaced.has(id))
}

/** Leaves out the removed columns whose values are not lost. */
export function withoutColumns(
  removals: readonly Removal[],
  isKept: (column: StoredColumn, table: StoredTable) => boolean,
): Removal[] {
  return removals.flatMap(({ table, columns }): Removal[] => {
    const lost = columns?.filter((column) => !isKept(column, table))
    return lost?.length === 0 ? [] : [{ table, columns: lost }]
  })
}

export function removesAnything(operations: readonly SchemaOperation[]): boolean {
  return operations.some((operation) => 'removeTable' in operation || 'removeColumn' in operation)
}

/**
 * Counts the records of the branch that would lose values. At most `dataLossRecordsMax` records of a
 * table are read, so the cost does not grow with the table. If the table has more, each removal counts
 * as a loss, even if no record that was read has a value.
 */
export async function measureLoss(
  database: Queryable,
  rows: BranchRows,
  options: { removals: readonly Removal[]; limits: Limits },
): Promise<DataLoss[]> {
  const losses: DataLoss[] = []
  for (const removal of options.removals) {
    losses.push(...(await measureRemoval(database, rows, { removal, limits: options.limits })))
  }
  return losses
}

async function measureRemoval(
  database: Queryable,
  rows: BranchRows,
  options: { removal: Removal; limits: Limits },
): Promise<DataLoss[]> {
  const { limits } = options
  const { dataLossRecordsMax } = limits
  const { table, columns = [] } = options.removal
  const counted = await new RowState(rows).countValues(database, {
    table,
    columns,
    limits,
    // One row beyond the limit shows that there are more.
    rowsMax: dataLossRecordsMax + 1,
  })
  const more = counted.rows > dataLossRecordsMax
  const toLoss = (count: number | undefined, column?: string): DataLoss[] => {
    const records = Math.min(count ?? 0, dataLossRecordsMax)
    if (records === 0 && !more) return []
    return [{ table: table.name, ...(column === undefined ? {} : { column }), records, more }]
  }
  if (options.removal.columns === undefined) return toLoss(counted.rows)
  return columns.flatMap(({ name }, index) => toLoss(counted.values[index], name))
}

/** The error for a request that would lose data and does not set `allowDataLoss`. */
export function dataLossError(losses: readonly DataLoss[]): AppError {
  const shown = losses.slice(0, MESSAGE_LOSSES_MAX).map(describeLoss)
  const rest = losses.length - shown.length
  if (rest > 0) shown.push(`and ${rest} more`)
  return new AppError(
    'data_loss',
    `data would be lost: ${shown.join('; ')}. Nothing was changed. Set [allowDataLoss] to true to ` +
      'allow the loss, or rename instead of removing and adding',
    { details: { dataLoss: losses.slice(0, LOSSES_LISTED_MAX) } },
  )
}

function describeLoss({ table, column, records, more }: DataLoss): string {
  const place = column === undefined ? `table [${table}]` : `table [${table}]: column [${column}]`
  if (records === 0) return `${place}: possibly; it has more records than were counted`
  const count = `${more ? 'at least ' : ''}${records} ${records === 1 ? 'record' : 'records'}`
  return column === undefined ? `${place}: ${count}` : `${place}: ${count} with a value`
}
