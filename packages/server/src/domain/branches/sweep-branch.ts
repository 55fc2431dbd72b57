import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { deleteUnseenVersions, dropSkipped, dropUnusedHeap } from '../../rows/branches.js'
import { releaseKeptIndexes } from '../../rows/indexes.js'
import { collected } from '../../telemetry/events.js'
import { deleteUnusedBranches } from './unused-branches.js'

/**
 * Takes one branch from the queue of branches that may have lost a reader, and executes one step of
 * its garbage collection: drops a heap, or deletes versions that no one reads. Returns whether there
 * may be more to do. Processes can run it concurrently.
 */
export async function sweepBranch(database: Database): Promise<boolean> {
  const step = await runTransaction(
    database,
    async (transaction) => {
      const [sweep] = await transaction.query<{ branchId: string }>(sql`
        select branch_id as "branchId"
        from offshoot.sweeps
        order by id
        limit 1
        for update skip locked`)
      if (sweep === undefined) return undefined
      const { branchId } = sweep
      // Requests that arrive after this statement are kept: this run may not see their cause.
      const seen = await transaction.query<{ id: string }>(sql`
        select id from offshoot.sweeps where branch_id = ${branchId}`)
      await deleteUnusedBranches(transaction, [branchId])
      await releaseKeptIndexes(transaction, branchId)
      if (await dropUnusedHeap(transaction, branchId)) return { heap: 1, version: 0 }
      if (await dropSkipped(transaction, branchId)) return { heap: 1, version: 0 }
      const versions = await deleteUnseenVersions(transaction, branchId)
      if (versions > 0) return { heap: 0, version: versions }
      await transaction.query(sql`
        delete from offshoot.sweeps where id = any(${seen.map(({ id }) => id)}::bigint[])`)
      return { heap: 0, version: 0 }
    },
    // After waiting for a lock, each statement must see what was committed meanwhile.
    { isolation: 'read committed' },
  )
  if (step === undefined) return false
  collected.add('heap', step.heap)
  collected.add('version', step.version)
  return true
}
