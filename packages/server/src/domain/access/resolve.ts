import { AppError } from '@offshoot/contract/errors'
import type { Role } from '@offshoot/contract/workspaces'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { isLive } from './is-live.js'
import {
  BRANCH_COLUMNS,
  DATABASE_COLUMNS,
  type DatabaseRow,
  type FoundBranchRow,
  type FoundPlace,
  isWorkspaceId,
  type Place,
  type Principal,
} from './principal.js'
import {
  type Need,
  requireAccess,
  scopeReachesBranch,
  scopeReachesDatabase,
  scopeReachesWorkspace,
} from './scope.js'

declare const resolved: unique symbol

/**
 * Proof that a principal has access to a workspace, a database or a branch. Operations take these
 * values instead of names. Only the functions below create them, so no operation can run without an
 * access check.
 */
export interface WorkspaceAccess {
  readonly [resolved]: true
  readonly principal: Principal
  readonly workspaceId: string
  readonly role: Role
}

export interface DatabaseAccess extends WorkspaceAccess {
  readonly databaseId: string
  readonly databaseName: string
  readonly region: string
  readonly defaultBranchId: string
}

export interface BranchAccess extends DatabaseAccess {
  readonly branchId: string
  readonly branchName: string
}

/** The expiry of a branch, in the time of this process. */
export interface BranchExpiry {
  readonly atMs: number
  /** Each use postpones the expiry to this time from then. Undefined if the expiry is fixed. */
  readonly ttlMs: number | undefined
}

/** A branch that was resolved by its name. */
export interface FoundBranch extends BranchAccess {
  /** Undefined if the branch does not expire. */
  readonly expiry: BranchExpiry | undefined
  /** Approvals that changes of the branch need; 0: it can be changed directly. */
  readonly requiredApprovals: number
}

/** The workspace and region in a data-plane address. */
export interface WorkspaceAddress {
  readonly workspaceId: string
  /** undefined: any. */
  readonly region: string | undefined
}

export async function resolveWorkspace(
  database: Queryable,
  principal: Principal,
  options: { workspaceId: string; need: Need },
): Promise<WorkspaceAccess> {
  const { workspaceId, need } = options
  const [row] = reachesWorkspace(principal, workspaceId)
    ? await database.query<{ role: Role }>(sql`
        select role
        from offshoot.members
        where workspace_id = ${workspaceId} and user_id = ${principal.userId}`)
    : []
  if (row === undefined) throw workspaceNotFound(workspaceId)
  requireAccess(principal.scope, need)
  return { principal, workspaceId, role: row.role } as WorkspaceAccess
}

function reachesWorkspace({ scope }: Principal, workspaceId: string): boolean {
  return isWorkspaceId(workspaceId) && scopeReachesWorkspace(scope, workspaceId)
}

/** Time for which the rows that were read together with the key are used. The body of a request may take longer. */
const FRESH_MS = 1000

const isFresh = ({ atMs }: FoundPlace): boolean => performance.now() - atMs <= FRESH_MS

/** Returns the rows of a place, if they were read together with the key. */
function foundIn(
  principal: Principal,
  place: Partial<FoundPlace['place']>,
): FoundPlace | undefined {
  const { found } = principal
  if (found === undefined || !isFresh(found)) return undefined
  const names = Object.entries(place) as [keyof Place, string][]
  return names.every(([part, name]) => found.place[part] === name) ? found : undefined
}

export async function resolveDatabase(
  database: Queryable,
  principal: Principal,
  options: {
    workspaceId: string
    region?: string | undefined
    databaseName: string
    need: Need
  },
): Promise<DatabaseAccess> {
  const { workspaceId, region, databaseName, need } = options
  const row = reachesWorkspace(principal, workspaceId)
    ? await findDatabase(database, principal, { workspaceId, databaseName })
    : undefined
  if (row === undefined) throw workspaceNotFound(workspaceId)
  const isThere = row.databaseId !== null && (region === undefined || region === row.region)
  if (!isThere || !scopeReachesDatabase(principal.scope, databaseName)) {
    throw new AppError('database_not_found', `database [${databaseName}] not found`)
  }
  requireAccess(principal.scope, need)
  return { principal, ...row } as unknown as DatabaseAccess
}

