import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { deleteUnseenVersions, dropSkipped, dropUnusedHeap } from '../../rows/branches.js'
import { releaseKeptIndexes } from '../../rows/indexes.js'
import { collected, sweepFailures } from '../../telemetry/events.js'
import { deleteUnusedBranches } from './unused-branches.js'

/** One statement of a sweep may run for this long. */
const STATEMENT_MS = 20_000
/** A sweep waits for this long for a lock. */
const LOCK_MS = 2000
/** A sweep that fails is repeated after this time, which doubles with each failure. */
const REPEAT_SECONDS = 2
const REPEAT_SECONDS_MAX = 3600
/** Maximum number of characters of an error that is kept for operators. */
const ERROR_LENGTH_MAX = 500

interface Sweep {
  readonly id: string
  readonly branchId: string
  readonly forkEpoch: number | null
}

interface Step {
  readonly heap: number
  readonly version: number
}

/**
 * Takes one branch from the queue of branches that may have lost a reader, and executes one step of
 * its garbage collection: drops a heap, or deletes versions that no one reads. Returns whether there
 * may be more to do. Processes can run it concurrently. A branch whose sweep fails goes to the back of
 * the queue, so that it does not block the others.
 */
export async function sweepBranch(database: Database): Promise<boolean> {
  let current: string | undefined
  try {
    const step = await runTransaction(
      database,
      async (transaction) => {
        const branchId = await findDue(transaction)
        current = branchId
        return branchId === undefined ? undefined : runStep(transaction, branchId)
      },
      // After waiting for a lock, each statement must see what was committed meanwhile.
      { isolation: 'read committed' },
    )
    if (step === undefined) return false
    collected.add('heap', step.heap)
    collected.add('version', step.version)
    return true
  } catch (error) {
    if (current === undefined) throw error
    await postpone(database, current, error)
    return true
  }
}

async function findDue(transaction: Queryable): Promise<string | undefined> {
  const [due] = await transaction.query<{ branchId: string }>(sql`
    select branch_id as "branchId"
    from offshoot.sweeps
    where due_at <= now()
    order by due_at, id
    limit 1
    for update skip locked`)
  return due?.branchId
}

async function runStep(transaction: Queryable, branchId: string): Promise<Step> {
  await transaction.query(sql`
    select set_config('statement_timeout', ${String(STATEMENT_MS)}, true),
      set_config('lock_timeout', ${String(LOCK_MS)}, true)`)
  // Requests that arrive after this statement are kept: this run may not see their cause.
  const seen = await transaction.query<Sweep>(sql`
    select id, branch_id as "branchId", fork_epoch as "forkEpoch"
    from offshoot.sweeps
    where branch_id = ${branchId}`)
  await deleteUnusedBranches(transaction, [branchId])
  await releaseKeptIndexes(transaction, branchId)
  if (await dropUnusedHeap(transaction, branchId)) return { heap: 1, version: 0 }
  if (await dropSkipped(transaction, branchId)) return { heap: 1, version: 0 }
  const version = await deleteVersions(transaction, branchId, seen)
  if (version > 0) return { heap: 0, version }
  await transaction.query(sql`
    delete from offshoot.sweeps where id = any(${seen.map(({ id }) => id)}::bigint[])`)
  return { heap: 0, version: 0 }
}

async function deleteVersions(
  transaction: Queryable,
  branchId: string,
  seen: readonly Sweep[],
): Promise<number> {
  const epochs = new Set(seen.map(({ forkEpoch }) => forkEpoch))
  for (const epoch of epochs.has(null) ? [null] : epochs) {
    const count = await deleteUnseenVersions(transaction, branchId, epoch)
    if (count > 0) return count
  }
  return 0
}

/** Moves a branch to the back of the queue. If this fails, PostgreSQL is at fault, not the branch. */
async function postpone(database: Database, branchId: string, error: unknown): Promise<void> {
  const text = (error instanceof Error ? error.message : String(error)).slice(0, ERROR_LENGTH_MAX)
  await database.query(sql`
    update offshoot.sweeps
    set failures = failures + 1, error = ${text},
      due_at = now() + make_interval(
        secs => least(${REPEAT_SECONDS_MAX}, ${REPEAT_SECONDS} * 2 ^ least(failures, 20)))
    where branch_id = ${branchId}`)
  sweepFailures.add()
}
