import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  CreatedKeySchema,
  CreatedUserSchema,
  CreateKeySchema,
  CreateUserSchema,
  KeyListSchema,
  KeyNameParamsSchema,
  SessionListSchema,
  SessionParamsSchema,
  UpdateUserSchema,
} from '@offshoot/contract/users'
import { Type } from 'typebox'
import { deleteSession, listSessions } from '../../domain/keys/console-sessions.js'
import { createKey, deleteKey, readKeys } from '../../domain/keys/operations.js'
import {
  createUser,
  deleteUser,
  readCurrentUser,
  updateCurrentUser,
} from '../../domain/users/operations.js'
import { Empty, refusals } from '../responses.js'
import type { Services } from '../services.js'

/**
 * GET    /user               PUT /user               DELETE /user
 * POST   /users
 * GET    /user/keys          POST /user/keys/:keyName          DELETE /user/keys/:keyName
 * GET    /user/sessions      DELETE /user/sessions/:sessionId
 */
export function userRoutes({ database, limits }: Services): FastifyPluginAsyncTypebox {
  return async (app) => {
    const tags = ['User']

    app.get(
      '/user',
      {
        schema: {
          tags,
          operationId: 'getUser',
          summary: 'Read the current user',
          response: { 200: Type.Ref('User#'), ...refusals() },
        },
      },
      async (request) => readCurrentUser(database, request.principal),
    )

    app.put(
      '/user',
      {
        schema: {
          tags,
          operationId: 'updateUser',
          summary: 'Update the current user',
          description: 'E-mail addresses are not verified, and grant no rights.',
          body: UpdateUserSchema,
          response: { 200: Type.Ref('User#'), ...refusals() },
        },
      },
      async (request) => updateCurrentUser(database, request.principal, request.body),
    )

    app.delete(
      '/user',
      {
        schema: {
          tags,
          operationId: 'deleteUser',
          summary: 'Delete the current user',
          response: { 204: Empty, ...refusals(409) },
        },
      },
      async (request, reply) => {
        await deleteUser(database, request.principal)
        return reply.code(204).send(null)
      },
    )

    app.post(
      '/users',
      {
        schema: {
          tags,
          operationId: 'createUser',
          summary: 'Create a user',
          description: 'Only for the administrator of the instance.',
          body: CreateUserSchema,
          response: { 201: CreatedUserSchema, ...refusals(422) },
        },
      },
      async (request, reply) =>
        reply.code(201).send(await createUser(database, request.principal, request.body)),
    )

    app.get(
      '/user/keys',
      {
        schema: {
          tags,
          operationId: 'listKeys',
          summary: 'List the API keys of the current user',
          response: { 200: KeyListSchema, ...refusals() },
        },
      },
      async (request) => readKeys(database, request.principal),
    )

    app.post(
      '/user/keys/:keyName',
      {
        schema: {
          tags,
          operationId: 'createKey',
          summary: 'Create an API key',
          description:
            'Only this answer contains the key. `scope` restricts it to some databases, some branches or read access.',
          params: KeyNameParamsSchema,
          body: Type.Union([CreateKeySchema, Type.Null()]),
          response: { 201: CreatedKeySchema, ...refusals(422) },
        },
      },
      async (request, reply) => {
        const created = await createKey(database, request.principal, {
          name: request.params.keyName,
          fields: request.body ?? {},
          limits,
        })
        return reply.code(201).send(created)
      },
    )

    app.delete(
      '/user/keys/:keyName',
      {
        schema: {
          tags,
          operationId: 'deleteKey',
          summary: 'Delete an API key',
          params: KeyNameParamsSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        await deleteKey(database, request.principal, { name: request.params.keyName })
        return reply.code(204).send(null)
      },
    )

    app.get(
      '/user/sessions',
      {
        schema: {
          tags,
          operationId: 'listSessions',
          summary: 'List the sessions of the console of the current user',
          description:
            'A session belongs to the key that it was opened with, and ends with it. A key that is limited by its scope sees its own sessions only.',
          response: { 200: SessionListSchema, ...refusals() },
        },
      },
      async (request) => listSessions(database, request.principal),
    )

    app.delete(
      '/user/sessions/:sessionId',
      {
        schema: {
          tags,
          operationId: 'deleteSession',
          summary: 'End a session of the console',
          params: SessionParamsSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        await deleteSession(database, request.principal, { id: request.params.sessionId })
        return reply.code(204).send(null)
      },
    )
  }
}
