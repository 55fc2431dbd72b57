import type { Queryable } from '../../postgres/database.js'
import {
  type BranchRows,
  findLayout,
  layoutOf,
  type ReadIds,
  withIds,
  withoutOwnRows,
} from './layout.js'

/** Finds the rows that a fork started with, even if the fork is hidden. */
export async function findStartRows(
  database: Queryable,
  branchId: string,
): Promise<BranchRows | undefined> {
  const layout = await findLayout(database, branchId, { hidden: true })
  return layout && withoutOwnRows(layout)
}

/** Returns the rows that a fork started with. */
export function startRows(rows: BranchRows): BranchRows {
  return withoutOwnRows(layoutOf(rows))
}

/** A state of a branch at the end of an epoch. */
export interface StartPoint {
  readonly branchId: string
  readonly epoch: number
}

/** Returns the state of another branch that a fork started with. undefined: the branch is no fork. */
export function startPoint(rows: BranchRows): StartPoint | undefined {
  const parent = layoutOf(rows).levels[1]
  if (parent?.asOf === undefined) return undefined
  return { branchId: parent.branchId, epoch: parent.asOf }
}

/**
 * Returns rows whose tables and columns are read by other ids than those of their branch. With `storedIds`, they are read by
 * those first, and `readIds` is about the outcome.
 */
export function readByIds(rows: BranchRows, readIds: ReadIds, storedIds?: ReadIds): BranchRows {
  const ids = storedIds === undefined ? readIds : joinIds(storedIds, readIds)
  return ids.tables.size + ids.columns.size === 0 ? rows : withIds(layoutOf(rows), ids)
}

/** Joins two steps of reading by other ids: `second` is about the ids that `first` leads to. */
function joinIds(first: ReadIds, second: ReadIds): ReadIds {
  const tables = new Map(second.tables)
  for (const [stored, read] of first.tables) {
    tables.delete(read)
    tables.set(stored, second.tables.get(read) ?? read)
  }
  const columns = new Map(
    [...second.columns].map(([read, stored]) => [read, first.columns.get(stored.id) ?? stored]),
  )
  const renamed = new Set([...second.columns.values()].map(({ id }) => id))
  for (const [read, stored] of first.columns) if (!renamed.has(read)) columns.set(read, stored)
  return { tables, columns }
}

/** Returns whether two states have a branch in common. */
export function areRelated(left: BranchRows, right: BranchRows): boolean {
  const branches = new Set(layoutOf(left).levels.map((level) => level.branchId))
  return layoutOf(right).levels.some((level) => branches.has(level.branchId))
}
