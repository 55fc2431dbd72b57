import type { Database, Queryable } from '../../postgres/database.js'
import {
  REPEATABLE_WORK,
  runTransaction,
  type TransactionOptions,
} from '../../postgres/run-transaction.js'
import { raw, sql } from '../../postgres/sql.js'
import { toCall } from '../../postgres/statement.js'
import { errorText, postponement } from '../../postgres/work-queue.js'
import {
  deleteUnseenVersions,
  dropSkipped,
  dropUnusedHeap,
  listHeapsAfter,
} from '../../rows/branches.js'
import { releaseKeptIndexes } from '../../rows/indexes.js'
import { collected, sweepFailures } from '../../telemetry/events.js'
import { deleteUnusedBranches } from './unused-branches.js'

/** One statement of a sweep may run for this long. */
const STATEMENT_MS = 20_000
/** A sweep waits for this long for a lock. */
const LOCK_MS = 2000
/** Maximum number of heaps that one step looks at. */
const STEP_HEAPS = 50
/** Requests for branches that no longer exist, which one step removes. */
const STEP_GONE = 500

/** A step is a transaction. After waiting for a lock, each statement must see what was committed meanwhile. */
const STEP = {
  ...REPEATABLE_WORK,
  opening: [
    toCall(sql`set local statement_timeout = ${raw(String(STATEMENT_MS))}`),
    toCall(sql`set local lock_timeout = ${raw(String(LOCK_MS))}`),
  ],
  beginsLate: true,
} as const satisfies TransactionOptions

interface Sweep {
  readonly id: string
  readonly branchId: string
  /** The sweep is done with the heaps up to this one. Null: it has not begun. */
  readonly heapId: string | null
  /** Only versions that forks of these epochs could see are concerned. Null: all versions. */
  readonly forkEpochs: readonly number[] | null
}

interface Step {
  readonly heap: number
  readonly version: number
}

/** Where a sweep is, to go on behind a heap that fails. */
interface Position {
  readonly sweepId: string
  /** Null before the first heap. */
  heapId: string | null
}

/**
 * Takes one branch from the queue of branches that may have lost a reader, and executes one step of
 * its garbage collection: drops a heap, or deletes versions that no one reads. Returns whether there
 * may be more to do. Processes can run it concurrently. A sweep goes from heap to heap. If one fails, it
 * goes on behind it, and starts over some time after it is done with the others.
 */
export async function sweepBranch(database: Database): Promise<boolean> {
  let position: Position | undefined
  try {
    const step = await runTransaction(
      database,
      async (transaction) => {
        const sweep = await findDue(transaction)
        if (sweep === undefined) {
          position = undefined
          return undefined
        }
        const current: Position = { sweepId: sweep.id, heapId: null }
        position = current
        return runStep(transaction, sweep, current)
      },
      STEP,
    )
    if (step === undefined) return false
    collected.add('heap', step.heap)
    collected.add('version', step.version)
    return true
  } catch (error) {
    if (position === undefined) throw error
    await goOnBehind(database, position, errorText(error))
    return true
  }
}

async function findDue(transaction: Queryable): Promise<Sweep | undefined> {
  const [due] = await transaction.query<Sweep>(sql`
    select id, branch_id as "branchId", heap_id as "heapId", fork_epochs as "forkEpochs"
    from offshoot.sweeps
    where due_at <= now()
    order by due_at, id
    limit 1
    for update skip locked`)
  return due
}

async function runStep(transaction: Queryable, sweep: Sweep, position: Position): Promise<Step> {
  const { branchId, heapId: afterId } = sweep
  if (afterId === null) {
    if ((await deleteGone(transaction, sweep)) === 0) await begin(transaction, sweep)
    return { heap: 0, version: 0 }
  }
  const heaps = await listHeapsAfter(transaction, branchId, { afterId, limit: STEP_HEAPS })
  let doneId = afterId
  for (const heapId of heaps) {
    position.heapId = heapId
    if (await dropHeapOf(transaction, { branchId, heapId })) {
      await updatePosition(transaction, { ...sweep, heapId })
      return { heap: 1, version: 0 }
    }
    const version = await deleteUnseenVersions(transaction, {
      branchId,
      heapId,
      forkEpochs: sweep.forkEpochs,
    })
    if (version > 0) {
      // There may be more of them in this heap.
      await updatePosition(transaction, { ...sweep, heapId: doneId })
      return { heap: 0, version }
    }
    doneId = heapId
  }
  if (heaps.length < STEP_HEAPS) await end(transaction, sweep)
  else await updatePosition(transaction, { ...sweep, heapId: doneId })
  return { heap: 0, version: 0 }
}

