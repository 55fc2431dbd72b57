import type { Database } from '../../postgres/database.js'
import type { BranchExpiry, FoundBranch } from '../access/resolve.js'
import { updateBranchExpiries } from './queries.js'

/** Moves the expiry of a branch ahead that is being used, if it has one that moves. */
export async function renewExpiry(
  database: Database,
  branch: FoundBranch,
): Promise<BranchExpiry | undefined> {
  const { expiry, branchId } = branch
  if (expiry?.ttlMs === undefined) return expiry
  const [renewed] = await updateBranchExpiries(database, [branchId])
  // One that could not be renewed just now still has the time it had.
  if (renewed === undefined) return expiry
  return { ...expiry, atMs: Math.max(expiry.atMs, Date.now() + expiry.ttlMs) }
}
