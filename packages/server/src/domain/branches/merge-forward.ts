import type { Transaction } from '../../postgres/run-transaction.js'
import { compileTable } from '../../rows/columns.js'
import { forwardTables, type UnstagedTable } from '../../rows/merge.js'
import { storageChanges } from '../schemas/compare-schemas-by-id.js'
import { ConflictList } from './conflict-list.js'
import { baseOfTable, tableOf } from './merge-base.js'
import type { MergeEffect } from './merge-compare.js'
import type { MergePlan } from './merge-plan.js'

/**
 * Merges the rows without staging them, if the schema of the target stays and the target has not changed any of
 * them since the base. Returns undefined, and has no effect, for all other merges.
 */
export async function forwardMerge(
  transaction: Transaction,
  plan: MergePlan,
): Promise<MergeEffect | undefined> {
  const tables = listUnstaged(plan)
  if (tables === undefined) return undefined
  const merged = await forwardTables(transaction, tables, plan.ours.rows)
  return (
    merged && {
      tables: merged.map(({ codec, tally }) => ({ name: codec.table.name, tally })),
      conflicts: new ConflictList(plan.page),
    }
  )
}

/** Lists the tables whose rows are merged. Returns undefined if one of them has to be staged. */
function listUnstaged(plan: MergePlan): UnstagedTable[] | undefined {
  const { ours, theirs, ids, schema, operations, conflicts, resolutions, limits } = plan
  const isPlain = operations.length + conflicts.length + resolutions.length === 0 && !ids.isNew
  if (!isPlain || storageChanges(ours.schema, schema).length > 0) return undefined
  const unstaged: UnstagedTable[] = []
  for (const table of schema.tables) {
    if (plan.ruleOf(table.id).mode !== 'merge') continue
    const [here, there] = [tableOf(ours, table), tableOf(theirs, table)]
    if (there === undefined) continue
    const [base, ...others] = baseOfTable(plan.bases, table.id).states
    const before = base && tableOf(base, table)
    const columns = JSON.stringify(table.columns)
    const isSame = [here, there, before].every(
      (other) => other !== undefined && JSON.stringify(other.columns) === columns,
    )
    if (base === undefined || others.length > 0 || !isSame) return undefined
    unstaged.push({
      codec: compileTable(table, { limits, jsonAsText: false }),
      base: { rows: base.rows, table: before },
      theirs: { rows: theirs.rows, table: there },
      ours: { rows: ours.rows, table: here },
    })
  }
  return unstaged
}
