import type { Transaction } from '../../postgres/run-transaction.js'
import {
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import type { MergePlan } from './merge-plan.js'

/**
 * Joins the sequences of tables and columns that the merge has found to be the same, or that a revert has brought back. They
 * go on after the numbers that the merge has brought from a side on which they have none of a sequence, or from resolutions.
 * `rows` are those of the target after the merge, and `before` is its schema before it.
 */
export async function joinSequences(
  transaction: Transaction,
  plan: Pick<MergePlan, 'schema' | 'theirs' | 'restored' | 'decisions' | 'limits'>,
  { rows, before }: { rows: BranchRows; before: StoredSchema },
): Promise<void> {
  const { schema, restored, limits } = plan
  const state = new RowState(rows)
  const known = new Set((before.sameIds ?? []).map(String))
  const sameIds = (schema.sameIds ?? []).filter((ids) => !known.has(String(ids)))
  const joined = new Map<number, number[]>()
  for (const ids of [...sameIds, ...restored]) {
    for (const id of ids) joined.set(id, [...(joined.get(id) ?? []), ...ids])
  }
  const sequences: { itemIds: number[]; above: number }[] = []
  const add = (id: number, above: number) => {
    sequences.push({ itemIds: [...new Set([id, ...(joined.get(id) ?? [])])], above })
  }
  for (const table of schema.tables) {
    if (table.idType === 'int') add(table.id, 0)
    for (const column of table.columns) {
      if (column.generate !== 'sequence') continue
      const given = plan.decisions.greatestOf(column.id)
      const isNew = [before, plan.theirs.schema].some((side) =>
        hasOtherNumbers(side, { table, column }),
      )
      const stored = isNew ? await state.findGreatest(transaction, { table, column, limits }) : 0
      add(column.id, Math.max(given, stored))
    }
  }
  await state.continueSequences(transaction, sequences)
}

/** Returns whether a column of a side has values, but none from a sequence. */
function hasOtherNumbers(
  { tables }: StoredSchema,
  { table, column }: { table: StoredTable; column: StoredColumn },
): boolean {
  const ids = [column, ...listOrigins(column)].map(({ id }) => id)
  const there = tables.find(({ id }) => id === table.id)?.columns
  const found = there?.find(({ id }) => ids.includes(id))
  return found !== undefined && found.generate !== 'sequence'
}
