import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  CreateDatabaseSchema,
  CreatedDatabaseSchema,
  DatabaseParamsSchema,
  RenameDatabaseSchema,
  RepositorySchema,
  StatusSchema,
  UpdateDatabaseSchema,
} from '@offshoot/contract/databases'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { resolveDatabase, resolveWorkspace } from '../../domain/access/resolve.js'
import type { Need } from '../../domain/access/scope.js'
import {
  createDatabase,
  deleteDatabase,
  readDatabase,
  readRepository,
  renameDatabase,
  updateDatabase,
  writeRepository,
} from '../../domain/databases/operations.js'
import { Empty, refusals } from '../responses.js'
import type { Services } from '../services.js'

/**
 * PUT    /workspaces/:workspaceId/dbs/:databaseName           GET, PATCH, DELETE
 * POST   /workspaces/:workspaceId/dbs/:databaseName/rename
 * GET    /workspaces/:workspaceId/dbs/:databaseName/github    PUT, DELETE
 */
export function databaseRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, limits, regions } = services
  const resolve = (
    request: FastifyRequest<{ Params: { workspaceId: string; databaseName: string } }>,
    need: Need,
  ) => resolveDatabase(database, request.principal, { ...request.params, need })

  return async (app) => {
    const tags = ['Database']
    const params = DatabaseParamsSchema
    const url = '/workspaces/:workspaceId/dbs/:databaseName'

    app.put(
      url,
      {
        schema: {
          tags,
          operationId: 'createDatabase',
          summary: 'Create a database',
          description:
            'The database has one empty branch, its default branch. It is called `main` unless `branchName` is given.',
          params,
          body: CreateDatabaseSchema,
          response: { 201: CreatedDatabaseSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        const { workspaceId, databaseName } = request.params
        const access = await resolveWorkspace(database, request.principal, {
          workspaceId,
          need: 'write',
        })
        const created = await createDatabase(database, access, {
          name: databaseName,
          fields: request.body,
          regions,
          limits,
        })
        return reply
          .code(201)
          .header('location', `/workspaces/${workspaceId}/dbs/${databaseName}`)
          .send(created)
      },
    )

    app.get(
      url,
      {
        schema: {
          tags,
          operationId: 'getDatabase',
          summary: 'Read the metadata of a database',
          params,
          response: { 200: Type.Ref('Database#'), ...refusals(404) },
        },
      },
      async (request) => readDatabase(database, await resolve(request, 'read')),
    )

    app.patch(
      url,
      {
        schema: {
          tags,
          operationId: 'updateDatabase',
          summary: 'Update the colour of a database',
          params,
          body: UpdateDatabaseSchema,
          response: { 200: Type.Ref('Database#'), ...refusals(404) },
        },
      },
      async (request) => updateDatabase(database, await resolve(request, 'write'), request.body),
    )

    app.delete(
      url,
      {
        schema: {
          tags,
          operationId: 'deleteDatabase',
          summary: 'Delete a database with all its branches and tables',
          params,
          response: { 200: StatusSchema, ...refusals(404) },
        },
      },
      async (request) => deleteDatabase(database, await resolve(request, 'write')),
    )

    app.post(
      `${url}/rename`,
      {
        schema: {
          tags,
          operationId: 'renameDatabase',
          summary: 'Rename a database',
          params,
          body: RenameDatabaseSchema,
          response: { 200: Type.Ref('Database#'), ...refusals(404, 422) },
        },
      },
      async (request) => renameDatabase(database, await resolve(request, 'write'), request.body),
    )

    app.get(
      `${url}/github`,
      {
        schema: {
          tags,
          operationId: 'getRepository',
          summary: 'Read the connected repository',
          params,
          response: { 200: RepositorySchema, ...refusals(404) },
        },
      },
      async (request) => readRepository(database, await resolve(request, 'read')),
    )

    app.put(
      `${url}/github`,
      {
        schema: {
          tags,
          operationId: 'connectRepository',
          summary: 'Connect a repository',
          params,
          body: RepositorySchema,
          response: { 200: RepositorySchema, ...refusals(404) },
        },
      },
      async (request) => {
        await writeRepository(database, await resolve(request, 'write'), request.body)
        return request.body
      },
    )

    app.delete(
      `${url}/github`,
      {
        schema: {
          tags,
          operationId: 'disconnectRepository',
          summary: 'Disconnect the repository',
          params,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        await writeRepository(database, await resolve(request, 'write'), null)
        return reply.code(204).send(null)
      },
    )
  }
}
