import { rm } from 'node:fs/promises'
import type { TestProject } from 'vitest/node'
import { startEmbedded } from '../../packages/embedded-postgres/src/index.js'
import { makeDataFolder } from './data-folder.js'

declare module 'vitest' {
  export interface ProvidedContext {
    postgresUrl: string
  }
}

/** Starts one embedded PostgreSQL for the whole run, or uses the one that the environment names. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const given = process.env.OFFSHOOT_TEST_DATABASE_URL
  if (given !== undefined) {
    project.provide('postgresUrl', given)
    return async () => undefined
  }
  const dataDir = await makeDataFolder('test')
  const postgres = await startEmbedded({
    dataDir,
    log: () => undefined,
    // Durability is off for speed. Tests of crashes start a server of their own.
    settings: { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' },
  })
  const { user, password, host, port, database } = postgres.connection
  project.provide(
    'postgresUrl',
    `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`,
  )
  return async () => {
    await postgres.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}
