import type {
  CreateDatabase,
  Database as DatabaseBody,
  Repository,
  UpdateDatabase,
} from '@offshoot/contract/databases'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Region } from '@offshoot/contract/workspaces'
import { newBranchId } from '../../common/ids.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { codeOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { DatabaseSchema } from '../../rows/layout/database-schema.js'
import type { DatabaseAccess, WorkspaceAccess } from '../access/resolve.js'
import {
  requireWholeDatabase,
  requireWholeWorkspace,
  scopeReachesBranch,
  scopeReachesDatabase,
} from '../access/scope.js'
import { insertFirstBranch } from '../branches/create-branch.js'
import { updateBranchStamps } from '../branches/queries.js'
import { updateMemberKeyStamps } from '../keys/queries.js'
import { logAccess } from '../log/entries.js'
import { lockWorkspace } from '../workspaces/queries.js'
import {
  countDatabases,
  type DatabaseRow,
  deleteDatabaseRow,
  getDatabase,
  insertDatabase,
  listDatabases,
  listProtectedBranches,
  updateDatabaseColor,
  updateDatabaseName,
  updateDatabaseRepository,
  updateDatabaseSearch,
} from './queries.js'

const DEFAULT_BRANCH_NAME = 'main'

export async function readDatabases(database: Database, access: WorkspaceAccess) {
  const rows = await listDatabases(database, access.workspaceId)
  const reached = rows.filter((row) => scopeReachesDatabase(access.principal.scope, row.name))
  return { databases: reached.map(toDatabase) }
}

export async function createDatabase(
  database: Database,
  access: WorkspaceAccess,
  options: { name: string; fields: CreateDatabase; regions: readonly Region[]; limits: Limits },
): Promise<{ databaseName: string; branchName: string; status: 'completed' }> {
  const { name, fields, regions, limits } = options
  const { scope } = access.principal
  const branchName = fields.branchName ?? DEFAULT_BRANCH_NAME
  if (!scopeReachesDatabase(scope, name) || !scopeReachesBranch(scope, branchName)) {
    throw new AppError('key_scope', `this API key cannot create database [${name}]`)
  }
  if (!regions.some((region) => region.id === fields.region)) {
    const known = regions.map((region) => region.id).join(', ')
    throw new AppError(
      'invalid_request',
      `body: field [region]: [${fields.region}] is not one of [${known}]`,
    )
  }
  const create = async (transaction: Transaction) => {
    await lockWorkspace(transaction, access.workspaceId)
    if (
      (await countDatabases(transaction, access.workspaceId)) >= limits.databasesPerWorkspaceMax
    ) {
      throw new AppError(
        'limit_reached',
        `a workspace can have at most ${limits.databasesPerWorkspaceMax} databases`,
      )
    }
    const branchId = newBranchId()
    const databaseId = await insertDatabase(transaction, {
      workspaceId: access.workspaceId,
      name,
      region: fields.region,
      color: fields.ui?.color,
      defaultBranchId: branchId,
    })
    if (databaseId === undefined) throw databaseExists(name)
    await new DatabaseSchema(databaseId).create(transaction)
    await insertFirstBranch(transaction, {
      databaseId,
      branchId,
      name: branchName,
      metadata: fields.metadata ?? {},
    })
    const made = { databaseId, databaseName: name, branchId, branchName }
    await logAccess(transaction, { ...access, ...made }, { kind: 'databaseCreated' })
    // Others that renew the same keys wait from here on.
    await updateMemberKeyStamps(transaction, access.workspaceId)
  }
  // Databases of one workspace are created one after the other. A serializable transaction would not see those that
  // it has waited for, and would be in conflict with each of them.
  await runTransaction(database, create, { isolation: 'read committed' })
  return { databaseName: name, branchName, status: 'completed' }
}

export async function readDatabase(
  database: Database,
  access: DatabaseAccess,
): Promise<DatabaseBody> {
  return toDatabase(await getDatabase(database, access))
}

