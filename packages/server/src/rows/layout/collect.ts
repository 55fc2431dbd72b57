import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { collected } from '../../telemetry/events.js'
import { dropHeap } from './heap-ddl.js'
import { pastName } from './layout.js'
import { floorAbove } from './record-version.js'
import { mayRemoveStorage } from './storage-hold.js'

/*
 * Unused storage is deleted in the background, in small steps with a transaction each. Several processes may
 * do this at once; each skips rows that another has locked.
 */

/** Maximum number of rows deleted by one step. */
const STEP_ROWS = 1000

/** Drops one heap whose branch no longer exists. Returns whether there may be more. */
export async function collectHeap(database: Database): Promise<boolean> {
  const isDropped = await runTransaction(
    database,
    async (transaction) => {
      if (!(await mayRemoveStorage(transaction))) return false
      const [heap] = await transaction.query<{ id: string }>(sql`
        select h.id
        from offshoot.heaps h
        where not exists (select from offshoot.branches b where b.id = h.branch_id)
        limit 1
        for update skip locked`)
      if (heap === undefined) return false
      await dropHeap(transaction, heap.id)
      return true
    },
    { isolation: 'read committed' },
  )
  if (isDropped) collected.add('heap')
  return isDropped
}

/**
 * Drops one heap of a deleted branch or removed table, if the branch has no forks. Returns whether it did.
 */
export async function dropUnusedHeap(transaction: Queryable, branchId: string): Promise<boolean> {
  const [heap] = await transaction.query<{ id: string }>(sql`
    select h.id
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    where b.id = ${branchId} and h.kind <> 'fold'
      and not exists (select from offshoot.branches f where f.parent_id = b.id)
      and (
        b.deleted_at is not null
        or not exists (
          select from jsonb_array_elements(s.document -> 'tables') t
          where (t ->> 'id')::bigint = h.table_id
        )
      )
    limit 1
    for update of h`)
  if (heap === undefined) return false
  await dropHeap(transaction, heap.id)
  return true
}

/**
 * Deletes some row versions that no fork of a branch can see. Returns how many; 0 means that none are left.
 * With `forkEpoch`, only looks at versions that a fork of that epoch could see. They are found by an index:
 * a version that only this fork could see was replaced before the next remaining fork was taken.
 */
export async function deleteUnseenVersions(
  transaction: Queryable,
  branchId: string,
  forkEpoch: number | null,
): Promise<number> {
  // A reset moves the heaps to another branch, and then the forks that read them. The row locks make it
  // wait for this step, which could otherwise see heaps whose forks are already moved.
  const heaps = await transaction.query<{ id: string }>(sql`
    select id
    from offshoot.heaps
    where branch_id = ${branchId} and kind = 'heap'
    order by id
    for key share`)
  for (const heap of heaps) {
    const past = pastName(heap.id)
    const deleted = await transaction.query(sql`
      delete from ${past}
      where ctid = any(array(
        select p.ctid
        from ${past} p
        where ${seenAt(branchId, forkEpoch)} and not exists (
          select from offshoot.branches f
          where f.parent_id = ${branchId}
            and f.fork_epoch >= p.epoch
            and f.fork_epoch < p.until
        )
        limit ${STEP_ROWS}
      ))
      returning 1`)
    if (deleted.length > 0) return deleted.length
  }
  return 0
}

/** Returns the condition that a version `p` could be seen by a fork of an epoch and by no later fork. */
function seenAt(branchId: string, forkEpoch: number | null): Sql {
  if (forkEpoch === null) return sql`true`
  return sql`p.epoch <= ${forkEpoch} and p.until > ${forkEpoch} and p.until <= coalesce((
          select min(f.fork_epoch)
          from offshoot.branches f
          where f.parent_id = ${branchId} and f.fork_epoch >= ${forkEpoch}
        ), ${EPOCH_MAX})`
}

const EPOCH_MAX = 2 ** 31 - 1

/** The time for which the version of a deleted record is remembered by its id. */
const DELETED_SECONDS = 24 * 60 * 60

/**
 * Forgets some records that were deleted long ago, and raises the floors of their heaps above their versions.
 * Both happen in one statement, so that every snapshot has one or the other. Returns whether there may be more.
 */
export async function collectDeletedRecords(
  database: Queryable,
  { ageSeconds = DELETED_SECONDS }: { ageSeconds?: number } = {},
): Promise<boolean> {
  const [row] = await database.query<{ count: number }>(sql`
    with old as (
      delete from offshoot.deleted_records
      where (heap_id, id) in (
        select heap_id, id
        from offshoot.deleted_records
        where deleted_at <= now() - make_interval(secs => ${ageSeconds})
        order by deleted_at
        limit ${STEP_ROWS}
        for update skip locked
      )
      returning heap_id, version
    ),
    raised as (
      update offshoot.heaps h
      set given_floor = o.floor
      from (select heap_id, ${floorAbove(sql`max(version)`)} as floor from old group by heap_id) o
      where h.id = o.heap_id and h.given_floor < o.floor
    )
    select count(*)::integer as count from old`)
  const count = row?.count ?? 0
  collected.add('deleted-record', count)
  return count > 0
}

/**
 * Queues a branch for the collector: the branch, or row versions that it keeps for forks, may be unused now.
 * `forkEpoch` is that of a deleted fork, if only the versions that it could see are concerned.
 */
export async function insertSweep(
  transaction: Queryable,
  branchId: string,
  forkEpoch: number | null = null,
): Promise<void> {
  await transaction.query(sql`
    insert into offshoot.sweeps (branch_id, fork_epoch) values (${branchId}, ${forkEpoch}::integer)`)
}

/** Counting stops here; larger numbers are not told apart. */
const PENDING_MAX = 100_000

/** The branches queued for the collector: their number, and the age of the oldest request. */
export interface SweepBacklog {
  readonly count: number
  readonly ageSeconds: number
}

export async function measureSweeps(database: Queryable): Promise<SweepBacklog> {
  const [row] = await database.query<SweepBacklog>(sql`
    select count(*)::integer as count,
      coalesce(extract(epoch from now() - min(created_at)), 0)::double precision as "ageSeconds"
    from (select created_at from offshoot.sweeps order by id limit ${PENDING_MAX}) sweeps`)
  return row ?? { count: 0, ageSeconds: 0 }
}
