import { join, raw, type Sql, sql } from '../../postgres/sql.js'
import {
  type BranchRows,
  heapName,
  layoutOf,
  pastName,
  type Source,
  sourcesOf,
} from '../layout/layout.js'

/*
 * Two states of related branches share the levels that both inherit. A row can differ only in a heap that one
 * of them does not read, or reads as of another epoch. Reading only those heaps, the cost depends on the
 * number of changes and not on the size of the table. A layer that only one of them reads is read as a whole.
 */

/** Returns whether rows of a table can differ between two states. */
export function mayDiffer(left: BranchRows, right: BranchRows, tableId: number): boolean {
  return withoutCommonEnd(left, right, tableId).some((sources) => sources.length > 0)
}

/**
 * Returns whether a state differs from an earlier one by the rows of its own heap alone. This is so for a fork and the
 * state that it started with. A row that is not in this heap is then the same in both.
 */
export function addsOwnHeap(before: BranchRows, after: BranchRows, tableId: number): boolean {
  const [missing, [added, ...others]] = withoutCommonEnd(before, after, tableId)
  return missing.length + others.length === 0 && added?.kind === 'heap' && added.asOf === undefined
}

/** Returns a query for the ids of rows that may differ between two states. Some may turn out to be equal. */
export function changedIds(left: BranchRows, right: BranchRows, tableId: number): Sql {
  const [only, ...others] = candidatesOf(left, right, tableId)
  // Each query has an id once.
  if (only !== undefined && others.length === 0) return only
  return sql`select id from (${repeatedIds(left, right, tableId)}) sources group by id`
}

/** Like `changedIds`, but an id may be repeated, and PostgreSQL can stop reading. */
export function repeatedIds(left: BranchRows, right: BranchRows, tableId: number): Sql {
  const candidates = candidatesOf(left, right, tableId)
  return candidates.length === 0
    ? sql`select null::text as id where false`
    : join(candidates, ' union all ')
}

/**
 * Returns the condition that the row of an id may differ between two states. PostgreSQL looks for the id, whatever the
 * statistics say: a join with `changedIds` compares each id with all of them if PostgreSQL expects few, or expects to find
 * one soon.
 */
export function isChanged(
  left: BranchRows,
  right: BranchRows,
  row: { tableId: number; id: Sql },
): Sql {
  const searches = candidatesOf(left, right, row.tableId, row.id)
  return searches.length === 0
    ? sql`false`
    : sql`(${join(searches, ' union all ')} limit 1) is not null`
}

/** Returns queries that together have the ids of all rows that may differ, or the given id if its row may. */
function candidatesOf(left: BranchRows, right: BranchRows, tableId: number, id?: Sql): Sql[] {
  const [ours, theirs] = withoutCommonEnd(left, right, tableId)
  const candidates: Sql[] = []
  const seen = new Set<string>()
  for (const source of [...ours, ...theirs]) {
    const { kind, heapId } = source
    if (seen.has(heapId)) continue
    seen.add(heapId)
    candidates.push(
      ...(kind === 'heap'
        ? changesOf(source, commonEpoch(heapId, ours, theirs), id)
        : [idsIn(heapName(source), id)]),
    )
  }
  return candidates
}

/** Returns queries for the ids of rows in a heap that changed after an epoch, or of all rows that a state reads. */
function changesOf(source: Source, since: number | undefined, id: Sql | undefined): Sql[] {
  const [heap, past] = [heapName(source), pastName(source)]
  if (since === undefined) {
    const rows = idsIn(heap, id)
    // A state that reads the heap as it is now has no row of the past.
    return source.asOf === undefined ? [rows] : [rows, idsIn(past, id)]
  }
  const epoch = raw(String(since))
  if (id !== undefined) {
    // No index of epochs can be used for these conditions.
    return [
      sql`${idsIn(heap, id)} and (c.id, c.epoch) > (${id}, ${epoch})`,
      sql`${idsIn(past, id)} and (c.id, c.until) > (${id}, ${epoch})`,
    ]
  }
  return [
    // The condition `epoch > 1` lets PostgreSQL use the partial index.
    sql`select id from ${heap} where epoch > ${epoch} and epoch > 1`,
    sql`select id from ${past} where until > ${epoch}`,
  ]
}

const idsIn = (table: Sql, id: Sql | undefined): Sql =>
  id === undefined
    ? sql`select id from ${table}`
    : sql`select c.id from ${table} c where c.id = ${id}`

/**
 * Returns the epoch up to which both states see the same rows of a heap, or undefined if one does not read
 * it.
 */
function commonEpoch(
  heapId: string,
  left: readonly Source[],
  right: readonly Source[],
): number | undefined {
  const [ours, theirs] = [left, right].map((sources) =>
    sources.find((source) => source.heapId === heapId),
  )
  if (ours === undefined || theirs === undefined) return undefined
  const epochs = [ours.asOf, theirs.asOf].filter((epoch) => epoch !== undefined)
  return Math.min(...epochs)
}

/** Returns the sources of a table in two states, without those that both have at the end. */
function withoutCommonEnd(
  left: BranchRows,
  right: BranchRows,
  tableId: number,
): [readonly Source[], readonly Source[]] {
  const [ours, theirs] = [sourcesOf(layoutOf(left), tableId), sourcesOf(layoutOf(right), tableId)]
  let common = 0
  while (isSame(ours.at(-1 - common), theirs.at(-1 - common))) common++
  return [ours.slice(0, ours.length - common), theirs.slice(0, theirs.length - common)]
}

function isSame(left: Source | undefined, right: Source | undefined): boolean {
  return (
    left !== undefined &&
    right !== undefined &&
    left.heapId === right.heapId &&
    left.asOf === right.asOf
  )
}
