import { NO_COLUMN, UNDECIDED } from '../../../rows/merging/compare-rows.js'
import type { MergeBase, State } from './history.js'

/** A row as the texts of its columns. Undefined if the state does not have the row. */
export type Row = readonly (string | null)[] | undefined

/**
 * Computes the row of a virtual base: the three-way merge of the rows of its states. A state that has never had a column
 * says nothing about its values.
 */
export function virtualRow(base: MergeBase | undefined, rowIn: (state: State) => Row): Row {
  if (base === undefined) return undefined
  if (base.kind === 'state') return rowIn(base.state)
  const left = virtualRow(base.left, rowIn)
  const right = virtualRow(base.right, rowIn)
  const origin = virtualRow(base.base, rowIn)
  if (left === undefined || right === undefined) return presence({ left, right, origin })
  return left.map((value, column) => {
    const other = right[column] ?? null
    if (value === other || other === NO_COLUMN) return value
    if (value === NO_COLUMN) return other
    if (origin === undefined) return UNDECIDED
    const before = toValue(origin[column])
    if (before === value) return other
    return before === other ? value : UNDECIDED
  })
}

const toValue = (text: string | null | undefined): string | null =>
  text === NO_COLUMN ? null : (text ?? null)

/**
 * Merges a row that at most one of the two states has. If their base does not have the row, it was
 * inserted. If it is unchanged since the base, it was deleted. Otherwise all its values are undecided.
 */
function presence({ left, right, origin }: { left: Row; right: Row; origin: Row }): Row {
  const kept = left ?? right
  if (kept === undefined) return undefined
  if (origin === undefined) return kept
  const isUnchanged = kept.every((value, column) => toValue(value) === toValue(origin[column]))
  return isUnchanged ? undefined : kept.map(() => UNDECIDED)
}
