import { runPipeline } from '../postgres/pipeline.js'
import type { Transaction } from '../postgres/run-transaction.js'
import type { Call } from '../postgres/statement.js'
import { arrayLiteral } from './columns/carriers.js'
import type { TableCodec } from './columns/table-codec.js'
import { type ComparedRow, changedColumns, listCompared, type RowTexts } from './compare-rows.js'
import { inheritsRows, type Layout } from './layout.js'
import type { TableStatements } from './table-statements.js'

export type RowStrategy = 'fail' | 'ours' | 'theirs'

/** A row that both sides changed in ways that do not go together. */
export interface RowConflict {
  readonly id: string
  /** Indexes of the physical columns in conflict; none when one side deleted the row. */
  readonly columns: readonly number[]
  readonly kind: 'bothInserted' | 'bothUpdated' | 'deletedHere' | 'deletedThere'
}

export interface MergeTally {
  inserted: number
  updated: number
  deleted: number
  conflictCount: number
  readonly conflicts: RowConflict[]
}

/** Conflicts that are listed; all of them are counted. */
export const CONFLICTS_LISTED_MAX = 100

const PAGE_ROWS = 1000

interface RowWrite {
  readonly id: string
  readonly values: readonly (string | null)[]
}

interface Decision {
  readonly write?: { readonly kind: 'insert' | 'update'; readonly row: RowWrite }
  readonly remove?: string
  readonly conflict?: RowConflict
}

/**
 * Brings what theirs has changed since the base into ours, row by row and column by column. Pages
 * keep the memory small, whatever the number of changes. `target` is undefined for a dry run.
 */
export async function mergeRows(
  transaction: Transaction,
  options: {
    codec: TableCodec
    base: Layout
    theirs: Layout
    ours: Layout
    strategy: RowStrategy
    target: TableStatements | undefined
  },
): Promise<MergeTally> {
  const { codec, base, theirs, ours, strategy, target } = options
  const tally: MergeTally = { inserted: 0, updated: 0, deleted: 0, conflictCount: 0, conflicts: [] }
  let after = ''
  for (;;) {
    const rows = await listCompared(transaction, {
      codec,
      states: [base, theirs, ours],
      form: 'write',
      after,
      limit: PAGE_ROWS,
    })
    const decisions = rows.map((row) => decide(row, strategy))
    count(decisions, tally)
    if (target !== undefined && tally.conflictCount === 0) {
      await writeDecisions(transaction, { decisions, statements: target, ours, codec })
    }
    const last = rows.at(-1)
    if (last === undefined || rows.length < PAGE_ROWS) return tally
    after = last.id
  }
}

/** What becomes of one row. With a strategy other than `fail` there are no conflicts. */
export function decide(row: ComparedRow, strategy: RowStrategy): Decision {
  const [base, theirs, ours] = row.states as readonly [RowTexts, RowTexts, RowTexts]
  const { id } = row
  if (theirs === undefined) return decideDeleted(id, { base, ours, strategy })
  if (base !== undefined && changedColumns(base, theirs).length === 0) return {}
  if (ours === undefined) {
    if (base === undefined) return insert(id, theirs)
    return settle({ id, columns: [], kind: 'deletedHere' }, strategy, () => insert(id, theirs))
  }
  // Where there was no row, every value that differs was set by both.
  const mine = base === undefined ? changedColumns(ours, theirs) : changedColumns(base, ours)
  const changed = base === undefined ? mine : changedColumns(base, theirs)
  const isMine = new Set(mine)
  const clashing = changed.filter((column) => isMine.has(column) && ours[column] !== theirs[column])
  const taken = changed.filter((column) => !isMine.has(column))
  if (clashing.length > 0) {
    const kind = base === undefined ? 'bothInserted' : 'bothUpdated'
    if (strategy === 'fail') return { conflict: { id, columns: clashing, kind } }
    if (strategy === 'theirs') taken.push(...clashing)
  }
  return taken.length === 0 ? {} : update(id, ours, theirs, taken)
}

