import type { Limits } from '@offshoot/contract/limits'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Files } from '../data/files/files.js'
import type { Session } from '../data/session/session.js'
import type { Need } from '../domain/access/scope.js'
import type { Bounds } from '../postgres/bounds.js'
import type { Storage } from '../rows/storage.js'
import { disconnectSignal } from './disconnect.js'
import { stateRequest } from './plugins/branch-session.js'
import type { Services } from './services.js'

interface BoundedContext {
  readonly storage: Storage
  readonly session: Session
  readonly files: Files
  readonly limits: Limits
  readonly bounds: Bounds
}

type BoundedRun = <Result>(
  request: FastifyRequest,
  reply: FastifyReply,
  operation: (context: BoundedContext) => Promise<Result>,
) => Promise<Result>

/**
 * Runs an operation that can take long. PostgreSQL cancels it at `queryTimeoutMs`, or as soon as
 * the client disconnects.
 */
export function boundedRun(
  { storage, sessions, files, limits }: Services,
  need: Need = 'read',
): BoundedRun {
  return (request, reply, operation) => {
    const bounds = { timeoutMs: limits.queryTimeoutMs, signal: disconnectSignal(reply) }
    return sessions.run(stateRequest(request, need), (session) =>
      operation({ storage, session, files, limits, bounds }),
    )
  }
}
