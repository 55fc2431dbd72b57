import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  AggregateRequestSchema,
  AggregateResultSchema,
  SummarizeRequestSchema,
  SummarizeResultSchema,
} from '@offshoot/contract/aggregation'
import { QueryRequestSchema, QueryResultSchema } from '@offshoot/contract/query'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { aggregateRecords } from '../../domain/query/aggregate.js'
import type { QueryRequest } from '../../domain/query/page.js'
import { type QueryContext, queryRecords } from '../../domain/query/query-records.js'
import { summarizeRecords } from '../../domain/query/summarize.js'
import { disconnectSignal } from '../disconnect.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'
import { sendJson } from './records.js'

type TableRequest = FastifyRequest<{ Params: { databaseBranch: string; tableName: string } }>

/**
 * POST   /db/:databaseBranch/tables/:tableName/query
 * POST   /db/:databaseBranch/tables/:tableName/summarize
 * POST   /db/:databaseBranch/tables/:tableName/aggregate
 */
export function queryRoutes({ database, sessions, limits }: Services): FastifyPluginAsyncTypebox {
  const run = (
    request: TableRequest,
    reply: FastifyReply,
    operation: (context: QueryContext) => Promise<string>,
  ) => {
    const { tableName } = request.params
    const bounds = { timeoutMs: limits.queryTimeoutMs, signal: disconnectSignal(reply) }
    return sessions.run(sessionRequest(request, 'read'), (session) =>
      operation({ database, session, tableName, limits, bounds }),
    )
  }

  return async (app) => {
    const tags = ['Records']
    const url = '/db/:databaseBranch/tables/:tableName'

    app.post(
      `${url}/query`,
      {
        schema: {
          tags,
          summary: 'Find records',
          params: TableParamsSchema,
          body: Type.Union([QueryRequestSchema, Type.Null()]),
          response: { 200: QueryResultSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const body = (request.body ?? {}) as QueryRequest
        return sendJson(reply, await run(request, reply, (context) => queryRecords(context, body)))
      },
    )

    app.post(
      `${url}/summarize`,
      {
        schema: {
          tags,
          summary: 'Group records and add them up',
          params: TableParamsSchema,
          body: Type.Union([SummarizeRequestSchema, Type.Null()]),
          response: { 200: SummarizeResultSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const body = request.body ?? {}
        return sendJson(
          reply,
          await run(request, reply, (context) => summarizeRecords(context, body)),
        )
      },
    )

    app.post(
      `${url}/aggregate`,
      {
        schema: {
          tags,
          summary: 'Aggregate records',
          params: TableParamsSchema,
          body: Type.Union([AggregateRequestSchema, Type.Null()]),
          response: { 200: AggregateResultSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const body = request.body ?? {}
        return sendJson(
          reply,
          await run(request, reply, (context) => aggregateRecords(context, body)),
        )
      },
    )
  }
}
