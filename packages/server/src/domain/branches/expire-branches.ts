import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { collected } from '../../telemetry/events.js'
import { deleteBranchUnchecked } from './delete-branch.js'
import { listExpiredBranches } from './queries.js'

/** Branches per transaction. A small number keeps the locks of a transaction short. */
const BATCH = 10

/** Deletes expired branches and returns their number. Processes can run it concurrently. */
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
      // After waiting for a row lock, PostgreSQL must evaluate the expiry on the newest row version.
      { isolation: 'read committed' },
    )
    collected.add('branch', count)
    total += count
    if (count < BATCH) return total
  }
}
