import { setTimeout as delay } from 'node:timers/promises'
import { COLLECT_TIMES, checkBlobs, collectBlobs } from './data/files/collect.js'
import { renewLinkKeys } from './data/files/links.js'
import { collectUploadClaims } from './data/files/upload-claim.js'
import { collectAnswers, shrinkAnswers } from './data/records/idempotency.js'
import { deleteExpiredBranches } from './domain/branches/expire-branches.js'
import { collectLog } from './domain/log/collect.js'
import { collectLoads } from './domain/log/loads.js'
import { collectOperations } from './domain/long-work/operations.js'
import { collectCheckpoints, keepCheckpoints } from './domain/merges/checkpoints.js'
import { compactDatabase } from './domain/merges/history/compact-database.js'
import { collectPins } from './domain/merges/pins.js'
import { sweepBranch } from './domain/merges/sweep-branch.js'
import { collectProposals } from './domain/proposals/collect-proposals.js'
import { countStoredBytes, measureUsage } from './domain/quotas/measure.js'
import { collectMigrations } from './domain/schemas/unused-migrations.js'
import type { Services } from './http/services.js'
import { analyzeGrown } from './postgres/analyze-grown.js'
import { prepareNewNodes } from './postgres/cluster-functions.js'
import type { Queryable } from './postgres/database.js'
import { isNodeUnreachable, isUnreachable } from './postgres/failures.js'
import { REPEATABLE_WORK, runTransaction } from './postgres/run-transaction.js'
import { measureServer } from './postgres/server-state.js'
import { raw, type Sql, sql } from './postgres/sql.js'
import { toCall } from './postgres/statement.js'
import {
  deleteWork,
  errorText,
  insertInstanceWork,
  measureWork,
  repeatSeconds,
  takeWork,
  updateWork,
  type Work,
} from './postgres/work.js'
import { collectShapes } from './shapes/shape-databases.js'
import { workAge, workFailures, workPending } from './telemetry/events.js'

/*
 * All background work is in one table (`postgres/work.ts`), and each process has a loop that works it off. What requests
 * have caused comes first, one step of each database in turn. Then come the scans: work that no request causes, such as the
 * expiry of branches. A scan is a row of the table, too, and is due again some time after it is done. So at any time one
 * process runs it, and not all of them.
 */

/** Maximum number of steps of the queue in a round, and of a scan, so that others get their turn. */
const STEPS_MAX = 100
/** Steps end after this time, for the same reason. The next round continues. */
const STEPS_MS_MAX = 60_000
/** The pause after a round that is behind: clients that keep deleting branches must not be faster than the collectors. */
const BEHIND_PAUSE_MS = 50
/** Scans for what few requests leave behind are due once in this number of rounds. */
const RARE_ROUNDS = 12

/** If a host vanishes, PostgreSQL releases the work of its process after this time. Work that takes longer is repeated. */
const CLAIM_MS_MAX = 600_000
/** The row is locked while other transactions do the work. */
const CLAIM = {
  ...REPEATABLE_WORK,
  opening: [
    toCall(sql`set local idle_in_transaction_session_timeout = ${raw(String(CLAIM_MS_MAX))}`),
  ],
} as const

type BackgroundServices = Pick<
  Services,
  'database' | 'storage' | 'sessions' | 'files' | 'indexes' | 'refusals' | 'limits'
>

/** How work of one kind is done. */
interface Job {
  /** Does one step. Returns true if there may be more to do. */
  readonly step: (work: Work) => Promise<unknown>
  /** For a scan: it is due again after this number of pauses. */
  readonly rounds?: number
}

