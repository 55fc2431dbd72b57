import { AppError } from '@offshoot/contract/errors'
import { hashSecret, newSignInToken } from '../../common/secrets.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { sessionKey } from '../access/bearer.js'
import type { Principal } from '../access/principal.js'

/** A session of the console ends after this time, whether it is used or not. */
export const SESSION_SECONDS = 7 * 86_400
/** A sign-in link can be used for this time. */
export const SIGN_IN_SECONDS = 3600
/**
 * Sessions that one key, or the sign-in links of a user, can open. A further sign-in ends the oldest of them. They are
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
    insertSession(transaction, { userId: principal.userId, parentId: principal.keyId }),
  )
}

/** Opens a session with all rights of the user that the token of a sign-in link belongs to. */
export async function openSessionByToken(
  database: Database,
  token: string,
): Promise<OpenedSession> {
  return runTransaction(database, async (transaction) => {
    const [row] = await transaction.query<{ userId: string }>(sql`
      delete from offshoot.sign_in_tokens
      where hash = ${hashSecret(token)} and expires_at > now()
      returning user_id as "userId"`)
    if (row === undefined) {
      throw new AppError(
        'invalid_link',
        'the sign-in link was used before or has expired; sign in with an API key, or restart the service for a new link',
      )
    }
    return insertSession(transaction, { userId: row.userId, parentId: null })
  })
}

/** Ends the session of the request, in every process. */
export async function closeSession(database: Database, principal: Principal): Promise<void> {
  if (!principal.isSession) {
    throw new AppError('invalid_request', 'the request uses an API key, not a session')
  }
  await database.query(sql`
    delete from offshoot.api_keys
    where id = ${principal.keyId} and session`)
}

/** Returns the name of the key that opened the session of the request; null for a sign-in link. */
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

/** Creates the token of a sign-in link, which opens one session of the user. */
export async function createSignInToken(database: Database, userId: string): Promise<string> {
  const token = newSignInToken()
  const expiresAt = new Date(Date.now() + SIGN_IN_SECONDS * 1000)
  await database.query(sql`delete from offshoot.sign_in_tokens where expires_at <= now()`)
  await database.query(sql`
    insert into offshoot.sign_in_tokens (hash, user_id, expires_at)
    values (${hashSecret(token)}, ${userId}, ${expiresAt})`)
  return token
}

async function insertSession(
  transaction: Queryable,
  { userId, parentId }: { userId: string; parentId: string | null },
): Promise<OpenedSession> {
  const secret = newSignInToken()
  await deleteOldSessions(transaction, { userId, parentId })
  const [row] = await transaction.query<{ expiresAt: Date }>(sql`
    insert into offshoot.api_keys (user_id, name, hash, expires_at, scope, session, parent_id)
    select u.id, 'console', ${hashSecret(sessionKey(secret))},
      least(now() + ${SESSION_SECONDS} * interval '1 second', k.expires_at), k.scope, true, k.id
    from offshoot.users u
    left join offshoot.api_keys k on k.id = ${parentId}
    where u.id = ${userId} and (${parentId}::bigint is null or k.id is not null)
    returning expires_at as "expiresAt"`)
  if (row === undefined) throw new AppError('invalid_api_key', 'Invalid API key')
  return { secret, expiresAt: row.expiresAt }
}

async function deleteOldSessions(
  transaction: Queryable,
  { userId, parentId }: { userId: string; parentId: string | null },
): Promise<void> {
  const isSibling = sql`session and user_id = ${userId} and parent_id is not distinct from ${parentId}::bigint`
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