export async function updateDatabase(
  database: Database,
  access: DatabaseAccess,
  fields: UpdateDatabase,
): Promise<DatabaseBody> {
  requireWholeDatabase(access.principal.scope)
  const { databaseId } = access
  return runTransaction(database, async (transaction) => {
    const color = fields.ui?.color
    if (color !== undefined) await updateDatabaseColor(transaction, { databaseId, color })
    return toDatabase(await getDatabase(transaction, access))
  })
}

export async function renameDatabase(
  database: Database,
  access: DatabaseAccess,
  options: { newName: string },
): Promise<DatabaseBody> {
  requireWholeWorkspace(access.principal.scope)
  const { databaseId } = access
  try {
    return await runTransaction(database, async (transaction) => {
      await updateDatabaseName(transaction, { databaseId, name: options.newName })
      await updateBranchStamps(transaction, databaseId)
      await updateMemberKeyStamps(transaction, access.workspaceId)
      const details = { newName: options.newName }
      await logAccess(transaction, access, { kind: 'databaseRenamed', details })
      return toDatabase(await getDatabase(transaction, access))
    })
  } catch (error) {
    throw codeOf(error) === UNIQUE_VIOLATION ? databaseExists(options.newName) : error
  }
}

export async function deleteDatabase(
  database: Database,
  access: DatabaseAccess,
): Promise<{ status: 'completed' }> {
  requireWholeDatabase(access.principal.scope)
  await runTransaction(database, async (transaction) => {
    await getDatabase(transaction, access)
    await requireUnprotected(transaction, access)
    await deleteDatabaseRow(transaction, access.databaseId)
    await logAccess(transaction, access, { kind: 'databaseDeleted' })
  })
  return { status: 'completed' }
}

/** Protected branches that a refusal names. */
const PROTECTED_NAMED_MAX = 5

/** Refuses to delete a database with protected branches. */
async function requireUnprotected(
  transaction: Queryable,
  { databaseId, databaseName }: DatabaseAccess,
): Promise<void> {
  const limit = PROTECTED_NAMED_MAX + 1
  const names = await listProtectedBranches(transaction, { databaseId, limit })
  if (names.length === 0) return
  const named = names.slice(0, PROTECTED_NAMED_MAX).map((name) => `[${name}]`)
  const others = names.length > PROTECTED_NAMED_MAX ? ' and others' : ''
  throw new AppError(
    'protected_branch',
    `database [${databaseName}]: has protected branches and cannot be deleted: ${named.join(', ')}${others}; remove the protection first`,
  )
}

export async function readRepository(
  database: Database,
  access: DatabaseAccess,
): Promise<Repository> {
  const { repository } = await getDatabase(database, access)
  if (repository === null) {
    throw new AppError(
      'repository_not_found',
      `database [${access.databaseName}]: no repository is connected`,
    )
  }
  return repository
}

export async function writeRepository(
  database: Database,
  access: DatabaseAccess,
  repository: Repository | null,
): Promise<void> {
  requireWholeDatabase(access.principal.scope)
  if (repository === null) await readRepository(database, access)
  await updateDatabaseRepository(database, { databaseId: access.databaseId, repository })
}

export async function readSettings(database: Database, access: DatabaseAccess) {
  const { searchEnabled } = await getDatabase(database, access)
  return { searchEnabled }
}

export async function updateSettings(
  database: Database,
  access: DatabaseAccess,
  fields: { searchEnabled?: boolean },
) {
  requireWholeDatabase(access.principal.scope)
  const { searchEnabled } = fields
  if (searchEnabled !== undefined) {
    await runTransaction(database, async (transaction) => {
      await updateDatabaseSearch(transaction, { databaseId: access.databaseId, searchEnabled })
      await logAccess(transaction, access, { kind: 'settingsChanged', details: { searchEnabled } })
    })
  }
  return readSettings(database, access)
}

function databaseExists(name: string): AppError {
  return new AppError('already_exists', `database [${name}] already exists`)
}

function toDatabase(row: DatabaseRow): DatabaseBody {
  return {
    name: row.name,
    region: row.region,
    createdAt: row.createdAt.toISOString(),
    ...(row.color === null ? {} : { ui: { color: row.color } }),
  }
}
