import type { Transaction } from '../../postgres/run-transaction.js'
import { compileTable, type StoredTable } from '../../rows/columns.js'
import {
  checkTable,
  createStage,
  type Stage,
  type StagedTable,
  stageTable,
  type TableBase,
  TEMPORARY_STAGE,
} from '../../rows/merge.js'
import type { BranchState } from './branch-state.js'
import { type Base, baseOfTable } from './merge-base.js'
import {
  ConflictList,
  describeClash,
  describeConflicts,
  describeMissing,
  type MergeConflict,
} from './merge-conflicts.js'
import type { MergePlan } from './merge-plan.js'

/** The staged effect of a merge, and the conflicts that prevent it. */
export interface MergeComparison {
  readonly tables: readonly (StagedTable & { readonly name: string })[]
  readonly conflicts: readonly MergeConflict[]
  /** Number of all conflicts. `conflicts` lists only the first ones. */
  readonly conflictCount: number
}

/**
 * Compares the rows of all tables and stages the changes, then looks for conflicts in the outcome. All
 * conflicts are found at once: those of the schemas, of rows, and of unique and not-null columns.
 */
export async function compareMerge(
  transaction: Transaction,
  plan: MergePlan,
  stage: Stage = TEMPORARY_STAGE,
): Promise<MergeComparison> {
  const conflicts = new ConflictList(plan.conflicts)
  const tables: (StagedTable & { name: string })[] = []
  if (plan.isComparable) {
    await createStage(transaction, stage)
    for (const table of plan.schema.tables) {
      const staged = await compareTable(transaction, { plan, table, conflicts, stage })
      if (staged !== undefined) tables.push({ ...staged, name: table.name })
    }
  }
  return { tables, conflicts: conflicts.listed, conflictCount: conflicts.count }
}

/** Stages the rows of a table. Returns undefined if the merged branch cannot have changed any. */
async function compareTable(
  transaction: Transaction,
  options: { plan: MergePlan; table: StoredTable; conflicts: ConflictList; stage: Stage },
): Promise<StagedTable | undefined> {
  const { plan, table, conflicts, stage } = options
  const { mode, strategy } = plan.ruleOf(table.id)
  if (mode === 'skip') return undefined
  const codec = compileTable(table, { limits: plan.limits, jsonAsText: false })
  const ours = { rows: plan.ours.rows, table: tableOf(plan.ours, table) }
  const theirTable = mode === 'merge' ? tableOf(plan.theirs, table) : undefined
  const base = baseOfTable(plan.bases, table.id)
  const staged =
    theirTable === undefined
      ? undefined
      : await stageTable(transaction, {
          codec,
          base: {
            states: base.states.map((state) => ({
              rows: state.rows,
              table: tableOf(state, table),
            })),
            rowOf: base.rowOf,
          },
          theirs: { rows: plan.theirs.rows, table: theirTable },
          ours,
          strategy,
          stage,
        })
  if (staged !== undefined) {
    const { merge: sides, conflicts: rows } = staged
    const described = describeConflicts(transaction, { codec, sides, conflicts: rows })
    await conflicts.add(described, staged.tally.conflictCount)
  }
  const { clashes, missing } = await checkTable(transaction, {
    codec,
    ours,
    staged: staged?.staged,
  })
  await conflicts.add(
    clashes.listed.map((clash) => describeClash(codec, clash)),
    clashes.count,
  )
  await conflicts.add(
    missing.map((values) => describeMissing(codec, values)),
    missing.length,
  )
  return staged
}

export function tableOf({ schema }: BranchState, { id }: StoredTable): StoredTable | undefined {
  return schema.tables.find((table) => table.id === id)
}

/** Returns the base of one table. */
export function tableBase({ states, rowOf }: Base, table: StoredTable): TableBase {
  return {
    states: states.map((state) => ({ rows: state.rows, table: tableOf(state, table) })),
    rowOf,
  }
}
