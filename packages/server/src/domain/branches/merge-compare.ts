import type { Transaction } from '../../postgres/run-transaction.js'
import { compileTable, type StoredTable } from '../../rows/columns.js'
import {
  createStage,
  findClashes,
  findMissing,
  type MergeTally,
  type Stage,
  type StagedTable,
  stageTable,
  temporaryStage,
} from '../../rows/merge.js'
import { ConflictList, type ConflictSection, placed, readList } from './conflict-list.js'
import { baseOfTable, tableBase, tableOf } from './merge-base.js'
import { describeClashes, describeConflicts, describeMissing } from './merge-conflicts.js'
import type { MergePlan } from './merge-plan.js'
import type { RecordResolution } from './resolutions.js'
import { TableResolutions } from './resolve-rows.js'

/** The effect of a merge, and the conflicts that prevent it. */
export interface MergeEffect {
  readonly tables: readonly { readonly name: string; readonly tally: MergeTally }[]
  readonly conflicts: Pick<ConflictList, 'listed' | 'count' | 'tables' | 'cursor'>
}

/** The staged effect of a merge. */
export interface MergeComparison extends MergeEffect {
  readonly tables: readonly (StagedTable & { readonly name: string })[]
}

/**
 * Compares the rows of all tables and stages the changes, then looks for conflicts in the outcome. All
 * conflicts are found at once: those of the schemas, of rows, and of unique and not-null columns.
 */
export async function compareMerge(
  transaction: Transaction,
  plan: MergePlan,
  stage: Stage = temporaryStage(transaction, plan.ours.rows.databaseId),
): Promise<MergeComparison> {
  const conflicts = new ConflictList(plan.page)
  for (const { table } of plan.conflicts) conflicts.add(table, 1)
  await conflicts.list({ tableId: 0, part: 'schema' }, readList(plan.conflicts))
  const tables: (StagedTable & { name: string })[] = []
  const { decisions } = plan
  if (plan.isComparable) {
    const sides = { ours: plan.ours.schema, theirs: plan.theirs.schema }
    const records = decisions.ofRecords(plan.schema, sides)
    await createStage(transaction, stage)
    for (const table of plan.schema.tables) {
      const requests = records.get(table.id) ?? []
      const staged = await compareTable(transaction, { plan, table, requests, conflicts, stage })
      if (staged === undefined) continue
      tables.push({ ...staged, name: table.name })
      if (staged.decidedByStrategy > 0) decisions.markTable(sides, table.id)
    }
    decisions.refuseUnused()
  }
  decisions.requireNoFaults()
  conflicts.requireStarted()
  return { tables, conflicts }
}

/** Stages the rows of a table. Returns undefined if the merged branch cannot have changed any. */
async function compareTable(
  transaction: Transaction,
  options: {
    plan: MergePlan
    table: StoredTable
    requests: readonly RecordResolution[]
    conflicts: ConflictList
    stage: Stage
  },
): Promise<StagedTable | undefined> {
  const { plan, table, requests, conflicts, stage } = options
  const { mode, strategy } = plan.ruleOf(table.id)
  if (mode === 'skip') {
    for (const { index } of requests) {
      plan.decisions.refuse(index, `table [${table.name}] is left out of the merge`)
    }
    return undefined
  }
  const codec = compileTable(table, { limits: plan.limits, jsonAsText: false })
  const resolutions = new TableResolutions(codec, requests, plan.decisions)
  const sides = { codec, ours: plan.ours.rows, theirs: plan.theirs.rows }
  const ours = { rows: plan.ours.rows, table: tableOf(plan.ours, table) }
  const theirTable = mode === 'merge' ? tableOf(plan.theirs, table) : undefined
  const compared =
    theirTable === undefined
      ? undefined
      : await stageTable(transaction, {
          codec,
          base: tableBase(baseOfTable(plan.bases, table.id), table),
          theirs: { rows: plan.theirs.rows, table: theirTable },
          ours,
          strategy,
          stage,
          resolve: (staged) => resolutions.resolve(transaction, sides, staged),
        })
  if (compared === undefined) await resolutions.resolve(transaction, sides, undefined)
  const staged = await resolutions.amend(transaction, { table: compared, ours, stage })
  const outcome = { codec, ours, staged: staged?.staged }
  const sectionOf = (part: ConflictSection['part']) => ({ tableId: table.id, part })
  const rowCount = staged?.tally.conflictCount ?? 0
  conflicts.add(table.name, rowCount)
  await conflicts.list(sectionOf('rows'), (after, limit) =>
    staged === undefined || rowCount === 0
      ? []
      : describeConflicts(transaction, staged, { after, limit }),
  )
  const writes = (staged?.tally.inserted ?? 0) + (staged?.tally.updated ?? 0)
  const { count } =
    writes === 0 ? { count: 0 } : await findClashes(transaction, outcome, { offset: 0, limit: 0 })
  conflicts.add(table.name, count)
  await conflicts.list(sectionOf('unique'), async function* (after, limit) {
    if (count === 0) return
    const offset = Number(after ?? 0)
    const { listed } = await findClashes(transaction, outcome, { offset, limit })
    const described = await describeClashes(transaction, sides, listed)
    yield* placed(described, offset)
  })
  const missing = await findMissing(transaction, outcome)
  conflicts.add(table.name, missing.length)
  await conflicts.list(
    sectionOf('null'),
    readList(await describeMissing(transaction, sides, missing)),
  )
  return staged
}
