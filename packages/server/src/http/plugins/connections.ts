import type { IncomingMessage, ServerOptions } from 'node:http'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { Quota } from '../admission/quota.js'
import { addressGroup, plainAddress, TrustedProxies } from '../client-address.js'
import type { Services } from '../services.js'

/** How often Node looks for requests whose headers are late. */
const CHECK_MS = 1000

/** What a connection may cost before it has brought a request. */
export function connectionOptions(limits: Limits): ServerOptions {
  return {
    headersTimeout: limits.headersTimeoutMs,
    connectionsCheckingInterval: Math.min(CHECK_MS, limits.headersTimeoutMs),
    maxHeaderSize: limits.headersBytesMax,
    // How long a body takes depends on its size; whether it moves is checked instead.
    requestTimeout: 0,
    // Node's own answer is empty; ours follows below.
    requireHostHeader: false,
  }
}

type ConnectionsOptions = Pick<Services, 'limits' | 'trustedProxies'>

/** Bounds the connections, and what is taken for a request. */
export const connectionsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { limits, trustedProxies }: ConnectionsOptions) => {
    app.server.maxConnections = limits.connectionsMax
    const open = new Quota()
    const trusted = new TrustedProxies(trustedProxies ?? [])
    app.server.on('connection', (socket) => {
      const address = plainAddress(socket.remoteAddress ?? '')
      if (trusted.has(address)) return
      const group = addressGroup(address)
      if (!open.start(group, limits.connectionsPerAddressMax)) {
        socket.destroy()
        return
      }
      socket.once('close', () => open.end(group))
    })
    // Those that are kept for later make room for those that are needed now.
    app.server.on('drop', () => app.server.closeIdleConnections())

    // Clients that ask before they send a body are told to go on when the request was let in.
    const asking = new WeakSet<IncomingMessage>()
    app.server.on('checkContinue', (request, response) => {
      asking.add(request)
      app.server.emit('request', request, response)
    })
    app.addHook('preParsing', (request, reply, _payload, done) => {
      if (asking.delete(request.raw)) reply.raw.writeContinue()
      done()
    })

    app.addHook('onRequest', (request, _reply, done) => {
      const { httpVersionMajor, httpVersionMinor } = request.raw
      const needsHost = httpVersionMajor === 1 && httpVersionMinor === 1
      if (needsHost && request.headers.host === undefined) {
        done(new AppError('invalid_request', 'header [host]: is required'))
        return
      }
      done()
    })
  },
)
