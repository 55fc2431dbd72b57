import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'
import type { Role } from '@offshoot/contract/workspaces'
import { hashSecret } from '../../common/secrets.js'
import type { Queryable } from '../../postgres/database.js'
import { empty, type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { isLive } from './is-live.js'

/**
 * The user who makes a request, and the rights of the API key. Only `authenticate` and `authenticateAt` create one.
 */
export interface Principal {
  readonly userId: string
  readonly administrator: boolean
  readonly keyId: string
  /** The key that the session of the console belongs to; null for a key. */
  readonly parentKeyId: string | null
  /** The request uses a session of the console instead of a key. */
  readonly isSession: boolean
  /** Version number that changes whenever the rights of the key may have changed. */
  readonly keyStamp: string
  readonly expiresAt: Date | null
  readonly scope: KeyScope
  /** The id of the request, for the log. Sessions outlive requests, so theirs have none. */
  readonly requestId?: string | undefined
  /** The workspace, the database and the branch of the request, if they were looked up together with the key. */
  readonly found?: FoundPlace
}

/** The names in an address. Without a workspace, it is the only one of the user with such a database. */
export interface Place {
  readonly workspaceId: string | undefined
  readonly databaseName: string
  readonly branchName: string
}

const WORKSPACE_ID = /^[\w~-]{1,255}$/

/** Returns whether a text of an address can be the id of a workspace. PostgreSQL refuses some other texts. */
export const isWorkspaceId = (text: string): boolean => WORKSPACE_ID.test(text)

/** Returns the place that an address names, or undefined if it cannot name one. */
export function toPlace(
  workspaceId: string | undefined,
  names: Omit<Place, 'workspaceId'>,
): Place | undefined {
  return workspaceId === undefined || isWorkspaceId(workspaceId)
    ? { workspaceId, ...names }
    : undefined
}

/** A database and the role of the user in its workspace. Without a database, all its fields are null. */
export interface DatabaseRow {
  readonly workspaceId: string
  readonly role: Role
  readonly databaseId: string | null
  readonly databaseName: string | null
  readonly region: string | null
  readonly defaultBranchId: string | null
}

/** A branch that can be used. */
export interface FoundBranchRow {
  readonly branchId: string
  readonly isProtected: boolean
  readonly requiredApprovals: number
  /** Time until the branch expires; null if it does not. */
  readonly remainingMs: number | null
  readonly ttlSeconds: number | null
}

/** The rows of a place. Whether the scope of the key includes them is not checked yet. */
export interface FoundPlace {
  readonly place: Place & { readonly workspaceId: string }
  /** The address names no workspace, and no other workspace of the user has a database with that name. */
  readonly isOnly: boolean
  /** When it was read, by `performance.now()`. */
  readonly atMs: number
  /** Undefined if the user is no member of the workspace. */
  readonly database: DatabaseRow | undefined
  readonly branch: FoundBranchRow | undefined
}

interface KeyRow {
  readonly keyId: string
  readonly keyStamp: string
  readonly parentKeyId: string | null
  readonly isSession: boolean
  readonly expiresAt: Date | null
  readonly userId: string
  readonly administrator: boolean
  readonly scope: KeyScope | null
}

const KEY_COLUMNS = sql`k.id as "keyId", k.stamp as "keyStamp", k.parent_id as "parentKeyId", k.session as "isSession",
      k.expires_at as "expiresAt", u.id as "userId", u.administrator, k.scope`

const keySource = (key: string): { from: Sql; where: Sql } => ({
  from: sql`offshoot.api_keys k join offshoot.users u on u.id = k.user_id`,
  where: sql`k.hash = ${hashSecret(key)} and (k.expires_at is null or k.expires_at > now())`,
})

/**
 * Finds the user of an API key. Unknown, expired and deleted keys execute the same statement, so that
 * neither the response nor its timing distinguishes them.
 */
export async function authenticate(database: Queryable, key: string): Promise<Principal> {
  const { from, where } = keySource(key)
  const [row] = await database.query<KeyRow>(
    prepared(sql`select ${KEY_COLUMNS} from ${from} where ${where}`),
  )
  return toPrincipal(row, key)
}

/** The columns of a branch in a query for a place. */
export const BRANCH_COLUMNS = sql`id as "branchId", protected as "isProtected",
          required_approvals as "requiredApprovals", ttl_seconds as "ttlSeconds",
          (extract(epoch from expires_at - now()) * 1000)::float8 as "remainingMs"`

/** The columns of a database in a query for a place. */
export const DATABASE_COLUMNS = sql`m.workspace_id as "workspaceId", m.role, d.id as "databaseId",
          d.name as "databaseName", d.region, d.default_branch_id as "defaultBranchId"`

/**
 * Returns a join with the id of the workspace of a place, if that is a single one. It does not consider the scope of
 * the key.
 */
const workspaceOf = ({ workspaceId, databaseName }: Place): Sql =>
  workspaceId === undefined
    ? sql`
    left join lateral (
      select min(m.workspace_id) as id
      from offshoot.members m
      join offshoot.databases d on d.workspace_id = m.workspace_id and d.name = ${databaseName}
      where m.user_id = u.id
      having count(*) = 1
    ) w on true`
    : sql`
    cross join (select ${workspaceId}::text as id) w`

/**
 * Finds the user of an API key, and the workspace, the database and the branch of a place, by one statement. `found` is
 * undefined if the place names no workspace and none, or more than one, has such a database.
 */
export async function authenticateAt(
  database: Queryable,
  key: string,
  place: Place,
): Promise<Principal> {
  const { principal } = await authenticateWith(database, key, { place, columns: empty })
  return principal
}

/**
 * Like `authenticateAt`, and also returns where the rows of the branch are, from the same snapshot: what the subquery
 * `rowsOf` selects for the id of the branch, which is null if there is none.
 */
export async function authenticateAtRows(
  database: Queryable,
  key: string,
  { place, rowsOf }: { place: Place; rowsOf: (branchId: Sql) => Sql },
): Promise<{ principal: Principal; rows: unknown }> {
  const columns = sql`, (${rowsOf(sql`at."branchId"`)}) as rows`
  return authenticateWith(database, key, { place, columns })
}

async function authenticateWith(
  database: Queryable,
  key: string,
  { place, columns }: { place: Place; columns: Sql },
): Promise<{ principal: Principal; rows: unknown }> {
  const { from, where } = keySource(key)
  const [row] = await database.query<
    KeyRow &
      DatabaseRow & { [Name in keyof FoundBranchRow]: FoundBranchRow[Name] | null } & {
        rows?: unknown
      }
  >(
    prepared(sql`
    select ${KEY_COLUMNS}, ${DATABASE_COLUMNS}, at.*${columns}
    from ${from}${workspaceOf(place)}
    left join offshoot.members m on m.user_id = u.id and m.workspace_id = w.id
    left join offshoot.databases d
      on d.workspace_id = m.workspace_id and d.name = ${place.databaseName}
    left join lateral (
      select ${BRANCH_COLUMNS}
      from offshoot.branches
      where database_id = d.id and name = ${place.branchName} and ${isLive}
    ) at on true
    where ${where}`),
  )
  const atMs = performance.now()
  const principal = toPrincipal(row, key)
  const { branchId, ...life } = row as FoundBranchRow
  const { isProtected, requiredApprovals, remainingMs, ttlSeconds } = life
  const { workspaceId, role, databaseId, databaseName, region, defaultBranchId } =
    row as DatabaseRow
  const foundId = place.workspaceId ?? workspaceId
  const rows = row?.rows
  if (foundId === null) return { principal, rows }
  const found = {
    place: { ...place, workspaceId: foundId },
    isOnly: place.workspaceId === undefined,
    atMs,
    database:
      role === null
        ? undefined
        : { workspaceId, role, databaseId, databaseName, region, defaultBranchId },
    branch:
      branchId === null
        ? undefined
        : { branchId, isProtected, requiredApprovals, remainingMs, ttlSeconds },
  }
  return { principal: { ...principal, found }, rows }
}

function toPrincipal(row: KeyRow | undefined, key: string): Principal {
  if (row === undefined || key === '') throw new AppError('invalid_api_key', 'Invalid API key')
  const { keyId, keyStamp, parentKeyId, isSession, expiresAt, userId, administrator, scope } = row
  return {
    keyId,
    keyStamp,
    parentKeyId,
    isSession,
    expiresAt,
    userId,
    administrator,
    scope: scope ?? {},
  }
}
