import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import {
  BranchSearchSchema,
  SearchParamsSchema,
  SearchResultSchema,
  TableSearchSchema,
  VectorSearchSchema,
} from '@offshoot/contract/search'
import { Type } from 'typebox'
import { searchBranch, searchTable } from '../../domain/search/search-records.js'
import { searchVectors } from '../../domain/search/search-vectors.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'
import { sendJson } from './records.js'

/**
 * POST   /db/:databaseBranch/search
 * POST   /db/:databaseBranch/tables/:tableName/search
 * POST   /db/:databaseBranch/tables/:tableName/vectorSearch
 */
export function searchRoutes({ database, sessions }: Services): FastifyPluginAsyncTypebox {
  return async (app) => {
    const tags = ['Search']
    const url = '/db/:databaseBranch/tables/:tableName'
    const response = { 200: SearchResultSchema, ...refusals(404) }

    app.post(
      '/db/:databaseBranch/search',
      {
        schema: {
          tags,
          summary: 'Search the tables of a branch',
          params: SearchParamsSchema,
          body: BranchSearchSchema,
          response,
        },
      },
      async (request, reply) => {
        const { body } = request
        const found = await sessions.run(sessionRequest(request, 'read'), (session) =>
          searchBranch({ database, session }, body),
        )
        return sendJson(reply, found)
      },
    )

    app.post(
      `${url}/search`,
      {
        schema: {
          tags,
          summary: 'Search a table',
          params: TableParamsSchema,
          body: Type.Union([TableSearchSchema, Type.Null()]),
          response,
        },
      },
      async (request, reply) => {
        const { body, params } = request
        const found = await sessions.run(sessionRequest(request, 'read'), (session) =>
          searchTable({ database, session, tableName: params.tableName }, body ?? {}),
        )
        return sendJson(reply, found)
      },
    )

    app.post(
      `${url}/vectorSearch`,
      {
        schema: {
          tags,
          summary: 'Find the records with the nearest vectors',
          params: TableParamsSchema,
          body: VectorSearchSchema,
          response,
        },
      },
      async (request, reply) => {
        const { body, params } = request
        const found = await sessions.run(sessionRequest(request, 'read'), (session) =>
          searchVectors({ database, session, tableName: params.tableName }, body),
        )
        return sendJson(reply, found)
      },
    )
  }
}
