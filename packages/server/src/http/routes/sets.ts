import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import {
  DeletedSetSchema,
  DeleteSetSchema,
  UpdatedSetSchema,
  UpdateSetSchema,
} from '@offshoot/contract/sets'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { deleteSet, type SetContext, updateSet } from '../../data/sets/change-set.js'
import { boundedRun } from '../bounded-run.js'
import { idempotent } from '../idempotency-key.js'
import { limitBodies } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

type TableRequest = FastifyRequest<{ Params: { databaseBranch: string; tableName: string } }>

/**
 * PATCH  /db/:databaseBranch/tables/:tableName/data        DELETE
 */
export function setRoutes(services: Services): FastifyPluginAsyncTypebox {
  const bounded = boundedRun(services, 'write')
  const { database, limits } = services
  const run = async (
    request: TableRequest,
    reply: FastifyReply,
    operation: (context: SetContext) => Promise<string>,
  ) => {
    const { tableName } = request.params
    const answer = await bounded(request, reply, ({ session, bounds }) =>
      operation({ database, session, tableName, bounds, idempotent: idempotent(request) }),
    )
    return sendJson(reply, answer)
  }

  return async (app) => {
    limitBodies(app, limits.queryBytesMax)
    const tags = ['Records']
    const url = '/db/:databaseBranch/tables/:tableName/data'

    app.patch(
      url,
      {
        schema: {
          tags,
          operationId: 'updateRecords',
          summary: 'Update fields of all records that meet a filter',
          description:
            'Changes all of them or none. `all: true` stands for all records of the table. `$increment` and the other operators change a number relative to its current value. With `dryRun`, the records are only counted. Requests with the same `Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          body: UpdateSetSchema,
          response: { 200: UpdatedSetSchema, ...refusals(404, 409, 413, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      (request, reply) => run(request, reply, (context) => updateSet(context, request.body)),
    )

    app.delete(
      url,
      {
        schema: {
          tags,
          operationId: 'deleteRecords',
          summary: 'Delete all records that meet a filter',
          description:
            'Deletes all of them or none. `all: true` stands for all records of the table. With `dryRun`, the records are only counted. Requests with the same `Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          body: DeleteSetSchema,
          response: { 200: DeletedSetSchema, ...refusals(404, 409, 413, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      (request, reply) => run(request, reply, (context) => deleteSet(context, request.body)),
    )
  }
}
