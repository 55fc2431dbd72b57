import { runPipeline } from '../../postgres/pipeline.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import type { Call } from '../../postgres/statement.js'
import { arrayLiteral } from '../columns/carriers.js'
import type { TableCodec } from '../columns/table-codec.js'
import { inheritsRows, type Layout } from '../layout/layout.js'
import type { TableStatements } from '../writing/table-statements.js'
import { changedColumns, listCompared, type RowTexts } from './compare-rows.js'

export type RowStrategy = 'fail' | 'ours' | 'theirs'

/** A row that both sides changed in ways that do not go together. */
export interface RowConflict {
  readonly id: string
  /** Indexes of the physical columns in conflict; none when one side deleted the row. */
  readonly columns: readonly number[]
  readonly kind: 'bothInserted' | 'bothUpdated' | 'deletedHere' | 'deletedThere'
}

export interface MergeTally {
  /** Rows that may have changed since the base. */
  compared: number
  inserted: number
  updated: number
  deleted: number
  conflictCount: number
  readonly conflicts: RowConflict[]
}

/** Conflicts that are listed; all of them are counted. */
export const CONFLICTS_LISTED_MAX = 100

const PAGE_ROWS = 1000

/** What deciding needs to know of a physical column. */
export interface MergeColumn {
  /** Whether theirs has the column: what it does not have, it has not changed. */
  readonly isTheirs: boolean
  /** Indexes of the objects that the column is in, the outermost first. */
  readonly objects: readonly number[]
}

type Texts = readonly (string | null)[]

interface RowWrite {
  readonly id: string
  readonly values: Texts
}

interface Decision {
  readonly insert?: RowWrite
  readonly update?: RowWrite & { readonly columns: readonly number[] }
  readonly remove?: string
  readonly conflict?: RowConflict
}

/** Where merged rows go. The layout is the one that ours is read by from then on. */
export interface MergeTarget {
  readonly layout: Layout
  readonly statements: TableStatements
}

/** The base of a merge: the rows of one state, or what the rows of several states come to. */
export interface RowBase {
  readonly states: readonly Layout[]
  rowOf(rows: readonly RowTexts[]): RowTexts
}

export interface RowMerge {
  readonly codec: TableCodec
  readonly columns: readonly MergeColumn[]
  readonly base: RowBase
  readonly theirs: Layout
  readonly ours: Layout
  readonly strategy: RowStrategy
  /** Nothing of it will stay, so only what must be tried is written. */
  readonly dryRun: boolean
  /** Called when there is something to write, so that a merge of nothing makes no heap. */
  openTarget(): Promise<MergeTarget>
}

/**
 * Brings what theirs has changed since the base into ours, row by row and column by column. Pages
 * keep the memory small, whatever the number of changes.
 */
