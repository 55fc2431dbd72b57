import type { KeyScope } from '@offshoot/contract/users'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

export interface KeyRow {
  readonly id: string
  readonly name: string
  readonly createdAt: Date
  readonly expiresAt: Date | null
  readonly scope: KeyScope | null
}

export async function listKeys(database: Queryable, userId: string): Promise<KeyRow[]> {
  return database.query<KeyRow>(sql`
    select id, name, created_at as "createdAt", expires_at as "expiresAt", scope
    from offshoot.api_keys
    where user_id = ${userId} and not session
    order by created_at, id`)
}

export async function insertKey(
  database: Queryable,
  key: {
    userId: string
    name: string
    hash: Buffer
    expiresAt?: Date | undefined
    scope?: KeyScope | undefined
  },
): Promise<KeyRow | undefined> {
  const scope = key.scope === undefined ? null : JSON.stringify(key.scope)
  const [row] = await database.query<KeyRow>(sql`
    insert into offshoot.api_keys (user_id, name, hash, expires_at, scope)
    values (${key.userId}, ${key.name}, ${key.hash}, ${key.expiresAt ?? null}, ${scope}::jsonb)
    on conflict (user_id, name) where not session do nothing
    returning id, name, created_at as "createdAt", expires_at as "expiresAt", scope`)
  return row
}

export async function findKeyUserId(
  database: Queryable,
  hash: Buffer,
): Promise<string | undefined> {
  const [row] = await database.query<{ userId: string }>(sql`
    select user_id as "userId"
    from offshoot.api_keys
    where hash = ${hash}`)
  return row?.userId
}

/**
 * Sets the secret of the named key of the user, and inserts the key if it does not exist. A new secret
 * ends the sessions and the sign-in links of the old one.
 */
export async function updateKeySecret(
  database: Queryable,
  key: { userId: string; name: string; hash: Buffer },
): Promise<void> {
  await database.query(sql`
    with changed as (
      insert into offshoot.api_keys (user_id, name, hash)
      values (${key.userId}, ${key.name}, ${key.hash})
      on conflict (user_id, name) where not session
      do update set hash = excluded.hash, stamp = nextval('offshoot.stamps')
      where api_keys.hash <> excluded.hash
      returning id
    ),
    unlinked as (
      delete from offshoot.sign_in_tokens where key_id in (select id from changed)
    )
    delete from offshoot.api_keys
    where parent_id in (select id from changed)`)
}

export async function deleteKeyRow(
  database: Queryable,
  key: { userId: string; name: string },
): Promise<boolean> {
  const rows = await database.query(sql`
    delete from offshoot.api_keys
    where user_id = ${key.userId} and name = ${key.name} and not session
    returning id`)
  return rows.length > 0
}

/** Invalidates the sessions of the user's keys in every process. */
export async function updateKeyStamps(database: Queryable, userId: string): Promise<void> {
  await database.query(sql`
    update offshoot.api_keys
    set stamp = nextval('offshoot.stamps')
    where user_id = ${userId}`)
}

/**
 * Invalidates the sessions of the keys of all members of a workspace, in every process. A new or
 * renamed database can change the database that an address without a workspace resolves to.
 */
export async function updateMemberKeyStamps(
  database: Queryable,
  workspaceId: string,
): Promise<void> {
  await database.query(sql`
    update offshoot.api_keys
    set stamp = nextval('offshoot.stamps')
    where user_id in (select user_id from offshoot.members where workspace_id = ${workspaceId})`)
}