/** Returns undefined if the user is no member of the workspace. */
async function findDatabase(
  database: Queryable,
  principal: Principal,
  { workspaceId, databaseName }: { workspaceId: string; databaseName: string },
): Promise<DatabaseRow | undefined> {
  const found = foundIn(principal, { workspaceId, databaseName })
  if (found !== undefined) return found.database
  const [row] = await database.query<DatabaseRow>(
    prepared(sql`
        select ${DATABASE_COLUMNS}
        from offshoot.members m
        left join offshoot.databases d
          on d.workspace_id = m.workspace_id and d.name = ${databaseName}
        where m.workspace_id = ${workspaceId} and m.user_id = ${principal.userId}`),
  )
  return row
}

/**
 * Resolves the database of a data-plane address. If the address names no workspace, exactly one
 * workspace in the scope of the key must have a database with that name.
 */
export async function resolveAddressedDatabase(
  database: Queryable,
  principal: Principal,
  options: { address: WorkspaceAddress | undefined; databaseName: string; need: Need },
): Promise<DatabaseAccess> {
  const { address, databaseName, need } = options
  const target = address ?? {
    workspaceId: await findOnlyWorkspace(database, principal, databaseName),
    region: undefined,
  }
  return resolveDatabase(database, principal, { ...target, databaseName, need })
}

export async function resolveBranch(
  database: Queryable,
  principal: Principal,
  options: {
    address: WorkspaceAddress | undefined
    databaseName: string
    branchName: string
    need: Need
  },
): Promise<FoundBranch> {
  const access = await resolveAddressedDatabase(database, principal, options)
  return resolveBranchOf(database, access, options)
}

/** Resolves a branch of a database that the principal has access to. */
export async function resolveBranchOf(
  database: Queryable,
  access: DatabaseAccess,
  { branchName, need }: { branchName: string; need: Need },
): Promise<FoundBranch> {
  const { scope } = access.principal
  requireAccess(scope, need)
  const row = scopeReachesBranch(scope, branchName)
    ? await findBranchRow(database, access, branchName)
    : undefined
  if (row === undefined) {
    throw new AppError('branch_not_found', `branch [${branchName}] not found`)
  }
  const { branchId, requiredApprovals } = row
  return { ...access, branchId, branchName, requiredApprovals, expiry: toExpiry(row) }
}

async function findBranchRow(
  database: Queryable,
  { principal, workspaceId, databaseName, databaseId }: DatabaseAccess,
  branchName: string,
): Promise<FoundBranchRow | undefined> {
  const found = foundIn(principal, { workspaceId, databaseName, branchName })
  if (found !== undefined) return found.branch
  const [row] = await database.query<FoundBranchRow>(
    prepared(sql`
        select ${BRANCH_COLUMNS}
        from offshoot.branches
        where database_id = ${databaseId} and name = ${branchName} and ${isLive}`),
  )
  return row
}

function toExpiry({
  isProtected,
  remainingMs,
  ttlSeconds,
}: FoundBranchRow): BranchExpiry | undefined {
  if (remainingMs === null) return undefined
  return {
    // Protection suspends the expiry, but each use still postpones it.
    atMs: isProtected ? Number.POSITIVE_INFINITY : Date.now() + remainingMs,
    ttlMs: ttlSeconds === null ? undefined : ttlSeconds * 1000,
  }
}

async function findOnlyWorkspace(
  database: Queryable,
  principal: Principal,
  databaseName: string,
): Promise<string> {
  const found = foundIn(principal, { databaseName })
  const rows =
    found?.isOnly === true
      ? [{ workspaceId: found.place.workspaceId }]
      : await database.query<{ workspaceId: string }>(
          prepared(sql`
    select m.workspace_id as "workspaceId"
    from offshoot.members m
    join offshoot.databases d on d.workspace_id = m.workspace_id and d.name = ${databaseName}
    where m.user_id = ${principal.userId}`),
        )
  // Databases outside the scope of the key are treated as if they did not exist.
  const reached = rows.filter(
    (row) =>
      scopeReachesWorkspace(principal.scope, row.workspaceId) &&
      scopeReachesDatabase(principal.scope, databaseName),
  )
  const [only] = reached
  if (only === undefined || reached.length > 1) {
    const found = reached.length > 1 ? 'more than one workspace' : 'no workspace'
    throw new AppError(
      'ambiguous_workspace',
      `database [${databaseName}]: ${found} of this API key has a database with this name`,
    )
  }
  return only.workspaceId
}

/**
 * Does not distinguish workspaces that do not exist from those that the caller has no access to, so
 * that the existence of a workspace stays private.
 */
function workspaceNotFound(workspaceId: string): AppError {
  return new AppError('workspace_not_found', `workspace [${workspaceId}] not found`)
}
