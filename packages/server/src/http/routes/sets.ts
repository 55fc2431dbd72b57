import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { type OperationKind, OperationStartedSchema } from '@offshoot/contract/operations'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import {
  type DeletedSet,
  DeletedSetSchema,
  DeleteSetSchema,
  type UpdatedSet,
  UpdatedSetSchema,
  UpdateSetSchema,
} from '@offshoot/contract/sets'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { deleteSet, type SetContext, updateSet } from '../../data/sets/change-set.js'
import { disconnectSignal } from '../disconnect.js'
import { idempotent } from '../idempotency-key.js'
import type { LongAnswers } from '../long-answers.js'
import { stateRequest } from '../plugins/branch-session.js'
import { limitBodies } from '../read-body.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'

type TableRequest = FastifyRequest<{ Params: { databaseBranch: string; tableName: string } }>

/**
 * PATCH  /db/:databaseBranch/tables/:tableName/data        DELETE
 */
export function setRoutes(services: Services, longAnswers: LongAnswers): FastifyPluginAsyncTypebox {
  const { database, sessions, limits } = services
  const run = async <Result extends object>(
    request: TableRequest,
    reply: FastifyReply,
    kind: OperationKind,
    change: (context: SetContext) => Promise<string>,
  ) =>
    longAnswers.answer<Result>(request, reply, kind, async (work) => {
      const { tableName } = request.params
      disconnectSignal(reply).addEventListener('abort', () => work.cancel())
      const answer = await sessions.run(stateRequest(request, 'write'), (session) => {
        work.belongTo(session.access)
        const own = { database, session, tableName, idempotent: idempotent(request) }
        return change({ ...own, work, bounds: work.bounds })
      })
      return JSON.parse(answer)
    })

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
            'Changes all of them or none. `all: true` stands for all records of the table. `$increment` and the other operators change a number relative to its current value. With `dryRun`, nothing is stored, and the answer or the refusal is that of the same request without it. Requests with the same `Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          body: UpdateSetSchema,
          response: {
            200: UpdatedSetSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 413, 422),
          },
        },
        config: { acceptsIdempotencyKey: true, exactNumbers: 'elements' },
      },
      async (request, reply) =>
        run<UpdatedSet>(request, reply, 'update', (context) => updateSet(context, request.body)),
    )

    app.delete(
      url,
      {
        schema: {
          tags,
          operationId: 'deleteRecords',
          summary: 'Delete all records that meet a filter',
          description:
            'Deletes all of them or none. `all: true` stands for all records of the table. `linked` has the records of other tables that were deleted or changed because of their links. With `dryRun`, nothing is stored, and the answer or the refusal is that of the same request without it. Requests with the same `Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          body: DeleteSetSchema,
          response: {
            200: DeletedSetSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 413, 422),
          },
        },
        config: { acceptsIdempotencyKey: true, exactNumbers: 'elements' },
      },
      async (request, reply) =>
        run<DeletedSet>(request, reply, 'delete', (context) => deleteSet(context, request.body)),
    )
  }
}
