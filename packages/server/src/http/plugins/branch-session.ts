import type { FastifyError, FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { SessionRequest } from '../../data/session/sessions.js'
import { authenticate } from '../../domain/access/principal.js'
import type { Need } from '../../domain/access/scope.js'
import { namesOf, splitDatabaseBranch } from '../addressed.js'
import { originOf } from '../origin.js'
import type { Services } from '../services.js'
import { apiKeyOf } from './admission.js'

declare module 'fastify' {
  interface FastifyRequest {
    /**
     * The request was admitted from the session cache, and the cached rights are not confirmed yet.
     */
    isUnconfirmed: boolean
    /** Tells the client which checkpoint a request has read. Only set for a request with `at`. */
    noteCheckpoint: ((id: string) => void) | undefined
  }
}

/** Returns the values that identify the session of a request. */
export function sessionRequest(request: FastifyRequest, need: Need): SessionRequest {
  const { databaseBranch } = request.params as { databaseBranch: string }
  return {
    apiKey: apiKeyOf(request),
    address: request.workspaceAddress,
    isXataClient: request.isXataClient,
    need,
    requestId: request.id,
    origin: originOf(request),
    bodyBytes: request.bodyBytes,
    ...splitDatabaseBranch(databaseBranch),
  }
}

/** Like `sessionRequest`, for the state of the branch that the parameter `at` names: a checkpoint, or the present one. */
export function stateRequest(request: FastifyRequest, need: Need): SessionRequest {
  const { at } = request.query as { at?: string }
  const asked = sessionRequest(request, need)
  return at === undefined ? asked : { ...asked, at, onCheckpoint: request.noteCheckpoint }
}

/** The header of answers that have the id of the checkpoint that was read. */
export const CHECKPOINT_HEADER = 'offshoot-checkpoint'

/**
 * Requires an API key with access to the branch in the path, for all routes of the same scope.
 * Rights come from the session cache. PostgreSQL confirms them in the transaction of the request;
 * if the request fails earlier, they are confirmed here.
 */
export const branchSessionPlugin = fastifyPlugin(
  async (app: FastifyInstance, { database, sessions }: Services) => {
    app.decorateRequest('principal')
    app.decorateRequest('noteCheckpoint', undefined)
    app.addHook('onRequest', async (request, reply) => {
      if (request.url.includes('at=')) {
        request.noteCheckpoint = (id) => reply.header(CHECKPOINT_HEADER, id)
      }
      if (namesOf(request) === undefined) {
        await app.identify(request, reply, () => authenticate(database, apiKeyOf(request)))
        return
      }
      request.principal = await app.identify(request, reply, () =>
        sessions.admit(sessionRequest(request, 'read')),
      )
      request.isUnconfirmed = true
    })

    // Errors of handlers are confirmed by the session. An error before the handler, such as one of
    // validation, relies on cached rights: confirm them first, so that a revoked key gets 401.
    app.decorateRequest('isUnconfirmed', false)
    app.addHook('preHandler', (request, _reply, done) => {
      request.isUnconfirmed = false
      done()
    })
    app.setErrorHandler(async (error: FastifyError, request) => {
      if (request.isUnconfirmed) {
        await sessions.confirm(sessionRequest(request, 'read'))
      }
      throw error
    })
  },
)
