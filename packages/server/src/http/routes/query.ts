import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { QueryRequestSchema, QueryResultSchema } from '@offshoot/contract/query'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import { Type } from 'typebox'
import type { QueryRequest } from '../../domain/query/page.js'
import { queryRecords } from '../../domain/query/query-records.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'
import { sendJson } from './records.js'

/**
 * POST   /db/:databaseBranch/tables/:tableName/query
 */
export function queryRoutes({ database, sessions, limits }: Services): FastifyPluginAsyncTypebox {
  return async (app) => {
    app.post(
      '/db/:databaseBranch/tables/:tableName/query',
      {
        schema: {
          tags: ['Records'],
          summary: 'Find records',
          params: TableParamsSchema,
          body: Type.Union([QueryRequestSchema, Type.Null()]),
          response: { 200: QueryResultSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const { tableName } = request.params
        const body = (request.body ?? {}) as QueryRequest
        const answer = await sessions.run(sessionRequest(request, 'read'), (session) =>
          queryRecords({ database, session, tableName, limits }, body),
        )
        return sendJson(reply, answer)
      },
    )
  }
}
