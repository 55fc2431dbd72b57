import type { Database } from '../../postgres/database.js'
import { isUndefinedTable } from '../../postgres/failures.js'
import { busy } from './alone.js'
import { createMissingGate, queuesOf } from './gate.js'
import { StaleError } from './staleness.js'

/** How long a writer waits in this process for the gate of its branch. */
const WAIT_MS = 10_000

/** Runs one attempt of a transaction that writes to a branch, together with other writers. */
export async function throughGate<Result>(
  database: Database,
  branchId: string,
  attempt: () => Promise<Result>,
): Promise<Result> {
  const queues = queuesOf(database)
  const entered = queues.enter(branchId, 'shared', WAIT_MS)
  if (entered !== true && !(await entered)) throw busy()
  try {
    return await attempt().catch(async (error: unknown) => {
      const mayLackGate = error instanceof StaleError && isUndefinedTable(error.cause)
      if (mayLackGate && (await createMissingGate(database, branchId))) return attempt()
      throw error
    })
  } finally {
    queues.leave(branchId, 'shared')
  }
}
