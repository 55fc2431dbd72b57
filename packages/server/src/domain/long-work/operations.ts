import { AppError, type ErrorBody } from '@offshoot/contract/errors'
import type { Operation, Operations, Progress } from '@offshoot/contract/operations'
import type { Database, Queryable } from '../../postgres/database.js'
import { collected } from '../../telemetry/events.js'
import type { Principal } from '../access/principal.js'
import type { BranchAccess } from '../access/resolve.js'
import {
  type Need,
  requireAccess,
  scopeReachesBranch,
  scopeReachesDatabase,
  scopeReachesWorkspace,
} from '../access/scope.js'
import {
  deleteEnded,
  endLost,
  findOperation,
  listOperationsOf,
  markCancelled,
  type OperationRow,
} from './queries.js'

/** Operations that one step deletes. */
const STEP = 1000

const INTERRUPTED =
  'the service was stopped while the operation was running; it has changed nothing, send the request again'

/** Why operations end that the process does not finish. */
export const interrupted = (): AppError => new AppError('operation_interrupted', INTERRUPTED)

const interruptedBody = (id: string): ErrorBody => ({
  id,
  message: INTERRUPTED,
  code: 'operation_interrupted',
})

export async function readOperation(
  database: Database,
  principal: Principal,
  id: string,
): Promise<Operation> {
  return toOperation(await getOperation(database, principal, { id, need: 'read' }))
}

/** Lists the operations of a branch that run or have ended lately, newest first. */
export async function listOperations(
  database: Database,
  access: BranchAccess,
): Promise<Operations> {
  return { operations: (await listOperationsOf(database, access)).map(toOperation) }
}

/** Cancels an operation. It ends a moment later, unless it takes effect before. */
export async function cancelOperation(
  database: Database,
  principal: Principal,
  id: string,
): Promise<Operation> {
  await getOperation(database, principal, { id, need: 'write' })
  await markCancelled(database, id)
  return readOperation(database, principal, id)
}

async function getOperation(
  database: Queryable,
  { userId, scope }: Principal,
  { id, need }: { id: string; need: Need },
): Promise<OperationRow> {
  const row = await findOperation(database, { id, userId })
  const isReached =
    row !== undefined &&
    scopeReachesWorkspace(scope, row.workspaceId) &&
    scopeReachesDatabase(scope, row.database) &&
    scopeReachesBranch(scope, row.branch)
  if (!isReached) throw new AppError('operation_not_found', `operation [${id}] not found`)
  requireAccess(scope, need)
  return row
}

function toOperation(row: OperationRow): Operation {
  const { id, kind, database, branch, startedAt, endedAt, result, isLost } = row
  const error = isLost ? interruptedBody(id) : row.error && JSON.parse(row.error)
  const progress = JSON.parse(row.progress) as Progress
  return {
    id,
    kind,
    state: isLost ? 'failed' : row.state,
    database,
    branch,
    startedAt: startedAt.toISOString(),
    ...(endedAt === null ? {} : { endedAt: endedAt.toISOString() }),
    // It was noted for the last time shortly before the end.
    progress: row.state === 'done' ? { ...progress, done: progress.total } : progress,
    ...(result === null ? {} : { result: JSON.parse(result) as unknown }),
    ...(error ? { error: error as ErrorBody } : {}),
  }
}

/** Ends operations whose process is gone, and deletes some that are no longer kept. Returns whether there may be more. */
export async function collectOperations(database: Database): Promise<boolean> {
  await endLost(database, interruptedBody('interrupted'))
  const deleted = await deleteEnded(database, STEP)
  collected.add('operation', deleted)
  return deleted === STEP
}
