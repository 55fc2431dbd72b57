import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Workspace, WriteWorkspace } from '@offshoot/contract/workspaces'
import { newWorkspaceId } from '../../common/ids.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import type { Principal } from '../access/principal.js'
import type { WorkspaceAccess } from '../access/resolve.js'
import { requireUnlimited, requireWholeWorkspace, scopeReachesWorkspace } from '../access/scope.js'
import { insertEntry, logAccess } from '../log/entries.js'
import {
  deleteWorkspaceRow,
  getWorkspace,
  insertMember,
  insertWorkspace,
  listWorkspaces,
  updateWorkspace,
} from './queries.js'

export async function readWorkspaces(database: Database, principal: Principal) {
  const rows = await listWorkspaces(database, principal.userId)
  const workspaces = rows
    .filter((row) => scopeReachesWorkspace(principal.scope, row.id))
    .map(({ id, name, slug, role }) => ({
      id,
      unique_id: id.slice(-6),
      name,
      slug,
      role,
      plan: 'free',
    }))
  return { workspaces }
}

export async function createWorkspace(
  database: Database,
  principal: Principal,
  options: { fields: WriteWorkspace; limits: Limits },
): Promise<Workspace> {
  const { fields, limits } = options
  requireUnlimited(principal.scope)
  const slug = fields.slug ?? slugOf(fields.name)
  return runTransaction(database, async (transaction) => {
    const existing = await listWorkspaces(transaction, principal.userId)
    if (existing.length >= limits.workspacesPerUserMax) {
      throw new AppError(
        'limit_reached',
        `a user can be in at most ${limits.workspacesPerUserMax} workspaces`,
      )
    }
    const id = newWorkspaceId(slug.toLowerCase())
    await insertWorkspace(transaction, { id, name: fields.name, slug })
    await insertMember(transaction, { workspaceId: id, userId: principal.userId, role: 'owner' })
    const details = { name: fields.name }
    await insertEntry(transaction, {
      kind: 'workspaceCreated',
      by: principal,
      workspaceId: id,
      details,
    })
    return getWorkspace(transaction, id)
  })
}

export async function readWorkspace(
  database: Database,
  access: WorkspaceAccess,
): Promise<Workspace> {
  return getWorkspace(database, access.workspaceId)
}

/** Renames a workspace. Its id does not change, because addresses contain it. */
export async function renameWorkspace(
  database: Database,
  access: WorkspaceAccess,
  fields: WriteWorkspace,
): Promise<Workspace> {
  requireWholeWorkspace(access.principal.scope)
  return runTransaction(database, async (transaction) => {
    await updateWorkspace(transaction, {
      id: access.workspaceId,
      name: fields.name,
      slug: fields.slug,
    })
    const details = { name: fields.name }
    await logAccess(transaction, access, { kind: 'workspaceRenamed', details })
    return getWorkspace(transaction, access.workspaceId)
  })
}

export async function deleteWorkspace(database: Database, access: WorkspaceAccess): Promise<void> {
  requireWholeWorkspace(access.principal.scope)
  if (access.role !== 'owner') {
    throw new AppError('forbidden', 'only an owner can delete the workspace')
  }
  await runTransaction(database, async (transaction) => {
    await getWorkspace(transaction, access.workspaceId)
    await deleteWorkspaceRow(transaction, access.workspaceId)
  })
}

const SLUG_LENGTH_MAX = 50

/** Derives a slug from a name. A slug is part of host names, so it has only `a-z`, `0-9` and `-`. */
function slugOf(name: string): string {
  const slug = name
    .normalize('NFKD')
    .replace(/\p{Mark}+/gu, '')
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+/, '')
    .slice(0, SLUG_LENGTH_MAX)
    .replace(/-+$/, '')
  return slug.length >= 2 ? slug : 'workspace'
}
