import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { authenticate, authenticateAt, type Principal } from '../../domain/access/principal.js'
import type { Database } from '../../postgres/database.js'
import { placeOf } from '../addressed.js'
import { apiKeyOf } from './admission.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The authenticated user and key. Undefined on public routes, which must not read it. */
    principal: Principal
  }
}

/** Requires a valid API key for all routes of the same scope. */
export const authPlugin = fastifyPlugin(
  async (app: FastifyInstance, options: { database: Database }) => {
    app.decorateRequest('principal')
    app.addHook('onRequest', async (request, reply) => {
      const place = placeOf(request)
      const principal = await app.identify(request, reply, () =>
        place === undefined
          ? authenticate(options.database, apiKeyOf(request))
          : authenticateAt(options.database, apiKeyOf(request), place),
      )
      request.principal = { ...principal, requestId: request.id }
    })
  },
)
