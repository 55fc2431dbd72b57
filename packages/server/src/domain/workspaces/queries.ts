import { AppError } from '@offshoot/contract/errors'
import type { Role, Workspace } from '@offshoot/contract/workspaces'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

interface MembershipRow {
  readonly id: string
  readonly name: string
  readonly slug: string
  readonly role: Role
}

export async function listWorkspaces(
  database: Queryable,
  userId: string,
): Promise<MembershipRow[]> {
  return database.query<MembershipRow>(sql`
    select w.id, w.name, w.slug, m.role
    from offshoot.members m
    join offshoot.workspaces w on w.id = m.workspace_id
    where m.user_id = ${userId}
    order by w.created_at, w.id`)
}

export async function getWorkspace(database: Queryable, workspaceId: string): Promise<Workspace> {
  const [workspace] = await database.query<Workspace>(sql`
    select w.id, w.name, w.slug, 'free' as plan,
      (select count(*)::integer from offshoot.members m where m.workspace_id = w.id)
        as "memberCount"
    from offshoot.workspaces w
    where w.id = ${workspaceId}`)
  if (workspace === undefined) {
    throw new AppError('workspace_not_found', `workspace [${workspaceId}] not found`)
  }
  return workspace
}

/**
 * Keeps others from deleting a workspace, and from creating databases in it, until the transaction ends. Returns whether
 * it exists.
 */
export async function lockWorkspace(database: Queryable, workspaceId: string): Promise<boolean> {
  const rows = await database.query(sql`
    select from offshoot.workspaces where id = ${workspaceId} for no key update`)
  return rows.length > 0
}

export async function insertWorkspace(
  database: Queryable,
  workspace: { id: string; name: string; slug: string },
): Promise<void> {
  await database.query(sql`
    insert into offshoot.workspaces (id, name, slug)
    values (${workspace.id}, ${workspace.name}, ${workspace.slug})`)
}

export async function updateWorkspace(
  database: Queryable,
  workspace: { id: string; name: string; slug: string | undefined },
): Promise<void> {
  await database.query(sql`
    update offshoot.workspaces
    set name = ${workspace.name}, slug = coalesce(${workspace.slug ?? null}, slug)
    where id = ${workspace.id}`)
}

export async function deleteWorkspaceRow(database: Queryable, workspaceId: string): Promise<void> {
  await database.query(sql`delete from offshoot.workspaces where id = ${workspaceId}`)
}

export interface MemberRow {
  readonly userId: string
  readonly fullname: string
  readonly email: string
  readonly role: Role
}

export async function listMembers(database: Queryable, workspaceId: string): Promise<MemberRow[]> {
  return database.query<MemberRow>(sql`
    select u.id as "userId", u.fullname, u.email, m.role
    from offshoot.members m
    join offshoot.users u on u.id = m.user_id
    where m.workspace_id = ${workspaceId}
    order by m.created_at, u.id`)
}

/** Inserts a member. A user who is already a member keeps the role. */
export async function insertMember(
  database: Queryable,
  member: { workspaceId: string; userId: string; role: Role },
): Promise<void> {
  await database.query(sql`
    insert into offshoot.members (workspace_id, user_id, role)
    values (${member.workspaceId}, ${member.userId}, ${member.role})
    on conflict (workspace_id, user_id) do nothing`)
}

export async function updateMember(
  database: Queryable,
  member: { workspaceId: string; userId: string; role: Role },
): Promise<void> {
  await database.query(sql`
    update offshoot.members
    set role = ${member.role}
    where workspace_id = ${member.workspaceId} and user_id = ${member.userId}`)
}

export async function deleteMemberRow(
  database: Queryable,
  member: { workspaceId: string; userId: string },
): Promise<void> {
  await database.query(sql`
    delete from offshoot.members
    where workspace_id = ${member.workspaceId} and user_id = ${member.userId}`)
}

export interface InviteRow {
  readonly inviteId: string
  readonly workspaceId: string
  readonly email: string
  readonly role: Role
  readonly expires: Date
  readonly accepted: boolean
}

const inviteColumns = sql`
  id as "inviteId", workspace_id as "workspaceId", email, role, expires_at as expires,
  accepted_at is not null as accepted`

export async function listPendingInvites(
  database: Queryable,
  workspaceId: string,
): Promise<InviteRow[]> {
  return database.query<InviteRow>(sql`
    select ${inviteColumns}
    from offshoot.invites
    where workspace_id = ${workspaceId} and accepted_at is null and expires_at > now()
    order by created_at, id`)
}

export async function findInvite(
  database: Queryable,
  invite: { workspaceId: string; inviteId: string },
): Promise<InviteRow | undefined> {
  const [row] = await database.query<InviteRow>(sql`
    select ${inviteColumns}
    from offshoot.invites
    where workspace_id = ${invite.workspaceId} and id = ${invite.inviteId}`)
  return row
}

export async function findInviteByKey(
  database: Queryable,
  invite: { workspaceId: string; keyHash: Buffer },
): Promise<InviteRow | undefined> {
  const [row] = await database.query<InviteRow>(sql`
    select ${inviteColumns}
    from offshoot.invites
    where workspace_id = ${invite.workspaceId}
      and key_hash = ${invite.keyHash}
      and accepted_at is null
      and expires_at > now()`)
  return row
}

export async function insertInvite(
  database: Queryable,
  invite: {
    inviteId: string
    workspaceId: string
    email: string
    role: Role
    keyHash: Buffer
    days: number
  },
): Promise<InviteRow> {
  const [row] = await database.query<InviteRow>(sql`
    insert into offshoot.invites (id, workspace_id, email, role, key_hash, expires_at)
    values (${invite.inviteId}, ${invite.workspaceId}, ${invite.email}, ${invite.role},
      ${invite.keyHash}, now() + make_interval(days => ${invite.days}))
    returning ${inviteColumns}`)
  if (row === undefined) throw new Error('an inserted invite must be returned')
  return row
}

export async function updateInvite(
  database: Queryable,
  invite: { inviteId: string; role?: Role; days?: number; accepted?: boolean },
): Promise<void> {
  await database.query(sql`
    update offshoot.invites
    set role = coalesce(${invite.role ?? null}, role),
      expires_at = coalesce(now() + make_interval(days => ${invite.days ?? null}), expires_at),
      accepted_at = case when ${invite.accepted ?? false} then now() else accepted_at end
    where id = ${invite.inviteId}`)
}

export async function deleteInviteRow(database: Queryable, inviteId: string): Promise<void> {
  await database.query(sql`delete from offshoot.invites where id = ${inviteId}`)
}

export async function deleteExpiredInvites(
  database: Queryable,
  workspaceId: string,
): Promise<void> {
  await database.query(sql`
    delete from offshoot.invites
    where workspace_id = ${workspaceId} and accepted_at is null and expires_at <= now()`)
}