export async function mergeRows(transaction: Transaction, merge: RowMerge): Promise<MergeTally> {
  const tally: MergeTally = {
    compared: 0,
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

async function* listDecisions(
  transaction: Transaction,
  { codec, columns, base, theirs, strategy }: RowMerge,
  { ours }: { readonly ours: Layout },
): AsyncGenerator<readonly Decision[]> {
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
    yield rows.map(({ id, before, after, beside: [ourRow] }) =>
      decide({ id, states: [base.rowOf(before), after, ourRow] }, strategy, columns),
    )
    if (next === undefined) return
    afterId = next
  }
}

/** A row in the base, in theirs and in ours. */
export interface MergedRow {
  readonly id: string
  readonly states: readonly [RowTexts, RowTexts, RowTexts]
}

/** What becomes of one row. With a strategy other than `fail` there are no conflicts. */
export function decide(
  row: MergedRow,
  strategy: RowStrategy,
  columns: readonly MergeColumn[],
): Decision {
  const [base, theirs, ours] = row.states
  const { id } = row
  if (theirs === undefined) return decideDeleted(id, { base, ours, strategy })
  const changedTo = (before: Texts) =>
    changedColumns(before, theirs).filter((column) => columns[column]?.isTheirs)
  if (base !== undefined && changedTo(base).length === 0) return {}
  if (ours === undefined) {
    const taken = { insert: { id, values: theirs } }
    if (base === undefined) return taken
    return settle({ id, columns: [], kind: 'deletedHere' }, strategy, taken)
  }
  // Where there was no row, every value that differs was set by both.
  const changed = changedTo(base ?? ours)
  const mine = base === undefined ? changed : changedColumns(base, ours)
  const { taken, clashing } = separate({ changed, mine, ours, theirs, columns })
  if (clashing.length > 0) {
    const kind = base === undefined ? 'bothInserted' : 'bothUpdated'
    if (strategy === 'fail') return { conflict: { id, columns: clashing, kind } }
    if (strategy === 'theirs') taken.push(...clashing)
  }
  if (taken.length === 0) return {}
  const values = [...ours]
  for (const column of taken) values[column] = theirs[column] ?? null
  return { update: { id, values, columns: taken } }
}

/**
 * Tells the columns that only theirs changed from those that both did, differently. Columns of an
 * object stand for themselves as long as both sides leave the object where it is; once a side gives or
 * takes the object, it counts as a whole.
 */
function separate(sides: {
  changed: readonly number[]
  mine: readonly number[]
  ours: Texts
  theirs: Texts
  columns: readonly MergeColumn[]
}): { taken: number[]; clashing: number[] } {
  const { changed, mine, ours, theirs, columns } = sides
  const touched = new Set([...changed, ...mine])
  const unitOf = (column: number) =>
    columns[column]?.objects.find((object) => touched.has(object)) ?? column
  const mineUnits = new Set(mine.map(unitOf))
  const theirUnits = new Set(changed.map(unitOf))
  const isBoth = (column: number) => mineUnits.has(unitOf(column)) && theirUnits.has(unitOf(column))
  return {
    taken: changed.filter((column) => !isBoth(column)),
    clashing: [...touched]
      .filter((column) => isBoth(column) && ours[column] !== theirs[column])
      .sort((left, right) => left - right),
  }
}

function decideDeleted(
  id: string,
  { base, ours, strategy }: { base: RowTexts; ours: RowTexts; strategy: RowStrategy },
): Decision {
  if (base === undefined || ours === undefined) return {}
  if (changedColumns(base, ours).length === 0) return { remove: id }
  return settle({ id, columns: [], kind: 'deletedThere' }, strategy, { remove: id })
}

function settle(conflict: RowConflict, strategy: RowStrategy, taken: Decision): Decision {
  if (strategy === 'fail') return { conflict }
  return strategy === 'theirs' ? taken : {}
}

function count(decisions: readonly Decision[], tally: MergeTally): void {
  tally.compared += decisions.length
  for (const { insert, update, remove, conflict } of decisions) {
    if (insert !== undefined) tally.inserted++
    if (update !== undefined) tally.updated++
    if (remove !== undefined) tally.deleted++
    if (conflict === undefined) continue
    tally.conflictCount++
    if (tally.conflicts.length < CONFLICTS_LISTED_MAX) tally.conflicts.push(conflict)
  }
}

/** A merged row that the target cannot hold. */
export class RefusedRowError extends Error {
  constructor(
    readonly column: string,
    readonly kind: 'notUnique' | 'notNull',
  ) {
    super(`column [${column}]: ${kind === 'notUnique' ? 'is not unique' : 'is required'}`)
  }
}

/**
 * Writes what was decided. Where columns are unique, a value may be on its way from one row to
 * another, on whatever pages they are: first everything is taken away that goes, and only then
 * anything put where it comes.
 */
class MergeWriter {
  readonly #transaction: Transaction
  readonly #merge: RowMerge
  readonly #unique: readonly number[]
  readonly #required: readonly number[]
  #target: MergeTarget | undefined
  /** Updates whose old unique values are taken away, and whose new ones are not there yet. */
  #updates: RowWrite[] = []
  #hasInserts = false

  constructor(transaction: Transaction, merge: RowMerge) {
    this.#transaction = transaction
    this.#merge = merge
    const { physical } = merge.codec
    this.#unique = physical.flatMap(({ column }, index) => (column.unique ? [index] : []))
    this.#required = physical.flatMap(({ column }, index) => (column.notNull ? [index] : []))
  }

  get ours(): Layout {
    return this.#target?.layout ?? this.#merge.ours
  }

  /** Only PostgreSQL can tell whether values are unique; all else is known without writing. */
  get #isSure(): boolean {
    return this.#merge.dryRun && this.#unique.length === 0
  }

  get hasWaiting(): boolean {
    return this.#hasInserts || this.#updates.length > 0
  }

  async write(decisions: readonly Decision[]): Promise<void> {
    const removed = decisions.flatMap(({ remove }) => remove ?? [])
    const updates = decisions.flatMap(({ update }) => update ?? [])
    const inserts = decisions.flatMap(({ insert }) => insert ?? [])
    const moved = updates.filter((update) =>
      update.columns.some((column) => this.#unique.includes(column)),
    )
    const unmoved = updates.filter((update) => !moved.includes(update))
    if (removed.length > 0 && !this.#isSure) {
      const { statements, layout } = await this.#open()
      await this.#run({
        statement: statements.delete(),
        values: [String(layout.epoch), arrayLiteral(removed)],
      })
    }
    await this.#vacate(moved)
    await this.#put(unmoved)
    if (this.#unique.length === 0) await this.#put(inserts)
    else if (inserts.length > 0) this.#hasInserts = true
  }

  async writeWaiting(): Promise<void> {
    for (let start = 0; start < this.#updates.length; start += PAGE_ROWS) {
      await this.#put(this.#updates.slice(start, start + PAGE_ROWS))
    }
    this.#updates = []
  }

  async writeInserts(decisions: readonly Decision[]): Promise<void> {
    await this.#put(decisions.flatMap(({ insert }) => insert ?? []))
  }

  async #open(): Promise<MergeTarget> {
    this.#target ??= await this.#merge.openTarget()
    return this.#target
  }

  /** Takes the unique values of rows away, and nothing else. */
  async #vacate(rows: readonly RowWrite[]): Promise<void> {
    if (rows.length === 0) return
    const { statements, layout } = await this.#open()
    const ids = arrayLiteral(rows.map((row) => row.id))
    await this.#run({
      statement: statements.clear(this.#unique),
      values: [String(layout.epoch), ids, arrayLiteral(rows.map(() => null))],
    })
    this.#updates.push(...rows)
  }

  async #put(rows: readonly RowWrite[]): Promise<void> {
    if (rows.length === 0) return
    for (const column of this.#required) {
      if (rows.some((row) => row.values[column] == null)) throw this.#refused(column, 'notNull')
    }
    if (this.#isSure) return
    const { statements, layout } = await this.#open()
    const { codec } = this.#merge
    await this.#run({
      statement: statements.replaceAny('id'),
      values: [
        String(layout.epoch),
        arrayLiteral(rows.map((row) => row.id)),
        arrayLiteral(rows.map(() => null)),
        ...codec.physical.map((_, column) =>
          arrayLiteral(rows.map((row) => row.values[column] ?? null)),
        ),
      ],
    })
    if (inheritsRows(layout, codec.table.id)) await this.#requireUnique(rows, statements)
  }

  /** Unique values must not occur in rows that ours inherits; its own rows have an index. */
  async #requireUnique(rows: readonly RowWrite[], statements: TableStatements): Promise<void> {
    for (const column of this.#unique) {
      const values = rows.map((row) => row.values[column] ?? null).filter((value) => value !== null)
      if (values.length === 0) continue
      const statement = statements.inheritedValues(column)
      const [found] = await this.#run({ statement, values: [arrayLiteral(values)] })
      if (found !== undefined && found.length > 0) throw this.#refused(column, 'notUnique')
    }
  }

  #run(call: Call) {
    return runPipeline(this.#transaction.client, [call])
  }

  #refused(column: number, kind: RefusedRowError['kind']): RefusedRowError {
    const path = this.#merge.codec.physical[column]?.path ?? []
    return new RefusedRowError(path.join('.'), kind)
  }
}
