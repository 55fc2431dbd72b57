import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { collected } from '../../telemetry/events.js'
import { deleteBranchUnchecked } from './delete-branch.js'
import { listExpiredBranches } from './queries.js'

/** Few enough that the locks of one transaction are short. */
const BATCH = 10

/** Deletes the branches whose time is over, and says how many. Any number of processes may. */
export async function deleteExpiredBranches(database: Database): Promise<number> {
  let total = 0
  for (;;) {
    const count = await runTransaction(
      database,
      async (transaction) => {
        const branches = await listExpiredBranches(transaction, { limit: BATCH })
        for (const branch of branches) await deleteBranchUnchecked(transaction, branch)
        return branches.length
      },
      // A lock may be had a moment after someone changed the row; what counts is how it is then.
      { isolation: 'read committed' },
    )
    collected.add('branch', count)
    total += count
    if (count < BATCH) return total
  }
}
