import type { BranchMetadata, StartedFrom, UpdateBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import type { Storage } from '../../rows/storage.js'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { logAccess } from '../log/entries.js'
import { getHead } from '../schemas/edit-schema.js'
import { toPublicSchema } from '../schemas/public-schema.js'
import {
  changeLife,
  requireApprovalRights,
  requireProtectionRights,
  toPublicLife,
} from './branch-life.js'
import { deleteUnprotected } from './delete-branch.js'
import {
  type BranchRow,
  findBranch,
  findBranchLife,
  listBranches,
  listLastMerges,
  updateBranchLife,
  updateBranchMetadata,
} from './queries.js'

export async function readBranches(database: Database, access: DatabaseAccess) {
  const [rows, merges] = await Promise.all([
    listBranches(database, access.databaseId),
    listLastMerges(database, access.databaseId),
  ])
  const shown = merges.filter(({ from }) => scopeReachesBranch(access.principal.scope, from))
  const mergesById = new Map<string, typeof shown>()
  for (const merge of shown) {
    const known = mergesById.get(merge.intoId)
    if (known === undefined) mergesById.set(merge.intoId, [merge])
    else known.push(merge)
  }
  const branches = rows
    .filter((row) => scopeReachesBranch(access.principal.scope, row.name))
    .map((row) => {
      const source = shownSource(access, row)
      return {
        name: row.name,
        id: row.id,
        createdAt: row.createdAt.toISOString(),
        default: row.id === access.defaultBranchId,
        ...(source === undefined ? {} : { from: source.branchName }),
        ...toPublicMerges(mergesById.get(row.id)),
        ...toPublicLife(row),
      }
    })
  return { databaseName: access.databaseName, branches }
}

/** Returns a branch, with the schema of the present or of a checkpoint. */
export async function readBranch(database: Database, access: BranchAccess, past = access) {
  const row = await getBranch(database, access)
  const { schema, lastMigrationId } = past === access ? row : await getHead(database, past)
  const startedFrom = shownSource(access, row)
  return {
    databaseName: access.databaseName,
    branchName: row.name,
    createdAt: row.createdAt.toISOString(),
    id: row.id,
    version: row.version,
    lastMigrationID: lastMigrationId,
    metadata: row.metadata,
    ...(startedFrom === undefined ? {} : { startedFrom }),
    ...toPublicLife(row),
    schema: toPublicSchema(schema),
  }
}

function toPublicMerges(merges: readonly { from: string; at: Date }[] | undefined) {
  if (merges === undefined) return {}
  return { merges: merges.map(({ from, at }) => ({ from, at: at.toISOString() })) }
}

/** Returns the source of a branch, if it has one and its name is in the scope of the key. */
function shownSource(
  { principal }: DatabaseAccess,
  { startedFrom }: Pick<BranchRow, 'startedFrom'>,
): StartedFrom | undefined {
  if (startedFrom === null) return undefined
  return scopeReachesBranch(principal.scope, startedFrom.branchName) ? startedFrom : undefined
}

export async function deleteBranch(
  database: Database,
  access: BranchAccess,
): Promise<{ status: 'completed' }> {
  requireAccess(access.principal.scope, 'write')
  if (access.branchId === access.defaultBranchId) {
    throw new AppError(
      'default_branch',
      `branch [${access.branchName}]: is the default branch of the database and cannot be deleted`,
    )
  }
  if (await deleteUnprotected(database, access)) return { status: 'completed' }
  // Throws if the branch does not exist.
  await getBranch(database, access)
  throw new AppError(
    'protected_branch',
    `branch [${access.branchName}]: is protected and cannot be deleted; remove the protection first`,
  )
}

/** Changes expiry and protection of a branch. */
export async function updateBranch(storage: Storage, access: BranchAccess, wishes: UpdateBranch) {
  const { database } = storage
  requireAccess(access.principal.scope, 'write')
  requireProtectionRights(access, wishes)
  const { branchId } = access
  const ends = (['expiresAt', 'ttl'] as const).find((field) => wishes[field] != null)
  if (ends !== undefined && branchId === access.defaultBranchId) {
    throw new AppError(
      'invalid_request',
      `body: field [${ends}]: the default branch of a database cannot expire`,
    )
  }
  const update = async (transaction: Transaction): Promise<void> => {
    const life = await findBranchLife(transaction, branchId)
    if (life === undefined) throw branchNotFound(access)
    const changed = changeLife(life, wishes)
    requireApprovalRights(access, { before: life, after: changed })
    await updateBranchLife(transaction, { branchId, life: changed })
    await logAccess(transaction, access, { kind: 'branchChanged', details: { changed: wishes } })
  }
  // Approvals are required between writes: a transaction that began before must not commit afterwards.
  if (wishes.requiredApprovals !== undefined) await storage.runAlone([branchId], update)
  // `findBranchLife` locks the row.
  else await runTransaction(database, update, { isolation: 'read committed' })
  return readBranch(database, access)
}

export async function readMetadata(
  database: Database,
  access: BranchAccess,
): Promise<BranchMetadata> {
  return (await getBranch(database, access)).metadata
}

export async function writeMetadata(
  database: Database,
  access: BranchAccess,
  metadata: BranchMetadata,
): Promise<void> {
  requireAccess(access.principal.scope, 'write')
  await updateBranchMetadata(database, { branchId: access.branchId, metadata })
}

/** Reads a branch, which may have been deleted since it was resolved. */
async function getBranch(database: Database, access: BranchAccess): Promise<BranchRow> {
  const row = await findBranch(database, access.branchId)
  if (row === undefined) throw branchNotFound(access)
  return row
}

function branchNotFound(access: BranchAccess): AppError {
  return new AppError('branch_not_found', `branch [${access.branchName}] not found`)
}
