import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import type { StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import { RowState } from '../../rows/row-state.js'
import type { BranchState } from '../branches/branch-state.js'
import { pairColumns } from '../schemas/alter-column.js'
import type { SchemaConflict, TableRule } from '../schemas/merge-schemas.js'

/*
 * One side may have changed the type of a column, and the other one its values. The values of both sides must convert to
 * the merged definition. Values of the same type, and those that are required or unique, are checked with the outcome.
 */

/** Finds columns with values, on one of the sides, that do not convert to the merged definition. */
export async function findUnfit(
  transaction: Queryable,
  options: {
    ours: BranchState
    theirs: BranchState
    merged: StoredSchema
    ruleOf(tableId: number): TableRule
    limits: Limits
  },
): Promise<SchemaConflict[]> {
  const conflicts: SchemaConflict[] = []
  const tables = new Map(options.merged.tables.map((table) => [table.id, table]))
  const checkSide = async (state: BranchState, name: string, modes: readonly string[]) => {
    for (const before of state.schema.tables) {
      const after = tables.get(before.id)
      if (after === undefined || !modes.includes(options.ruleOf(before.id).mode)) continue
      conflicts.push(...(await checkTable(transaction, { ...options, state, name, before, after })))
    }
  }
  await checkSide(options.ours, 'the target', ['merge', 'schema'])
  await checkSide(options.theirs, 'the merged branch', ['merge'])
  return conflicts
}

async function checkTable(
  transaction: Queryable,
  options: {
    state: BranchState
    name: string
    before: StoredTable
    after: StoredTable
    limits: Limits
  },
): Promise<SchemaConflict[]> {
  const { state, name, before, after, limits } = options
  const conflicts: SchemaConflict[] = []
  const successors = pairColumns(before.columns, after.columns)
  for (const column of before.columns) {
    const successor = successors.get(column.id)
    if (successor === undefined || successor.id === column.id) continue
    // Rules of values are judged by the outcome.
    const { notNull: _, unique: __, onDelete: ___, ...unruled } = successor
    const problems = await new RowState(state.rows).findProblems(transaction, {
      table: before,
      before: column,
      column: unruled,
      limits,
    })
    for (const { records, samples, kind } of problems) {
      const ids = samples.map(({ id }) => `[${id}]`).join(', ')
      const what =
        kind === 'conversion'
          ? `do not convert to [${successor.type}]`
          : 'are not among those that the merged column can have'
      conflicts.push({
        id: column.id,
        table: after.name,
        column: successor.name,
        message: `values of ${records} records of ${name} ${what}: ${ids}; change them first`,
        takes: [],
        records,
      })
    }
  }
  return conflicts
}
