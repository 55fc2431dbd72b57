import type { Host } from '../common/postgres-hosts.js'
import type { Connection } from './client-config.js'
import type { Database } from './database.js'
import { type Following, findPrimary, followPrimary } from './follow-primary.js'
import { waitForPostgres } from './wait-for-postgres.js'

/** Connects to the only server, or to the primary of several, and follows that. */
export async function connectHosts(
  hosts: readonly Host[],
  options: {
    database: Database
    /** How long the first connection may take. */
    waitMs: number
    signal: AbortSignal
    log: { warn(details: object, line: string): void }
  },
): Promise<Following> {
  const { database, waitMs, signal, log } = options
  const [only, ...others] = hosts
  if (only !== undefined && others.length === 0) {
    database.connect({ url: only.url }, { name: only.name })
    await waitForPostgres(database, {
      waitMs,
      signal,
      onWait: (details) => log.warn(details, 'waiting for the PostgreSQL of OFFSHOOT_DATABASE_URL'),
    })
    return { stop: async () => undefined }
  }
  return followPrimary({
    hosts,
    waitMs,
    signal,
    log,
    onPrimary: ({ url, name }) => database.connect({ url }, { name, isReplaced: true }),
  })
}

/** Returns the only server, or the one of several that accepts writes. */
export async function findServer(hosts: readonly Host[]): Promise<Connection> {
  const [only, ...others] = hosts
  const server = only !== undefined && others.length === 0 ? only : await findPrimary(hosts)
  return { url: server.url }
}
