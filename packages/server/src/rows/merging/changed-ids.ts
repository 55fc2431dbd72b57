import { join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type BranchRows, heapName, type Level, layoutOf, pastName } from '../layout/layout.js'

/*
 * Two states of related branches share the levels that both inherit. A row can differ only in a heap that one
 * of them does not read, or reads as of another epoch. Reading only those heaps, the cost depends on the
 * number of changes and not on the size of the table.
 */

/** Returns whether rows of a table can differ between two states. */
export function mayDiffer(left: BranchRows, right: BranchRows, tableId: number): boolean {
  return withoutCommonEnd(layoutOf(left).levels, layoutOf(right).levels)
    .flat()
    .some((level) => level.heaps.has(tableId))
}

/** Returns a query for the ids of rows that may differ between two states. Some may turn out to be equal. */
export function changedIds(left: BranchRows, right: BranchRows, tableId: number): Sql {
  const [ours, theirs] = withoutCommonEnd(layoutOf(left).levels, layoutOf(right).levels)
  const sources: Sql[] = []
  const seen = new Set<string>()
  for (const level of [...ours, ...theirs]) {
    const heap = level.heaps.get(tableId)
    if (heap === undefined || seen.has(level.branchId)) continue
    seen.add(level.branchId)
    const since = commonEpoch(level.branchId, ours, theirs)
    sources.push(...changesOf(heap.heapId, since))
  }
  if (sources.length === 0) return sql`select null::text as id where false`
  return sql`select id from (${join(sources, ' union all ')}) sources group by id`
}

/** Returns queries for the ids of rows in a heap that changed after an epoch, or of all rows. */
function changesOf(heapId: string, since: number | undefined): Sql[] {
  const [heap, past] = [heapName(heapId), pastName(heapId)]
  if (since === undefined) return [sql`select id from ${heap}`, sql`select id from ${past}`]
  const epoch = raw(String(since))
  return [
    // The condition `epoch > 1` lets PostgreSQL use the partial index.
    sql`select id from ${heap} where epoch > ${epoch} and epoch > 1`,
    sql`select id from ${past} where until > ${epoch}`,
  ]
}

/**
 * Returns the epoch up to which both states see the same rows of a branch, or undefined if one does not read
 * it.
 */
function commonEpoch(
  branchId: string,
  left: readonly Level[],
  right: readonly Level[],
): number | undefined {
  const [ours, theirs] = [left, right].map((levels) =>
    levels.find((level) => level.branchId === branchId),
  )
  if (ours === undefined || theirs === undefined) return undefined
  const epochs = [ours.asOf, theirs.asOf].filter((epoch) => epoch !== undefined)
  return Math.min(...epochs)
}

function withoutCommonEnd(
  left: readonly Level[],
  right: readonly Level[],
): [readonly Level[], readonly Level[]] {
  let common = 0
  while (isSame(left.at(-1 - common), right.at(-1 - common))) common++
  return [left.slice(0, left.length - common), right.slice(0, right.length - common)]
}

function isSame(left: Level | undefined, right: Level | undefined): boolean {
  return (
    left !== undefined &&
    right !== undefined &&
    left.branchId === right.branchId &&
    left.asOf === right.asOf
  )
}

/** Returns whether two states have a branch in common. */
export function areRelated(left: BranchRows, right: BranchRows): boolean {
  const branches = new Set(layoutOf(left).levels.map((level) => level.branchId))
  return layoutOf(right).levels.some((level) => branches.has(level.branchId))
}
