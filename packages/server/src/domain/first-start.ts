import { newUserId, newWorkspaceId } from '../common/ids.js'
import { hashSecret, newApiKey } from '../common/secrets.js'
import type { Database, Queryable } from '../postgres/database.js'
import { runTransaction } from '../postgres/run-transaction.js'
import { findKeyUserId, insertKey, updateKeySecret } from './keys/queries.js'
import { FIRST_KEY_NAME } from './users/operations.js'
import { findFirstUser, insertUser } from './users/queries.js'
import { insertMember, insertWorkspace, listWorkspaces } from './workspaces/queries.js'

interface FirstStart {
  /** The key, if this start created it. Only its hash is stored, so it cannot be shown later. */
  readonly newKey: string | undefined
  /** The administrator. */
  readonly userId: string
  /** The first workspace of the first user, for the start message. */
  readonly workspaceId: string | undefined
}

const FIRST_WORKSPACE = { name: 'Home', slug: 'home' }

/**
 * Creates the administrator, a workspace and an API key if the instance has no users. If the settings
 * have an API key, it becomes the first key of the administrator and replaces an earlier one.
 */
export async function prepareFirstStart(
  database: Database,
  options: { apiKey: string | null },
): Promise<FirstStart> {
  // Serializable: if several processes start at once on an empty catalogue, only one creates.
  return runTransaction(database, async (transaction) => {
    const { apiKey } = options
    const user = await findFirstUser(transaction)
    if (user !== undefined) {
      if (apiKey !== null) await takeKey(transaction, user.id, apiKey)
      const [workspace] = await listWorkspaces(transaction, user.id)
      return { newKey: undefined, userId: user.id, workspaceId: workspace?.id }
    }
    const userId = newUserId()
    const workspaceId = newWorkspaceId(FIRST_WORKSPACE.slug)
    const key = apiKey ?? newApiKey()
    await insertUser(transaction, {
      id: userId,
      email: 'admin@offshoot.local',
      fullname: 'Administrator',
      image: '',
      administrator: true,
    })
    await insertKey(transaction, { userId, name: FIRST_KEY_NAME, hash: hashSecret(key) })
    await insertWorkspace(transaction, { id: workspaceId, ...FIRST_WORKSPACE })
    await insertMember(transaction, { workspaceId, userId, role: 'owner' })
    return { newKey: key, userId, workspaceId }
  })
}

/**
 * Makes the configured secret the first key of the user. If the user already has a key with this
 * secret, under any name, nothing is changed, because two keys cannot have the same secret.
 */
async function takeKey(transaction: Queryable, userId: string, apiKey: string): Promise<void> {
  const hash = hashSecret(apiKey)
  const holder = await findKeyUserId(transaction, hash)
  if (holder === undefined) {
    await updateKeySecret(transaction, { userId, name: FIRST_KEY_NAME, hash })
  } else if (holder !== userId) {
    throw new Error('OFFSHOOT_API_KEY: is already the key of another user; choose another key')
  }
}
