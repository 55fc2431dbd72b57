import { withBranches } from '../../domain/branches/lock-branches.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { Storage } from '../../rows/storage.js'
import type { StagedRows } from '../../rows/writing/staged-rows.js'
import type { RecordContext } from './records.js'

/**
 * Gives the branch the heap that a stream has filled, in place of its own, which is empty. The time for which it locks
 * the branch does not depend on the number of rows. Returns false, and has no effect, if the rows must be inserted
 * instead. `finish` runs in the transaction that gives the heap.
 */
export async function publishAsHeap(
  { storage, session: { access, branch } }: RecordContext & { readonly storage: Storage },
  rows: StagedRows,
  finish: (transaction: OpenTransaction) => Promise<unknown>,
): Promise<boolean> {
  if (rows.heap === undefined) return false
  await rows.requirePresent(storage.database)
  return withBranches(storage, [access], async (transaction) => {
    if (!(await branch.takeHeap(transaction, rows))) return false
    await finish(branch.inTransaction(transaction.client))
    return true
  })
}