async function dropHeapOf(
  transaction: Queryable,
  heap: { branchId: string; heapId: string },
): Promise<boolean> {
  return (await dropUnusedHeap(transaction, heap)) || (await dropSkipped(transaction, heap))
}

/**
 * If the branch no longer exists, deletes this request and others for such branches: there is nothing to sweep, and
 * `collectHeap` drops their heaps. Otherwise they would be the larger part of the queue. Returns their number.
 */
async function deleteGone(transaction: Queryable, { branchId }: Sweep): Promise<number> {
  const deleted = await transaction.query(sql`
    delete from offshoot.sweeps
    where not exists (select from offshoot.branches where id = ${branchId}) and id = any(array(
      select s.id
      from offshoot.sweeps s
      where s.heap_id is null
        and not exists (select from offshoot.branches b where b.id = s.branch_id)
      order by s.due_at, s.id
      limit ${STEP_GONE}
      for update skip locked
    ))
    returning id`)
  return deleted.length
}

/** Begins a sweep. It serves all requests for the branch so far; later ones cause another sweep. */
async function begin(transaction: Queryable, { id, branchId }: Sweep): Promise<void> {
  const requests = await transaction.query<{ forkEpoch: number | null }>(sql`
    with others as (
      delete from offshoot.sweeps
      where id = any(array(
        select id
        from offshoot.sweeps
        where branch_id = ${branchId} and heap_id is null and id <> ${id}
        for update skip locked
      ))
      returning fork_epoch, fork_epochs
    ),
    requests as (
      select fork_epoch, fork_epochs from others
      union all
      select fork_epoch, fork_epochs from offshoot.sweeps where id = ${id}
    )
    -- A sweep that starts over has the epochs of earlier requests.
    select distinct e.epoch as "forkEpoch"
    from requests r
    cross join unnest(coalesce(r.fork_epochs, array[r.fork_epoch])) e (epoch)`)
  const epochs = requests.map(({ forkEpoch }) => forkEpoch)
  const known = epochs.filter((epoch) => epoch !== null)
  const forkEpochs = known.length < epochs.length ? null : known
  await transaction.query(sql`
    update offshoot.sweeps
    set fork_epoch = null, fork_epochs = ${forkEpochs}::integer[]
    where id = ${id}`)
  await deleteUnusedBranches(transaction, [branchId])
  await releaseKeptIndexes(transaction, branchId)
  await updatePosition(transaction, { id, heapId: '0' })
}

/** Notes how far a sweep is. Other branches have their turn before it goes on. */
async function updatePosition(
  transaction: Queryable,
  { id, heapId }: Pick<Sweep, 'id' | 'heapId'>,
): Promise<void> {
  await transaction.query(sql`
    update offshoot.sweeps set heap_id = ${heapId}, due_at = clock_timestamp() where id = ${id}`)
}

/** Ends a sweep that is done with all heaps. If one has failed, it starts over later. */
async function end(transaction: Queryable, { id }: Sweep): Promise<void> {
  const done = await transaction.query(sql`
    delete from offshoot.sweeps where id = ${id} and not has_failed returning id`)
  if (done.length > 0) return
  const [row] = await transaction.query<{ error: string | null }>(sql`
    select error from offshoot.sweeps where id = ${id}`)
  await transaction.query(sql`
    update offshoot.sweeps
    set heap_id = null, has_failed = false, ${postponement(row?.error ?? '')}
    where id = ${id}`)
}

/**
 * Lets a sweep go on behind a heap that has failed, or postpones all of it if it could not begin. If this
 * fails too, PostgreSQL is at fault, not the branch.
 */
async function goOnBehind(database: Database, position: Position, error: string): Promise<void> {
  const { sweepId, heapId } = position
  sweepFailures.add()
  await database.query(sql`
    update offshoot.sweeps
    set ${
      heapId === null
        ? postponement(error)
        : sql`heap_id = ${heapId}, has_failed = true, error = ${error}, due_at = now()`
    }
    where id = ${sweepId}`)
}
