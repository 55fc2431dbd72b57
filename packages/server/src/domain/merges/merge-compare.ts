import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import type { Transaction } from '../../postgres/run-transaction.js'
import { listAllColumns, type StoredTable } from '../../rows/columns/stored-schema.js'
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
  describeLink,
  describeRefused,
} from './merge-conflicts.js'
import type { MergePlan } from './merge-plan.js'
import { progressOf } from './progress.js'
import type { GivenResolution, TableResolution } from './resolutions.js'
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
  const target = { ours: plan.ours.rows, schema: plan.schema }
  const comparison = new Comparison(transaction, { databaseId, pinId }, target)
  const conflicts = new ConflictList(plan.page)
  for (const { table } of plan.conflicts) conflicts.add(table, 1)
  await conflicts.list({ tableId: 0, part: 'schema' }, readList(plan.conflicts))
  const { decisions } = plan
  if (plan.isComparable) {
    const sides = { ours: plan.ours.schema, theirs: plan.theirs.schema }
    const records = decisions.ofRecords(plan.schema, sides)
    const ofTables = decisions.ofTables(plan.schema, sides)
    const tables = new Map<number, ResolvedTable>()
    for (const [count, table] of plan.schema.tables.entries()) {
      plan.work?.begin(progressOf(plan, { step: 'compare', name: table.name, count }))
      const asked = { requests: records.get(table.id) ?? [], rest: ofTables.get(table.id) }
      const compared = await compareTable(transaction, { plan, table, ...asked, comparison })
      if (compared !== undefined) tables.set(table.id, compared)
    }
    await settleRules(transaction, [...tables.values()])
    for (const table of tables.values()) await listConflicts(transaction, table, conflicts)
    for (const table of tables.values()) {
      await listLinks(transaction, { table, tables, plan, conflicts })
    }
    decisions.refuseUnused()
  }
  decisions.requireNoFaults(conflictFields(conflicts))
  conflicts.requireStarted()
  return { comparison, tables: comparison.tables, conflicts }
}

/** A table whose rows are compared, and the decisions about them. */
interface ResolvedTable {
  readonly compared: TableComparison
  readonly resolutions: TableResolutions
}

/** Rounds of deciding about rules. What decides one conflict can cause the next one, which another decision settles. */
const ROUNDS_MAX = 10

/** Carries out decisions about rules. They depend on the rows of all tables, because of links. */
async function settleRules(
  transaction: Transaction,
  tables: readonly ResolvedTable[],
): Promise<void> {
  const others = tables.map(({ compared }) => compared)
  for (let round = 0; round < ROUNDS_MAX; round++) {
    let isChanged = false
    for (const { resolutions } of tables) {
      isChanged = (await resolutions.settleRules(transaction, others)) || isChanged
    }
    if (!isChanged) break
  }
  for (const { resolutions } of tables) resolutions.refuseUnneeded()
}

/** Compares a table, and carries out the decisions about its rows. Returns undefined for one that is left out. */
async function compareTable(
  transaction: Transaction,
  options: {
    plan: MergePlan
    table: StoredTable
    requests: readonly GivenResolution[]
    /** Decides the conflicts of records that no other resolution decides. */
    rest: TableResolution | undefined
    comparison: Comparison
  },
): Promise<ResolvedTable | undefined> {
  const { plan, table, requests, rest, comparison } = options
  const { mode, strategy } = plan.ruleOf(table.id)
  if (mode === 'skip') {
    for (const { index } of requests) {
      plan.decisions.refuse(index, `table [${table.name}] is left out of the merge`)
    }
    // Its records may link to some that the merge deletes.
    const hasLinks = listAllColumns(table.columns).some(({ onDelete }) => onDelete !== undefined)
    if (!hasLinks) return undefined
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
    requests: mode === 'skip' ? [] : requests,
    rest: mode === 'merge' ? rest : undefined,
    strategy,
    resolutions: plan.decisions,
  })
  await resolutions.carryOut(transaction)
  return { compared, resolutions }
}

/** Lists the conflicts of a table that are left. */
async function listConflicts(
  transaction: Transaction,
  { compared, resolutions }: ResolvedTable,
  conflicts: ConflictList,
): Promise<void> {
  const { table } = compared.codec
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
    readList(missing.map((found) => describeRefused(compared.codec, 'notNull', found))),
  )
  const unfit = await compared.unfit(transaction)
  conflicts.add(table.name, unfit.length)
  await conflicts.list(
    sectionOf('limit'),
    readList(unfit.map((found) => describeRefused(compared.codec, 'limit', found))),
  )
  const failures = await compared.failures(transaction)
  conflicts.add(table.name, failures.length)
  await conflicts.list(
    sectionOf('check'),
    readList(failures.map((found) => describeFailure(compared.codec, found))),
  )
}

/** Lists the links of a table to records that would not exist. */
async function listLinks(
  transaction: Transaction,
  options: {
    table: ResolvedTable
    tables: ReadonlyMap<number, ResolvedTable>
    plan: MergePlan
    conflicts: ConflictList
  },
): Promise<void> {
  const { tables, plan, conflicts } = options
  const { compared } = options.table
  const { table } = compared.codec
  const { count } = await compared.brokenLinks(transaction, { offset: 0, limit: 0 })
  conflicts.add(table.name, count)
  await conflicts.list({ tableId: table.id, part: 'link' }, async function* (after, limit) {
    if (count === 0) return
    const offset = Number(after ?? 0)
    const { listed } = await compared.brokenLinks(transaction, { offset, limit })
    const described = new Map<(typeof listed)[number], MergeConflict>()
    for (const { id: tableId, name } of plan.schema.tables) {
      const ofTable = listed.filter(({ link }) => link.tableId === tableId)
      const ids = ofTable.map(({ target }) => target)
      if (ids.length === 0) continue
      const found = await tables.get(tableId)?.compared.missingRecords(transaction, ids)
      for (const broken of ofTable) {
        const target = { table: name, id: broken.target, takes: [], ...found?.get(broken.target) }
        described.set(broken, describeLink(compared.codec, broken, target))
      }
    }
    yield* placed(
      listed.flatMap((broken) => described.get(broken) ?? []),
      offset,
    )
  })
}
