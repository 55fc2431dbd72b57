import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sizeHeaps } from '../../rows/branches.js'
import { storedFileBytes, storedRowBytes } from '../../telemetry/events.js'
import {
  findDueMeasurement,
  insertMissingUsage,
  sumUsage,
  updateMeasurement,
  updateUsage,
} from './queries.js'

/*
 * Workspaces are measured in the background, in steps that each look at a bounded number of heaps. Any
 * number of processes may do this at once: each takes what no other has in hand.
 */

/** Heaps that one step sizes; PostgreSQL asks the file system for each file of each. */
const STEP_HEAPS = 200
/** New workspaces that one step takes up. */
const STEP_WORKSPACES = 500

/** How often a workspace with a quota is measured. */
export const QUOTA_SECONDS = 60
/** How often a workspace without one is measured, which only informs. */
export const NO_QUOTA_SECONDS = 60 * 60

/** Measures some heaps of a workspace that is due. Says whether there may be more to measure. */
export async function measureUsage(
  database: Database,
  options: { bytesMaxDefault: number | null; heapsMax?: number },
): Promise<boolean> {
  const { bytesMaxDefault, heapsMax = STEP_HEAPS } = options
  return runTransaction(
    database,
    async (transaction) => {
      const due = await findDueMeasurement(transaction, { bytesMaxDefault })
      if (due === undefined) return insertMissingUsage(transaction, STEP_WORKSPACES)
      const { workspaceId, databaseIds, heapId: afterId, hasQuota } = due
      const { bytes, lastId } = await sizeHeaps(transaction, { databaseIds, afterId, heapsMax })
      const rowBytes = due.heapBytes + bytes
      if (lastId === undefined) {
        const nextInSeconds = hasQuota ? QUOTA_SECONDS : NO_QUOTA_SECONDS
        await updateUsage(transaction, { workspaceId, rowBytes, nextInSeconds })
      } else {
        await updateMeasurement(transaction, { workspaceId, heapId: lastId, heapBytes: rowBytes })
      }
      return true
    },
    { isolation: 'read committed' },
  )
}

/** Sets the totals among the metrics. */
export async function countStoredBytes(database: Database): Promise<void> {
  const { rowBytes, fileBytes } = await sumUsage(database)
  storedRowBytes.set(rowBytes)
  storedFileBytes.set(fileBytes)
}
