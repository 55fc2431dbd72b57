import { DATABASE_BRANCH_PATTERN, NAME_PATTERN } from '@offshoot/contract/names'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'

declare module 'fastify' {
  interface FastifyRequest {
    /** The code of the refusal, when the request was refused. */
    errorCode: string | undefined
  }
}

/**
 * One line for each request: what it was about and how it ended. Of the address only names of
 * workspaces, databases and branches, and the pattern of the route: ids of records, values in queries
 * and keys of invites are in the rest of it.
 */
export const requestLogPlugin = fastifyPlugin(async (app: FastifyInstance) => {
  app.decorateRequest('errorCode', undefined)
  // Nobody pays for lines that are not written.
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

/** Only what can be a name: anything may stand in an address that is refused. */
function subjectOf(request: FastifyRequest): Record<string, string> {
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
