import { createHash, timingSafeEqual } from 'node:crypto'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AppError } from '@offshoot/contract/errors'
import { Type } from 'typebox'
import { METRICS_TYPE, type Metrics } from '../../telemetry/metrics.js'
import { refusals } from '../responses.js'

export interface MetricsAccess {
  /** The required bearer token; null if none is required. */
  readonly token: string | null
}

/** GET /metrics */
export function metricsRoutes(metrics: Metrics, access: MetricsAccess): FastifyPluginAsyncTypebox {
  return async (app) => {
    app.get(
      '/metrics',
      {
        config: { isAlwaysServed: true },
        schema: {
          tags: ['Health'],
          operationId: 'getMetrics',
          summary: 'Read metrics of the process for Prometheus',
          security: [],
          response: {
            200: {
              description: 'Metrics in the Prometheus text format.',
              content: { 'text/plain': { schema: Type.String() } },
            },
            401: refusals()[401] ?? {},
            429: refusals()[429] ?? {},
          },
        },
      },
      async (request, reply) => {
        if (!mayRead(request.headers.authorization, access)) {
          throw new AppError(
            'invalid_metrics_token',
            'the header Authorization must be Bearer and the value of OFFSHOOT_METRICS_TOKEN',
          )
        }
        return reply.header('content-type', METRICS_TYPE).send(metrics.render())
      },
    )
  }
}

/** Compares digests in constant time, so that response times reveal nothing about the token. */
export function mayRead(authorization: string | undefined, { token }: MetricsAccess): boolean {
  if (token === null) return true
  const digest = (text: string) => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(authorization ?? ''), digest(`Bearer ${token}`))
}
