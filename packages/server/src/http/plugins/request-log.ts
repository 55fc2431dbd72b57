import { DATABASE_BRANCH_PATTERN, NAME_PATTERN } from '@offshoot/contract/names'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'

declare module 'fastify' {
  interface FastifyRequest {
    /** The error code of the answer; undefined if the request succeeded. */
    errorCode: string | undefined
  }
}

/**
 * Logs one line per request. Of the address it logs only the route pattern and the names of
 * workspace, database and branch. The rest can contain record ids, values and invite keys.
 */
export const requestLogPlugin = fastifyPlugin(async (app: FastifyInstance) => {
  app.decorateRequest('errorCode', undefined)
  // No hook is registered if the level discards its lines.
  if (!isEnabled(app)) return
  app.addHook('onResponse', (request, reply, done) => {
    request.log.info(
      {
        method: request.method,
        route: request.routeOptions.url ?? null,
        status: reply.statusCode,
        durationMs: Math.round(reply.elapsedTime * 100) / 100,
        ...subjectOf(request),
        ...(request.errorCode === undefined ? {} : { code: request.errorCode }),
        ...(request.traceId === undefined ? {} : { traceId: request.traceId }),
      },
      'request',
    )
    done()
  })
})

function isEnabled(app: FastifyInstance): boolean {
  return ['info', 'debug', 'trace'].includes(app.log.level)
}

const NAME = new RegExp(NAME_PATTERN)
const DATABASE_BRANCH = new RegExp(DATABASE_BRANCH_PATTERN)
const NAME_LENGTH_MAX = 255

/**
 * Returns the names in the address that have a valid form. The address of a refused request can
 * contain any text.
 */
export function subjectOf(request: FastifyRequest): Record<string, string> {
  const { workspaceId, databaseName, databaseBranch } = (request.params ?? {}) as Record<
    string,
    string | undefined
  >
  const subject: Record<string, string> = {}
  const workspace = workspaceId ?? request.workspaceAddress?.workspaceId
  if (isName(workspace)) subject.workspace = workspace
  if (isName(databaseName)) subject.database = databaseName
  if (databaseBranch !== undefined && DATABASE_BRANCH.test(databaseBranch)) {
    const [database, branch] = databaseBranch.split(':')
    if (isName(database)) subject.database = database
    if (isName(branch)) subject.branch = branch
  }
  return subject
}

function isName(text: string | undefined): text is string {
  return text !== undefined && text.length <= NAME_LENGTH_MAX && NAME.test(text)
}
