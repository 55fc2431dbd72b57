import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import type { Host } from '../common/postgres-hosts.js'
import { clientConfig } from './client-config.js'
import { codeOf, isUnreachable } from './failures.js'
import { breakConnection, surviveProtocolErrors } from './protocol-errors.js'
import { sql } from './sql.js'
import { toQuery } from './statement.js'

/*
 * Of several servers, the service uses the one that accepts writes, and follows a promotion. A connection to the
 * primary is kept open, so that its end is noticed at once. The other servers are asked regularly, because a
 * primary that was replaced may still be running.
 */

/** How often the primary and the other servers are asked. */
const CHECK_EVERY_MS = 1_000
/** A server that does not answer within this time is taken for lost. */
const ANSWER_MS_MAX = 3_000
const END_MS_MAX = 500
/** Pause between two searches. */
const SEARCH_EVERY_MS = 200
const REPORT_EVERY_MS = 5_000

/**
 * Numbers that are skipped in all sequences of the catalogue after a promotion. Caches are keyed by such
 * numbers. An asynchronous standby may lack the last ones, and must not give them to something else.
 */
const NUMBERS_SKIPPED = 100_000

/** Tells whether a server accepts writes, and its place in the history of promotions. */
const STATE = sql`
  select pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as "isReadOnly",
    (select system_identifier::text from pg_control_system()) as system,
    case when pg_is_in_recovery() then 0
      else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint::integer end as timeline`

interface ServerState {
  readonly isReadOnly: boolean
  readonly system: string
  /** Increases with each promotion. */
  readonly timeline: number
}

/** A connection to a server that accepts writes. */
interface Candidate {
  readonly host: Host
  readonly client: pg.Client
  readonly state: ServerState
}

interface FollowOptions {
  readonly hosts: readonly Host[]
  /** Called with the first primary, and with each new one. */
  onPrimary(host: Host): void
  readonly log: { warn(details: object, line: string): void }
}

export interface Following {
  stop(): Promise<void>
}

