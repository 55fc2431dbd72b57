import { AppError } from '@offshoot/contract/errors'
import type { CreateUser, UpdateUser, User } from '@offshoot/contract/users'
import { newUserId } from '../../common/ids.js'
import { hashSecret, newApiKey } from '../../common/secrets.js'
import type { Database } from '../../postgres/database.js'
import { codeOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import type { Principal } from '../access/principal.js'
import { requireUnlimited } from '../access/scope.js'
import { insertKey } from '../keys/queries.js'
import {
  deleteUserRow,
  findUser,
  insertUser,
  listWorkspacesOwnedAlone,
  updateAdministrator,
  updateUser,
} from './queries.js'

/** Name of the API key that is created together with a user. */
export const FIRST_KEY_NAME = 'first'

export async function readCurrentUser(database: Database, principal: Principal): Promise<User> {
  return present(await findUser(database, principal.userId))
}

/**
 * Updates the user. The e-mail address is not verified, need not be unique, and grants no rights.
 * Refusing an address that another user has would reveal that the user exists.
 */
export async function updateCurrentUser(
  database: Database,
  principal: Principal,
  fields: UpdateUser,
): Promise<User> {
  requireUnlimited(principal.scope)
  return present(await updateUser(database, { id: principal.userId, ...fields }))
}

export async function deleteUser(database: Database, principal: Principal): Promise<void> {
  requireUnlimited(principal.scope)
  await runTransaction(database, async (transaction) => {
    const [workspaceId] = await listWorkspacesOwnedAlone(transaction, principal.userId)
    if (workspaceId !== undefined) {
      throw new AppError(
        'only_owner',
        `workspace [${workspaceId}]: has no other owner; add one or delete the workspace first`,
      )
    }
    await deleteUserRow(transaction, principal.userId)
    await updateAdministrator(transaction)
  })
}

export async function createUser(
  database: Database,
  principal: Principal,
  fields: CreateUser,
): Promise<User & { key: string }> {
  if (!principal.administrator) {
    throw new AppError('forbidden', 'only the administrator of this instance can create users')
  }
  requireUnlimited(principal.scope)
  const user = { id: newUserId(), image: '', ...fields }
  const key = newApiKey()
  try {
    await runTransaction(database, async (transaction) => {
      await insertUser(transaction, { ...user, administrator: false })
      await insertKey(transaction, {
        userId: user.id,
        name: FIRST_KEY_NAME,
        hash: hashSecret(key),
      })
    })
  } catch (error) {
    if (codeOf(error) !== UNIQUE_VIOLATION) throw error
    throw new AppError('already_exists', `email [${fields.email}]: is taken by another user`)
  }
  return { ...user, key }
}

/** Handles a user who was deleted after authentication: the key is no longer valid. */
function present(user: User | undefined): User {
  if (user === undefined) throw new AppError('invalid_api_key', 'Invalid API key')
  return user
}
