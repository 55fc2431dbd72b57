import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { commonHeaders } from '../common-headers.js'
import type { Lifecycle } from '../lifecycle.js'

/** Where clients come over TLS, browsers never try without it: for a year, counted from each answer. */
const STRICT_TRANSPORT = 'max-age=31536000'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Also while the process starts or stops; the route explains that itself. */
    isAlwaysServed?: boolean
  }
}

/** What every answer carries, and what no request passes while the process is not in service. */
export const guardsPlugin = fastifyPlugin(
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
      // A connection that is kept would keep the process from ending.
      if (options.lifecycle.state === 'draining') reply.header('connection', 'close')
      done()
    })
  },
)
