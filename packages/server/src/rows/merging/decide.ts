import type { TextRow } from '../../postgres/statement.js'
import { changedColumns, type RowTexts } from './compare-rows.js'

export type RowStrategy = 'fail' | 'ours' | 'theirs'

/** A row that both sides changed in conflicting ways. */
export interface RowConflict {
  readonly id: string
  /** Indexes of the physical columns in conflict. Empty if one side deleted the row. */
  readonly columns: readonly number[]
  readonly kind: 'bothInserted' | 'bothUpdated' | 'deletedHere' | 'deletedThere'
}

/** The properties of a physical column that decisions depend on. */
export interface MergeColumn {
  /** Whether theirs has the column. If not, theirs cannot have changed it. */
  readonly isTheirs: boolean
  /** Indexes of the objects that enclose the column, outermost first. */
  readonly objects: readonly number[]
}

export interface RowWrite {
  readonly id: string
  readonly values: TextRow
}

/** The effect of a merge on one row. Empty: no change. */
export interface Decision {
  readonly insert?: RowWrite
  readonly update?: RowWrite & { readonly columns: readonly number[] }
  readonly remove?: string
  readonly conflict?: RowConflict
}

/** A row in the base, in theirs and in ours. */
export interface MergedRow {
  readonly id: string
  readonly states: readonly [RowTexts, RowTexts, RowTexts]
}

/** Returns whether theirs has changed a row since the base. */
export function isChangedRow(
  base: RowTexts,
  theirs: RowTexts,
  columns: readonly MergeColumn[],
): boolean {
  if (base === undefined || theirs === undefined) return base !== theirs
  return changedColumns(base, theirs).some((column) => columns[column]?.isTheirs)
}

/** Decides how a merge changes one row. Only the strategy `fail` results in conflicts. */
export function decide(
  row: MergedRow,
  strategy: RowStrategy,
  columns: readonly MergeColumn[],
): Decision {
  const [base, theirs, ours] = row.states
  const { id } = row
  if (theirs === undefined) return decideDeleted(id, { base, ours, strategy })
  const changedTo = (before: TextRow) =>
    changedColumns(before, theirs).filter((column) => columns[column]?.isTheirs)
  if (base !== undefined && changedTo(base).length === 0) return {}
  if (ours === undefined) {
    const taken = { insert: { id, values: theirs } }
    if (base === undefined) return taken
    return settle({ id, columns: [], kind: 'deletedHere' }, strategy, taken)
  }
  // Without a row in the base, every differing value was set by both sides.
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
 * Separates the columns that only theirs changed from those that both sides changed differently. Nested
 * columns are merged one by one, unless one side has set or removed the whole object: then the object is
 * treated as one value.
 */
function separate(sides: {
  changed: readonly number[]
  mine: readonly number[]
  ours: TextRow
  theirs: TextRow
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
