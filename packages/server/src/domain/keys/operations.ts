import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { CreateKey } from '@offshoot/contract/users'
import { hashSecret, newApiKey } from '../../common/secrets.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import type { Principal } from '../access/principal.js'
import { isLimited, requireUnlimited } from '../access/scope.js'
import { insertUserEntry } from '../log/entries.js'
import { deleteKeyRow, insertKey, type KeyRow, listKeys } from './queries.js'

/**
 * Lists the keys of the user. A restricted key, or a session that it opened, sees only that key, because the scopes of other keys
 * name workspaces, databases and branches outside its own scope.
 */
export async function readKeys(database: Database, principal: Principal) {
  const keys = await listKeys(database, principal.userId)
  const own = principal.parentKeyId ?? principal.keyId
  const isShown = ({ id }: KeyRow) => !isLimited(principal.scope) || id === own
  return { keys: keys.filter(isShown).map(toKey) }
}

export async function createKey(
  database: Database,
  principal: Principal,
  options: { name: string; fields: CreateKey; limits: Limits },
) {
  const { name, fields, limits } = options
  requireUnlimited(principal.scope)
  const expiresAt = fields.expiresAt === undefined ? undefined : new Date(fields.expiresAt)
  // RFC 3339 allows leap seconds, which `Date` parses as NaN; the comparison refuses them.
  if (expiresAt !== undefined && !(expiresAt.getTime() > Date.now())) {
    throw new AppError('invalid_request', 'body: field [expiresAt]: must be in the future')
  }
  const key = newApiKey()
  const row = await runTransaction(database, async (transaction) => {
    const existing = await listKeys(transaction, principal.userId)
    if (existing.some((other) => other.name === name)) {
      throw new AppError('already_exists', `key [${name}] already exists`)
    }
    if (existing.length >= limits.keysPerUserMax) {
      throw new AppError(
        'limit_reached',
        `a user can have at most ${limits.keysPerUserMax} API keys; delete one first`,
      )
    }
    await insertUserEntry(transaction, principal, {
      kind: 'keyCreated',
      workspaces: fields.scope?.workspaces,
      details: { created: name, ...(fields.scope === undefined ? {} : { scope: fields.scope }) },
    })
    return insertKey(transaction, {
      userId: principal.userId,
      name,
      hash: hashSecret(key),
      expiresAt,
      scope: fields.scope,
    })
  })
  if (row === undefined) throw new AppError('already_exists', `key [${name}] already exists`)
  return { ...toKey(row), key }
}

export async function deleteKey(
  database: Database,
  principal: Principal,
  options: { name: string },
): Promise<void> {
  requireUnlimited(principal.scope)
  const { name } = options
  const found = await runTransaction(database, async (transaction) => {
    const key = { userId: principal.userId, name }
    const scope = (await listKeys(transaction, principal.userId)).find(
      (one) => one.name === name,
    )?.scope
    const isFound = await deleteKeyRow(transaction, key)
    if (isFound) {
      const workspaces = scope?.workspaces
      const entry = { kind: 'keyDeleted', workspaces, details: { deleted: name } } as const
      await insertUserEntry(transaction, principal, entry)
    }
    return isFound
  })
  if (!found) throw new AppError('key_not_found', `key [${options.name}] not found`)
}

function toKey(row: KeyRow) {
  return {
    name: row.name,
    createdAt: row.createdAt.toISOString(),
    ...(row.expiresAt === null ? {} : { expiresAt: row.expiresAt.toISOString() }),
    ...(row.scope === null ? {} : { scope: row.scope }),
  }
}
