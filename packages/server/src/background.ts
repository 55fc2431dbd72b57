import { setTimeout as delay } from 'node:timers/promises'
import { COLLECT_TIMES, checkBlobs, collectBlobs } from './data/files/collect.js'
import { renewLinkKeys } from './data/files/links.js'
import { collectUploadClaims } from './data/files/upload-claim.js'
import { collectAnswers } from './data/records/idempotency.js'
import { deleteExpiredBranches } from './domain/branches/expire-branches.js'
import { compactDatabase } from './domain/branches/history/compact-database.js'
import { sweepBranch } from './domain/branches/sweep-branch.js'
import { countStoredBytes, measureUsage } from './domain/quotas/measure.js'
import type { Services } from './http/services.js'
import {
  collectDeletedRecords,
  collectGates,
  collectHeap,
  foldNext,
  measureSweeps,
} from './rows/branches.js'
import { collectStage } from './rows/write.js'
import { sweepAge, sweepsPending } from './telemetry/events.js'

/**
 * Maximum number of consecutive steps of one kind, so that other kinds and requests get their turn.
 */
const STEPS_MAX = 100

type BackgroundServices = Pick<Services, 'database' | 'sessions' | 'files' | 'indexes'>

/** Runs one round of all background work. Each step is short. */
export async function runBackground(services: BackgroundServices): Promise<void> {
  const { database, sessions, files } = services
  const { quotas } = sessions
  // Uses are written first: otherwise a branch in use could expire while a round takes long.
  await endExpiredBranches(services)
  await renewLinkKeys(database)
  await files.links.load(database)
  // Index builds may take long, so the round does not wait for them.
  services.indexes.wake()
  // Written before the measurement, so that this process knows which of its writes the measurement
  // includes.
  await quotas.refresh()
  const steps = [
    () => measureUsage(database, quotas),
    () => compactDatabase(database),
    () => foldNext(database),
    () => sweepBranch(database),
    () => collectHeap(database),
    () => collectGates(database),
    () => collectDeletedRecords(database),
    () => collectStage(database),
    () => collectAnswers(database),
    () => collectUploadClaims(database),
    () => checkBlobs(database, COLLECT_TIMES),
    () => collectBlobs({ database, blobs: files.blobs }, COLLECT_TIMES),
  ]
  const failures: unknown[] = []
  for (const step of steps) {
    try {
      for (let count = 0; count < STEPS_MAX; count++) {
        if (!(await step())) break
      }
    } catch (error) {
      // The other kinds do not depend on this one.
      failures.push(error)
    }
    await sessions.flushUses()
  }
  await quotas.refresh()
  await countStoredBytes(database)
  const { count, ageSeconds } = await measureSweeps(database)
  sweepsPending.set(count)
  sweepAge.set(ageSeconds)
  if (failures.length > 0) throw failures[0]
}

/**
 * Deletes the branches whose expiry has passed. The uses that this process has seen are written first,
 * because they move expiries ahead.
 */
export async function endExpiredBranches({
  database,
  sessions,
}: Pick<Services, 'database' | 'sessions'>): Promise<void> {
  await sessions.flushUses()
  await deleteExpiredBranches(database)
}

/** Runs rounds until told to stop; resolves when the last one is over. */
export function startBackground(
  services: BackgroundServices,
  options: { pauseMs: number; log: { warn(details: object, line: string): void } },
): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const running = (async () => {
    while (!stopping.signal.aborted) {
      try {
        await delay(options.pauseMs, undefined, { signal: stopping.signal, ref: false })
        await runBackground(services)
      } catch (error) {
        // PostgreSQL may be unreachable; the next round tries again.
        if (!stopping.signal.aborted)
          options.log.warn(
            { err: error },
            'background work failed; it continues with the next round',
          )
      }
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await running
      await services.sessions.flushUses()
    },
  }
}
