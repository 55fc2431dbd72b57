import type { Transaction } from '../../postgres/run-transaction.js'
import type { BranchRows } from '../layout/layout.js'
import { listCompared, type RowTexts } from './compare-rows.js'
import {
  type Decision,
  decide,
  isChangedRow,
  type MergeColumn,
  type RowConflict,
  type RowStrategy,
} from './decide.js'
import { MergeWriter, type MergeWrites } from './merge-writer.js'

/** The effect of a merge on one table. */
export interface MergeTally {
  /** Rows that theirs has changed since the base. */
  changed: number
  inserted: number
  updated: number
  deleted: number
  conflictCount: number
  readonly conflicts: RowConflict[]
}

/** Maximum number of conflicts that are listed. All of them are counted. */
export const CONFLICTS_LISTED_MAX = 100

/** The number of candidates compared at a time. */
const PAGE_ROWS = 1000

/** The base of a merge: the rows of one state, or the result of merging the rows of several states. */
export interface RowBase {
  readonly states: readonly BranchRows[]
  rowOf(rows: readonly RowTexts[]): RowTexts
}

export interface RowMerge extends MergeWrites {
  readonly columns: readonly MergeColumn[]
  readonly base: RowBase
  readonly theirs: BranchRows
  readonly strategy: RowStrategy
}

/**
 * Applies the changes of theirs since the base to ours, row by row and column by column. Changes are read in
 * pages, so memory use does not depend on their number.
 */
export async function mergeRows(transaction: Transaction, merge: RowMerge): Promise<MergeTally> {
  const tally: MergeTally = {
    changed: 0,
    inserted: 0,
    updated: 0,
    deleted: 0,
    conflictCount: 0,
    conflicts: [],
  }
  const writer = new MergeWriter(transaction, merge)
  for await (const decisions of listDecisions(transaction, merge, writer)) {
    count(decisions, tally)
    if (tally.conflictCount === 0) await writer.write(decisions)
  }
  if (tally.conflictCount > 0 || !writer.hasWaiting) return tally
  await writer.writeWaiting()
  for await (const decisions of listDecisions(transaction, merge, writer)) {
    await writer.writeInserts(decisions)
  }
  return tally
}

interface ComparedDecision extends Decision {
  /** Whether theirs has changed the row since the base. */
  readonly isChanged: boolean
}

async function* listDecisions(
  transaction: Transaction,
  { codec, columns, base, theirs, strategy }: RowMerge,
  { ours }: { readonly ours: BranchRows },
): AsyncGenerator<readonly ComparedDecision[]> {
  let afterId = ''
  for (;;) {
    const { rows, next } = await listCompared(transaction, {
      codec,
      before: base.states,
      after: theirs,
      beside: [ours],
      form: 'write',
      afterId,
      limit: PAGE_ROWS,
    })
    yield rows.map(({ id, before, after, beside: [ourRow] }) => {
      const states = [base.rowOf(before), after, ourRow] as const
      const isChanged = isChangedRow(states[0], after, columns)
      return { isChanged, ...decide({ id, states }, strategy, columns) }
    })
    if (next === undefined) return
    afterId = next
  }
}

function count(decisions: readonly ComparedDecision[], tally: MergeTally): void {
  for (const { isChanged, insert, update, remove, conflict } of decisions) {
    if (isChanged) tally.changed++
    if (insert !== undefined) tally.inserted++
    if (update !== undefined) tally.updated++
    if (remove !== undefined) tally.deleted++
    if (conflict === undefined) continue
    tally.conflictCount++
    if (tally.conflicts.length < CONFLICTS_LISTED_MAX) tally.conflicts.push(conflict)
  }
}
