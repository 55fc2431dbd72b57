import { DATABASE_BRANCH_PATTERN } from '@offshoot/contract/names'
import type { FastifyError, FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { SessionRequest } from '../../data/session/sessions.js'
import { authenticate } from '../../domain/access/principal.js'
import type { Need } from '../../domain/access/scope.js'
import { splitDatabaseBranch } from '../addressed.js'
import { originOf } from '../origin.js'
import type { Services } from '../services.js'
import { apiKeyOf } from './admission.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** Let in by what the process remembers, and nothing has looked since whether that holds. */
    isUnconfirmed: boolean
  }
}

const DATABASE_BRANCH = new RegExp(DATABASE_BRANCH_PATTERN)

/** What the session of a request is looked up by. */
export function sessionRequest(request: FastifyRequest, need: Need): SessionRequest {
  const { databaseBranch } = request.params as { databaseBranch: string }
  return {
    apiKey: apiKeyOf(request),
    address: request.workspaceAddress,
    isXataClient: request.isXataClient,
    need,
    origin: originOf(request),
    ...splitDatabaseBranch(databaseBranch),
  }
}

/**
 * Everything registered beside this plugin needs a valid API key that reaches the branch in the path.
 * What is known from earlier requests is taken from memory, and confirmed by PostgreSQL in the
 * transaction of the request, or here when the request is refused before it gets that far.
 */
export const branchSessionPlugin = fastifyPlugin(
  async (app: FastifyInstance, { database, sessions }: Services) => {
    app.addHook('onRequest', async (request, reply) => {
      const { databaseBranch } = request.params as { databaseBranch?: string }
      if (databaseBranch === undefined || !DATABASE_BRANCH.test(databaseBranch)) {
        await app.identify(request, reply, () => authenticate(database, apiKeyOf(request)))
        return
      }
      await app.identify(request, reply, () => sessions.admit(sessionRequest(request, 'read')))
      request.isUnconfirmed = true
    })

    // Handlers have their refusals confirmed; one that comes before them is only as good as the
    // admission it follows.
    app.decorateRequest('isUnconfirmed', false)
    app.addHook('preHandler', async (request) => {
      request.isUnconfirmed = false
    })
    app.setErrorHandler(async (error: FastifyError, request) => {
      if (request.isUnconfirmed) {
        await sessions.confirm(sessionRequest(request, 'read'))
      }
      throw error
    })
  },
)
