import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import { RECORD_ID_PATTERN } from '@offshoot/contract/names'
import {
  RecordHistoryQuerySchema,
  RecordHistorySchema,
  RecordVersionParamsSchema,
} from '@offshoot/contract/record-history'
import {
  ColumnsQuerySchema,
  InputRecordSchema,
  ReadRecordQuerySchema,
  RecordParamsSchema,
  RecordSchema,
  UpdateRecordQuerySchema,
  WriteRecordQuerySchema,
} from '@offshoot/contract/records'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { readRecordHistory, restoreRecordVersion } from '../../data/records/record-history.js'
import {
  createRecord,
  deleteRecord,
  type RecordContext,
  readRecord,
  replaceRecord,
  updateRecord,
} from '../../data/records/records.js'
import type { Need } from '../../domain/access/scope.js'
import { readColumns } from '../columns.js'
import { idempotent } from '../idempotency-key.js'
import { sessionRequest, stateRequest } from '../plugins/branch-session.js'
import { Empty, refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

type TableRequest = FastifyRequest<{
  Params: { databaseBranch: string; tableName: string }
  Querystring: { columns?: string | string[] }
}>

/**
 * With these methods, an invalid record id of a Xata client is answered with 404, not 400: that
 * client returns null for a 404 and throws for a 400.
 */
const LOOK_UPS: ReadonlySet<string> = new Set(['GET', 'PATCH', 'DELETE'])
const RECORD_ID = new RegExp(RECORD_ID_PATTERN)

const isRecordId = (text: string): boolean =>
  text.length <= LIMITS.nameLengthMax && RECORD_ID.test(text)

/**
 * POST   /db/:databaseBranch/tables/:tableName/data
 * GET    /db/:databaseBranch/tables/:tableName/data/:recordId      PUT, PATCH, POST, DELETE
 * GET    /db/:databaseBranch/tables/:tableName/data/:recordId/history
 * POST   /db/:databaseBranch/tables/:tableName/data/:recordId/history/:version/restore
 */
export function recordRoutes({ database, sessions, files }: Services): FastifyPluginAsyncTypebox {
  const run = <Result>(
    request: TableRequest,
    need: Need,
    operation: (context: RecordContext) => Promise<Result>,
  ): Promise<Result> => {
    const { tableName } = request.params
    const columns = readColumns(request.query.columns)
    return sessions.run(stateRequest(request, need), (session) =>
      operation({
        ...{ database, files, session, tableName, columns },
        idempotent: need === 'write' ? idempotent(request) : undefined,
      }),
    )
  }

  return async (app) => {
    const tags = ['Records']
    const url = '/db/:databaseBranch/tables/:tableName/data'

    // An empty record id is answered with 404. So are invalid ids of Xata clients.
    app.addHook('preValidation', (request, _reply, done) => {
      const { recordId } = request.params as { recordId?: string }
      const isLooseId = request.isXataClient && LOOK_UPS.has(request.method)
      const isMissing =
        recordId === '' || (recordId !== undefined && isLooseId && !isRecordId(recordId))
      done(isMissing ? recordNotFound(recordId) : undefined)
    })

    app.post(
      url,
      {
        schema: {
          tags,
          operationId: 'createRecord',
          summary: 'Create a record',
          description: 'Requests with the same `Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          querystring: ColumnsQuerySchema,
          body: Type.Union([InputRecordSchema, Type.Null()]),
          response: { 201: RecordSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const answer = await run(request, 'write', (context) =>
          createRecord(context, request.body ?? {}),
        )
        return sendJson(reply.code(201), answer)
      },
    )

    app.get(
      `${url}/:recordId`,
      {
        schema: {
          tags,
          operationId: 'getRecord',
          summary: 'Read a record',
          params: RecordParamsSchema,
          querystring: ReadRecordQuerySchema,
          response: { 200: RecordSchema, ...refusals(404) },
        },
      },
      async (request, reply) =>
        sendJson(
          reply,
          await run(request, 'read', (context) => readRecord(context, request.params.recordId)),
        ),
    )

    app.put(
      `${url}/:recordId`,
      {
        schema: {
          tags,
          operationId: 'replaceRecord',
          summary: 'Create or replace a record',
          description:
            'Columns that are not given become null or their default. `createOnly` refuses to replace a record; `ifVersion` refuses if the record has another version. Requests with the same `Idempotency-Key` are executed once.',
          params: RecordParamsSchema,
          querystring: WriteRecordQuerySchema,
          body: Type.Union([InputRecordSchema, Type.Null()]),
          response: { 200: RecordSchema, 201: RecordSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { createOnly = false, ifVersion } = request.query
        const options = { id: request.params.recordId, record: request.body ?? {} }
        const { answer, created } = await run(request, 'write', (context) =>
          replaceRecord(context, { ...options, createOnly, ifVersion }),
        )
        return sendJson(reply.code(created ? 201 : 200), answer)
      },
    )

    app.patch(
      `${url}/:recordId`,
      {
        schema: {
          tags,
          operationId: 'updateRecord',
          summary: 'Update fields of a record',
          description:
            'Other columns keep their values. `$increment`, `$decrement`, `$multiply` and `$divide` change a number relative to its current value. Requests with the same `Idempotency-Key` are executed once.',
          params: RecordParamsSchema,
          querystring: UpdateRecordQuerySchema,
          body: InputRecordSchema,
          response: { 200: RecordSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { ifVersion } = request.query
        const options = { id: request.params.recordId, fields: request.body, ifVersion }
        const { answer } = await run(request, 'write', (context) =>
          updateRecord(context, { ...options, upserts: false }),
        )
        return sendJson(reply, answer)
      },
    )

    app.post(
      `${url}/:recordId`,
      {
        schema: {
          tags,
          operationId: 'upsertRecord',
          summary: 'Update fields of a record, or create it',
          description: 'Requests with the same `Idempotency-Key` are executed once.',
          params: RecordParamsSchema,
          querystring: UpdateRecordQuerySchema,
          body: InputRecordSchema,
          response: { 200: RecordSchema, 201: RecordSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { ifVersion } = request.query
        const options = { id: request.params.recordId, fields: request.body, ifVersion }
        const { answer, created } = await run(request, 'write', (context) =>
          updateRecord(context, { ...options, upserts: true }),
        )
        return sendJson(reply.code(created ? 201 : 200), answer)
      },
    )

    app.get(
      `${url}/:recordId/history`,
      {
        schema: {
          tags,
          operationId: 'getRecordHistory',
          summary: 'Read the versions of a record',
          description:
            'For a table without a history, the answer has the states of the record at the checkpoints of the branch and on other branches instead.',
          params: RecordParamsSchema,
          querystring: RecordHistoryQuerySchema,
          response: { 200: RecordHistorySchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const { size, cursor } = request.query
        const { recordId: id, tableName } = request.params
        const asked = stateRequest(request, 'read')
        const answer = await sessions.run(asked, (session) => {
          const contextOf = (used: typeof session): RecordContext => ({
            ...{ database, files, session: used, tableName },
            ...{ columns: undefined, idempotent: undefined },
          })
          return readRecordHistory(contextOf(session), {
            ...{ id, size, cursor },
            readState: (state, operation) =>
              sessions.run({ ...sessionRequest(request, 'read'), ...state }, (used) =>
                operation(contextOf(used)),
              ),
          })
        })
        return sendJson(reply, answer)
      },
    )

    app.post(
      `${url}/:recordId/history/:version/restore`,
      {
        schema: {
          tags,
          operationId: 'restoreRecordVersion',
          summary: 'Give a record the values of one of its versions',
          description:
            'It is an ordinary update, which makes a new version. A deleted record is created again. Files stay as they are. Requests with the same `Idempotency-Key` are executed once.',
          params: RecordVersionParamsSchema,
          querystring: ColumnsQuerySchema,
          response: { 200: RecordSchema, 201: RecordSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { recordId: id, version } = request.params
        const { answer, created } = await run(request, 'write', (context) =>
          restoreRecordVersion(context, { id, version }),
        )
        return sendJson(reply.code(created ? 201 : 200), answer)
      },
    )

    app.delete(
      `${url}/:recordId`,
      {
        schema: {
          tags,
          operationId: 'deleteRecord',
          summary: 'Delete a record',
          description: 'Requests with the same `Idempotency-Key` are executed once.',
          params: RecordParamsSchema,
          querystring: ColumnsQuerySchema,
          response: { 200: RecordSchema, 204: Empty, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const answer = await run(request, 'write', (context) =>
          deleteRecord(context, request.params.recordId),
        )
        return answer === '' ? reply.code(204).send(null) : sendJson(reply, answer)
      },
    )
  }
}

function recordNotFound(recordId: string): AppError {
  return new AppError('record_not_found', `record [${recordId}] not found`)
}
