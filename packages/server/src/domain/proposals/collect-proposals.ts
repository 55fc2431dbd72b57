import { ENDED_PROPOSAL_DAYS_MAX, ENDED_PROPOSALS_MAX } from '@offshoot/contract/proposals'
import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { collected } from '../../telemetry/events.js'
import { deleteUnusedBranches } from '../merges/unused-branches.js'
import { deleteOutdated } from './queries.js'

/** Proposals that one step deletes. */
const STEP = 50

/** Which merged and closed proposals are kept. */
interface Retention {
  readonly days: number
  readonly endedMax: number
}

/** Deletes some merged and closed proposals that are no longer kept, with their states. Returns whether there may be more. */
export async function collectProposals(
  database: Database,
  { days, endedMax }: Retention = {
    days: ENDED_PROPOSAL_DAYS_MAX,
    endedMax: ENDED_PROPOSALS_MAX,
  },
): Promise<boolean> {
  const deleted = await runTransaction(
    database,
    async (transaction) => {
      const rows = await deleteOutdated(transaction, { days, endedMax, limit: STEP })
      const pins = rows.flatMap(({ fromPinId, intoPinId }) => [fromPinId, intoPinId])
      await deleteUnusedBranches(
        transaction,
        pins.filter((id) => id !== null),
      )
      return rows.length
    },
    // After waiting for a lock, each statement must see what was committed meanwhile.
    { isolation: 'read committed' },
  )
  collected.add('proposal', deleted)
  return deleted === STEP
}
