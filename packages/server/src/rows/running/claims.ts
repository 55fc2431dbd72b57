import type { Server } from '../../postgres/server.js'
import { join, sql } from '../../postgres/sql.js'
import { type Call, toCall } from '../../postgres/statement.js'
import { type Heap, heapName } from '../layout/layout.js'

/*
 * A transaction that writes many rows fails if another one changes one of them before it does, and may do so each time that
 * it is repeated. So a repeated one keeps other writers out of the tables that it writes to. It locks them before it takes
 * its snapshot: writes that are not in the snapshot come after it, and are those that are repeated.
 */

/** Conflicts of a transaction until it locks its tables. */
export const CONFLICTS_BEFORE_CLAIM = 2

/** Building an index or collecting garbage keeps the lock from being granted, and writers wait behind it. So it gives up soon. */
const CLAIM_WAIT_MS = 1_000

/** Returns the calls that lock tables until the transaction ends, to run before its first statement that reads. */
export function claimCalls(server: Server, heaps: readonly Heap[]): readonly Call[] {
  // The nodes of a cluster take a snapshot before they wait for a lock.
  if (heaps.length === 0 || server.hasRowsApart) return []
  // A common order prevents deadlocks.
  const names = [...heaps]
    .sort((left, right) => (left.heapId < right.heapId ? -1 : 1))
    .map((heap) => heapName(heap))
  return [
    ...server.limitLockWait(CLAIM_WAIT_MS),
    sql`lock table ${join(names, ', ')} in share row exclusive mode`,
    ...server.limitLockWait(0),
  ].map(toCall)
}
