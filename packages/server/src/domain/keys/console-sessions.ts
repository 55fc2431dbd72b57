import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'
import { hashSecret, newSignInToken } from '../../common/secrets.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { empty, type Sql, sql } from '../../postgres/sql.js'
import { sessionKey } from '../access/bearer.js'
import type { Principal } from '../access/principal.js'
import { isLimited, requireUnlimited } from '../access/scope.js'
import { type Actor, insertUserEntry } from '../log/entries.js'
import { listKeys } from './queries.js'

/** A session of the console ends after this time, whether it is used or not. */
export const SESSION_SECONDS = 7 * 86_400
/** A sign-in link can be used for this time. */
const SIGN_IN_SECONDS = 3600
/**
 * Sessions that one key and its sign-in links can open. A further sign-in ends the oldest of them. They are
 * counted by key, so that the holder of a narrow key cannot end other sessions of its user.
 */
export const SESSIONS_PER_KEY_MAX = 50

export interface OpenedSession {
  /** The secret of the session, for the cookie. Only its hash is stored. */
  readonly secret: string
  readonly expiresAt: Date
}

/** Opens a session with the rights of the key of the request. The session ends with the key. */
export async function openSession(
  database: Database,
  principal: Principal,
): Promise<OpenedSession> {
  if (principal.isSession) {
    throw new AppError('invalid_request', 'header [authorization]: must have an API key')
  }
  return runTransaction(database, (transaction) =>
    insertSession(transaction, principal.keyId, principal),
  )
}

/** Opens a session with the rights of the key that the sign-in link belongs to. The session ends with the key. */
export async function openSessionByToken(
  database: Database,
  { token, requestId }: { token: string; requestId: string },
): Promise<OpenedSession> {
  return runTransaction(database, async (transaction) => {
    const [row] = await transaction.query<{ keyId: string; userId: string }>(sql`
      delete from offshoot.sign_in_tokens t
      using offshoot.api_keys k
      where t.hash = ${hashSecret(token)} and t.expires_at > now() and k.id = t.key_id
      returning t.key_id as "keyId", k.user_id as "userId"`)
    if (row === undefined) {
      throw new AppError(
        'invalid_link',
        'the sign-in link was used before or has expired; sign in with an API key, or restart the service for a new link',
      )
    }
    return insertSession(transaction, row.keyId, { ...row, requestId })
  })
}

/** Ends the session of the request, in every process. */
export async function closeSession(database: Database, principal: Principal): Promise<void> {
  if (!principal.isSession) {
    throw new AppError('invalid_request', 'the request uses an API key, not a session')
  }
  await runTransaction(database, async (transaction) => {
    const { workspaces } = principal.scope
    await insertUserEntry(transaction, principal, { kind: 'signOut', workspaces })
    await transaction.query(sql`
      delete from offshoot.api_keys
      where id = ${principal.keyId} and session`)
  })
}

/** A session of the console, as it is listed. */
interface SessionRow {
  readonly id: string
  readonly key: string
  readonly createdAt: Date
  readonly expiresAt: Date
}

/** The sessions that a request may see: those of its user, or of its key if that is limited. */
const seenBy = ({ userId, scope, parentKeyId, keyId }: Principal): Sql => {
  const own = isLimited(scope) ? sql`and s.parent_id = ${parentKeyId ?? keyId}` : empty
  return sql`s.session and s.user_id = ${userId} and s.expires_at > now() ${own}`
}

/** Lists the sessions of the console, with the keys that they belong to. */
export async function listSessions(database: Queryable, principal: Principal) {
  const rows = await database.query<SessionRow>(sql`
    select s.id, k.name as key, s.created_at as "createdAt", s.expires_at as "expiresAt"
    from offshoot.api_keys s
    join offshoot.api_keys k on k.id = s.parent_id
    where ${seenBy(principal)}
    order by s.id`)
  return {
    sessions: rows.map(({ id, key, createdAt, expiresAt }) => ({
      id,
      key,
      createdAt: createdAt.toISOString(),
      expiresAt: expiresAt.toISOString(),
      isCurrent: principal.isSession && id === principal.keyId,
    })),
  }
}

/** Ends a session of the console, in every process. */
export async function deleteSession(
  database: Queryable,
  principal: Principal,
  { id }: { id: string },
): Promise<void> {
  requireUnlimited(principal.scope)
  const ended = await database.query(sql`
    delete from offshoot.api_keys s
    where s.id = ${id}::bigint and ${seenBy(principal)}
    returning s.id`)
  if (ended.length === 0) throw new AppError('session_not_found', `session [${id}] not found`)
}

/** Returns the name of the key of the request, or of the key that its session belongs to. */
export async function findKeyName(
  database: Queryable,
  { parentKeyId, keyId, isSession }: Principal,
): Promise<string | null> {
  const id = isSession ? parentKeyId : keyId
  const [row] = await database.query<{ name: string }>(sql`
    select name
    from offshoot.api_keys
    where id = ${id}`)
  return row?.name ?? null
}

/**
 * Creates the token of a sign-in link, which opens one session of the oldest key of the user that is not limited. Returns
 * undefined if there is none.
 */
export async function createSignInToken(
  database: Database,
  userId: string,
): Promise<string | undefined> {
  const keys = await listKeys(database, userId)
  const key = keys.find(({ scope, expiresAt }) => !isLimited(scope ?? {}) && expiresAt === null)
  if (key === undefined) return undefined
  const token = newSignInToken()
  const expiresAt = new Date(Date.now() + SIGN_IN_SECONDS * 1000)
  await database.query(sql`delete from offshoot.sign_in_tokens where expires_at <= now()`)
  await database.query(sql`
    insert into offshoot.sign_in_tokens (hash, key_id, expires_at)
    values (${hashSecret(token)}, ${key.id}, ${expiresAt})`)
  return token
}

async function insertSession(
  transaction: Queryable,
  parentId: string,
  by: Actor,
): Promise<OpenedSession> {
  const secret = newSignInToken()
  await deleteOldSessions(transaction, parentId)
  const [row] = await transaction.query<{ expiresAt: Date; scope: KeyScope | null }>(sql`
    insert into offshoot.api_keys (user_id, name, hash, expires_at, scope, session, parent_id)
    select k.user_id, 'console', ${hashSecret(sessionKey(secret))},
      least(now() + ${SESSION_SECONDS} * interval '1 second', k.expires_at), k.scope, true, k.id
    from offshoot.api_keys k
    where k.id = ${parentId}
    returning expires_at as "expiresAt", scope`)
  if (row === undefined) throw new AppError('invalid_api_key', 'Invalid API key')
  const workspaces = row.scope?.workspaces
  await insertUserEntry(transaction, by, { kind: 'signIn', workspaces })
  return { secret, expiresAt: row.expiresAt }
}

async function deleteOldSessions(transaction: Queryable, parentId: string): Promise<void> {
  const isSibling = sql`session and parent_id = ${parentId}`
  await transaction.query(sql`
    delete from offshoot.api_keys
    where ${isSibling} and (
      expires_at <= now()
      or id not in (
        select id
        from offshoot.api_keys
        where ${isSibling}
        order by id desc
        limit ${SESSIONS_PER_KEY_MAX - 1}
      )
    )`)
}
