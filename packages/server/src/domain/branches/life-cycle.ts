import type { Sessions } from '../../data/records/session.js'
import type { Database } from '../../postgres/database.js'
import { deleteExpiredBranches } from './expire-branches.js'

/** What must happen every few seconds so that branches end when they should, and no sooner. */
export async function runLifeCycle(services: {
  readonly database: Database
  readonly sessions: Sessions
}): Promise<void> {
  await services.sessions.flushUses()
  await deleteExpiredBranches(services.database)
}
