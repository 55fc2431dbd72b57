import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../../postgres/database.js'
import type { BranchAccess } from '../access/resolve.js'
import { type CheckpointRow, findCheckpoint, findCheckpointBefore } from './queries.js'

/** RFC 3339. Names of checkpoints have no colon, so that none is a time. */
const TIME = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)$/

/** Finds the checkpoint that `at` stands for: its id, its name, or a time at or after it. */
export async function getCheckpointAt(
  database: Queryable,
  { branchId, branchName }: Pick<BranchAccess, 'branchId' | 'branchName'>,
  at: string,
): Promise<CheckpointRow> {
  if (!TIME.test(at)) {
    const found = await findCheckpoint(database, { branchId, at })
    if (found !== undefined) return found
    throw new AppError(
      'checkpoint_not_found',
      `branch [${branchName}]: checkpoint [${at}] not found; give its id, its name, or a time such as [2026-01-31T09:30:00Z]`,
    )
  }
  const time = new Date(at)
  if (Number.isNaN(time.getTime())) {
    throw new AppError('invalid_request', `parameter [at]: [${at}] is not a time`)
  }
  const found = await findCheckpointBefore(database, { branchId, time })
  if (found !== undefined) return found
  throw new AppError(
    'checkpoint_not_found',
    `branch [${branchName}]: there is no checkpoint at or before [${at}]`,
  )
}
