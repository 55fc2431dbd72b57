import {
  AUTOMATIC_CHECKPOINT_DAYS_MAX,
  type Checkpoint,
  type CheckpointList,
  type CheckpointListQuery,
  type CreateCheckpoint,
  type UpdateCheckpoint,
} from '@offshoot/contract/checkpoints'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { LIST_PAGE_SIZE } from '@offshoot/contract/paging'
import { cutPage } from '../../common/cut-page.js'
import { CHECKPOINT_ID_START, newCheckpointId, newEntryId } from '../../common/ids.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { codeOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { Work } from '../../postgres/work.js'
import type { Storage } from '../../rows/storage.js'
import { collected } from '../../telemetry/events.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { getCheckpointAt } from '../checkpoints/find-at.js'
import {
  type CheckpointRow,
  deleteCheckpoints,
  findCheckpoint,
  insertCheckpointSql,
  listBranchesWithOld,
  listCheckpoints,
  listOutdated,
  type NewCheckpoint,
  updateCheckpoint,
} from '../checkpoints/queries.js'
import { entryOf, logAccess } from '../log/entries.js'
import { deleteUnusedBranches } from './unused-branches.js'

/** Makes a checkpoint of the present state of a branch. It takes as long as a fork. */
export async function createCheckpoint(
  storage: Storage,
  access: BranchAccess,
  { name, note, limits }: CreateCheckpoint & { limits: Limits },
): Promise<Checkpoint> {
  requireAccess(access.principal.scope, 'write')
  requireOwnName(name)
  const id = newCheckpointId()
  const entryId = newEntryId()
  const entry = entryOf(access)
  const details = { ...entry.details, checkpoint: id, name: name ?? id }
  const limit = limits.checkpointsPerBranchMax
  const made = await insertAlone(storage, access, {
    ...{ id, name, note, limit, kind: 'manual' },
    entry: { ...entry, id: entryId, kind: 'checkpoint', details },
  })
  if (made !== undefined) return { ...toCheckpoint(made), entry: entryId }
  const { branchId, branchName } = access
  if (name !== undefined && (await findCheckpoint(storage.database, { branchId, at: name }))) {
    throw nameTaken(access, name)
  }
  throw new AppError(
    'limit_reached',
    `branch [${branchName}]: a branch can have at most ${limit} checkpoints; delete one first`,
  )
}

/** Throws for a name that looks like an id. The service finds checkpoints by their ids, and names some after others. */
function requireOwnName(name: string | undefined): void {
  if (name?.startsWith(CHECKPOINT_ID_START) !== true) return
  throw new AppError(
    'invalid_request',
    `body: field [name]: [${name}] begins with [${CHECKPOINT_ID_START}], as only ids do`,
  )
}

/** Returns undefined if the name is taken or the limit is reached. */
async function insertAlone(
  storage: Storage,
  branch: Pick<BranchAccess, 'branchId' | 'branchName' | 'databaseId'>,
  made: NewCheckpoint,
): Promise<CheckpointRow | undefined> {
  const { branchId, branchName } = branch
  const statement = insertCheckpointSql(branch, made)
  const { outcome } = await storage.fork(statement, { sourceId: branchId, branchId, opens: false })
  if (outcome === 'no source') {
    throw new AppError('branch_not_found', `branch [${branchName}] not found`)
  }
  if (outcome === 'name in use') return undefined
  return findCheckpoint(storage.database, { branchId, at: made.id })
}

const nameTaken = ({ branchName }: BranchAccess, name: string): AppError =>
  new AppError('already_exists', `branch [${branchName}]: checkpoint [${name}] already exists`)

export async function readCheckpoints(
  database: Database,
  access: BranchAccess,
  { size = LIST_PAGE_SIZE, after: cursor }: CheckpointListQuery,
): Promise<CheckpointList> {
  const { branchId } = access
  const after =
    cursor === undefined ? undefined : await findCheckpoint(database, { branchId, at: cursor })
  if (cursor !== undefined && after === undefined) {
    throw new AppError('invalid_request', `query: parameter [after]: [${cursor}] is no checkpoint`)
  }
  const rows = await listCheckpoints(database, branchId, { after, limit: size + 1 })
  const { shown, meta } = cutPage(rows, size, ({ id }) => id)
  return { checkpoints: shown.map(toCheckpoint), meta }
}

/** Reads the checkpoint that an id, a name or a time stands for. */
export async function readCheckpoint(
  database: Database,
  access: BranchAccess,
  at: string,
): Promise<Checkpoint> {
  return toCheckpoint(await getCheckpointAt(database, access, at))
}

