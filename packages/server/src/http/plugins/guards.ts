import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { commonHeaders } from '../common-headers.js'
import type { Lifecycle } from '../lifecycle.js'

/** Where clients come over TLS, browsers never try without it: for a year, counted from each answer. */
const STRICT_TRANSPORT = 'max-age=31536000'

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
      // The health route explains this state itself.
      if (state === 'ready' || request.routeOptions.url === '/health') return
      throw state === 'starting'
        ? new AppError('starting', 'the server is starting')
        : new AppError('draining', 'the server is shutting down')
    })
    app.addHook('onSend', (_request, reply, _payload, done) => {
      // A connection that is kept would keep the process from ending.
      if (options.lifecycle.state === 'draining') reply.header('connection', 'close')
      done()
    })
    app.addHook('onResponse', async (request, reply) => {
      request.log.debug(
        {
          requestId: request.id,
          method: request.method,
          route: request.routeOptions.url,
          status: reply.statusCode,
          durationMs: Math.round(reply.elapsedTime * 100) / 100,
        },
        'request',
      )
    })
  },
)
