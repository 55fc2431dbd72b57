import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BranchParamsSchema } from '@offshoot/contract/branches'
import { TransactionResultSchema, TransactionSchema } from '@offshoot/contract/records'
import { Type } from 'typebox'
import { hashContent } from '../../data/records/idempotency.js'
import { runOperations } from '../../data/records/transaction.js'
import { idempotencyKey } from '../idempotency-key.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { limitBodies } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

/** Operations are validated one by one, so that every fault is reported with its index. */
const EnvelopeSchema = Type.Object(
  { operations: Type.Array(Type.Unknown()) },
  { additionalProperties: false },
)

/**
 * POST   /db/:databaseBranch/transaction
 */
export function transactionRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, sessions, files, limits } = services
  return async (app) => {
    limitBodies(app, limits.transactionBytesMax)
    app.post(
      '/db/:databaseBranch/transaction',
      {
        schema: {
          tags: ['Records'],
          operationId: 'runTransaction',
          summary: 'Run operations in one transaction',
          description:
            'Runs up to 1000 inserts, updates, deletes and gets on any tables of the branch, in order, at isolation level serializable. If one fails, none takes effect. With `ifVersion`, an operation fails if the record has another version. Requests with the same `Idempotency-Key` are executed once.',
          params: BranchParamsSchema,
          body: EnvelopeSchema,
          response: { 200: TransactionResultSchema, ...refusals(404, 409, 413, 422) },
        },
        config: { acceptsIdempotencyKey: true, documentedBody: TransactionSchema },
      },
      async (request, reply) => {
        const { operations } = request.body
        const need = operations.every(isGet) ? 'read' : 'write'
        const answer = await sessions.run(sessionRequest(request, need), (session) => {
          const key = idempotencyKey(request)
          const contentHash = hashContent(() => contentOf(request.url, operations))
          return runOperations(
            { database, sessions, files, session, limits },
            { operations, idempotent: { key, contentHash } },
          )
        })
        return sendJson(reply, answer)
      },
    )
  }
}

/** Yields the path and the operations as JSON text, in parts. */
function* contentOf(url: string, operations: readonly unknown[]): Generator<string> {
  yield `${url}\0[`
  for (const [index, operation] of operations.entries()) {
    yield `${index === 0 ? '' : ','}${JSON.stringify(operation)}`
  }
  yield ']\0'
}

function isGet(operation: unknown): boolean {
  return typeof operation === 'object' && operation !== null && 'get' in operation
}
