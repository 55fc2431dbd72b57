import type { Limits } from '@offshoot/contract/limits'
import fastify, { type FastifyInstance, LogController } from 'fastify'
import type { LogLevel, Origins } from './config.js'
import { createSqlEngine, type SqlEngine } from './data/sql/sql-engine.js'
import { admissionMetrics } from './http/admission/admission-metrics.js'
import { answerClientError } from './http/client-errors.js'
import { requestIdFrom } from './http/common-headers.js'
import { readJsonBodies } from './http/json-body.js'
import { LongAnswers } from './http/long-answers.js'
import { decorateOrigin } from './http/origin.js'
import { addressPlugin, rewriteUrl } from './http/plugins/address.js'
import { admissionPlugin, useLane } from './http/plugins/admission.js'
import { authPlugin } from './http/plugins/auth.js'
import { branchSessionPlugin } from './http/plugins/branch-session.js'
import { connectionOptions, connectionsPlugin } from './http/plugins/connections.js'
import { consolePlugin } from './http/plugins/console.js'
import { answerBadPath, errorsPlugin } from './http/plugins/errors.js'
import { knownHostsPlugin } from './http/plugins/known-hosts.js'
import { metricsPlugin } from './http/plugins/metrics.js'
import { openapiPlugin } from './http/plugins/openapi.js'
import { originsPlugin } from './http/plugins/origins.js'
import { pacePlugin } from './http/plugins/pace.js'
import { readinessPlugin } from './http/plugins/readiness.js'
import { refusalsPlugin } from './http/plugins/refusals.js'
import { requestLogPlugin } from './http/plugins/request-log.js'
import { strictInputPlugin } from './http/plugins/strict-input.js'
import { targetPlugin } from './http/plugins/target.js'
import { resumeTracingPlugin, tracingPlugin } from './http/plugins/tracing.js'
import { limitBodies } from './http/read-body.js'
import { branchChangeRoutes } from './http/routes/branch-changes.js'
import { branchRoutes } from './http/routes/branches.js'
import { bulkRoutes } from './http/routes/bulk.js'
import { consoleSessionRoutes } from './http/routes/console-session.js'
import { databaseRoutes } from './http/routes/databases.js'
import { fileLinkRoutes, fileRoutes, linkKeyRoutes } from './http/routes/files.js'
import { healthRoutes } from './http/routes/health.js'
import { indexRoutes } from './http/routes/indexes.js'
import { type MetricsAccess, metricsRoutes } from './http/routes/metrics.js'
import { operationRoutes } from './http/routes/operations.js'
import { makePrivateRoutes, privateFileRoutes } from './http/routes/private-files.js'
import { proposalRoutes } from './http/routes/proposals.js'
import { queryRoutes } from './http/routes/query.js'
import { recordRoutes } from './http/routes/records.js'
import { schemaRoutes } from './http/routes/schema.js'
import { searchRoutes } from './http/routes/search.js'
import { setRoutes } from './http/routes/sets.js'
import { sqlRoutes } from './http/routes/sql.js'
import { transactionRoutes } from './http/routes/transactions.js'
import { userRoutes } from './http/routes/users.js'
import { workspaceRoutes } from './http/routes/workspaces.js'
import { buildSerializer } from './http/serialization.js'
import type { Services } from './http/services.js'
import { type BuildValidator, createBuildValidator } from './http/validation.js'
import { type LogStream, toLoggedError } from './telemetry/log.js'
import { Metrics } from './telemetry/metrics.js'
import type { Tracer } from './telemetry/tracer.js'
import { version } from './version.js'

/**
 * Longer than any valid path part, so that an overlong name gets an error about its length, not
 * 404.
 */
const PATH_PART_LENGTH_MAX = 4096

/** Keep-alive timeout of idle connections; longer than that of most proxies. */
const KEEP_ALIVE_MS = 72_000
/** The maximum delay of a timer in Node. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** The longest time without traffic on a connection whose request is not being worked on. */
function silenceMsMax({ requestWaitMs, requestTimeoutMs, stallTimeoutMs }: Limits): number {
  return Math.min(requestWaitMs + requestTimeoutMs + stallTimeoutMs, TIMER_MS_MAX)
}

declare module 'fastify' {
  interface FastifyInstance {
    /** What statements share that arrive as HTTP requests or over the PostgreSQL protocol. */
    sqlEngine: SqlEngine
  }
}

export interface AppOptions {
  readonly logLevel: LogLevel
  readonly logStream?: LogStream
  /** The header from which request ids are taken. */
  readonly requestIdHeader?: string | null
  /** null turns metrics off. */
  readonly metrics?: Metrics | null
  /** Access to `/metrics` and to details of `/health`; null if they are not served on this port. */
  readonly metricsAccess?: MetricsAccess | null
  readonly tracer?: Tracer | undefined
  /** Origins for CORS; null for none. */
  readonly origins?: Origins | null
  /** Services in one process can share it, so that each schema is compiled once. */
  readonly buildValidator?: BuildValidator
}

