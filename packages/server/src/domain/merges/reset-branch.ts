import type { ResetResult } from '@offshoot/contract/branch-changes'
import type { StartedFrom } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { allDone } from '../../common/all-done.js'
import { newBranchId, newEntryId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { ForkSource } from '../../rows/layout/fork.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { forks } from '../../telemetry/events.js'
import type { BranchAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { confirmWithBranches } from '../branches/lock-branches.js'
import { getCheckpointAt } from '../checkpoints/find-at.js'
import { insertAfterSql, insertAutomatic } from '../checkpoints/queries.js'
import { entryOf, insertEntrySql } from '../log/entries.js'
import { findHead } from '../schemas/queries.js'
import { readDifference } from './diff-branch.js'
import { lockHistory } from './history/compact-database.js'
import { insertCompactionSql } from './history/queries.js'
import { updateMergesOf } from './merge-base.js'

const NOTHING = Promise.resolve(undefined)

/**
 * Resets a branch to the current state of its source, or of the branch `to`. The branch is forked again,
 * and keeps its name, its id and its source. Its previous state moves to a hidden branch, from which its
 * own forks continue to read. This takes constant time.
 */
export async function resetBranch(
  storage: Storage,
  access: BranchAccess,
  options: {
    to: BranchAccess
    /** The checkpoint of `to`; undefined: its present state. */
    at?: string | undefined
    dryRun: boolean
    limits: Limits
    /** Called at the end of the transaction that resets the branch. */
    keep?: ((transaction: Transaction, result: ResetResult) => Promise<void>) | undefined
  },
): Promise<ResetResult> {
  const { to: source, at, dryRun, limits, keep } = options
  requireAccess(access.principal.scope, 'write')
  const { branchId, branchName, databaseId } = access
  if (source.branchId === branchId && at === undefined) {
    throw new AppError('invalid_request', `branch [${branchName}]: cannot be reset to itself`)
  }
  const done = { databaseName: access.databaseName, branchName, status: 'completed' } as const
  if (dryRun) {
    await requireUnprotected(storage.database, access)
    const compared = { against: source, againstAt: at, mayBeUnrelated: true, limits, size: 0 }
    const difference = await readDifference(storage.database, access, compared)
    return { ...done, difference: JSON.parse(difference) }
  }
  const result = { ...done, entry: newEntryId() }
  await confirmWithBranches(storage, [access, source], {
    read: async (transaction) => {
      const [, , goal] = await allDone([
        lockHistory(transaction, databaseId),
        requireUnprotected(transaction, access),
        at === undefined ? NOTHING : getCheckpointAt(transaction, source, at),
      ])
      return goal
    },
    body: async (transaction, goal) => {
      const hiddenId = newBranchId()
      const [checkpoint, closed, , pinned] = await allDone([
        insertAutomatic(transaction, access, { before: 'reset', limits }),
        goal === undefined ? new StoredBranch(transaction, source.branchId).closeEpoch() : NOTHING,
        hideState(transaction, access, hiddenId),
        // The states of the branch have moved with its rows.
        goal === undefined ? NOTHING : new StoredBranch(transaction, goal.pinId).findSource(),
      ])
      const forked = goal === undefined ? closed : pinned
      if (forked === undefined) throw new Error('a locked branch must exist')
      const entry = entryOf(access)
      const after = insertAfterSql(access, checkpoint)
      const details = {
        ...entry.details,
        to: source.branchName,
        toCheckpoint: goal?.id,
        checkpoint,
        after: after?.id,
      }
      transaction.lastStatements.push(
        startOverSql(branchId, { forked, source }),
        // The sweep deletes the hidden branch once nothing reads it.
        StoredBranch.sweepSql({ databaseId, branchId: hiddenId, forkEpoch: null }),
        insertCompactionSql(databaseId),
        ...(after === undefined ? [] : [after.statement]),
        insertEntrySql({ ...entry, id: result.entry, kind: 'reset', details }),
      )
      await keep?.(transaction, result)
    },
  })
  forks.add()
  return result
}

async function requireUnprotected(
  database: Queryable,
  { branchId, branchName }: BranchAccess,
): Promise<void> {
  const head = await findHead(database, branchId)
  if (!head?.isProtected) return
  throw new AppError(
    'protected_branch',
    `branch [${branchName}]: is protected and cannot be reset; remove the protection first`,
  )
}

/** Moves the rows of a branch, and the forks that read them, to a new hidden branch. */
async function hideState(
  transaction: Queryable,
  { branchId, databaseId }: BranchAccess,
  hiddenId: string,
): Promise<void> {
  await allDone([
    new StoredBranch(transaction, branchId).hideAs(hiddenId, { databaseId }),
    updateMergesOf(transaction, { branchId, newBranchId: hiddenId }),
  ])
}

function startOverSql(
  branchId: string,
  { forked, source }: { forked: ForkSource; source: BranchAccess },
): Sql {
  const startedFrom: StartedFrom = {
    branchName: source.branchName,
    dbBranchID: source.branchId,
    migrationID: forked.lastMigrationId,
  }
  const assignments = sql`
    schema_id = ${forked.schemaId}, fork_schema_id = ${forked.schemaId},
    last_migration_id = ${forked.lastMigrationId}, version = version + 1,
    started_from = case
      -- A reset to another branch does not change the source.
      when started_from ->> 'dbBranchID' = ${source.branchId} then ${JSON.stringify(startedFrom)}::jsonb
      else started_from
    end`
  return StoredBranch.restartSql(branchId, forked, assignments)
}
