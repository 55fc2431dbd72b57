import { join, raw, type Sql, sql } from '../../postgres/sql.js'
import {
  type BranchRows,
  heapName,
  layoutOf,
  pastName,
  type Tier,
  tiersOf,
} from '../layout/layout.js'

/*
 * Two states of related branches share the levels that both inherit. A row can differ only in a heap that one
 * of them does not read, or reads as of another epoch. Reading only those heaps, the cost depends on the
 * number of changes and not on the size of the table. A layer that only one of them reads is read as a whole.
 */

/** Returns whether rows of a table can differ between two states. */
export function mayDiffer(left: BranchRows, right: BranchRows, tableId: number): boolean {
  return withoutCommonEnd(left, right, tableId).some((tiers) => tiers.length > 0)
}

/**
 * Returns the heap by whose rows alone a state differs from an earlier one, or undefined if there is more to it. This is so
 * for a fork, now or as of an epoch, and the state that it started with. A row that the later state does not read from
 * this heap is then the same in both.
 */
export function addedHeap(
  before: BranchRows,
  after: BranchRows,
  tableId: number,
): Tier | undefined {
  const [missing, [added, ...others]] = withoutCommonEnd(before, after, tableId)
  return missing.length + others.length === 0 && added?.kind === 'heap' ? added : undefined
}

/** Returns a query for the ids of rows that may differ between two states. Some may turn out to be equal. */
export function changedIds(left: BranchRows, right: BranchRows, tableId: number): Sql {
  const [only, ...others] = candidatesOf(left, right, tableId)
  // Each query has an id once.
  if (only !== undefined && others.length === 0) return only
  return sql`select id from (${repeatedIds(left, right, tableId)}) tiers group by id`
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

/**
 * Returns the condition that the row of any id may differ between two states. PostgreSQL looks at the last entry of each
 * index of epochs, whatever the statistics say, and whatever the number of rows.
 */
export function isAnyChanged(left: BranchRows, right: BranchRows, tableId: number): Sql {
  const conditions = tiersThatDiffer(left, right, tableId).flatMap(({ tier, since }) => {
    const [heap, past] = [heapName(tier), pastName(tier)]
    if (since === undefined) {
      return idsOfState(tier, undefined).map((ids) => sql`exists (${ids})`)
    }
    const epoch = raw(String(since))
    return [
      // The condition `epoch > 1` lets PostgreSQL use the partial index.
      sql`(select epoch from ${heap} where epoch > 1 order by epoch desc limit 1) > ${epoch}`,
      sql`(select until from ${past} order by until desc limit 1) > ${epoch}`,
    ].map((isLater) => sql`coalesce(${isLater}, false)`)
  })
  return conditions.length === 0 ? sql`false` : sql`(${join(conditions, ' or ')})`
}

/** Returns queries that together have the ids of all rows that may differ, or the given id if its row may. */
function candidatesOf(left: BranchRows, right: BranchRows, tableId: number, id?: Sql): Sql[] {
  return tiersThatDiffer(left, right, tableId).flatMap(({ tier, since }) =>
    since === undefined ? idsOfState(tier, id) : changesOf(tier, since, id),
  )
}

interface DifferingTier {
  readonly tier: Tier
  /** Both states see the same rows up to this epoch. undefined: one of them does not read the tier. */
  readonly since: number | undefined
}

/** Lists each tier of a table from which two states read other rows, once. */
function tiersThatDiffer(left: BranchRows, right: BranchRows, tableId: number): DifferingTier[] {
  const [ours, theirs] = withoutCommonEnd(left, right, tableId)
  const found = new Map<string, DifferingTier>()
  for (const tier of [...ours, ...theirs]) {
    const { kind, heapId } = tier
    if (found.has(heapId)) continue
    // A layer is read as a whole.
    const since = kind === 'heap' ? commonEpoch(heapId, ours, theirs) : undefined
    found.set(heapId, { tier, since })
  }
  return [...found.values()]
}

/** Returns queries for the ids of the rows of a tier that a state reads, and of some others. */
function idsOfState(tier: Tier, id: Sql | undefined): Sql[] {
  const rows = idsIn(heapName(tier), id)
  // A state that reads the heap as it is now has no row of the past, and a layer has no past.
  return tier.asOf === undefined ? [rows] : [rows, idsIn(pastName(tier), id)]
}

/** Returns queries for the ids of rows in a heap that changed after an epoch. */
function changesOf(tier: Tier, since: number, id: Sql | undefined): Sql[] {
  const [heap, past] = [heapName(tier), pastName(tier)]
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
  left: readonly Tier[],
  right: readonly Tier[],
): number | undefined {
  const [ours, theirs] = [left, right].map((tiers) => tiers.find((tier) => tier.heapId === heapId))
  if (ours === undefined || theirs === undefined) return undefined
  const epochs = [ours.asOf, theirs.asOf].filter((epoch) => epoch !== undefined)
  return Math.min(...epochs)
}

/** Returns the tiers of a table in two states, without those that both have at the end. */
function withoutCommonEnd(
  left: BranchRows,
  right: BranchRows,
  tableId: number,
): [readonly Tier[], readonly Tier[]] {
  const [ours, theirs] = [tiersOf(layoutOf(left), tableId), tiersOf(layoutOf(right), tableId)]
  let common = 0
  while (isSame(ours.at(-1 - common), theirs.at(-1 - common))) common++
  return [ours.slice(0, ours.length - common), theirs.slice(0, theirs.length - common)]
}

function isSame(left: Tier | undefined, right: Tier | undefined): boolean {
  return (
    left !== undefined &&
    right !== undefined &&
    left.heapId === right.heapId &&
    left.asOf === right.asOf
  )
}