/** Builds the whole service. It does not listen yet. */
export async function buildApp(services: Services, options: AppOptions): Promise<FastifyInstance> {
  const { logLevel, logStream = process.stderr, tracer } = options
  const { metrics = new Metrics(), metricsAccess = { token: null } } = options
  const { buildValidator = createBuildValidator() } = options
  const app = fastify({
    logger: {
      level: logLevel,
      stream: logStream,
      serializers: { err: (error) => toLoggedError(error) },
    },
    logController: new LogController({
      disableRequestLogging: true,
      requestIdLogLabel: 'requestId',
    }),
    genReqId: requestIdFrom(options.requestIdHeader ?? null),
    requestIdHeader: false,
    rewriteUrl,
    bodyLimit: services.limits.requestBytesMax,
    routerOptions: { maxParamLength: PATH_PART_LENGTH_MAX },
    http: connectionOptions(services.limits),
    connectionTimeout: silenceMsMax(services.limits),
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: 'idle',
    // While the process stops, our own hook answers, so that all such requests get the same answer.
    return503OnClosing: false,
    frameworkErrors: answerBadPath,
    clientErrorHandler: answerClientError,
    schemaController: { compilersFactory: { buildValidator, buildSerializer } },
  })
  readJsonBodies(app, services.limits)
  decorateOrigin(app, services.publicUrl)

  if (tracer !== undefined) await app.register(tracingPlugin, { tracer })
  if (metrics !== null) await app.register(metricsPlugin, { metrics })
  await app.register(requestLogPlugin)
  await app.register(errorsPlugin)
  await app.register(refusalsPlugin, services)
  if (options.origins != null) await app.register(originsPlugin, { origins: options.origins })
  if (services.isOnLoopback) await app.register(knownHostsPlugin, services)
  await app.register(addressPlugin, services)
  await app.register(readinessPlugin, services)
  await app.register(targetPlugin)
  await app.register(connectionsPlugin, services)
  await app.register(pacePlugin, services)
  await app.register(admissionPlugin, services)
  if (metrics !== null) metrics.add(...admissionMetrics(app.admission))
  if (tracer !== undefined) await app.register(resumeTracingPlugin, { tracer })
  await app.register(strictInputPlugin)
  await app.register(openapiPlugin, { version })

  const { consoleFolder } = services
  if (consoleFolder === undefined) {
    app.get('/', { schema: { hide: true } }, (_request, reply) => reply.redirect('/docs'))
  } else {
    await app.register(consolePlugin, { folder: consoleFolder })
    await app.register(consoleSessionRoutes(services))
  }

  await app.register(healthRoutes(services, metricsAccess))
  if (metrics !== null && metricsAccess !== null) {
    await app.register(metricsRoutes(metrics, metricsAccess))
  }
  await app.register(fileLinkRoutes(services))
  const longAnswers = new LongAnswers(services)
  app.addHook('onClose', () => longAnswers.stop())
  await app.register(async (protectedApp) => {
    limitBodies(protectedApp, services.limits.controlBytesMax)
    useLane(protectedApp, 'control')
    await protectedApp.register(authPlugin, services)
    await protectedApp.register(userRoutes(services))
    await protectedApp.register(linkKeyRoutes(services))
    await protectedApp.register(privateFileRoutes(services))
    await protectedApp.register(workspaceRoutes(services))
    await protectedApp.register(databaseRoutes(services))
    await protectedApp.register(branchRoutes(services))
    await protectedApp.register(proposalRoutes(services, longAnswers))
    await protectedApp.register(operationRoutes(services))
    await protectedApp.register(schemaRoutes(services, longAnswers))
    await protectedApp.register(indexRoutes(services))
  })
  await app.register(async (branchApp) => {
    limitBodies(branchApp, services.limits.controlBytesMax)
    useLane(branchApp, 'control')
    await branchApp.register(branchSessionPlugin, services)
    await branchApp.register(branchChangeRoutes(services, longAnswers))
  })
  const sqlEngine = createSqlEngine(services.database, services.limits)
  app.decorate('sqlEngine', sqlEngine)
  app.addHook('onClose', () => sqlEngine.planner.close())
  await app.register(async (dataApp) => {
    await dataApp.register(branchSessionPlugin, services)
    await dataApp.register(recordRoutes(services))
    await dataApp.register(setRoutes(services, longAnswers))
    await dataApp.register(queryRoutes(services))
    await dataApp.register(searchRoutes(services))
    await dataApp.register(bulkRoutes(services, longAnswers))
    await dataApp.register(fileRoutes(services))
    await dataApp.register(makePrivateRoutes(services))
    await dataApp.register(transactionRoutes(services))
    await dataApp.register(sqlRoutes(services, app.sqlEngine))
  })
  await app.ready()
  return app
}
