import type { MergeBase, State } from './history.js'

/** A row as the texts of its columns; undefined where the state has no such row. */
export type Row = readonly (string | null)[] | undefined

/**
 * Stands for a value on which the states of a virtual base disagree. No stored text contains NUL, so
 * it equals nothing that either side of a merge can hold, and a change of both sides is a conflict.
 */
export const UNDECIDED = '\u0000'

/** The row that a virtual base holds: the three-way merge of the rows of its states. */
export function virtualRow(base: MergeBase | undefined, rowIn: (state: State) => Row): Row {
  if (base === undefined) return undefined
  if (base.kind === 'state') return rowIn(base.state)
  const left = virtualRow(base.left, rowIn)
  const right = virtualRow(base.right, rowIn)
  const origin = virtualRow(base.base, rowIn)
  if (left === undefined || right === undefined) return presence({ left, right, origin })
  return left.map((value, column) => {
    const other = right[column] ?? null
    if (value === other) return value
    if (origin === undefined) return UNDECIDED
    const before = origin[column] ?? null
    if (before === value) return other
    return before === other ? value : UNDECIDED
  })
}

/**
 * One of the states has no such row. If the other still has the row as it was, it was deleted; if the
 * row is new, it was inserted; if it was changed meanwhile, all of it is undecided.
 */
function presence({ left, right, origin }: { left: Row; right: Row; origin: Row }): Row {
  const kept = left ?? right
  if (kept === undefined) return undefined
  if (origin === undefined) return kept
  const isUnchanged = kept.every((value, column) => value === (origin[column] ?? null))
  return isUnchanged ? undefined : kept.map(() => UNDECIDED)
}
