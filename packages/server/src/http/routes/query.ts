import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  AggregateRequestSchema,
  AggregateResultSchema,
  SummarizeRequestSchema,
  SummarizeResultSchema,
} from '@offshoot/contract/aggregation'
import { AtQuerySchema } from '@offshoot/contract/checkpoints'
import { QueryRequestSchema, QueryResultSchema } from '@offshoot/contract/query'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { JsonText } from '../../common/write-json.js'
import { aggregateRecords } from '../../data/query/aggregate.js'
import type { QueryRequest } from '../../data/query/page.js'
import { type QueryContext, queryRecords } from '../../data/query/query-records.js'
import { summarizeRecords } from '../../data/query/summarize.js'
import { boundedRun } from '../bounded-run.js'
import { limitBodies } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

type TableRequest = FastifyRequest<{ Params: { databaseBranch: string; tableName: string } }>

/**
 * POST   /db/:databaseBranch/tables/:tableName/query
 * POST   /db/:databaseBranch/tables/:tableName/summarize
 * POST   /db/:databaseBranch/tables/:tableName/aggregate
 */
export function queryRoutes(services: Services): FastifyPluginAsyncTypebox {
  const bounded = boundedRun(services)
  const run = (
    request: TableRequest,
    reply: FastifyReply,
    operation: (context: QueryContext) => Promise<JsonText>,
  ) => {
    const { tableName } = request.params
    return bounded(request, reply, (context) => operation({ ...context, tableName }))
  }

  return async (app) => {
    limitBodies(app, services.limits.queryBytesMax)
    const tags = ['Records']
    // Filters compare numbers in lists by all of their digits.
    const config = { exactNumbers: 'elements' } as const
    const url = '/db/:databaseBranch/tables/:tableName'

    app.post(
      `${url}/query`,
      {
        schema: {
          tags,
          operationId: 'queryRecords',
          summary: 'Query records',
          description:
            '`filter`, `sort`, `columns` and `page` are optional. The cursor in the answer gets the next page.',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          body: Type.Union([QueryRequestSchema, Type.Null()]),
          response: { 200: QueryResultSchema, ...refusals(404) },
        },
        config,
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
          operationId: 'summarizeRecords',
          summary: 'Group and summarize records',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          body: Type.Union([SummarizeRequestSchema, Type.Null()]),
          response: { 200: SummarizeResultSchema, ...refusals(404) },
        },
        config,
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
          operationId: 'aggregateRecords',
          summary: 'Aggregate records',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          body: Type.Union([AggregateRequestSchema, Type.Null()]),
          response: { 200: AggregateResultSchema, ...refusals(404) },
        },
        config,
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
