import { withBranches } from '../../domain/branches/lock-branches.js'
import type { OpenTransaction } from '../../rows/read.js'
import { openTransaction, requireGuard, type StagedRows, takeFilledHeap } from '../../rows/write.js'
import type { RecordContext } from './records.js'

/**
 * Gives the branch the heap that a stream has filled, in place of its own, which is empty. The time for which it locks
 * the branch does not depend on the number of rows. Returns false, and has no effect, if the rows must be inserted
 * instead. `finish` runs in the transaction that gives the heap.
 */
export async function publishAsHeap(
  { database, session: { access, guard } }: RecordContext,
  rows: StagedRows,
  finish: (transaction: OpenTransaction) => Promise<unknown>,
): Promise<boolean> {
  const { heap } = rows
  if (heap === undefined) return false
  await rows.requirePresent(database)
  return withBranches(database, [access], async (transaction) => {
    await requireGuard(transaction, guard)
    if (!(await takeFilledHeap(transaction, heap))) return false
    await finish(openTransaction(database, guard, { client: transaction.client }))
    return true
  })
}
