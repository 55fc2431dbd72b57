import type { Transaction } from '../../postgres/run-transaction.js'
import type { StoredTable } from '../../rows/columns/stored-schema.js'
import { Comparison, type TableComparison } from '../../rows/merging/comparison.js'
import {
  ConflictList,
  type ConflictSection,
  conflictFields,
  placed,
  readList,
} from './conflict-list.js'
import { baseOfTable, stateOf, tableBase } from './merge-base.js'
import {
  describeClash,
  describeConflict,
  describeFailure,
  describeMissing,
} from './merge-conflicts.js'
import type { MergePlan } from './merge-plan.js'
import type { RecordResolution, TableResolution } from './resolutions.js'
import { TableResolutions } from './resolve-rows.js'

/** The effect of a merge, and the conflicts that prevent it. */
export interface MergeEffect {
  readonly tables: readonly Pick<TableComparison, 'name' | 'tally'>[]
  readonly conflicts: Pick<ConflictList, 'listed' | 'count' | 'tables' | 'cursor'>
}

/** The effect of a merge, and the comparison by which it can be published. */
export interface ComparedMerge extends MergeEffect {
  readonly comparison: Comparison
}

/**
 * Compares the rows of all tables, then looks for conflicts in the outcome. All conflicts are found at once: those of
 * the schemas, of rows, of unique and not-null columns, and of constraints. With `pinId`, later transactions can publish the comparison.
 */
export async function compareMerge(
  transaction: Transaction,
  plan: MergePlan,
  { pinId }: { pinId?: string } = {},
): Promise<ComparedMerge> {
  const { databaseId } = plan.into
  const comparison = new Comparison(transaction, { databaseId, pinId })
  const conflicts = new ConflictList(plan.page)
  for (const { table } of plan.conflicts) conflicts.add(table, 1)
  await conflicts.list({ tableId: 0, part: 'schema' }, readList(plan.conflicts))
  const { decisions } = plan
  if (plan.isComparable) {
    const sides = { ours: plan.ours.schema, theirs: plan.theirs.schema }
    const records = decisions.ofRecords(plan.schema, sides)
    const ofTables = decisions.ofTables(plan.schema, sides)
    for (const table of plan.schema.tables) {
      const asked = { requests: records.get(table.id) ?? [], rest: ofTables.get(table.id) }
      await compareTable(transaction, { plan, table, ...asked, conflicts, comparison })
    }
    decisions.refuseUnused()
  }
  decisions.requireNoFaults(conflictFields(conflicts))
  conflicts.requireStarted()
  return { comparison, tables: comparison.tables, conflicts }
}

/** Compares a table, carries out the decisions about it, and lists the conflicts that are left. */
async function compareTable(
  transaction: Transaction,
  options: {
    plan: MergePlan
    table: StoredTable
    requests: readonly RecordResolution[]
    /** Decides the conflicts of records that no other resolution decides. */
    rest: TableResolution | undefined
    conflicts: ConflictList
    comparison: Comparison
  },
): Promise<void> {
  const { plan, table, requests, rest, conflicts, comparison } = options
  const { mode, strategy } = plan.ruleOf(table.id)
  if (mode === 'skip') {
    for (const { index } of requests) {
      plan.decisions.refuse(index, `table [${table.name}] is left out of the merge`)
    }
    return
  }
  const compared = await comparison.compare(transaction, {
    table,
    form: { limits: plan.limits, jsonAsText: false },
    base: tableBase(baseOfTable(plan.bases, table.id), table),
    theirs: stateOf(plan.theirs, table),
    ours: stateOf(plan.ours, table),
    strategy,
    mergesRows: mode === 'merge',
    ids: plan.records?.get(table.id),
  })
  const resolutions = new TableResolutions(compared, {
    requests,
    rest: mode === 'merge' ? rest : undefined,
    strategy,
    resolutions: plan.decisions,
  })
  await resolutions.carryOut(transaction)
  const sectionOf = (part: ConflictSection['part']) => ({ tableId: table.id, part })
  conflicts.addRecords(table.name, compared.tally.conflictCount, resolutions.token)
  await conflicts.list(sectionOf('rows'), async function* (after, limit) {
    for await (const conflict of compared.conflicts(transaction, { after, limit })) {
      yield { conflict: describeConflict(compared.codec, conflict), position: conflict.id }
    }
  })
  const { count } = await compared.clashes(transaction, { offset: 0, limit: 0 })
  conflicts.add(table.name, count)
  await conflicts.list(sectionOf('unique'), async function* (after, limit) {
    if (count === 0) return
    const offset = Number(after ?? 0)
    const { listed } = await compared.clashes(transaction, { offset, limit })
    yield* placed(
      listed.map((clash) => describeClash(compared.codec, clash)),
      offset,
    )
  })
  const missing = await compared.missing(transaction)
  conflicts.add(table.name, missing.length)
  await conflicts.list(
    sectionOf('null'),
    readList(missing.map((found) => describeMissing(compared.codec, found))),
  )
  const failures = await compared.failures(transaction)
  conflicts.add(table.name, failures.length)
  await conflicts.list(
    sectionOf('check'),
    readList(failures.map((found) => describeFailure(compared.codec, found))),
  )
}
