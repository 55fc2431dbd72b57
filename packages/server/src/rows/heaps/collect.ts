import type { Database, Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { collected } from '../../telemetry/events.js'
import { type HeapAddress, pastName } from '../layout/layout.js'
import { removeEach } from '../layout/storage-hold.js'
import { dropHeap } from './heap-ddl.js'

/*
 * Unused storage is deleted in the background, in small steps with a transaction each. Several processes may
 * do this at once; each skips rows that another has locked.
 */

/** Maximum number of rows deleted by one step. */
const STEP_ROWS = 1000

/** Heaps that one step drops. */
const STEP_HEAPS = 50

/** Drops heaps whose branch no longer exists. Returns whether there may be more. */
export async function collectHeap(database: Database): Promise<boolean> {
  const heaps = await database.query<{ id: string }>(sql`
    select h.id
    from offshoot.heaps h
    where not exists (select from offshoot.branches b where b.id = h.branch_id)
    -- Heaps that cannot be dropped must not always be the first ones.
    order by random()
    limit ${STEP_HEAPS}`)
  const dropped = await removeEach(database, heaps, dropOrphan)
  collected.add('heap', dropped)
  return dropped > 0
}

/** Returns whether it dropped the heap: another process may have done so. */
async function dropOrphan(transaction: Queryable, { id }: { id: string }): Promise<boolean> {
  const [heap] = await transaction.query<HeapAddress>(sql`
    select database_id as "databaseId", id as "heapId"
    from offshoot.heaps
    where id = ${id}
    for update skip locked`)
  if (heap === undefined) return false
  await dropHeap(transaction, heap)
  return true
}

interface HeapOfBranch {
  readonly branchId: string
  readonly heapId: string
}

/** Drops a heap of a deleted branch or removed table, if the branch has no forks. Returns whether it did. */
export async function dropUnusedHeap(
  transaction: Queryable,
  { branchId, heapId }: HeapOfBranch,
): Promise<boolean> {
  const [heap] = await transaction.query<HeapAddress>(sql`
    select h.database_id as "databaseId", h.id as "heapId"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    where h.id = ${heapId} and b.id = ${branchId}
      and not exists (select from offshoot.branches f where f.parent_id = b.id)
      and (
        b.deleted_at is not null
        or not exists (
          select from jsonb_array_elements(s.document -> 'tables') t
          where (t ->> 'id')::bigint = h.table_id
        )
      )
    for update of h`)
  if (heap === undefined) return false
  await dropHeap(transaction, heap)
  return true
}

/**
 * Deletes some row versions of a heap that no fork of its branch can see. Returns how many; 0 means that none
 * are left. With `forkEpochs`, only looks at versions that forks of these epochs could see. They are found by an
 * index: a version that only such a fork could see was replaced before the next remaining fork was taken.
 */
export async function deleteUnseenVersions(
  transaction: Queryable,
  options: HeapOfBranch & { readonly forkEpochs: readonly number[] | null },
): Promise<number> {
  const { branchId, heapId, forkEpochs } = options
  // A reset moves the heaps to another branch, and then the forks that read them. The row lock makes it
  // wait for this step, which could otherwise see a heap whose forks are already moved.
  const [heap] = await transaction.query<HeapAddress>(sql`
    select database_id as "databaseId", id as "heapId"
    from offshoot.heaps
    where id = ${heapId} and branch_id = ${branchId} and kind = 'heap'
    for key share`)
  if (heap === undefined) return 0
  const past = pastName(heap)
  const { forks, isSettled } = await readForks(transaction, branchId)
  const deleted = await transaction.query(sql`
    delete from ${past}
    where ctid = any(array(
      select p.ctid
      from ${candidates(past, { forks, forkEpochs })}
      where ${isSettled} and not exists (
        select from ${forks} f
        where f.fork_epoch >= p.epoch
          and f.fork_epoch < p.until
      )
      limit ${STEP_ROWS}
    ))
    returning 1`)
  return deleted.length
}

/**
 * Returns a relation with the epochs of the forks of a branch, and a condition on versions `p` which only these forks
 * can see. The epochs are read before if the rows are apart from the catalogue. A fork that is taken
 * meanwhile sees no version that was replaced before.
 */
async function readForks(
  transaction: Queryable,
  branchId: string,
): Promise<{ forks: Sql; isSettled: Sql }> {
  if (!transaction.server.hasRowsApart) {
    const forks = sql`(select fork_epoch from offshoot.branches where parent_id = ${branchId})`
    return { forks, isSettled: sql`true` }
  }
  const [branch] = await transaction.query<{ epoch: number; forkEpochs: number[] }>(sql`
    select b.epoch,
      array(select distinct fork_epoch from offshoot.branches where parent_id = b.id) as "forkEpochs"
    from offshoot.branches b
    where b.id = ${branchId}`)
  const { epoch = 0, forkEpochs = [] } = branch ?? {}
  return {
    forks: sql`(select unnest(${forkEpochs}::integer[]) as fork_epoch)`,
    isSettled: sql`p.until <= ${epoch}::integer`,
  }
}

/** Returns the versions `p` of a past that could be seen by forks of some epochs and by no later fork. */
function candidates(
  past: Sql,
  { forks, forkEpochs }: { forks: Sql; forkEpochs: readonly number[] | null },
): Sql {
  if (forkEpochs === null) return sql`${past} p`
  return sql`unnest(${forkEpochs}::integer[]) e (epoch)
      cross join lateral (
        select coalesce(min(f.fork_epoch), ${EPOCH_MAX}) as epoch
        from ${forks} f
        where f.fork_epoch >= e.epoch
      ) next
      join ${past} p on p.epoch <= e.epoch and p.until > e.epoch and p.until <= next.epoch`
}

const EPOCH_MAX = 2 ** 31 - 1

/**
 * Queues a branch for the collector: the branch, or row versions that it keeps for forks, may be unused now.
 * `forkEpoch` is that of a deleted fork, if only the versions that it could see are concerned.
 */
export const insertSweepSql = ({
  databaseId,
  branchId,
  forkEpoch,
}: BranchOfDatabase & { readonly forkEpoch: number | null }): Sql =>
  prepared(sql`
    insert into offshoot.work (kind, database_id, subject, details)
    values ('sweep', ${databaseId}, ${branchId}, jsonb_build_array(${forkEpoch}::integer))`)

interface BranchOfDatabase {
  readonly databaseId: string
  readonly branchId: string
}
