import { readFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { createSecureContext } from 'node:tls'
import type { DataLock } from '@offshoot/embedded-postgres'
import type { FastifyInstance } from 'fastify'
import { buildApp } from './app.js'
import { startBackground } from './background.js'
import { type Config, DEFAULT_DATA_DIR } from './config.js'
import { findConsole } from './console-folder.js'
import { createBlobStore } from './create-blob-store.js'
import { Files } from './data/files/files.js'
import { Sessions } from './data/session/sessions.js'
import { prepareFirstStart } from './domain/first-start.js'
import { createSignInToken } from './domain/keys/console-sessions.js'
import { Refusals } from './domain/log/refusals.js'
import { showBuilds } from './domain/long-work/index-builds.js'
import { Quotas } from './domain/quotas/quotas.js'
import type { EarlyPostgres } from './early-postgres.js'
import { isLoopback, toHostName } from './http/host.js'
import { Lifecycle } from './http/lifecycle.js'
import { listenForMetrics } from './http/metrics-server.js'
import type { Services } from './http/services.js'
import { findKeyFile, writeKeyFile } from './key-file.js'
import { localAddress } from './local-service.js'
import { findOpenWarning } from './postgres/cluster-privileges.js'
import { connectHosts } from './postgres/connect-hosts.js'
import { Database } from './postgres/database.js'
import { migrate } from './postgres/migrate.js'
import { poolMetrics } from './postgres/pool-metrics.js'
import { findReaderKind, READER_WARNINGS } from './postgres/reader-role.js'
import { userConnectionsMax } from './postgres/user-connections.js'
import { IndexBuilder } from './rows/indexes/index-builder.js'
import { Storage } from './rows/storage.js'
import { startMessage } from './start-message.js'
import type { Tracing } from './start-tracing.js'
import { EVENTS } from './telemetry/events.js'
import { logStream } from './telemetry/log.js'
import { counterOf, Metrics } from './telemetry/metrics.js'
import { processMetrics } from './telemetry/process-metrics.js'
import { tellPerson } from './tell-person.js'
import { version } from './version.js'
import { WireServer } from './wire/wire-server.js'

/** How long running requests may continue after the process was asked to stop. */
const DRAIN_MS = 30_000
const IDLE_CHECK_MS = 100

/** Runs the service until it is told to stop. */
export async function serve(
  config: Config,
  context: {
    startedAt: number
    stopping: Promise<void>
    cleanUps: (() => Promise<void>)[]
    /** The embedded PostgreSQL, if it is used. */
    embedded: EarlyPostgres | undefined
    lock: DataLock
  },
): Promise<void> {
  const { cleanUps, stopping, embedded, lock } = context

  const lifecycle = new Lifecycle()
  const tracing = await loadTracing(config, (error) => {
    app.log.warn({ err: error }, 'traces could not be sent')
  })
  if (tracing !== undefined) cleanUps.push(() => tracing.stop())
  const database = new Database({
    poolMax: config.poolMax,
    distributes: config.distributesDatabases,
    userPoolMax: userConnectionsMax(config.limits),
    statementTimeoutMs: config.limits.requestTimeoutMs,
    answerBytesMax: config.limits.answerBytesMax,
    bufferedBytesMax: config.limits.bufferedBytesMax,
    onIdleError: (error) =>
      app.log.warn({ err: error }, 'an idle connection to PostgreSQL was lost'),
    tracing,
  })
  const storage = new Storage(database)
  const files = new Files(database, createBlobStore(config), config.limits)
  let wire: { server: WireServer; port: number } | undefined
  const services: Services = {
    database,
    storage,
    sessions: new Sessions(
      storage,
      config.limits,
      files.links,
      new Quotas(database, { bytesMaxDefault: config.workspaceBytesMax }),
    ),
    files,
    indexes: new IndexBuilder(storage, showBuilds(database), (error) =>
      app.log.warn({ err: error }, 'building an index failed; it will be tried again'),
    ),
    refusals: new Refusals(),
    lifecycle,
    limits: config.limits,
    regions: config.regions,
    publicHost: config.publicUrl === null ? undefined : new URL(config.publicUrl).hostname,
    publicUrl: config.publicUrl ?? undefined,
    isOnLoopback: isLoopback({ name: toHostName(config.host), port: '' }),
    trustedProxies: config.trustedProxies,
    consoleFolder: config.console ? findConsole() : undefined,
    postgresPort: () => wire?.port,
    keyLimits: {
      requestsPerSecond: config.keyRequestsPerSecond,
      requestsAtOnce: config.keyRequestsAtOnce,
    },
  }
  const metrics = config.metrics ? createMetrics({ database, tracing, cleanUps }) : null
  const metricsAccess = { token: config.metricsToken }
  const app = await buildApp(services, {
    logLevel: config.logLevel,
    logStream: logStream(process.stderr),
    requestIdHeader: config.requestIdHeader,
    metrics,
    metricsAccess: config.metricsPort === null ? metricsAccess : null,
    tracer: tracing?.tracer,
    origins: config.origins,
  })
  cleanUps.push(
    () => database.close(),
    () => close(app),
  )
  endOnFault(app)
  if (metrics !== null && config.metricsPort !== null) {
    const { host, metricsPort: port } = config
    const server = await listenForMetrics(metrics, { ...metricsAccess, host, port })
    cleanUps.push(() => server.close())
  }
  // Listen first, so that a load balancer gets "starting" instead of "connection refused".
  await app.listen({ host: config.host, port: config.port })

  await files.blobs.prepare()
  const postgres = await connectPostgres(config, { app, database, embedded, cleanUps, stopping })
  if (postgres === undefined) return
  await migrate(database)
  await storage.extensions.find('vector')
  for (const warning of [
    await findOpenWarning(database),
    READER_WARNINGS[await findReaderKind(database)],
  ]) {
    if (warning !== undefined) app.log.warn(warning)
  }
  const { newKey, userId, workspaceId } = await prepareFirstStart(database, {
    apiKey: config.apiKey,
  })
  // A key from the settings may have replaced the one that an earlier start left in the file.
  const key = newKey ?? config.apiKey
  if (key !== null) await writeKeyFile(config.dataDir, key)
  const background = startBackground(services, {
    pauseMs: config.backgroundPauseMs,
    log: app.log,
  })
  cleanUps.push(() => background.stop())
  wire = await listenForPostgres(config, { app, services, metrics, tracing })
  const server = wire?.server
  if (server !== undefined) cleanUps.push(() => server.close())
  const { port } = app.server.address() as AddressInfo
  await lock.publish(localAddress(config.host, port))
  lifecycle.enter('ready')

  const address = config.publicUrl ?? addressOf(app, config.host)
  // What is no terminal is a log, which others read and which is kept. The key is in a file.
  const isTerminal = process.stdout.isTTY === true
  process.stdout.write(
    startMessage(
      {
        version,
        address,
        postgresAddress:
          wire === undefined ? undefined : `${new URL(address).hostname}:${wire.port}`,
        hasConsole: services.consoleFolder !== undefined,
        signInToken:
          isTerminal && services.consoleFolder !== undefined
            ? await createSignInToken(database, userId)
            : undefined,
        workspaceId,
        region: config.regions[0]?.id ?? '',
        postgres,
        dataDir: config.dataDir,
        newKey: isTerminal && config.apiKey === null ? newKey : undefined,
        keyFile: await findKeyFile(config.dataDir),
        isFoundByCommands: config.dataDir === path.resolve(DEFAULT_DATA_DIR),
        startedInMs: performance.now() - context.startedAt,
      },
      { color: isTerminal },
    ),
  )
  await stopping
  tellPerson('Shutting down. Press Ctrl-C again to force it.')
  lifecycle.enter('draining')
}

/** Listens for clients of PostgreSQL. A port that nobody has asked for can be in use: then there is none. */
async function listenForPostgres(
  config: Config,
  {
    app,
    services,
    metrics,
    tracing,
  }: {
    app: FastifyInstance
    services: Services
    metrics: Metrics | null
    tracing: Tracing | undefined
  },
): Promise<{ server: WireServer; port: number } | undefined> {
  const { pgPort, pgTlsCert, pgTlsKey, host } = config
  if (pgPort.port === 0) return undefined
  const tls =
    pgTlsCert === null || pgTlsKey === null
      ? undefined
      : createSecureContext({ cert: await readFile(pgTlsCert), key: await readFile(pgTlsKey) })
  const { sqlEngine: engine, admission, log } = app
  const server = new WireServer({
    services,
    engine,
    admission,
    log,
    metrics,
    tracer: tracing?.tracer,
    tls,
  })
  try {
    return { server, port: await server.listen({ host, port: pgPort.port }) }
  } catch (error) {
    const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE'
    if (!isTaken) throw error
    const reason = `port ${pgPort.port} is in use`
    if (pgPort.isGiven) throw new Error(`OFFSHOOT_PG_PORT: ${reason}`, { cause: error })
    app.log.warn(`${reason}: clients of PostgreSQL cannot connect; set OFFSHOOT_PG_PORT`)
    return undefined
  }
}

/**
 * An uncaught exception can leave the process in an inconsistent state, so the process exits and
 * has to be restarted. An unhandled rejection affects only its own request, so it is logged and the
 * service continues. Errors are logged without their details, which may contain user data.
 */
function endOnFault(app: FastifyInstance): void {
  process.on('unhandledRejection', (error) => {
    app.log.error({ err: error }, 'unhandled promise rejection')
  })
  process.on('uncaughtException', (error) => {
    app.log.fatal({ err: error }, 'uncaught exception; the process exits')
    process.exit(1)
  })
}

/** Loads the tracing code only if a collector is configured. */
async function loadTracing(
  config: Config,
  onError: (error: unknown) => void,
): Promise<Tracing | undefined> {
  const { telemetryEndpoint, tracesEndpoint } = config
  const url = tracesEndpoint ?? (telemetryEndpoint && `${telemetryEndpoint}/v1/traces`)
  if (url === null) return undefined
  const { startTracing } = await import('./start-tracing.js')
  return startTracing(config, { url, onError })
}

function createMetrics(context: {
  database: Database
  tracing: Tracing | undefined
  cleanUps: (() => Promise<void>)[]
}): Metrics {
  const { database, tracing, cleanUps } = context
  const ofProcess = processMetrics(version)
  cleanUps.push(async () => ofProcess.stop())
  const metrics = new Metrics()
  metrics.add(...ofProcess.families, ...poolMetrics(database), ...EVENTS)
  if (tracing !== undefined) {
    const help = 'Spans that could not be sent to the collector.'
    metrics.add(counterOf('offshoot_spans_dropped_total', help, () => tracing.dropped))
  }
  return metrics
}

/**
 * Connects to the configured PostgreSQL, or to the embedded one. Returns its name for the start
 * message, or undefined if the process was asked to stop first.
 */
async function connectPostgres(
  config: Config,
  context: {
    app: FastifyInstance
    database: Database
    embedded: EarlyPostgres | undefined
    cleanUps: (() => Promise<void>)[]
    stopping: Promise<void>
  },
): Promise<string | undefined> {
  const { app, database, embedded, cleanUps, stopping } = context
  if (embedded !== undefined) {
    embedded.follow({
      onStart: (connection) => database.connect(connection),
      log: app.log,
    })
    return `embedded PostgreSQL ${(await embedded.start()).version}`
  }
  const stopped = new AbortController()
  void stopping.then(() => stopped.abort())
  try {
    const following = await connectHosts(config.databaseHosts ?? [], {
      database,
      waitMs: config.databaseWaitSeconds * 1000,
      signal: stopped.signal,
      log: app.log,
    })
    cleanUps.push(() => following.stop())
  } catch (error) {
    if (stopped.signal.aborted) return undefined
    throw error
  }
  return 'PostgreSQL at OFFSHOOT_DATABASE_URL'
}

/** Lets running requests finish, up to a limit. */
async function close(app: FastifyInstance): Promise<void> {
  const idle = setInterval(() => app.server.closeIdleConnections(), IDLE_CHECK_MS)
  const late = setTimeout(() => app.server.closeAllConnections(), DRAIN_MS)
  await app.close()
  clearInterval(idle)
  clearTimeout(late)
}

function addressOf(app: FastifyInstance, host: string): string {
  const { port } = app.server.address() as AddressInfo
  const isAny = host === '0.0.0.0' || host === '::'
  const name = isAny ? 'localhost' : host.includes(':') ? `[${host}]` : host
  return `http://${name}:${port}`
}
