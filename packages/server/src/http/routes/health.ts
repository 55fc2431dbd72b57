import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from 'typebox'
import { readServerState, type ServerState } from '../../postgres/server-state.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'
import { type MetricsAccess, mayRead } from './metrics.js'

const HealthSchema = Type.Object(
  {
    status: Type.Enum(['ready', 'starting', 'draining', 'unavailable']),
    message: Type.String(),
    postgres: Type.Optional(
      Type.Object(
        {
          server: Type.String({
            description: 'Host and port of the PostgreSQL in use, or `embedded`.',
          }),
          isCluster: Type.Boolean({ description: 'Whether it is a Citus cluster.' }),
          standbys: Type.Array(
            Type.Object({
              name: Type.String(),
              sync: Type.String({
                description:
                  'Whether a commit waits for it: `sync`, `quorum`, `potential` or `async`.',
              }),
              bytesBehind: Type.Union([Type.Number(), Type.Null()], {
                description: 'Bytes of the log that it has not applied yet, if that is known.',
              }),
            }),
          ),
        },
        {
          description:
            'The database server. It is shown where `/metrics` is: not if metrics have a port of their own, and only with the token if OFFSHOOT_METRICS_TOKEN is set.',
        },
      ),
    ),
  },
  {
    title: 'Health',
    examples: [
      {
        status: 'ready',
        message: 'requests can be served',
        postgres: { server: 'embedded', isCluster: false, standbys: [] },
      },
    ],
  },
)

/** GET /health */
export function healthRoutes(
  { database, lifecycle, limits }: Services,
  access: MetricsAccess | null,
): FastifyPluginAsyncTypebox {
  // Requests at the same time share a probe, because there are few connections outside the pool.
  let probe: Promise<ServerState | undefined> | undefined
  const askServer = () => {
    // Not of the pool, because a full pool means load and not failure.
    probe ??= answerIn(
      limits.healthTimeoutMs,
      readServerState({ query: (state) => database.queryAside(state) }),
    ).finally(() => {
      probe = undefined
    })
    return probe
  }
  return async (app) => {
    app.get(
      '/health',
      {
        config: { isAlwaysServed: true },
        schema: {
          tags: ['Health'],
          operationId: 'getHealth',
          summary: 'Check whether the service is ready',
          description:
            'Answers 200 if requests can be served, and 503 while the service starts, stops or cannot reach PostgreSQL. Does not need an API key.',
          security: [],
          response: { 200: HealthSchema, 429: refusals()[429] ?? {}, 503: HealthSchema },
        },
      },
      async (request, reply) => {
        if (lifecycle.state !== 'ready') {
          const message =
            lifecycle.state === 'starting'
              ? 'the server is starting'
              : 'the server is shutting down'
          return reply.code(503).send({ status: lifecycle.state, message })
        }
        const state = await askServer()
        if (state !== undefined) {
          const isSeen = access !== null && mayRead(request.headers.authorization, access)
          return {
            status: 'ready' as const,
            message: 'requests can be served',
            ...(isSeen ? { postgres: { server: database.serverName, ...state } } : {}),
          }
        }
        return reply.code(503).send({
          status: 'unavailable',
          message: database.refusal?.message ?? 'PostgreSQL cannot be reached',
        })
      },
    )
  }
}

/** Resolves with undefined if there is no answer in time. */
async function answerIn<Value>(
  timeoutMs: number,
  probe: Promise<Value>,
): Promise<Value | undefined> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), timeoutMs)
  })
  const answered = probe.catch(() => undefined)
  const result = await Promise.race([answered, timeout])
  clearTimeout(timer)
  return result
}
