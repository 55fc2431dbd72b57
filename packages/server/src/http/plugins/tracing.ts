import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Span, Tracer } from '../../telemetry/tracer.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The trace of the request; undefined if it is not traced. */
    traceId?: string | undefined
    span?: Span | undefined
  }
}

/**
 * Restores the span of the request where the asynchronous context is lost: after waiting for
 * admission (the request that leaves continues the next one), and after the body (its events belong
 * to the connection).
 */
export const resumeTracingPlugin = fastifyPlugin(
  async (app: FastifyInstance, { tracer }: { tracer: Tracer }) => {
    app.addHook('onRequest', (request, _reply, done) => tracer.run(request.span, done))
    app.addHook('preValidation', (request, _reply, done) => tracer.run(request.span, done))
  },
)

/** Starts a span for each request. Spans of its PostgreSQL statements become children. */
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
