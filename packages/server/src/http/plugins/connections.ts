import type { IncomingMessage, ServerOptions } from 'node:http'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { Quota } from '../admission/quota.js'
import { addressGroup, plainAddress, TrustedProxies } from '../client-address.js'
import { CountedMessage, refuseSmallChunks } from '../counted-message.js'
import { closeIdleConnections, keepWorkingConnections } from '../idle-connections.js'
import { handleOneAtATime } from '../one-at-a-time.js'
import type { Services } from '../services.js'

/** Interval at which Node checks for late headers. */
const CHECK_MS = 1000
/** Interval at which idle connections are looked for. */
const IDLE_CHECK_MS = 5000

/** Returns the server options that bound the cost of a connection before its request is known. */
export function connectionOptions(limits: Limits): ServerOptions {
  return {
    headersTimeout: limits.headersTimeoutMs,
    connectionsCheckingInterval: Math.min(CHECK_MS, limits.headersTimeoutMs),
    maxHeaderSize: limits.headersBytesMax,
    // The time for a body depends on its size; pace.ts checks its progress instead.
    requestTimeout: 0,
    // Node's answer would have no body; a hook below answers instead.
    requireHostHeader: false,
    // Node would use the first of several headers; a proxy may use the last. Joined, they are not valid.
    joinDuplicateHeaders: true,
    IncomingMessage: CountedMessage,
  }
}

type ConnectionsOptions = Pick<Services, 'limits' | 'trustedProxies'>

/**
 * Limits connections, in total and per address, and requests per connection to one at a time.
 * Handles `Expect: 100-continue` and missing hosts.
 */
export const connectionsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { limits, trustedProxies }: ConnectionsOptions) => {
    app.server.maxConnections = limits.connectionsMax
    // Node would ignore further headers, so that a repeated one would not be noticed. Their size is limited.
    app.server.maxHeadersCount = 0
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
    // At the limit, idle keep-alive connections are closed to make room.
    app.server.on('drop', () => app.server.closeIdleConnections())

    const answerOf = handleOneAtATime(app.server)
    closeIdleConnections(app.server, {
      // The headers of a next request may be on their way.
      idleMsMax: app.server.keepAliveTimeout + limits.headersTimeoutMs,
      checkMs: IDLE_CHECK_MS,
      answerOf,
    })
    keepWorkingConnections(app.server, answerOf)
    refuseSmallChunks(app.server)
    // Other expectations are ignored. Node's own answer would leave the body to be read for ever.
    app.server.on('checkExpectation', (request, response) => {
      app.server.emit('request', request, response)
    })
    // Clients that send `Expect: 100-continue` get the 100 only after the request is admitted.
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
