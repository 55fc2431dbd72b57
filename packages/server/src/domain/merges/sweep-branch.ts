import type { Database, Queryable } from '../../postgres/database.js'
import {
  REPEATABLE_WORK,
  runTransaction,
  type TransactionOptions,
} from '../../postgres/run-transaction.js'
import { raw, sql } from '../../postgres/sql.js'
import { toCall } from '../../postgres/statement.js'
import { errorText, type Work } from '../../postgres/work.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { collected } from '../../telemetry/events.js'
import { deleteUnusedBranches } from './unused-branches.js'

/** One statement of a sweep may run for this long. */
const STATEMENT_MS = 20_000
/** A sweep waits for this long for a lock. */
const LOCK_MS = 2000
/** Maximum number of heaps that one step looks at. */
const STEP_HEAPS = 50

/** A step is a transaction. After waiting for a lock, each statement must see what was committed meanwhile. */
const STEP = {
  ...REPEATABLE_WORK,
  opening: [
    toCall(sql`set local statement_timeout = ${raw(String(STATEMENT_MS))}`),
    toCall(sql`set local lock_timeout = ${raw(String(LOCK_MS))}`),
  ],
  beginsLate: true,
} as const satisfies TransactionOptions

/**
 * Executes one step of the garbage collection of a branch that may have lost a reader: drops a heap, or deletes versions
 * that no one reads. Returns whether there may be more to do. The position is the heap that the sweep is done with. If a
 * heap fails, the sweep goes on behind it, and fails when it is done with the others.
 */
export async function sweepBranch(database: Database, work: Work): Promise<boolean> {
  if (work.position === null) {
    work.error = null
    await runTransaction(database, (transaction) => begin(transaction, work.subject), STEP)
    work.position = '0'
  }
  const at = { afterId: work.position, failingId: work.position }
  try {
    const step = await runTransaction(
      database,
      (transaction) => runStep(transaction, work, at),
      STEP,
    )
    collected.add('heap', step.heap)
    collected.add('version', step.version)
    work.position = at.afterId
    if (!step.isLast) return true
  } catch (error) {
    if (at.failingId === work.position) throw error
    work.position = at.failingId
    work.error = errorText(error)
    return true
  }
  if (work.error === null) return false
  work.position = null
  throw new Error(work.error)
}

async function begin(transaction: Queryable, branchId: string): Promise<void> {
  await deleteUnusedBranches(transaction, [branchId])
  await new StoredBranch(transaction, branchId).beginSweep()
}

interface Step {
  readonly heap: number
  readonly version: number
  readonly isLast: boolean
}

/** Notes in `at` with which heap it is done, and which one it looks at. */
async function runStep(
  transaction: Queryable,
  { subject: branchId, details, position }: Work,
  at: { afterId: string; failingId: string },
): Promise<Step> {
  at.afterId = position ?? '0'
  at.failingId = at.afterId
  // Each request names the epoch of a fork whose versions are concerned. Null: all versions.
  const forkEpochs = details.includes(null) ? null : (details as readonly number[])
  const branch = new StoredBranch(transaction, branchId)
  const heaps = await branch.listHeapsAfter(at.afterId, STEP_HEAPS)
  for (const heapId of heaps) {
    at.failingId = heapId
    const { isDropped, versions } = await branch.sweepHeap(heapId, forkEpochs)
    // There may be more versions in this heap.
    if (versions === 0) at.afterId = heapId
    if (isDropped || versions > 0) {
      return { heap: isDropped ? 1 : 0, version: versions, isLast: false }
    }
  }
  return { heap: 0, version: 0, isLast: heaps.length < STEP_HEAPS }
}
