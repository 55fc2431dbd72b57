import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import type { TestProject } from 'vitest/node'
import { startEmbedded } from '../../packages/embedded-postgres/src/index.js'
import { makeDataFolder } from './data-folder.js'

declare module 'vitest' {
  export interface ProvidedContext {
    postgresServers: readonly PostgresServer[]
  }
}

/** A PostgreSQL that the tests use. The process is unknown if the environment names the server. */
export interface PostgresServer {
  readonly url: string
  readonly pid?: number | undefined
}

/**
 * Starts an embedded PostgreSQL for each process of the run, so that the CPU time of a file can be measured, or uses
 * the server that the environment names.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.OFFSHOOT_TEST_DATABASE_URL
  if (given !== undefined) {
    project.provide('postgresServers', [{ url: given }])
    return async () => undefined
  }
  const count = project.vitest.config.maxWorkers
  const servers = await Promise.all(Array.from({ length: count }, start))
  project.provide(
    'postgresServers',
    servers.map(({ url, pid }) => ({ url, pid })),
  )
  return async () => {
    await Promise.all(servers.map(({ stop }) => stop()))
  }
}

async function start(): Promise<PostgresServer & { stop(): Promise<void> }> {
  const dataDir = await makeDataFolder('test')
  const postgres = await startEmbedded({
    dataDir,
    log: () => undefined,
    // Durability is off for speed. Tests of crashes start a server of their own.
    settings: { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' },
  })
  const { user, password, host, port, database } = postgres.connection
  const pidFile = await readFile(path.join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')
  return {
    url: `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`,
    pid: Number.parseInt(pidFile, 10),
    async stop() {
      await postgres.stop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}
