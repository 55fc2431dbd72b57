import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import {
  Durations,
  type Family,
  gauge,
  type Metrics,
  type Sample,
} from '../../telemetry/metrics.js'

/** What one route has answered. */
class RouteCounts {
  readonly durations = new Durations()
  readonly byStatus = new Map<number, number>()

  constructor(
    readonly method: string,
    readonly route: string,
  ) {}

  add(status: number, seconds: number): void {
    this.byStatus.set(status, (this.byStatus.get(status) ?? 0) + 1)
    this.durations.add(seconds)
  }
}

/** Requests to addresses that are none. */
const NO_ROUTE = 'none'
/** Methods are the caller's words; only those that a route could have are told apart. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/**
 * Counts requests by the pattern of their route: there are as many of those as there are routes, and
 * they name no one.
 */
export const metricsPlugin = fastifyPlugin(
  async (app: FastifyInstance, options: { metrics: Metrics }) => {
    const counts = new Map<string, Map<string, RouteCounts>>()
    let inFlight = 0
    app.addHook('onRequest', (_request, _reply, done) => {
      inFlight++
      done()
    })
    app.addHook('onResponse', (request, reply, done) => {
      inFlight--
      countsOf(counts, request).add(reply.statusCode, reply.elapsedTime / 1000)
      done()
    })
    options.metrics.add(
      requestsFamily(counts),
      durationsFamily(counts),
      gauge('offshoot_http_requests_in_flight', 'Requests that are being served.', () => inFlight),
    )
  },
)

function countsOf(
  counts: Map<string, Map<string, RouteCounts>>,
  request: FastifyRequest,
): RouteCounts {
  const route = request.routeOptions.url ?? NO_ROUTE
  let ofRoute = counts.get(route)
  if (ofRoute === undefined) {
    ofRoute = new Map()
    counts.set(route, ofRoute)
  }
  let found = ofRoute.get(request.method)
  if (found === undefined) {
    const method = METHODS.has(request.method) ? request.method : 'other'
    found = ofRoute.get(method) ?? new RouteCounts(method, route)
    ofRoute.set(method, found)
  }
  return found
}

function* all(
  counts: ReadonlyMap<string, ReadonlyMap<string, RouteCounts>>,
): Iterable<RouteCounts> {
  for (const ofRoute of counts.values()) yield* ofRoute.values()
}

function requestsFamily(counts: ReadonlyMap<string, ReadonlyMap<string, RouteCounts>>): Family {
  return {
    name: 'offshoot_http_requests_total',
    help: 'Requests that were answered.',
    type: 'counter',
    *samples(): Iterable<Sample> {
      for (const { method, route, byStatus } of all(counts)) {
        for (const [status, value] of byStatus) {
          yield { labels: { method, route, status: String(status) }, value }
        }
      }
    },
  }
}

function durationsFamily(counts: ReadonlyMap<string, ReadonlyMap<string, RouteCounts>>): Family {
  return {
    name: 'offshoot_http_request_duration_seconds',
    help: 'How long requests took, up to the end of the answer.',
    type: 'histogram',
    *samples(): Iterable<Sample> {
      for (const { method, route, durations } of all(counts)) {
        yield* durations.samples({ method, route })
      }
    },
  }
}
