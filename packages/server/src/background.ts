import { setTimeout as delay } from 'node:timers/promises'
import { COLLECT_TIMES, checkBlobs, collectBlobs } from './data/files/collect.js'
import { renewLinkKeys } from './data/files/links.js'
import { collectUploadClaims } from './data/files/upload-claim.js'
import { collectAnswers } from './data/records/idempotency.js'
import { deleteExpiredBranches } from './domain/branches/expire-branches.js'
import { compactDatabase } from './domain/branches/history/compact-database.js'
import { collectPins } from './domain/branches/pins.js'
import { sweepBranch } from './domain/branches/sweep-branch.js'
import { countStoredBytes, measureUsage } from './domain/quotas/measure.js'
import { collectMigrations } from './domain/schemas/unused-migrations.js'
import type { Services } from './http/services.js'
import { analyzeGrown } from './postgres/analyze-grown.js'
import { prepareNewNodes } from './postgres/cluster-functions.js'
import { isNodeUnreachable, isUnreachable } from './postgres/failures.js'
import { measureServer } from './postgres/server-state.js'
import { trimLog } from './postgres/trim-log.js'
import {
  absorbNext,
  collectGates,
  collectHeap,
  collectSchema,
  collectSpares,
  countFoldWork,
  foldNext,
  measureSweeps,
} from './rows/branches.js'
import { collectStage } from './rows/write.js'
import { foldsPending, sweepAge, sweepsPending } from './telemetry/events.js'

/**
 * Maximum number of consecutive steps of one kind, so that other kinds and requests get their turn.
 */
const STEPS_MAX = 100
/** Steps of one kind end after this time, for the same reason. The next round continues. */
const STEPS_MS_MAX = 60_000
/** The pause after a round that is behind: clients that keep deleting branches must not be faster than the collectors. */
const BEHIND_PAUSE_MS = 50

type BackgroundServices = Pick<Services, 'database' | 'sessions' | 'files' | 'indexes'> & {
  /** The server is the embedded one, so this process also looks after its log. */
  readonly isEmbedded?: boolean
}

/**
 * Runs one round of all background work. Each step is short. Returns whether it is behind with work that requests
 * cause, such as removing the rows of deleted branches.
 */
export async function runBackground(services: BackgroundServices): Promise<boolean> {
  const { database, sessions, files } = services
  const { quotas } = sessions
  const failures: unknown[] = []
  // Work of one kind does not depend on that of another, but all of it depends on PostgreSQL: on its only server, or on the
  // coordinator of a cluster.
  const apart = async (work: () => Promise<void>): Promise<void> => {
    try {
      await work()
    } catch (error) {
      if (isUnreachable(error) && !isNodeUnreachable(error)) throw error
      failures.push(error)
    }
  }
  // Uses are written first: otherwise a branch in use could expire while a round takes long.
  await apart(() => endExpiredBranches(services))
  await apart(() => prepareNewNodes(database))
  await apart(() => renewLinkKeys(database))
  await apart(() => files.links.load(database))
  await apart(async () => void (await analyzeGrown(database)))
  // Index builds may take long, so the round does not wait for them.
  services.indexes.wake()
  // Written before the measurement, so that this process knows which of its writes the measurement
  // includes.
  await apart(() => quotas.refresh())
  // A compaction reads all branches of its database, so it is run once for all merges of a round.
  const compacted = new Set<string>()
  const queues: ReadonlySet<() => Promise<boolean>> = new Set([
    () => compactDatabase(database, compacted),
    () => absorbNext(database),
    () => foldNext(database),
    () => collectPins(database),
    () => sweepBranch(database),
    () => collectMigrations(database),
    () => collectHeap(database),
  ])
  const steps = [
    () => measureUsage(database, quotas),
    ...queues,
    () => collectSpares(database),
    () => collectSchema(database),
    () => collectGates(database),
    () => collectStage(database),
    () => collectAnswers(database),
    () => collectUploadClaims(database),
    () => checkBlobs(database, COLLECT_TIMES),
    () => collectBlobs({ database, blobs: files.blobs }, COLLECT_TIMES),
  ]
  let isBehind = false
  for (const step of steps) {
    await apart(async () => {
      const hasMore = await runSteps(step)
      isBehind ||= hasMore && queues.has(step)
    })
    await apart(() => sessions.flushUses())
  }
  await apart(() => quotas.refresh())
  await apart(() => measureBacklogs(services))
  if (services.isEmbedded === true) await apart(async () => void (await trimLog(database)))
  if (failures.length > 0) throw failures[0]
  return isBehind
}

/**
 * Runs steps of one kind until there is nothing left to do, or others should have their turn. Returns whether there may
 * be more to do.
 */
async function runSteps(step: () => Promise<boolean>): Promise<boolean> {
  const endsAt = performance.now() + STEPS_MS_MAX
  for (let count = 0; count < STEPS_MAX && performance.now() < endsAt; count++) {
    if (!(await step())) return false
  }
  return true
}

/** Publishes how much is stored and how much work is left. */
async function measureBacklogs({ database }: Pick<Services, 'database'>): Promise<void> {
  await countStoredBytes(database)
  const { count, ageSeconds } = await measureSweeps(database)
  sweepsPending.set(count)
  sweepAge.set(ageSeconds)
  foldsPending.set(await countFoldWork(database))
  await measureServer(database)
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
    let isBehind = false
    while (!stopping.signal.aborted) {
      const pauseMs = isBehind ? Math.min(BEHIND_PAUSE_MS, options.pauseMs) : options.pauseMs
      isBehind = false
      try {
        await delay(pauseMs, undefined, { signal: stopping.signal, ref: false })
        isBehind = await runBackground(services)
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
