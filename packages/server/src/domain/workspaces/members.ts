import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Role } from '@offshoot/contract/workspaces'
import { newInviteId } from '../../common/ids.js'
import { hashSecret, newInviteKey } from '../../common/secrets.js'
import type { Database } from '../../postgres/database.js'
import { codeOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import type { Principal } from '../access/principal.js'
import type { WorkspaceAccess } from '../access/resolve.js'
import { requireUnlimited, requireWholeWorkspace } from '../access/scope.js'
import { updateKeyStamps } from '../keys/queries.js'
import { insertEntry, logAccess } from '../log/entries.js'
import {
  deleteExpiredInvites,
  deleteInviteRow,
  deleteMemberRow,
  findInvite,
  findInviteByKey,
  type InviteRow,
  insertInvite,
  insertMember,
  listMembers,
  listPendingInvites,
  type MemberRow,
  updateInvite,
  updateMember,
} from './queries.js'

export async function readMembers(database: Database, access: WorkspaceAccess) {
  requireWholeWorkspace(access.principal.scope, 'read')
  const members = await listMembers(database, access.workspaceId)
  const invites = await listPendingInvites(database, access.workspaceId)
  return { members, invites: invites.map(toInvite) }
}

export async function changeRole(
  database: Database,
  access: WorkspaceAccess,
  options: { userId: string; role: Role },
): Promise<void> {
  const { userId, role } = options
  requireWholeWorkspace(access.principal.scope)
  await runTransaction(database, async (transaction) => {
    const members = await listMembers(transaction, access.workspaceId)
    const member = requireMember(members, userId)
    if (member.role === role) return
    requireOwner(access, 'grant or revoke the role [owner]')
    if (member.role === 'owner') requireAnotherOwner(members, userId)
    await updateMember(transaction, { workspaceId: access.workspaceId, userId, role })
    await logAccess(transaction, access, { kind: 'roleChanged', details: { member: userId, role } })
    await updateKeyStamps(transaction, userId)
  })
}

export async function removeMember(
  database: Database,
  access: WorkspaceAccess,
  options: { userId: string },
): Promise<void> {
  const { userId } = options
  requireWholeWorkspace(access.principal.scope)
  await runTransaction(database, async (transaction) => {
    const members = await listMembers(transaction, access.workspaceId)
    const member = requireMember(members, userId)
    if (member.role === 'owner') {
      requireOwner(access, 'remove an owner')
      requireAnotherOwner(members, userId)
    }
    await deleteMemberRow(transaction, { workspaceId: access.workspaceId, userId })
    await logAccess(transaction, access, { kind: 'memberRemoved', details: { member: userId } })
    await updateKeyStamps(transaction, userId)
  })
}

export async function createInvite(
  database: Database,
  access: WorkspaceAccess,
  options: { email: string; role: Role; limits: Limits },
) {
  const { email, role, limits } = options
  requireWholeWorkspace(access.principal.scope)
  if (role === 'owner') requireOwner(access, 'grant the role [owner]')
  const key = newInviteKey()
  const duplicate = new AppError('conflict', `email [${email}]: is already invited`)
  try {
    const invite = await runTransaction(database, async (transaction) => {
      const members = await listMembers(transaction, access.workspaceId)
      if (members.some((member) => member.email.toLowerCase() === email.toLowerCase())) {
        throw new AppError('conflict', `email [${email}]: is already a member`)
      }
      await deleteExpiredInvites(transaction, access.workspaceId)
      const inviteId = newInviteId()
      const details = { invite: inviteId, invited: email, role }
      await logAccess(transaction, access, { kind: 'inviteCreated', details })
      return insertInvite(transaction, {
        inviteId,
        workspaceId: access.workspaceId,
        email,
        role,
        keyHash: hashSecret(key),
        days: limits.inviteDaysMax,
      })
    })
    return { ...toInvite(invite), key }
  } catch (error) {
    throw codeOf(error) === UNIQUE_VIOLATION ? duplicate : error
  }
}

export async function changeInvite(
  database: Database,
  access: WorkspaceAccess,
  options: { inviteId: string; role: Role },
) {
  requireWholeWorkspace(access.principal.scope)
  if (options.role === 'owner') requireOwner(access, 'grant the role [owner]')
  return runTransaction(database, async (transaction) => {
    const invite = openInvite(await findInvite(transaction, { ...access, ...options }), options)
    await updateInvite(transaction, { inviteId: invite.inviteId, role: options.role })
    const details = { invite: invite.inviteId, role: options.role }
    await logAccess(transaction, access, { kind: 'inviteChanged', details })
    return toInvite({ ...invite, role: options.role })
  })
}

export async function cancelInvite(
  database: Database,
  access: WorkspaceAccess,
  options: { inviteId: string },
): Promise<void> {
  await changeOpenInvite(database, access, { ...options, kind: 'inviteCancelled' }, deleteInviteRow)
}

/** Changes an open invite, and adds that to the log. */
async function changeOpenInvite(
  database: Database,
  access: WorkspaceAccess,
  { inviteId: id, kind }: { inviteId: string; kind: 'inviteCancelled' | 'inviteRenewed' },
  change: (transaction: Transaction, inviteId: string) => Promise<unknown>,
): Promise<void> {
  requireWholeWorkspace(access.principal.scope)
  await runTransaction(database, async (transaction) => {
    const named = { inviteId: id }
    const { inviteId } = openInvite(await findInvite(transaction, { ...access, ...named }), named)
    await change(transaction, inviteId)
    await logAccess(transaction, access, { kind, details: { invite: inviteId } })
  })
}

/** Extends the expiry of an invite to the full period. No mail is sent. */
export async function renewInvite(
  database: Database,
  access: WorkspaceAccess,
  options: { inviteId: string; limits: Limits },
): Promise<void> {
  const { inviteId, limits } = options
  await changeOpenInvite(database, access, { inviteId, kind: 'inviteRenewed' }, (transaction, id) =>
    updateInvite(transaction, { inviteId: id, days: limits.inviteDaysMax }),
  )
}

/**
 * Makes the user of the API key a member. The key of the invite grants this to any user, whatever
 * e-mail address the invite names.
 */
export async function acceptInvite(
  database: Database,
  principal: Principal,
  options: { workspaceId: string; key: string },
): Promise<void> {
  requireUnlimited(principal.scope)
  await runTransaction(database, async (transaction) => {
    const invite = await findInviteByKey(transaction, {
      workspaceId: options.workspaceId,
      keyHash: hashSecret(options.key),
    })
    if (invite === undefined) {
      throw new AppError('invite_not_found', 'invite not found or no longer valid')
    }
    await insertMember(transaction, { ...invite, userId: principal.userId })
    await updateInvite(transaction, { inviteId: invite.inviteId, accepted: true })
    await insertEntry(transaction, {
      kind: 'inviteAccepted',
      by: principal,
      workspaceId: options.workspaceId,
      details: { invite: invite.inviteId, role: invite.role },
    })
    await updateKeyStamps(transaction, principal.userId)
  })
}

function requireMember(members: readonly MemberRow[], userId: string): MemberRow {
  const member = members.find((candidate) => candidate.userId === userId)
  if (member === undefined) throw new AppError('member_not_found', `member [${userId}] not found`)
  return member
}

function requireOwner(access: WorkspaceAccess, act: string): void {
  if (access.role !== 'owner') throw new AppError('forbidden', `only an owner can ${act}`)
}

function requireAnotherOwner(members: readonly MemberRow[], userId: string): void {
  if (!members.some((member) => member.role === 'owner' && member.userId !== userId)) {
    throw new AppError('only_owner', `member [${userId}]: is the only owner of the workspace`)
  }
}

function openInvite(invite: InviteRow | undefined, options: { inviteId: string }): InviteRow {
  if (invite === undefined) {
    throw new AppError('invite_not_found', `invite [${options.inviteId}] not found`)
  }
  if (invite.accepted) {
    throw new AppError('invite_settled', `invite [${options.inviteId}]: was already accepted`)
  }
  return invite
}

function toInvite(row: InviteRow) {
  return {
    inviteId: row.inviteId,
    email: row.email,
    expires: row.expires.toISOString(),
    role: row.role,
  }
}
