import { AppError } from '@offshoot/contract/errors'
import type { RotatedLinkKey, RotateLinkKey } from '@offshoot/contract/files'
import type { Principal } from '../../domain/access/principal.js'
import { requireUnlimited } from '../../domain/access/scope.js'
import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { deleteLinkKeysBefore, type FileLinks, insertLinkKey } from './links.js'

/** Creates a new key for signing links. Existing links stay valid unless `endLinks` is set. */
export async function rotateLinkKey(
  { database, links }: { database: Database; links: FileLinks },
  principal: Principal,
  { endLinks = false }: RotateLinkKey,
): Promise<RotatedLinkKey> {
  if (!principal.administrator) {
    throw new AppError('forbidden', 'only the administrator of this instance can rotate link keys')
  }
  requireUnlimited(principal.scope)
  const rotated = await runTransaction(database, async (transaction) => {
    const { id, createdAt } = await insertLinkKey(transaction)
    const endedKeys = endLinks ? await deleteLinkKeysBefore(transaction, id) : 0
    return { createdAt: createdAt.toISOString(), endedKeys }
  })
  await links.reload(database)
  return rotated
}