export async function changeCheckpoint(
  database: Database,
  access: BranchAccess,
  { at, fields }: { at: string; fields: UpdateCheckpoint },
): Promise<Checkpoint> {
  requireAccess(access.principal.scope, 'write')
  try {
    return await runTransaction(database, async (transaction) => {
      const found = await getNamed(transaction, access, at)
      if (found.kind === 'automatic' && found.before === null) {
        throw new AppError(
          'conflict',
          `branch [${access.branchName}]: checkpoint [${at}] belongs to an entry of the log and cannot be changed`,
        )
      }
      const { name = found.name, note = found.note } = fields
      if (name !== found.id) requireOwnName(fields.name)
      await updateCheckpoint(transaction, { id: found.id, name, note })
      return toCheckpoint({ ...found, name, note })
    })
  } catch (error) {
    throw codeOf(error) === UNIQUE_VIOLATION ? nameTaken(access, fields.name ?? '') : error
  }
}

/** Deletes a checkpoint. The collectors remove the row versions that only it needed. */
export async function deleteCheckpoint(
  database: Database,
  access: BranchAccess,
  at: string,
): Promise<void> {
  requireAccess(access.principal.scope, 'write')
  await deleteInTransaction(database, async (transaction) => {
    const { id, name } = await getNamed(transaction, access, at)
    const details = { checkpoint: id, name }
    await logAccess(transaction, access, { kind: 'checkpointDeleted', details })
    return [id]
  })
}

/** A change must name the checkpoint: a time could stand for another one tomorrow. */
async function getNamed(
  transaction: Queryable,
  { branchId, branchName }: BranchAccess,
  at: string,
): Promise<CheckpointRow> {
  const found = await findCheckpoint(transaction, { branchId, at })
  if (found !== undefined) return found
  throw new AppError('checkpoint_not_found', `branch [${branchName}]: checkpoint [${at}] not found`)
}

function deleteInTransaction(
  database: Database,
  find: (transaction: Queryable) => Promise<readonly string[]>,
): Promise<number> {
  return runTransaction(
    database,
    async (transaction) => {
      const ids = await find(transaction)
      const pins = ids.length === 0 ? [] : await deleteCheckpoints(transaction, ids)
      await deleteUnusedBranches(transaction, pins)
      return pins.length
    },
    // After waiting for a lock, each statement must see what was committed meanwhile.
    { isolation: 'read committed' },
  )
}

/** Checkpoints that one step deletes, and branches that one step looks at. */
const STEP = 50

/** Deletes some checkpoints of a branch that are no longer kept. Returns whether there may be more. */
export async function collectCheckpoints(
  { database }: Storage,
  { subject: branchId }: Pick<Work, 'subject'>,
  limits: Limits,
): Promise<boolean> {
  const deleted = await deleteInTransaction(database, (transaction) =>
    listOutdated(transaction, branchId, {
      automaticMax: limits.automaticCheckpointsMax,
      days: AUTOMATIC_CHECKPOINT_DAYS_MAX,
      limit: STEP,
    }),
  )
  collected.add('checkpoint', deleted)
  // A checkpoint may have been deleted with the one after the same change.
  return deleted >= STEP
}

/** Deletes automatic checkpoints that are too old, and makes scheduled ones that are due. Returns whether there may be more. */
export async function keepCheckpoints(storage: Storage, limits: Limits): Promise<boolean> {
  const { database } = storage
  const old = await listBranchesWithOld(database, {
    days: AUTOMATIC_CHECKPOINT_DAYS_MAX,
    limit: STEP,
  })
  for (const subject of old) while (await collectCheckpoints(storage, { subject }, limits)) {}
  const due = await takeDue(database)
  for (const branch of due) {
    await insertAlone(storage, branch, { id: newCheckpointId(), kind: 'scheduled' })
  }
  return due.length === STEP
}

/** Takes some branches whose next checkpoint is due. Other processes get other branches. */
function takeDue(
  database: Database,
): Promise<Pick<BranchAccess, 'branchId' | 'branchName' | 'databaseId'>[]> {
  return database.query(sql`
    update offshoot.branches
    set checkpoint_due = now() + make_interval(secs => checkpoint_every)
    where id = any(array(
      select id
      from offshoot.branches
      where checkpoint_due <= now() and ${isLive}
      order by checkpoint_due
      limit ${STEP}
      for no key update skip locked
    ))
    returning id as "branchId", name as "branchName", database_id as "databaseId"`)
}

function toCheckpoint({ id, name, note, kind, before, createdAt }: CheckpointRow): Checkpoint {
  return {
    id,
    name,
    ...(note === null ? {} : { note }),
    kind,
    ...(before === null ? {} : { before }),
    createdAt: createdAt.toISOString(),
  }
}
