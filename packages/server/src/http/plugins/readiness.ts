import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { commonHeaders } from '../common-headers.js'
import type { Lifecycle } from '../lifecycle.js'

/** HSTS, one year, renewed by every response. */
const STRICT_TRANSPORT = 'max-age=31536000'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Serves the route while the process starts or stops, too; the route reports that itself. */
    isAlwaysServed?: boolean
  }
}

/** Sets the common headers of every answer, and refuses requests while the process starts or stops. */
export const readinessPlugin = fastifyPlugin(
  async (
    app: FastifyInstance,
    options: { lifecycle: Lifecycle; publicUrl?: string | undefined },
  ) => {
    const isSecure = options.publicUrl?.startsWith('https:') === true
    app.addHook('onRequest', async (request, reply) => {
      reply.headers(commonHeaders(request.id))
      if (isSecure) reply.header('strict-transport-security', STRICT_TRANSPORT)
      const { state } = options.lifecycle
      if (state === 'ready' || request.routeOptions.config.isAlwaysServed) return
      throw state === 'starting'
        ? new AppError('starting', 'the server is starting')
        : new AppError('draining', 'the server is shutting down')
    })
    app.addHook('onSend', (_request, reply, _payload, done) => {
      // A keep-alive connection would keep the process from ending.
      if (options.lifecycle.state === 'draining') reply.header('connection', 'close')
      done()
    })
  },
)
