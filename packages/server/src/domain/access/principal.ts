import { AppError } from '@offshoot/contract/errors'
import type { KeyScope } from '@offshoot/contract/users'
import { hashSecret } from '../../common/secrets.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'

/** The user who makes a request, and the rights of the API key. Only `authenticate` creates one. */
export interface Principal {
  readonly userId: string
  readonly administrator: boolean
  readonly keyId: string
  /** The key that opened the session of the console; null for a key, and for a sign-in link. */
  readonly parentKeyId: string | null
  /** The request uses a session of the console instead of a key. */
  readonly isSession: boolean
  /** Version number that changes whenever the rights of the key may have changed. */
  readonly keyStamp: string
  readonly expiresAt: Date | null
  readonly scope: KeyScope
}

/**
 * Finds the user of an API key. Unknown, expired and deleted keys execute the same statement, so that
 * neither the response nor its timing distinguishes them.
 */
export async function authenticate(database: Queryable, key: string): Promise<Principal> {
  const [row] = await database.query<{
    keyId: string
    keyStamp: string
    parentKeyId: string | null
    isSession: boolean
    expiresAt: Date | null
    userId: string
    administrator: boolean
    scope: KeyScope | null
  }>(
    prepared(sql`
    select k.id as "keyId", k.stamp as "keyStamp", k.parent_id as "parentKeyId", k.session as "isSession",
      k.expires_at as "expiresAt", u.id as "userId", u.administrator, k.scope
    from offshoot.api_keys k
    join offshoot.users u on u.id = k.user_id
    where k.hash = ${hashSecret(key)}
      and (k.expires_at is null or k.expires_at > now())`),
  )
  if (row === undefined || key === '') throw new AppError('invalid_api_key', 'Invalid API key')
  return { ...row, scope: row.scope ?? {} }
}
