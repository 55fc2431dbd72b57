import type { ErrorCode } from '@offshoot/contract/errors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Services } from '../services.js'
import { subjectOf } from './request-log.js'

/** Refusals that an owner of the workspace may want to know of. */
const AUDITED: ReadonlySet<string> = new Set<ErrorCode>([
  'forbidden',
  'key_scope',
  'protected_branch',
  'approvals_required',
])

/** Notes refused requests of valid keys for the audit log. */
export const refusalsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { refusals }: Pick<Services, 'refusals'>) => {
    app.addHook('onResponse', (request, _reply, done) => {
      const { errorCode: code, principal } = request
      if (code !== undefined && AUDITED.has(code) && principal !== undefined) {
        const { workspace, ...names } = subjectOf(request)
        const { method } = request
        const route = request.routeOptions.url ?? ''
        refusals.note({
          by: { ...principal, requestId: request.id },
          workspaces: workspace === undefined ? principal.scope.workspaces : [workspace],
          details: { code, method, route, ...names },
        })
      }
      done()
    })
  },
)
