import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { compileTable, type StoredSchema } from '../../rows/columns.js'
import { countWritten } from '../../rows/merge.js'
import { listRemovals, type Removal } from '../schemas/data-loss.js'
import type { TableRule } from '../schemas/merge-schemas.js'
import type { BranchState } from './branch-state.js'
import type { Base } from './merge-base.js'

interface Sides {
  readonly ours: BranchState
  readonly theirs: BranchState
}

/**
 * Counts, for each table and column of the base that exactly one side has removed, the records that the
 * other side has changed there since the base. Returns the counts by the id of the table or column.
 */
export async function countContested(
  transaction: Queryable,
  options: Sides & {
    readonly baseSchema: StoredSchema
    baseOf(tableId: number): Base
    ruleOf(tableId: number): TableRule
    readonly limits: Limits
  },
): Promise<Map<number, number>> {
  const { ours, theirs, baseSchema, ruleOf } = options
  const counts = new Map<number, number>()
  const countOn = async (state: BranchState, removals: readonly Removal[]) => {
    for (const removal of removals) {
      const { table, columns } = removal
      const targets = columns ?? [table]
      for (const [index, { id }] of targets.entries()) {
        const written = columns === undefined ? table.columns : columns.slice(index, index + 1)
        const base = options.baseOf(table.id)
        const stored = (schema: StoredSchema) =>
          schema.tables.find((known) => known.id === table.id)
        const records = await countWritten(transaction, {
          codec: compileTable(
            { ...table, columns: written },
            { limits: options.limits, jsonAsText: false },
          ),
          base: {
            states: base.states.map(({ rows, schema }) => ({ rows, table: stored(schema) })),
            rowOf: base.rowOf,
          },
          state: { rows: state.rows, table },
          // Inserted records without a value in a removed column lose nothing.
          counts: columns === undefined ? 'records' : 'values',
        })
        counts.set(id, records)
      }
    }
  }
  const isMerged = ({ table }: Removal) => ruleOf(table.id).mode !== 'skip'
  // With the mode `schema`, records of the merged branch are not merged, so they lose nothing.
  const areRowsMerged = ({ table }: Removal) => ruleOf(table.id).mode === 'merge'
  await countOn(ours, contested(baseSchema, ours.schema, theirs.schema).filter(isMerged))
  await countOn(theirs, contested(baseSchema, theirs.schema, ours.schema).filter(areRowsMerged))
  return counts
}

/** Lists the tables and columns of the base that one schema still has and the other has removed. */
function contested(base: StoredSchema, kept: StoredSchema, other: StoredSchema): Removal[] {
  const inBase = new Map(base.tables.map((table) => [table.id, table]))
  return listRemovals(kept, other).flatMap(({ table, columns }): Removal[] => {
    const before = inBase.get(table.id)
    if (before === undefined) return []
    if (columns === undefined) return [{ table, columns }]
    const known = new Set(before.columns.map(({ id }) => id))
    const removed = columns.filter(({ id }) => known.has(id))
    return removed.length === 0 ? [] : [{ table, columns: removed }]
  })
}
