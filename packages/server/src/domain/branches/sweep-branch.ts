import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { deleteUnseenVersions, dropUnusedHeap } from '../../rows/branches.js'
import { collected } from '../../telemetry/events.js'
import { deleteUnusedBranches } from './unused-branches.js'

/**
 * Looks at one branch that may have lost a reader, and does one step of what follows from it. Says
 * whether there may be more to do. Any number of processes may.
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
      // What is asked for from here on may come too late for this look, and gets one of its own.
      const seen = await transaction.query<{ id: string }>(sql`
        select id from offshoot.sweeps where branch_id = ${branchId}`)
      await deleteUnusedBranches(transaction, [branchId])
      if (await dropUnusedHeap(transaction, branchId)) return { heap: 1, version: 0 }
      const versions = await deleteUnseenVersions(transaction, branchId)
      if (versions > 0) return { heap: 0, version: versions }
      await transaction.query(sql`
        delete from offshoot.sweeps where id = any(${seen.map(({ id }) => id)}::bigint[])`)
      return { heap: 0, version: 0 }
    },
    // Each statement must see what others have committed while this one waited for them.
    { isolation: 'read committed' },
  )
  if (step === undefined) return false
  collected.add('heap', step.heap)
  collected.add('version', step.version)
  return true
}
