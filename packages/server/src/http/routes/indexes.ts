import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { IndexesSchema, IndexSchema, SearchIndexSchema } from '@offshoot/contract/indexes'
import { ColumnParamsSchema, TableParamsSchema } from '@offshoot/contract/schema-edits'
import type { FastifyRequest } from 'fastify'
import type { Need } from '../../domain/access/scope.js'
import { addIndex, deleteIndex, readIndex } from '../../domain/schemas/indexes.js'
import type { EditContext } from '../../domain/schemas/operations.js'
import {
  addSearchIndex,
  deleteSearchIndex,
  listAllIndexes,
  readSearchIndex,
} from '../../domain/schemas/search-index.js'
import { addressed } from '../addressed.js'
import { Empty, refusals } from '../responses.js'
import type { Services } from '../services.js'

/**
 * GET    /db/:databaseBranch/tables/:tableName/indexes
 * GET    /db/:databaseBranch/tables/:tableName/columns/:columnName/index    PUT, DELETE
 * GET    /db/:databaseBranch/tables/:tableName/searchIndex    PUT, DELETE
 */
export function indexRoutes({
  database,
  storage,
  limits,
  indexes,
}: Services): FastifyPluginAsyncTypebox {
  const { branchOf } = addressed(database)
  const edit = async (
    request: FastifyRequest<{ Params: { databaseBranch: string } }>,
    need: Need,
  ): Promise<EditContext> => ({ access: await branchOf(request, need), limits })

  return async (app) => {
    const tags = ['Schema']
    const table = '/db/:databaseBranch/tables/:tableName'
    const index = `${table}/columns/:columnName/index`

    app.get(
      `${table}/indexes`,
      {
        schema: {
          tags,
          operationId: 'listIndexes',
          summary: 'List the indexes of a table',
          params: TableParamsSchema,
          response: { 200: IndexesSchema, ...refusals(404) },
        },
      },
      async (request) =>
        listAllIndexes(database, await edit(request, 'read'), request.params.tableName),
    )

    app.get(
      index,
      {
        schema: {
          tags,
          operationId: 'getIndex',
          summary: 'Read the state of the index of a column',
          params: ColumnParamsSchema,
          response: { 200: IndexSchema, ...refusals(404) },
        },
      },
      async (request) => readIndex(database, await edit(request, 'read'), request.params),
    )

    app.put(
      index,
      {
        schema: {
          tags,
          operationId: 'createIndex',
          summary: 'Create an index of a column',
          description:
            'The index is built in the background and does not block writes. If the index exists, nothing changes; a failed index is built again.',
          params: ColumnParamsSchema,
          response: { 200: IndexSchema, ...refusals(404, 409, 422) },
        },
      },
      async (request) => {
        const made = await addIndex(storage, await edit(request, 'write'), request.params)
        indexes.wake()
        return made
      },
    )

    app.delete(
      index,
      {
        schema: {
          tags,
          operationId: 'deleteIndex',
          summary: 'Delete the index of a column',
          params: ColumnParamsSchema,
          response: { 204: Empty, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        await deleteIndex(storage, await edit(request, 'write'), request.params)
        indexes.wake()
        return reply.code(204).send(null)
      },
    )

    app.get(
      `${table}/searchIndex`,
      {
        schema: {
          tags,
          operationId: 'getSearchIndex',
          summary: 'Read the state of the search index of a table',
          params: TableParamsSchema,
          response: { 200: SearchIndexSchema, ...refusals(404) },
        },
      },
      async (request) =>
        readSearchIndex(database, await edit(request, 'read'), request.params.tableName),
    )

    app.put(
      `${table}/searchIndex`,
      {
        schema: {
          tags,
          operationId: 'createSearchIndex',
          summary: 'Create a search index of a table',
          description:
            'Makes searches of tables with more than about ten thousand records faster; results are the same. Writing texts becomes slower. Needs the PostgreSQL extension pg_trgm.',
          params: TableParamsSchema,
          response: { 200: SearchIndexSchema, ...refusals(404, 409, 422) },
        },
      },
      async (request) => {
        const context = await edit(request, 'write')
        const made = await addSearchIndex(storage, context, request.params.tableName)
        indexes.wake()
        return made
      },
    )

    app.delete(
      `${table}/searchIndex`,
      {
        schema: {
          tags,
          operationId: 'deleteSearchIndex',
          summary: 'Delete the search index of a table',
          params: TableParamsSchema,
          response: { 204: Empty, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        await deleteSearchIndex(storage, await edit(request, 'write'), request.params.tableName)
        indexes.wake()
        return reply.code(204).send(null)
      },
    )
  }
}
