import { newUserId, newWorkspaceId } from '../common/ids.js'
import { hashSecret, newApiKey } from '../common/secrets.js'
import type { Database, Queryable } from '../postgres/database.js'
import { runTransaction } from '../postgres/run-transaction.js'
import { findKeyUserId, insertKey, updateKeySecret } from './keys/queries.js'
import { FIRST_KEY_NAME } from './users/operations.js'
import { findFirstUser, insertUser } from './users/queries.js'
import { insertMember, insertWorkspace, listWorkspaces } from './workspaces/queries.js'

export interface FirstStart {
  /** The new key, when this start created it; it can be shown now and never again. */
  readonly newKey: string | undefined
  /** The first workspace of the first user, for the start message. */
  readonly workspaceId: string | undefined
}

const FIRST_WORKSPACE = { name: 'Home', slug: 'home' }

/**
 * An instance without users gets its administrator, a workspace and a key. A key from the settings
 * is the administrator's first key from then on, also when an earlier start had another one.
 */
export async function prepareFirstStart(
  database: Database,
  options: { apiKey: string | null },
): Promise<FirstStart> {
  // Serializable: of several processes that start at once on an empty catalogue, one creates.
  return runTransaction(database, async (transaction) => {
    const { apiKey } = options
    const user = await findFirstUser(transaction)
    if (user !== undefined) {
      if (apiKey !== null) await takeKey(transaction, user.id, apiKey)
      const [workspace] = await listWorkspaces(transaction, user.id)
      return { newKey: undefined, workspaceId: workspace?.id }
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
    return { newKey: key, workspaceId }
  })
}

/** A secret that the user has under any name is left there: no two keys can share one. */
async function takeKey(transaction: Queryable, userId: string, apiKey: string): Promise<void> {
  const hash = hashSecret(apiKey)
  const holder = await findKeyUserId(transaction, hash)
  if (holder === undefined) {
    await updateKeySecret(transaction, { userId, name: FIRST_KEY_NAME, hash })
  } else if (holder !== userId) {
    throw new Error('OFFSHOOT_API_KEY: is the key of another user; choose another one')
  }
}