function jobsOf(services: BackgroundServices): ReadonlyMap<string, Job> {
  const { database, storage, sessions, files, limits } = services
  const { background: rows } = storage
  const queued = (step: Job['step']): Job => ({ step })
  const often = (step: Job['step']): Job => ({ step, rounds: 1 })
  const rarely = (step: Job['step']): Job => ({ step, rounds: RARE_ROUNDS })
  return new Map(
    Object.entries({
      compact: queued(({ databaseId }) => compactDatabase(database, databaseId)),
      fold: queued(rows.fold),
      checkpoints: queued((work) => collectCheckpoints(storage, work, limits)),
      sweep: queued((work) => sweepBranch(database, work)),
      migrations: queued((work) => collectMigrations(database, work)),
      expiry: often(() => endExpiredBranches(services)),
      statistics: often(() => analyzeGrown(database)),
      usage: often(() => measureUsage(database, sessions.quotas)),
      layers: often(rows.absorb),
      pins: often((work) => collectPins(database, work)),
      // Heaps lose their branch in many ways, one of which is the deletion of its database.
      heaps: often(rows.collectHeaps),
      schedules: often(() => keepCheckpoints(storage, limits)),
      log: rarely(
        async (work) => (await collectLoads(database)) || (await collectLog(database, work)),
      ),
      proposals: rarely(() => collectProposals(database)),
      operations: rarely(() => collectOperations(database)),
      spares: rarely(rows.collectSpares),
      schemas: rarely(rows.collectSchemas),
      gates: rarely(rows.collectGates),
      versions: rarely(rows.collectVersions),
      shapes: rarely(() => collectShapes(database)),
      answers: rarely((work) => collectAnswers(database, work)),
      claims: rarely(() => collectUploadClaims(database)),
      checks: rarely(() => checkBlobs(database, COLLECT_TIMES)),
      contents: rarely(() => collectBlobs({ database, blobs: files.blobs }, COLLECT_TIMES)),
    }),
  )
}

/** The database whose turn it was last. */
interface Turn {
  databaseId: string
}

/** Before all databases, and before the scans, which belong to none. */
const NO_DATABASE = '-1'

interface RoundOptions {
  /** Scans of the round are due again after one or more of these pauses. */
  readonly pauseMs?: number
  readonly turn?: Turn
}

/**
 * Runs one round of all background work. Each step is short. Returns whether it is behind with work that requests
 * cause, such as removing the rows of deleted branches.
 */
export async function runBackground(
  services: BackgroundServices,
  { pauseMs = 0, turn = { databaseId: NO_DATABASE } }: RoundOptions = {},
): Promise<boolean> {
  const { database, sessions, files } = services
  const { quotas } = sessions
  const failures: unknown[] = []
  // Work of one kind does not depend on that of another, but all of it depends on PostgreSQL: on its only server, or on the
  // coordinator of a cluster.
  const apart = async (work: () => Promise<unknown>): Promise<void> => {
    try {
      await work()
    } catch (error) {
      if (isUnreachable(error) && !isNodeUnreachable(error)) throw error
      failures.push(error)
    }
  }
  // Uses are written first: otherwise a branch in use could expire while a round takes long.
  await apart(() => sessions.flushUses())
  await apart(() => services.refusals.flush(database))
  await apart(() => prepareNewNodes(database))
  await apart(() => renewLinkKeys(database))
  await apart(() => files.links.load(database))
  await apart(() => runSteps(() => shrinkAnswers(database)))
  // Index builds may take long, so the round does not wait for them.
  services.indexes.wake()
  // Written before the measurement, so that this process knows which of its writes the measurement
  // includes.
  await apart(() => quotas.refresh())
  const jobs = [...jobsOf(services)]
  const scans = jobs.flatMap(([kind, { rounds }]) => (rounds === undefined ? [] : [kind]))
  const startedAt = await insertInstanceWork(database, scans)
  const wasDue = sql`due_at <= ${startedAt}::timestamptz`
  const isScan = sql`database_id = 0 and ${wasDue}`
  // A compaction reads all branches of its database, so it is run once for all merges of a round.
  const isQueued = sql`database_id > 0 and (kind <> 'compact' or ${wasDue})`
  const endsAt = performance.now() + STEPS_MS_MAX
  let steps = 0
  const isOver = () => steps >= STEPS_MAX || performance.now() >= endsAt
  for (;;) {
    // Scans find work for the queue, such as an expired branch, so it has its turn after each of them.
    const queued = isOver() ? undefined : await runNext(services, { isWanted: isQueued, turn })
    const done = queued ?? (await runNext(services, { isWanted: isScan, pauseMs }))
    if (done === undefined) break
    if (queued !== undefined) steps++
    else if (done.error !== undefined) failures.push(done.error)
    await apart(() => sessions.flushUses())
  }
  await apart(() => quotas.refresh())
  await apart(() =>
    measureBacklogs(
      services,
      jobs.map(([kind]) => kind),
    ),
  )
  if (failures.length > 0) throw failures[0]
  return isOver()
}

