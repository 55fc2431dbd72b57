import { cp, readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import type { TestProject } from 'vitest/node'
import { type EmbeddedPostgres, startEmbedded } from '../../packages/embedded-postgres/src/index.js'
import { createTemplate } from './catalogue-template.js'
import { makeDataFolder } from './data-folder.js'
import { dropDatabase } from './server-databases.js'

declare module 'vitest' {
  export interface ProvidedContext {
    postgresServers: readonly PostgresServer[]
  }
}

/** A PostgreSQL that the tests use. The process is unknown if the environment names the server. */
export interface PostgresServer {
  readonly url: string
  readonly pid?: number | undefined
  /** The database that services get a copy of, so that they need no migrations; none on a cluster. */
  readonly template?: string | undefined
}

interface StartedServer extends PostgresServer {
  stop(): Promise<void>
}

declare global {
  /** The servers of a run, and the number of projects that still use them. */
  var offshootTestServers: { started: Promise<StartedServer[]>; projects: number } | undefined
}

/**
 * Starts an embedded PostgreSQL for each process of the run, so that the CPU time of a file can be measured, or uses
 * the server that the environment names.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.OFFSHOOT_TEST_DATABASE_URL
  if (given !== undefined) {
    const template = await createTemplate(given)
    project.provide('postgresServers', [{ url: given, template }])
    return async () => {
      if (template !== undefined) await dropDatabase(given, template)
    }
  }
  const count = project.vitest.config.maxWorkers
  // vitest loads this module for each project. They use the same servers, which take seconds to start.
  globalThis.offshootTestServers ??= {
    started: startAll(count),
    projects: 0,
  }
  const shared = globalThis.offshootTestServers
  shared.projects++
  const servers = await shared.started
  project.provide(
    'postgresServers',
    servers.map(({ url, pid, template }) => ({ url, pid, template })),
  )
  return async () => {
    if (--shared.projects > 0) return
    globalThis.offshootTestServers = undefined
    await Promise.all(servers.map(({ stop }) => stop()))
  }
}

/** Prepares one server, and starts it and copies of it: to create a cluster and its catalogue takes ten times as long. */
async function startAll(count: number): Promise<StartedServer[]> {
  const [first = '', ...copies] = await Promise.all(
    Array.from({ length: count }, () => makeDataFolder('test')),
  )
  const prepared = await open(first)
  const template = await createTemplate(urlOf(prepared))
  await prepared.stop()
  await Promise.all(copies.map((copy) => cp(first, copy, { recursive: true })))
  return Promise.all([first, ...copies].map((dataDir) => start(dataDir, template)))
}

async function start(dataDir: string, template: string | undefined): Promise<StartedServer> {
  const postgres = await open(dataDir)
  const pidFile = await readFile(path.join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')
  return {
    url: urlOf(postgres),
    template,
    pid: Number.parseInt(pidFile, 10),
    async stop() {
      await postgres.stop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

function open(dataDir: string): Promise<EmbeddedPostgres> {
  return startEmbedded({
    dataDir,
    log: () => undefined,
    // Durability is off for speed, and nothing is gained by a small log. Tests of crashes start a server of their own.
    settings: {
      fsync: 'off',
      synchronous_commit: 'off',
      full_page_writes: 'off',
      wal_compression: 'off',
      // To drop a table or a database, PostgreSQL looks through all of its buffers. The data of tests are small.
      shared_buffers: '32MB',
      // Tests analyze what they need to. Otherwise their plans would depend on the moment.
      autovacuum: 'off',
    },
  })
}

function urlOf({ connection }: EmbeddedPostgres): string {
  const { user, password, host, port, database } = connection
  return `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`
}
