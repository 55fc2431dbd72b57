import type { BranchMetadata } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { toPublicSchema } from '../schemas/public-schema.js'
import { deleteMergeBases } from './merge-base.js'
import {
  type BranchRow,
  deleteGitBranchesOf,
  deleteUnusedBranches,
  findBranch,
  listBranches,
  updateBranchDeleted,
  updateBranchMetadata,
} from './queries.js'

export async function readBranches(database: Database, access: DatabaseAccess) {
  const rows = await listBranches(database, access.databaseId)
  const branches = rows
    .filter((row) => scopeReachesBranch(access.principal.scope, row.name))
    .map((row) => ({
      name: row.name,
      id: row.id,
      createdAt: row.createdAt.toISOString(),
      default: row.id === access.defaultBranchId,
      ...(row.startedFrom === null ? {} : { from: row.startedFrom.branchName }),
    }))
  return { databaseName: access.databaseName, branches }
}

export async function readBranch(database: Database, access: BranchAccess) {
  const row = await getBranch(database, access)
  return {
    databaseName: access.databaseName,
    branchName: row.name,
    createdAt: row.createdAt.toISOString(),
    id: row.id,
    version: row.version,
    lastMigrationID: row.lastMigrationId,
    metadata: row.metadata,
    ...(row.startedFrom === null ? {} : { startedFrom: row.startedFrom }),
    schema: toPublicSchema(row.schema),
  }
}

export async function removeBranch(
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
  await runTransaction(database, async (transaction) => {
    await deleteGitBranchesOf(transaction, access.branchId)
    await deleteMergeBases(transaction, access.branchId)
    if (!(await updateBranchDeleted(transaction, access.branchId))) throw branchNotFound(access)
    // Removing one can leave its deleted parent unused, and so on up.
    while (await deleteUnusedBranches(transaction, access.databaseId));
  })
  return { status: 'completed' }
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

/** A branch may be deleted between being resolved and being read. */
async function getBranch(database: Database, access: BranchAccess): Promise<BranchRow> {
  const row = await findBranch(database, access.branchId)
  if (row === undefined) throw branchNotFound(access)
  return row
}

function branchNotFound(access: BranchAccess): AppError {
  return new AppError('branch_not_found', `branch [${access.branchName}] not found`)
}