function decideDeleted(
  id: string,
  { base, ours, strategy }: { base: RowTexts; ours: RowTexts; strategy: RowStrategy },
): Decision {
  if (base === undefined || ours === undefined) return {}
  if (changedColumns(base, ours).length === 0) return { remove: id }
  return settle({ id, columns: [], kind: 'deletedThere' }, strategy, () => ({ remove: id }))
}

function settle(conflict: RowConflict, strategy: RowStrategy, take: () => Decision): Decision {
  if (strategy === 'fail') return { conflict }
  return strategy === 'theirs' ? take() : {}
}

function insert(id: string, values: readonly (string | null)[]): Decision {
  return { write: { kind: 'insert', row: { id, values } } }
}

function update(
  id: string,
  ours: readonly (string | null)[],
  theirs: readonly (string | null)[],
  columns: readonly number[],
): Decision {
  const values = [...ours]
  for (const column of columns) values[column] = theirs[column] ?? null
  return { write: { kind: 'update', row: { id, values } } }
}

function count(decisions: readonly Decision[], tally: MergeTally): void {
  for (const { write, remove, conflict } of decisions) {
    if (write?.kind === 'insert') tally.inserted++
    else if (write?.kind === 'update') tally.updated++
    else if (remove !== undefined) tally.deleted++
    if (conflict === undefined) continue
    tally.conflictCount++
    if (tally.conflicts.length < CONFLICTS_LISTED_MAX) tally.conflicts.push(conflict)
  }
}

/** Deletions first and updates before insertions, so that unique values are free when they can be. */
async function writeDecisions(
  transaction: Transaction,
  options: {
    decisions: readonly Decision[]
    statements: TableStatements
    ours: Layout
    codec: TableCodec
  },
): Promise<void> {
  const { decisions, statements, ours, codec } = options
  const { epoch } = ours
  const removed = decisions.flatMap(({ remove }) => (remove === undefined ? [] : [remove]))
  const rowsOf = (kind: 'insert' | 'update') =>
    decisions.flatMap(({ write }) => (write?.kind === kind ? [write.row] : []))
  const calls: Call[] = []
  if (removed.length > 0) {
    calls.push({ statement: statements.delete, values: [String(epoch), arrayLiteral(removed)] })
  }
  for (const rows of [rowsOf('update'), rowsOf('insert')]) {
    if (rows.length === 0) continue
    calls.push({ statement: statements.replaceAny, values: arraysOf(rows, epoch, codec) })
  }
  if (calls.length > 0) await runPipeline(transaction.client, calls)
  if (inheritsRows(ours, codec.table.id)) {
    await requireUnique(transaction, { statements, codec, rows: decisions.flatMap(writtenRow) })
  }
}

function writtenRow({ write }: Decision): RowWrite[] {
  return write === undefined ? [] : [write.row]
}

/** Unique values must not occur in rows that ours inherits; its own rows have an index. */
async function requireUnique(
  transaction: Transaction,
  options: { statements: TableStatements; codec: TableCodec; rows: readonly RowWrite[] },
): Promise<void> {
  const { statements, codec, rows } = options
  for (const [index, { column, path }] of codec.physical.entries()) {
    if (column.unique !== true) continue
    const values = rows.map((row) => row.values[index] ?? null).filter((value) => value !== null)
    if (values.length === 0) continue
    const call = { statement: statements.inheritedValues(index), values: [arrayLiteral(values)] }
    const [found] = await runPipeline(transaction.client, [call])
    if (found !== undefined && found.length > 0) throw new NotUniqueError(path.join('.'))
  }
}

/** A merged value of a unique column is another record's already. */
export class NotUniqueError extends Error {
  constructor(readonly column: string) {
    super(`column [${column}]: is not unique`)
  }
}

function arraysOf(rows: readonly RowWrite[], epoch: number, codec: TableCodec): string[] {
  return [
    String(epoch),
    arrayLiteral(rows.map((row) => row.id)),
    arrayLiteral(rows.map(() => null)),
    ...codec.physical.map((_, column) =>
      arrayLiteral(rows.map((row) => row.values[column] ?? null)),
    ),
  ]
}
