import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import {
  Durations,
  type Family,
  gauge,
  type Metrics,
  type Sample,
} from '../../telemetry/metrics.js'

/** Counts and durations of one method and route. */
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

/** Label of requests that match no route. */
const NO_ROUTE = 'none'
/** Other methods count as one, because clients can send any text as the method. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/**
 * Counts requests by route pattern. The number of patterns is bounded, and they contain no names.
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
      gauge('offshoot_http_requests_in_flight', 'Requests in progress.', () => inFlight),
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
    help: 'Requests answered, by route and status.',
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
    help: 'Duration of requests until the end of the answer.',
    type: 'histogram',
    *samples(): Iterable<Sample> {
      for (const { method, route, durations } of all(counts)) {
        yield* durations.samples({ method, route })
      }
    },
  }
}
