import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BranchParamsSchema } from '@offshoot/contract/branches'
import { AtQuerySchema } from '@offshoot/contract/checkpoints'
import { TransactionResultSchema, TransactionSchema } from '@offshoot/contract/records'
import { Type } from 'typebox'
import { isGet, runOperations } from '../../data/records/transaction.js'
import { idempotent } from '../idempotency-key.js'
import { stateRequest } from '../plugins/branch-session.js'
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
            'Runs up to 1000 inserts, updates, deletes and gets on any tables of the branch, in order, at isolation level serializable. If one fails, none takes effect. With `at`, only gets are possible. With `ifVersion`, an operation fails if the record has another version. Requests with the same `Idempotency-Key` are executed once.',
          params: BranchParamsSchema,
          querystring: AtQuerySchema,
          body: EnvelopeSchema,
          response: { 200: TransactionResultSchema, ...refusals(404, 409, 413, 422) },
        },
        config: { acceptsIdempotencyKey: true, documentedBody: TransactionSchema },
      },
      async (request, reply) => {
        const { operations } = request.body
        const need = operations.every(isGet) ? 'read' : 'write'
        const answer = await sessions.run(stateRequest(request, need), (session) =>
          runOperations(
            {
              ...{ database, files, session, limits },
              idempotent: idempotent(request, operations),
            },
            operations,
          ),
        )
        return sendJson(reply, answer)
      },
    )
  }
}
