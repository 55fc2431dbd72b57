import type { Database } from '../../postgres/database.js'
import { isNodeUnreachable } from '../../postgres/failures.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sizeHeaps } from '../../rows/layout/heap-sizes.js'
import { storedFileBytes, storedRowBytes } from '../../telemetry/events.js'
import {
  findDueMeasurement,
  insertMissingUsage,
  postponeMeasurement,
  sumUsage,
  updateMeasurement,
  updateUsage,
} from './queries.js'

/*
 * Workspaces are measured in the background, in steps that each measure a bounded number of heaps.
 * Processes can do this concurrently: each skips workspaces that another process has locked.
 */

/** Heaps that one step measures. PostgreSQL queries the file system for each file of each heap. */
const STEP_HEAPS = 200
/** New workspaces that one step registers. */
const STEP_WORKSPACES = 500

/** How often a workspace with a quota is measured. */
export const QUOTA_SECONDS = 60
/** How often a workspace without a quota is measured. The result is only shown. */
const NO_QUOTA_SECONDS = 60 * 60

/** Measures some heaps of a workspace that is due. Returns whether there may be more to measure. */
export async function measureUsage(
  database: Database,
  options: { bytesMaxDefault: number | null; heapsMax?: number },
): Promise<boolean> {
  const { bytesMaxDefault, heapsMax = STEP_HEAPS } = options
  let measured: string | undefined
  const step = runTransaction(
    database,
    async (transaction) => {
      const due = await findDueMeasurement(transaction, { bytesMaxDefault })
      measured = due?.workspaceId
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
  return step.catch(async (error: unknown) => {
    if (measured === undefined || !isNodeUnreachable(error)) throw error
    // Workspaces on other nodes must not wait for this one.
    await postponeMeasurement(database, { workspaceId: measured, seconds: QUOTA_SECONDS })
    return true
  })
}

/** Updates the metrics with the totals of all workspaces. */
export async function countStoredBytes(database: Database): Promise<void> {
  const { rowBytes, fileBytes } = await sumUsage(database)
  storedRowBytes.set(rowBytes)
  storedFileBytes.set(fileBytes)
}
