import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { Type } from 'typebox'
import { sql } from '../../postgres/sql.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'

/** If PostgreSQL does not answer within this time, the service is reported as unavailable. */
const PROBE_TIMEOUT_MS = 2_000

const HealthSchema = Type.Object(
  {
    status: Type.Enum(['ready', 'starting', 'draining', 'unavailable']),
    message: Type.String(),
  },
  { title: 'Health', examples: [{ status: 'ready', message: 'requests can be served' }] },
)

/** GET /health */
export function healthRoutes({ database, lifecycle }: Services): FastifyPluginAsyncTypebox {
  // Requests at the same time share a probe, because there are few connections outside the pool.
  let probe: Promise<boolean> | undefined
  const isReachable = () => {
    probe ??= answers(database.queryAside(sql`select 1`)).finally(() => {
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
      async (_request, reply) => {
        if (lifecycle.state !== 'ready') {
          const message =
            lifecycle.state === 'starting'
              ? 'the server is starting'
              : 'the server is shutting down'
          return reply.code(503).send({ status: lifecycle.state, message })
        }
        // Uses a connection outside the pool, because a full pool means load and not failure.
        if (await isReachable()) {
          return { status: 'ready' as const, message: 'requests can be served' }
        }
        return reply
          .code(503)
          .send({ status: 'unavailable', message: 'PostgreSQL cannot be reached' })
      },
    )
  }
}

async function answers(probe: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<false>((resolve) => {
    timer = setTimeout(resolve, PROBE_TIMEOUT_MS, false)
  })
  const answered = probe.then(
    () => true,
    () => false,
  )
  const result = await Promise.race([answered, timeout])
  clearTimeout(timer)
  return result
}
