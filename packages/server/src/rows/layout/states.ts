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

/** Returns rows whose tables and columns are read by other ids than those of their branch. */
export function readByIds(rows: BranchRows, ids: ReadIds): BranchRows {
  return ids.tables.size + ids.columns.size === 0 ? rows : withIds(layoutOf(rows), ids)
}

/** Returns whether two states have a branch in common. */
export function areRelated(left: BranchRows, right: BranchRows): boolean {
  const branches = new Set(layoutOf(left).levels.map((level) => level.branchId))
  return layoutOf(right).levels.some((level) => branches.has(level.branchId))
}
