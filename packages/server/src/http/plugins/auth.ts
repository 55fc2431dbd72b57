import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { authenticate, type Principal } from '../../domain/access/principal.js'
import type { Database } from '../../postgres/database.js'
import { apiKeyOf } from './admission.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** Who makes the request. Routes outside the protected part have none and must not ask. */
    principal: Principal
  }
}

/** Everything registered beside this plugin needs a valid API key. */
export const authPlugin = fastifyPlugin(
  async (app: FastifyInstance, options: { database: Database }) => {
    app.decorateRequest('principal')
    app.addHook('onRequest', async (request, reply) => {
      request.principal = await app.identify(request, reply, () =>
        authenticate(options.database, apiKeyOf(request)),
      )
    })
  },
)
