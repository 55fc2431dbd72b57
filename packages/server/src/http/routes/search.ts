import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AtQuerySchema } from '@offshoot/contract/checkpoints'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import {
  BranchSearchSchema,
  SearchParamsSchema,
  SearchResultSchema,
  TableSearchSchema,
  VectorSearchSchema,
} from '@offshoot/contract/search'
import { Type } from 'typebox'
import { searchBranch, searchTable } from '../../data/search/search-records.js'
import { searchVectors } from '../../data/search/search-vectors.js'
import { boundedRun } from '../bounded-run.js'
import { limitBodies } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

/**
 * POST   /db/:databaseBranch/search
 * POST   /db/:databaseBranch/tables/:tableName/search
 * POST   /db/:databaseBranch/tables/:tableName/vectorSearch
 */
export function searchRoutes(services: Services): FastifyPluginAsyncTypebox {
  const run = boundedRun(services)

  return async (app) => {
    limitBodies(app, services.limits.queryBytesMax)
    const tags = ['Search']
    // Filters compare numbers in lists by all of their digits.
    const config = { exactNumbers: 'elements' } as const
    const url = '/db/:databaseBranch/tables/:tableName'
    const response = { 200: SearchResultSchema, ...refusals(404) }

    app.post(
      '/db/:databaseBranch/search',
      {
        schema: {
          tags,
          operationId: 'searchBranch',
          summary: 'Search the tables of a branch',
          description:
            'Finds records that contain any of the words, best match first. Tolerates typing errors and matches other forms of a word.',
          params: SearchParamsSchema,
          querystring: AtQuerySchema,
          body: BranchSearchSchema,
          response,
        },
        config,
      },
      async (request, reply) => {
        const { body } = request
        const found = await run(request, reply, (context) => searchBranch(context, body))
        return sendJson(reply, found)
      },
    )

    app.post(
      `${url}/search`,
      {
        schema: {
          tags,
          operationId: 'searchTable',
          summary: 'Search a table',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          body: Type.Union([TableSearchSchema, Type.Null()]),
          response,
        },
        config,
      },
      async (request, reply) => {
        const { body, params } = request
        const found = await run(request, reply, (context) =>
          searchTable({ ...context, ...params }, body ?? {}),
        )
        return sendJson(reply, found)
      },
    )

    app.post(
      `${url}/vectorSearch`,
      {
        schema: {
          tags,
          operationId: 'searchVectors',
          summary: 'Find the records with the nearest vectors',
          params: TableParamsSchema,
          querystring: AtQuerySchema,
          body: VectorSearchSchema,
          response,
        },
        config,
      },
      async (request, reply) => {
        const { body, params } = request
        const found = await run(request, reply, (context) =>
          searchVectors({ ...context, ...params }, body),
        )
        return sendJson(reply, found)
      },
    )
  }
}