/**
 * Runs steps of one kind until there is nothing left to do, or others should have their turn. Returns whether there may
 * be more to do.
 */
async function runSteps(step: () => Promise<unknown>): Promise<boolean> {
  const endsAt = performance.now() + STEPS_MS_MAX
  for (let count = 0; count < STEPS_MAX && performance.now() < endsAt; count++) {
    if ((await step()) !== true) return false
  }
  return true
}

/**
 * Takes the next work and does one step of it, or all steps of a scan. Returns undefined if there is none, and otherwise
 * why it failed, if it did.
 */
export async function runNext(
  services: BackgroundServices,
  options: RoundOptions & { readonly isWanted: Sql },
): Promise<{ readonly error?: unknown } | undefined> {
  const { isWanted, pauseMs = 0, turn = { databaseId: NO_DATABASE } } = options
  const jobs = jobsOf(services)
  const isKnown = sql`kind = any(${[...jobs.keys()]}::text[]) and ${isWanted}`
  const run = async (transaction: Queryable) => {
    const take = (afterDatabaseId: string) =>
      takeWork(transaction, { isWanted: isKnown, afterDatabaseId })
    const isFirst = turn.databaseId === NO_DATABASE
    const work = (await take(turn.databaseId)) ?? (isFirst ? undefined : await take(NO_DATABASE))
    turn.databaseId = work?.databaseId ?? NO_DATABASE
    const job = work && jobs.get(work.kind)
    return job && runWork(transaction, { work, job, pauseMs })
  }
  return runTransaction(services.database, run, CLAIM)
}

/** Does work whose row the transaction has locked, and stores what becomes of it. */
async function runWork(
  transaction: Queryable,
  { work, job, pauseMs }: { work: Work; job: Job; pauseMs: number },
): Promise<{ readonly error?: unknown }> {
  const { step, rounds } = job
  const pauseSeconds = ((rounds ?? 0) * pauseMs) / 1000
  let hasMore: unknown
  try {
    hasMore = await (rounds === undefined ? step(work) : runSteps(() => step(work)))
  } catch (error) {
    // If PostgreSQL is down, storing the failure fails, too.
    workFailures.add(work.kind)
    work.failures++
    work.error = errorText(error)
    const afterSeconds = rounds === undefined ? repeatSeconds(work) : pauseSeconds
    await updateWork(transaction, { work, afterSeconds })
    return { error }
  }
  if (rounds !== undefined) {
    const done = { ...work, failures: 0, error: null }
    await updateWork(transaction, { work: done, afterSeconds: pauseSeconds })
  } else if (hasMore === true) await updateWork(transaction, { work, afterSeconds: 0 })
  else await deleteWork(transaction, work)
  return {}
}

/** Publishes how much is stored and how much work is left, by kind. */
async function measureBacklogs(
  { database }: Pick<Services, 'database'>,
  kinds: readonly string[],
): Promise<void> {
  await countStoredBytes(database)
  const backlogs = new Map((await measureWork(database)).map((backlog) => [backlog.kind, backlog]))
  const levels = (key: 'count' | 'ageSeconds') =>
    kinds.map((kind) => ({ labels: { kind }, value: backlogs.get(kind)?.[key] ?? 0 }))
  workPending.set(levels('count'))
  workAge.set(levels('ageSeconds'))
  for (const kind of kinds) workFailures.add(kind, 0)
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
    const turn = { databaseId: NO_DATABASE }
    let isBehind = false
    while (!stopping.signal.aborted) {
      const pauseMs = isBehind ? Math.min(BEHIND_PAUSE_MS, options.pauseMs) : options.pauseMs
      isBehind = false
      try {
        await delay(pauseMs, undefined, { signal: stopping.signal, ref: false })
        isBehind = await runBackground(services, { pauseMs: options.pauseMs, turn })
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
