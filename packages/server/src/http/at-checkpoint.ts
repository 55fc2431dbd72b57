import type { FastifyReply } from 'fastify'
import type { BranchAccess } from '../domain/access/resolve.js'
import { getCheckpointAt } from '../domain/checkpoints/find-at.js'
import type { Database } from '../postgres/database.js'
import { CHECKPOINT_HEADER } from './plugins/branch-session.js'

/**
 * Returns access to a branch, or to a checkpoint of it, for operations that read its schema. Tells the client which
 * checkpoint it is.
 */
export async function atCheckpoint(
  database: Database,
  access: BranchAccess,
  { at, reply }: { at?: string; reply: FastifyReply },
): Promise<BranchAccess> {
  if (at === undefined) return access
  const { id, pinId } = await getCheckpointAt(database, access, at)
  reply.header(CHECKPOINT_HEADER, id)
  return { ...access, branchId: pinId }
}
