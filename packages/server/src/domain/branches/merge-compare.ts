import type { Transaction } from '../../postgres/run-transaction.js'
import { compileTable, type StoredTable } from '../../rows/columns.js'
import {
  createStage,
  findClashes,
  findMissing,
  type MergeTally,
  reviewedSides,
  type Stage,
  type StagedTable,
  stageTable,
  temporaryStage,
} from '../../rows/merge.js'
import {
  ConflictList,
  type ConflictSection,
  conflictFields,
  placed,
  readList,
} from './conflict-list.js'
import { baseOfTable, tableBase, tableOf } from './merge-base.js'
import { describeClashes, describeConflicts, describeMissing } from './merge-conflicts.js'
import type { MergePlan } from './merge-plan.js'
import type { RecordResolution, TableResolution } from './resolutions.js'
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
    const ofTables = decisions.ofTables(plan.schema, sides)
    await createStage(transaction, stage)
    for (const table of plan.schema.tables) {
      const asked = { requests: records.get(table.id) ?? [], rest: ofTables.get(table.id) }
      const staged = await compareTable(transaction, { plan, table, ...asked, conflicts, stage })
      if (staged === undefined) continue
      tables.push({ ...staged, name: table.name })
      if (asked.rest !== undefined && staged.decidedByStrategy > 0) decisions.markUsed(asked.rest)
    }
    decisions.refuseUnused()
  }
  decisions.requireNoFaults(conflictFields(conflicts))
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
    /** Decides the conflicts of records that no other resolution decides. */
    rest: TableResolution | undefined
    conflicts: ConflictList
    stage: Stage
  },
): Promise<StagedTable | undefined> {
  const { plan, table, requests, rest, conflicts, stage } = options
  const { mode, strategy } = plan.ruleOf(table.id)
  if (mode === 'skip') {
    for (const { index } of requests) {
      plan.decisions.refuse(index, `table [${table.name}] is left out of the merge`)
    }
    return undefined
  }
  const form = { limits: plan.limits, jsonAsText: false }
  const codec = compileTable(table, form)
  const ours = { rows: plan.ours.rows, table: tableOf(plan.ours, table) }
  const theirs = { rows: plan.theirs.rows, table: tableOf(plan.theirs, table) }
  const sides = reviewedSides({ ours, theirs }, form)
  const resolutions = new TableResolutions(codec, {
    sides,
    requests,
    rest: mode === 'merge' ? rest : undefined,
    resolutions: plan.decisions,
  })
  const { table: theirTable } = theirs
  const compared =
    mode !== 'merge' || theirTable === undefined
      ? undefined
      : await stageTable(transaction, {
          codec,
          base: tableBase(baseOfTable(plan.bases, table.id), table),
          theirs: { ...theirs, table: theirTable },
          ours,
          strategy,
          stage,
          resolve: (staged, tally) => resolutions.resolve(transaction, { staged, tally, strategy }),
        })
  if (compared === undefined) await resolutions.resolve(transaction, undefined)
  const staged = await resolutions.amend(transaction, { table: compared, ours, stage })
  const outcome = { codec, ours, staged: staged?.staged }
  const sectionOf = (part: ConflictSection['part']) => ({ tableId: table.id, part })
  const rowCount = staged?.tally.conflictCount ?? 0
  conflicts.addRecords(table.name, rowCount, resolutions.token)
  await conflicts.list(sectionOf('rows'), (after, limit) =>
    staged === undefined || rowCount === 0
      ? []
      : describeConflicts(transaction, { ...staged, reviewed: sides }, { after, limit }),
  )
  const writes = (staged?.tally.inserted ?? 0) + (staged?.tally.updated ?? 0)
  const { count } =
    writes === 0 ? { count: 0 } : await findClashes(transaction, outcome, { offset: 0, limit: 0 })
  conflicts.add(table.name, count)
  await conflicts.list(sectionOf('unique'), async function* (after, limit) {
    if (count === 0) return
    const offset = Number(after ?? 0)
    const { listed } = await findClashes(transaction, outcome, { offset, limit })
    const described = await describeClashes(transaction, { codec, sides }, listed)
    yield* placed(described, offset)
  })
  const missing = await findMissing(transaction, outcome)
  conflicts.add(table.name, missing.length)
  await conflicts.list(
    sectionOf('null'),
    readList(await describeMissing(transaction, { codec, sides }, missing)),
  )
  return staged
}
