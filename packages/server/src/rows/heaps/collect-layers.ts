import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { HeapAddress } from '../layout/layout.js'
import { dropUnusedHeap, insertSweepSql } from './collect.js'
import { dropHeap } from './heap-ddl.js'

/*
 * A layer that condenses several levels, a fold, makes reads skip their heaps and layers. They are dropped once no branch
 * reads them. A deleted branch with a single fork is only read on behalf of that fork: it cannot be the base of
 * a merge, because every state that contains it contains the fork too. All other branches keep their heaps.
 */

interface Fork {
  readonly id: string
  readonly forkEpoch: number
  /** Nothing but its forks reads the branch: it is deleted, and no merge refers to it. */
  readonly isPassage: boolean
}

interface StoredFold extends HeapAddress {
  readonly tableId: string
  readonly epoch: number
  readonly nextBranchId: string | null
}

interface StoredHeap extends HeapAddress {
  readonly tableId: string
  readonly epoch: number
  readonly parentId: string | null
}

/** Drops a heap or layer of a branch that nobody reads. Returns whether it did. */
export async function dropUnread(
  transaction: Queryable,
  heap: { branchId: string; heapId: string },
): Promise<boolean> {
  return (await dropUnusedHeap(transaction, heap)) || (await dropSkipped(transaction, heap))
}

/** Drops a heap of a branch with its layer, or a fold, if all reads skip it. Returns whether it did. */
async function dropSkipped(
  transaction: Queryable,
  { branchId, heapId }: { branchId: string; heapId: string },
): Promise<boolean> {
  const folds = await listFolds(transaction, branchId)
  const fold = folds.find((each) => each.heapId === heapId)
  if (fold === undefined) return dropSkippedHeap(transaction, { branchId, heapId, folds })
  const { tableId, epoch } = fold
  const readers = await listForks(transaction, branchId, { epoch })
  if (!(await areSkipped(transaction, readers, { branchId, tableId }))) return false
  await dropHeap(transaction, fold)
  return true
}

async function dropSkippedHeap(
  transaction: Queryable,
  options: { branchId: string; heapId: string; folds: readonly StoredFold[] },
): Promise<boolean> {
  const { branchId, heapId, folds } = options
  const [heap] = await transaction.query<StoredHeap>(sql`
    select h.database_id as "databaseId", h.id as "heapId", h.table_id as "tableId", h.epoch,
      b.parent_id as "parentId"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    where h.id = ${heapId} and h.branch_id = ${branchId} and h.kind = 'heap'
      and b.deleted_at is not null`)
  const fork = heap && (await findOnlyFork(transaction, branchId))
  if (heap === undefined || fork === undefined) return false
  const { databaseId, tableId, epoch, parentId } = heap
  const isFolded = folds.some((fold) => {
    return fold.tableId === tableId && fold.epoch === fork.forkEpoch
  })
  if (!isFolded && !(await isSkipped(transaction, fork, { branchId, tableId }))) return false
  const layered = await transaction.query<HeapAddress>(sql`
    select database_id as "databaseId", id as "heapId"
    from offshoot.heaps
    where branch_id = ${branchId} and next_branch_id = branch_id and table_id = ${tableId}`)
  for (const dropped of [heap, ...layered]) await dropHeap(transaction, dropped)
  // The branch stays in the history. If its rows were ever needed, reading it would fail instead of
  // returning too few rows.
  await transaction.query(sql`
    insert into offshoot.heaps (database_id, branch_id, table_id, column_ids, epoch, kind)
    values (${databaseId}, ${branchId}, ${tableId}, '{}', ${epoch}, 'gone')`)
  if (parentId !== null) {
    await transaction.query(insertSweepSql({ databaseId, branchId: parentId, forkEpoch: null }))
  }
  return true
}

/** Lists the forks of a branch, optionally those of one epoch, and locks them. */
async function listForks(
  transaction: Queryable,
  branchId: string,
  { epoch, limit }: { epoch?: number; limit?: number } = {},
): Promise<Fork[]> {
  return transaction.query<Fork>(sql`
    select b.id, b.fork_epoch as "forkEpoch", b.deleted_at is not null and not exists (
        select from offshoot.merges m where m.base_branch_id = b.id
      ) as "isPassage"
    from offshoot.branches b
    where b.parent_id = ${branchId}
      and b.fork_epoch = coalesce(${epoch ?? null}::integer, b.fork_epoch)
    limit ${limit ?? null}
    for update of b`)
}

async function findOnlyFork(transaction: Queryable, branchId: string): Promise<Fork | undefined> {
  const [fork, ...others] = await listForks(transaction, branchId, { limit: 2 })
  return others.length === 0 ? fork : undefined
}

async function listFolds(transaction: Queryable, branchId: string): Promise<StoredFold[]> {
  return transaction.query<StoredFold>(sql`
    select database_id as "databaseId", id as "heapId", table_id as "tableId", epoch,
      next_branch_id as "nextBranchId"
    from offshoot.heaps
    where branch_id = ${branchId} and until_epoch is not null
    order by id`)
}

/** Returns whether the reads of all given forks of a branch skip it. */
async function areSkipped(
  transaction: Queryable,
  forks: readonly Fork[],
  { branchId, tableId }: { branchId: string; tableId: string },
): Promise<boolean> {
  for (const fork of forks) {
    if (!(await isSkipped(transaction, fork, { branchId, tableId }))) return false
  }
  return true
}

/**
 * Follows the only readers of a fork until one has a fold, and returns whether that fold continues beyond the
 * branch.
 */
async function isSkipped(
  transaction: Queryable,
  fork: Fork,
  { branchId, tableId }: { branchId: string; tableId: string },
): Promise<boolean> {
  for (let reader = fork; ; ) {
    if (!reader.isPassage) return false
    const next = await findOnlyFork(transaction, reader.id)
    if (next === undefined) return false
    const folds = await listFolds(transaction, reader.id)
    const fold = folds.find((each) => each.tableId === tableId && each.epoch === next.forkEpoch)
    if (fold !== undefined) return continuesBeyond(transaction, fold, branchId)
    reader = next
  }
}

async function continuesBeyond(
  transaction: Queryable,
  { nextBranchId }: StoredFold,
  branchId: string,
): Promise<boolean> {
  if (nextBranchId === null) return true
  const [found] = await transaction.query(sql`
    with recursive ancestors as (
      select parent_id as id from offshoot.branches where id = ${branchId}
      union all
      select b.parent_id from ancestors a join offshoot.branches b on b.id = a.id
    )
    select from ancestors where id = ${nextBranchId}`)
  return found !== undefined
}
