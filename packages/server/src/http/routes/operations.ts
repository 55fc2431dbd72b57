import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BranchParamsSchema } from '@offshoot/contract/branches'
import {
  OperationParamsSchema,
  OperationSchema,
  OperationsSchema,
} from '@offshoot/contract/operations'
import {
  cancelOperation,
  listOperations,
  readOperation,
} from '../../domain/long-work/operations.js'
import { addressed } from '../addressed.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'

/**
 * GET    /db/:databaseBranch/operations
 * GET    /operations/:operationId
 * POST   /operations/:operationId/cancel
 */
export function operationRoutes({ database }: Services): FastifyPluginAsyncTypebox {
  const { branchOf } = addressed(database)
  return async (app) => {
    const tags = ['Operations']
    const params = OperationParamsSchema
    const response = { 200: OperationSchema, ...refusals(404) }

    app.get(
      '/db/:databaseBranch/operations',
      {
        schema: {
          tags,
          operationId: 'listOperations',
          summary: 'List the operations of a branch',
          description:
            'Operations that are running, builds of indexes, and those that have ended in the last seven days, newest first. `GET /operations/{id}` has the result of one.',
          params: BranchParamsSchema,
          response: { 200: OperationsSchema, ...refusals(404) },
        },
      },
      async (request) => listOperations(database, await branchOf(request, 'read')),
    )

    app.get(
      '/operations/:operationId',
      {
        schema: {
          tags,
          operationId: 'getOperation',
          summary: 'Read how far an operation has come',
          description:
            'A request that takes longer than a request may is answered with 202 and goes on as an operation. It has a progress, and in the end the result or the error that the request would have been answered with. The build of an index of a large table is an operation, too.',
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
