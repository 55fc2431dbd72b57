import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { OperationParamsSchema, OperationSchema } from '@offshoot/contract/operations'
import { cancelOperation, readOperation } from '../../domain/long-work/operations.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'

/**
 * GET    /operations/:operationId
 * POST   /operations/:operationId/cancel
 */
export function operationRoutes({ database }: Services): FastifyPluginAsyncTypebox {
  return async (app) => {
    const tags = ['Operations']
    const params = OperationParamsSchema
    const response = { 200: OperationSchema, ...refusals(404) }

    app.get(
      '/operations/:operationId',
      {
        schema: {
          tags,
          operationId: 'getOperation',
          summary: 'Read how far an operation has come',
          description:
            'A merge, pull or revert that takes longer than a request may is answered with 202 and goes on as an operation. It has a progress, and in the end the result or the error that the request would have been answered with.',
          params,
          response,
        },
      },
      async (request) => readOperation(database, request.principal, request.params.operationId),
    )

    app.post(
      '/operations/:operationId/cancel',
      {
        schema: {
          tags,
          operationId: 'cancelOperation',
          summary: 'Cancel an operation',
          description:
            'The operation ends a moment later and has changed nothing, unless it takes effect before. An operation that has ended stays as it is.',
          params,
          response,
        },
      },
      async (request) => cancelOperation(database, request.principal, request.params.operationId),
    )
  }
}
