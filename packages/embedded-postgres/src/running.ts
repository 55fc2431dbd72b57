import { join } from 'node:path'
import { database, superuser } from './cluster.js'
import { readIfExists } from './files.js'
import { fixedSettings } from './settings.js'
import type { Connection } from './start-embedded.js'

/**
 * Returns the connection of the server that another process runs in a data folder, if there is one.
 */
export async function findRunning(dataDir: string): Promise<Connection | undefined> {
  const host = await readIfExists(join(dataDir, 'postgres-run'))
  const password = (await readIfExists(join(dataDir, 'postgres-password')))?.trim()
  if (!host || !password) return undefined
  return { host, port: Number(fixedSettings.port), user: superuser, password, database }
}

/** Whether a data folder has a cluster. */
export async function hasCluster(dataDir: string): Promise<boolean> {
  return (await readIfExists(join(dataDir, 'postgres', 'PG_VERSION'))) !== undefined
}
