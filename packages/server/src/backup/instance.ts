import {
  acquireDataLock,
  type DataLock,
  DataLockError,
  findRunning,
  hasCluster,
  startEmbedded,
} from '@offshoot/embedded-postgres'
import type { BlobStore } from '../blobs/blob-store.js'
import type { Config } from '../config.js'
import { createBlobStore } from '../create-blob-store.js'
import type { Connection } from '../postgres/client-config.js'
import { findServer } from '../postgres/connect-hosts.js'
import { Database } from '../postgres/database.js'
import { BackupError } from './errors.js'

/** The database and files of an instance. */
export interface Instance {
  readonly database: Database
  readonly blobs: BlobStore
  close(): Promise<void>
}

/** One connection each for the hold, the snapshots of catalogue and nodes, the gates and reading, and one spare. */
const CONNECTIONS = 6

/** Opens an instance for a backup, or to restore a database, whether its service runs or not. */
export async function openInstance(config: Config): Promise<Instance> {
  const { databaseHosts, dataDir } = config
  if (databaseHosts !== null) {
    return connect(config, await findServer(databaseHosts), async () => undefined)
  }
  if (!(await hasCluster(dataDir))) {
    throw new BackupError(
      `there is no instance in [${dataDir}]: set OFFSHOOT_DATA_DIR or OFFSHOOT_DATABASE_URL as for its service`,
    )
  }
  let lock: DataLock
  try {
    lock = await acquireDataLock(dataDir)
  } catch (error) {
    if (!isHeldByAnother(error)) throw error
    const running = await findRunning(dataDir)
    if (running === undefined) {
      throw new BackupError(
        `the service in [${dataDir}] is starting or stopping: try again in a moment`,
      )
    }
    return connect(config, running, async () => undefined)
  }
  return startStopped(config, lock)
}

/** Prepares an instance for files. The folder of a running service is ready, and has files that are arriving. */
export async function prepareFiles(config: Config, { blobs }: Instance): Promise<void> {
  if (config.databaseHosts === null) return
  try {
    const lock = await acquireDataLock(config.dataDir)
    await blobs.prepare()
    await lock.release()
  } catch (error) {
    if (!isHeldByAnother(error)) throw error
  }
}

/** Opens an instance for a restore of all of it. No service may be running on it. */
export async function openEmptyInstance(config: Config): Promise<Instance> {
  const lock = await acquireDataLock(config.dataDir)
  const { databaseHosts } = config
  const instance =
    databaseHosts === null
      ? await startStopped(config, lock)
      : connect(config, await findServer(databaseHosts), () => lock.release())
  await instance.blobs.prepare()
  return instance
}

/** Only a lock that another process holds has no cause. */
const isHeldByAnother = (error: unknown): boolean =>
  error instanceof DataLockError && error.cause === undefined

async function startStopped(config: Config, lock: DataLock): Promise<Instance> {
  try {
    const postgres = await startEmbedded({ dataDir: config.dataDir, log: () => undefined })
    return connect(config, postgres.connection, async () => {
      await postgres.stop()
      await lock.release()
    })
  } catch (error) {
    await lock.release()
    throw error
  }
}

function connect(config: Config, connection: Connection, onClose: () => Promise<void>): Instance {
  const database = new Database({
    poolMax: CONNECTIONS,
    distributes: config.distributesDatabases,
    // No limit: large tables take long.
    statementTimeoutMs: 0,
    onIdleError: () => undefined,
  })
  database.connect(connection)
  return {
    database,
    blobs: createBlobStore(config),
    async close() {
      await database.close()
      await onClose()
    },
  }
}
