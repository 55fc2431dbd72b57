import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AppError } from '@offshoot/contract/errors'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { authenticate, type Principal } from '../../domain/access/principal.js'
import {
  closeSession,
  findKeyName,
  type OpenedSession,
  openSession,
  openSessionByToken,
} from '../../domain/keys/console-sessions.js'
import { readCurrentUser } from '../../domain/users/operations.js'
import { version } from '../../version.js'
import { apiKeyOf, useLane } from '../plugins/admission.js'
import { authPlugin } from '../plugins/auth.js'
import type { Services } from '../services.js'
import { faultOfOrigin, sessionCookie } from '../session-cookie.js'

/** Header with the token of a sign-in link. Bodies of requests without a key are not read. */
const TOKEN_HEADER = 'x-offshoot-sign-in'
const TOKEN = /^[A-Za-z0-9]{1,255}$/

/**
 * POST /console/session     GET /console/session     DELETE /console/session
 * POST /console/session/token
 *
 * Sign-in with an API key, the signed-in user, sign-out, and sign-in with a link. These routes belong to
 * the console and are not part of the documented interface.
 */
export function consoleSessionRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database } = services

  const describeSession = async (principal: Principal) => ({
    user: await readCurrentUser(database, principal),
    administrator: principal.administrator,
    key: await findKeyName(database, principal),
    scope: principal.scope,
    expiresAt: principal.expiresAt?.toISOString() ?? null,
    regions: services.regions,
    version,
    postgresPort: services.postgresPort?.() ?? null,
  })

  return async (app) => {
    useLane(app, 'control')

    // Not 401 if nobody is signed in: browsers would log an error each time that the console opens.
    app.get('/console/session', { schema: { hide: true } }, async (request, reply) => {
      const principal = await app
        .identify(request, reply, () => authenticate(database, apiKeyOf(request)))
        .catch((error: unknown) => {
          if (error instanceof AppError && error.code === 'invalid_api_key') return undefined
          throw error
        })
      return { session: principal === undefined ? null : await describeSession(principal) }
    })

    app.post('/console/session/token', { schema: { hide: true } }, async (request, reply) => {
      requireConsole(request)
      const token = request.headers[TOKEN_HEADER]
      if (typeof token !== 'string' || !TOKEN.test(token)) {
        throw new AppError('invalid_request', `header [${TOKEN_HEADER}]: must be a sign-in token`)
      }
      const opened = await openSessionByToken(database, { token, requestId: request.id })
      return sendSession(request, reply, opened)
    })

    await app.register(async (protectedApp) => {
      await protectedApp.register(authPlugin, services)

      protectedApp.post('/console/session', { schema: { hide: true } }, async (request, reply) => {
        requireConsole(request)
        return sendSession(request, reply, await openSession(database, request.principal))
      })

      protectedApp.delete(
        '/console/session',
        { schema: { hide: true } },
        async (request, reply) => {
          await closeSession(database, request.principal)
          return reply.code(204).header('set-cookie', sessionCookie(request, null)).send(null)
        },
      )
    })
  }
}

function sendSession(request: FastifyRequest, reply: FastifyReply, session: OpenedSession) {
  return reply
    .code(201)
    .header('set-cookie', sessionCookie(request, session))
    .send({ expiresAt: session.expiresAt.toISOString() })
}

/** Refuses sign-ins from pages of other origins, which could sign a user in as somebody else. */
function requireConsole(request: FastifyRequest): void {
  const fault = faultOfOrigin(request)
  if (fault !== undefined) throw new AppError('forbidden', fault)
}
