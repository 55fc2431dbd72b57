import { randomUUID } from 'node:crypto'
import fastify, { type FastifyInstance, LogController } from 'fastify'
import type { LogLevel } from './config.js'
import { readJsonBodies } from './http/json-body.js'
import { addressPlugin, rewriteUrl } from './http/plugins/address.js'
import { authPlugin } from './http/plugins/auth.js'
import { errorsPlugin } from './http/plugins/errors.js'
import { guardsPlugin } from './http/plugins/guards.js'
import { openapiPlugin } from './http/plugins/openapi.js'
import { branchRoutes } from './http/routes/branches.js'
import { databaseRoutes } from './http/routes/databases.js'
import { healthRoutes } from './http/routes/health.js'
import { userRoutes } from './http/routes/users.js'
import { workspaceRoutes } from './http/routes/workspaces.js'
import type { Services } from './http/services.js'
import { buildValidator } from './http/validation.js'
import { version } from './version.js'

/** Longer than any valid path part, so that an overlong name is named and not just not found. */
const PATH_PART_LENGTH_MAX = 4096

/** The whole service, ready to listen or to be injected into. */
export async function buildApp(
  services: Services,
  options: { logLevel: LogLevel },
): Promise<FastifyInstance> {
  const app = fastify({
    logger: { level: options.logLevel, stream: process.stderr },
    logController: new LogController({ disableRequestLogging: true }),
    genReqId: () => `req_${randomUUID().replaceAll('-', '')}`,
    requestIdHeader: false,
    rewriteUrl,
    bodyLimit: services.limits.requestBytesMax,
    routerOptions: { maxParamLength: PATH_PART_LENGTH_MAX },
    requestTimeout: services.limits.requestTimeoutMs,
    forceCloseConnections: 'idle',
    schemaController: { compilersFactory: { buildValidator } },
  })
  readJsonBodies(app)

  await app.register(errorsPlugin)
  await app.register(addressPlugin, services)
  await app.register(guardsPlugin, services)
  await app.register(openapiPlugin, { version })

  await app.register(healthRoutes(services))
  await app.register(async (protectedApp) => {
    await protectedApp.register(authPlugin, services)
    await protectedApp.register(userRoutes(services))
    await protectedApp.register(workspaceRoutes(services))
    await protectedApp.register(databaseRoutes(services))
    await protectedApp.register(branchRoutes(services))
  })
  await app.ready()
  return app
}
