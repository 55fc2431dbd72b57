import { mkdir, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import {
  type BinaryPackage,
  defaultCacheFolder,
  findPackage,
  majorVersion,
  prepareBinaries,
} from './binaries.js'
import { checkCluster, database, ensureCluster, superuser } from './cluster.js'
import { EmbeddedError, errorCode, errorMessage } from './errors.js'
import { chooseIdentity } from './identity.js'
import { stopOrphan } from './orphan.js'
import type { Ending } from './run.js'
import { findEarlierRunFolder, makeRunFolder } from './run-folder.js'
import { type Server, startServer } from './server.js'
import { serverSettings } from './settings.js'

export { EmbeddedError } from './errors.js'

/** A running PostgreSQL that belongs to this process. */
export interface EmbeddedPostgres {
  /** Connection options for `pg`. */
  readonly connection: Connection
  /** Shuts the server down cleanly and resolves when it has ended; may be called repeatedly. */
  stop(): Promise<void>
  /** Settles if the server ends without a call of stop(). */
  readonly exited: Promise<Ending>
  /** For example `18.4`. */
  readonly version: string
}

export interface Connection {
  /** The folder of the socket. */
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password: string
  readonly database: string
}

export interface EmbeddedOptions {
  /** The data folder of Offshoot; the cluster lives in `postgres` below it. */
  readonly dataDir: string
  readonly log: (line: string) => void
  /** Called while the start only waits for processes of PostgreSQL, so the caller may do other work. */
  readonly onWaiting?: () => void
  /** Additional settings of the server. */
  readonly settings?: Readonly<Record<string, string>>
}

/**
 * Starts a PostgreSQL server in the data folder. The first start creates its cluster. The caller
 * must hold the lock of the data folder, so a server that is already running there was left behind.
 */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  return startFromPackage(await findPackage(), options)
}

/** Starts the PostgreSQL of a given package. */
export async function startFromPackage(
  binaryPackage: BinaryPackage,
  options: EmbeddedOptions,
): Promise<EmbeddedPostgres> {
  try {
    return await prepareAndStart(binaryPackage, options)
  } catch (error) {
    if (error instanceof EmbeddedError) throw error
    throw new EmbeddedError(`cannot start the embedded PostgreSQL: ${errorMessage(error)}`, {
      cause: error,
    })
  }
}

/**
 * If a transaction that created an unlogged table was rolled back right before a crash, its file may still exist, and
 * recovery fails because it creates the file. The next start removes the file first.
 */
const LEFTOVER_FILE = /could not create file "base\/[^"]+": File exists/

async function prepareAndStart(
  binaryPackage: BinaryPackage,
  options: EmbeddedOptions,
): Promise<EmbeddedPostgres> {
  const { log } = options
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 })
  const dataFolder = await realpath(options.dataDir)
  const cluster = join(dataFolder, 'postgres')
  const passwordFile = join(dataFolder, 'postgres-password')
  const identity = await chooseIdentity(cluster)
  await checkCluster(cluster, majorVersion(binaryPackage), identity)

  const earlier = await findEarlierRunFolder(dataFolder)
  await stopOrphan({ cluster, serverName: earlier?.serverName, log })
  await earlier?.remove()

  const runFolder = await makeRunFolder(dataFolder, identity)
  try {
    const binaries = await prepareBinaries({
      binaryPackage,
      identity,
      cacheFolder: defaultCacheFolder(identity),
      fallbackFolder: runFolder.path,
      log,
    })
    const privateFolder = runFolder.path
    const onWaiting = () => options.onWaiting?.()
    const clusterOptions = {
      cluster,
      passwordFile,
      identity,
      binaries,
      privateFolder,
      log,
      onWaiting,
    }
    const password = await ensureCluster(clusterOptions)
    const { path: socketFolder, serverName } = runFolder
    const settings = {
      ...(await serverSettings({ socketFolder, serverName })),
      ...options.settings,
    }
    const { postgres } = binaries
    const logFile = join(dataFolder, 'postgres.log')
    const start = () =>
      startServer({ postgres, cluster, identity, settings, logFile, log, onWaiting })
    const server = await start().catch((error: unknown) => {
      if (!LEFTOVER_FILE.test(errorMessage(error))) throw error
      log('PostgreSQL met a file of an unlogged table that a crash left behind: starting it again')
      return start()
    })
    const port = Number(settings.port)
    const connection = { host: socketFolder, port, user: superuser, password, database }
    const version = await greet(server, connection, passwordFile)
    let stopping: Promise<void> | undefined
    const stop = () => {
      stopping ??= server.stop().then(() => runFolder.remove())
      return stopping
    }
    return { connection, version, exited: server.exited, stop }
  } catch (error) {
    await runFolder.remove()
    throw error
  }
}

/** Connects once, and returns the version of the server. */
async function greet(
  server: Server,
  connection: Connection,
  passwordFile: string,
): Promise<string> {
  // Loaded only now, because it takes longer to load than PostgreSQL takes to start.
  const { default: pg } = await import('pg')
  // Environment variables such as PGSSLMODE are meant for other servers.
  const client = new pg.Client({ ...connection, ssl: false, connectionTimeoutMillis: 30_000 })
  // If the connection breaks, the query fails too; handling it there is enough.
  client.on('error', () => {})
  try {
    await client.connect()
    const { rows } = await client.query<{ server_version: string }>('SHOW server_version')
    return rows[0]?.server_version.split(' ')[0] ?? ''
  } catch (error) {
    await server.stop()
    if (errorCode(error) !== '28P01') throw error
    throw new EmbeddedError(
      `the password in [${passwordFile}] is not the one of the cluster: ` +
        'remove the file to have a new password made',
    )
  } finally {
    await client.end()
  }
}
