import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Span, Tracer } from '../../telemetry/tracer.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** Where the request is followed, if it is. */
    traceId?: string | undefined
    span?: Span | undefined
  }
}

/**
 * Goes back to a request after what leads away from it: one that had to wait is let in by another one,
 * and a body arrives with the events of its connection.
 */
export const resumeTracingPlugin = fastifyPlugin(
  async (app: FastifyInstance, { tracer }: { tracer: Tracer }) => {
    app.addHook('onRequest', (request, _reply, done) => tracer.run(request.span, done))
    app.addHook('preValidation', (request, _reply, done) => tracer.run(request.span, done))
  },
)

/** Follows each request from here on; what it asks of PostgreSQL follows from it. */
export const tracingPlugin = fastifyPlugin(
  async (app: FastifyInstance, { tracer }: { tracer: Tracer }) => {
    app.decorateRequest('traceId', undefined)
    app.decorateRequest('span', undefined)
    app.addHook('onRequest', (request, _reply, done) => {
      request.span = tracer.startRequest(request.headers.traceparent)
      request.traceId = request.span?.traceId
      tracer.run(request.span, done)
    })
    app.addHook('onResponse', (request, reply, done) => {
      const { method, span, id } = request
      const { url } = request.routeOptions
      span?.end({
        name: url === undefined ? method : `${method} ${url}`,
        hasFailed: reply.statusCode >= 500,
        attributes: {
          'http.request.method': method,
          ...(url === undefined ? {} : { 'http.route': url }),
          'http.response.status_code': reply.statusCode,
          'offshoot.request_id': id,
          ...(request.errorCode === undefined ? {} : { 'error.type': request.errorCode }),
        },
      })
      done()
    })
  },
)
