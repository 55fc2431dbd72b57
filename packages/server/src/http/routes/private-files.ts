import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  FileParamsSchema,
  MakePrivateQuerySchema,
  PrivateFileListSchema,
  PrivateFileParamsSchema,
  PrivateFileSchema,
} from '@offshoot/contract/files'
import { DatabaseNameSchema } from '@offshoot/contract/names'
import { Type } from 'typebox'
import { allowPublic, makePrivate, readPrivateFiles } from '../../data/files/private-contents.js'
import { addressed } from '../addressed.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { Empty, refusals } from '../responses.js'
import type { Services } from '../services.js'

const tags = ['Files']

/**
 * POST   /db/:databaseBranch/tables/:tableName/data/:recordId/column/:columnName/makePrivate
 */
export function makePrivateRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, sessions, files, limits } = services
  const context = { database, sessions, files, limits }
  return async (app) => {
    app.post(
      '/db/:databaseBranch/tables/:tableName/data/:recordId/column/:columnName/makePrivate',
      {
        schema: {
          tags,
          operationId: 'createPrivateFile',
          summary: 'Make a file private on every branch',
          description:
            'Public links no longer open the content of this file on any branch of the database, even if a file is marked as public. Signed links still do. Needs an API key with access to all branches.',
          params: FileParamsSchema,
          querystring: MakePrivateQuerySchema,
          response: { 200: PrivateFileSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const { tableName, recordId, columnName } = request.params
        const target = { tableName, recordId, columnName, fileId: request.query.fileId ?? '' }
        return sessions.run(sessionRequest(request, 'write'), (session) =>
          makePrivate(context, session, target),
        )
      },
    )
  }
}

/**
 * GET    /dbs/:databaseName/privateFiles
 * DELETE /dbs/:databaseName/privateFiles/:sha256
 */
export function privateFileRoutes({ database }: Services): FastifyPluginAsyncTypebox {
  const { databaseOf } = addressed(database)
  return async (app) => {
    app.get(
      '/dbs/:databaseName/privateFiles',
      {
        schema: {
          tags,
          operationId: 'listPrivateFiles',
          summary: 'List the file contents that are private on every branch',
          params: Type.Object({ databaseName: DatabaseNameSchema }),
          response: { 200: PrivateFileListSchema, ...refusals(404) },
        },
      },
      async (request) =>
        readPrivateFiles(database, await databaseOf(request, request.params.databaseName, 'read')),
    )

    app.delete(
      '/dbs/:databaseName/privateFiles/:sha256',
      {
        schema: {
          tags,
          operationId: 'deletePrivateFile',
          summary: 'Allow files with this content to be public again',
          params: PrivateFileParamsSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const { databaseName, sha256 } = request.params
        await allowPublic(database, await databaseOf(request, databaseName, 'write'), { sha256 })
        return reply.code(204).send(null)
      },
    )
  }
}