/** Finds the primary, and follows it until it is told to stop. */
export async function followPrimary(
  options: FollowOptions & { waitMs: number; signal: AbortSignal },
): Promise<Following> {
  const { hosts, onPrimary, log } = options
  const first = await waitForPrimary(options)
  onPrimary(first.host)
  const stopping = new AbortController()
  let current = first
  const running = (async () => {
    while (!stopping.signal.aborted) {
      const next = await watch(current, hosts, stopping.signal)
      await close(current.client)
      if (stopping.signal.aborted) return next && close(next.client)
      const found = next ?? (await search(current, { ...options, signal: stopping.signal }))
      if (found === undefined) return
      if (found.host !== current.host) {
        log.warn({ from: current.host.name, to: found.host.name }, 'PostgreSQL has a new primary')
        onPrimary(found.host)
      }
      current = found
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await running
      await close(current.client)
    },
  }
}

/** Finds the server that accepts writes. */
export async function findPrimary(hosts: readonly Host[]): Promise<Host> {
  const { found, errors } = await probeAll(hosts)
  if (found === undefined) throw errors[0] ?? noPrimary()
  await close(found.client)
  return found.host
}

function noPrimary(): Error {
  return new Error('none of the servers of OFFSHOOT_DATABASE_URL accepts writes')
}

/** Waits for a primary at the start. Throws at once if waiting cannot help. */
async function waitForPrimary(
  options: FollowOptions & { waitMs: number; signal: AbortSignal },
): Promise<Candidate> {
  const { hosts, waitMs, signal, log } = options
  const end = performance.now() + waitMs
  let reportAt = performance.now()
  for (;;) {
    const { found, errors } = await probeAll(hosts)
    if (found !== undefined) return found
    const lasting = errors.find((error) => !isUnreachable(error))
    const now = performance.now()
    if (lasting !== undefined) throw lasting
    if (now >= end) throw errors[0] ?? noPrimary()
    if (now >= reportAt) {
      const codes = errors.map((error) => codeOf(error))
      log.warn({ codes, secondsLeft: Math.ceil((end - now) / 1000) }, 'waiting for a primary')
      reportAt = now + REPORT_EVERY_MS
    }
    await delay(SEARCH_EVERY_MS, undefined, { signal })
  }
}

/** Searches until a server accepts writes. Returns undefined if it was told to stop. */
async function search(
  previous: Candidate,
  { hosts, log, signal }: FollowOptions & { signal: AbortSignal },
): Promise<Candidate | undefined> {
  log.warn({ host: previous.host.name }, 'the primary of PostgreSQL is lost; searching for it')
  while (!signal.aborted) {
    const { found } = await probeAll(hosts, previous)
    if (found !== undefined) {
      if (await isPrepared(found, previous)) return found
      await close(found.client)
    }
    await delay(SEARCH_EVERY_MS, undefined, { signal }).catch(() => undefined)
  }
  return undefined
}

/**
 * Watches the primary. Resolves with undefined when it is lost or accepts no more writes, and with another
 * server when that was promoted.
 */
async function watch(
  current: Candidate,
  hosts: readonly Host[],
  signal: AbortSignal,
): Promise<Candidate | undefined> {
  const lost = new AbortController()
  const { client } = current
  const onLost = () => lost.abort()
  client.once('error', onLost).once('end', onLost)
  const either = AbortSignal.any([lost.signal, signal])
  const others = hosts.filter((host) => host !== current.host)
  while (!either.aborted) {
    await delay(CHECK_EVERY_MS, undefined, { signal: either }).catch(() => undefined)
    if (either.aborted) return undefined
    const state = await answer(ask(client)).catch(() => undefined)
    if (state === undefined || state.isReadOnly) return undefined
    const { found } = await probeAll(others, current)
    if (found === undefined) continue
    const isNewer = compareTimelines(found, current) > 0
    if (isNewer && (await isPrepared(found, current))) return found
    await close(found.client)
  }
  return undefined
}

/** Skips numbers on a new primary. Returns whether it could. */
async function isPrepared({ host, client }: Candidate, previous: Candidate): Promise<boolean> {
  if (host === previous.host) return true
  const statement = sql`
    select setval(format('%I.%I', schemaname, sequencename)::regclass,
      coalesce(last_value, start_value) + ${NUMBERS_SKIPPED})
    from pg_sequences
    where schemaname = 'offshoot'`
  return answer(client.query(toQuery(statement))).then(
    () => true,
    () => false,
  )
}

/**
 * Asks all servers at once, and returns the one that accepts writes. A server that was replaced as primary has an
 * earlier timeline than its successor: it is not used again, and of two servers the later timeline counts. A
 * server that was promoted since is returned without waiting for the others, which may not answer at all.
 */
async function probeAll(
  hosts: readonly Host[],
  previous?: Candidate,
): Promise<{ found: Candidate | undefined; errors: unknown[] }> {
  const errors: unknown[] = []
  let found: Candidate | undefined
  let isOver = false
  return new Promise((resolve) => {
    const finish = () => {
      isOver = true
      resolve({ found, errors })
    }
    const judge = (candidate: Candidate) => {
      const ahead = previous === undefined ? 0 : compareTimelines(candidate, previous)
      const isBetter = found === undefined || compareTimelines(candidate, found) > 0
      if (isOver || ahead < 0 || !isBetter) return close(candidate.client)
      const worse = found
      found = candidate
      if (ahead > 0) finish()
      return worse && close(worse.client)
    }
    const probes = hosts.map(async (host) => {
      try {
        const candidate = await probe(host)
        if (candidate !== undefined) await judge(candidate)
      } catch (error) {
        errors.push(error)
      }
    })
    void Promise.all(probes).then(finish)
  })
}

/** Compares two servers by their last promotion. Servers of different systems have no order. */
function compareTimelines(a: Candidate, b: Candidate): number {
  return a.state.system === b.state.system ? a.state.timeline - b.state.timeline : 0
}

/** Connects to a server. Returns undefined if it accepts no writes. */
async function probe(host: Host): Promise<Candidate | undefined> {
  const client = new pg.Client(clientConfig({ url: host.url }, ANSWER_MS_MAX))
  client.on('error', () => undefined)
  try {
    await client.connect()
    surviveProtocolErrors(client)
    const state = await answer(ask(client))
    if (!state.isReadOnly) return { host, client, state }
  } catch (error) {
    await close(client)
    throw error
  }
  await close(client)
  return undefined
}

async function ask(client: pg.Client): Promise<ServerState> {
  const { rows } = await client.query<ServerState>(toQuery(STATE))
  const [state] = rows
  if (state === undefined) throw new Error('a server must tell its state')
  return state
}

/** Rejects if a server does not answer in time. */
async function answer<Value>(promise: Promise<Value>): Promise<Value> {
  const timeout = new AbortController()
  const late = delay(ANSWER_MS_MAX, undefined, { signal: timeout.signal, ref: false }).then(() => {
    throw Object.assign(new Error('PostgreSQL does not answer'), { code: 'ETIMEDOUT' })
  })
  try {
    return await Promise.race([promise, late])
  } finally {
    timeout.abort()
    late.catch(() => undefined)
    promise.catch(() => undefined)
  }
}

/** Ends a connection without waiting long for a server that may not answer. */
async function close(client: pg.Client): Promise<void> {
  const ended = client.end().catch(() => undefined)
  await Promise.race([ended, delay(END_MS_MAX, undefined, { ref: false })])
  breakConnection(client)
}
