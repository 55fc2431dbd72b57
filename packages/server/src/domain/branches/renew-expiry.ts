import type { Database } from '../../postgres/database.js'
import type { BranchExpiry, FoundBranch } from '../access/resolve.js'
import { updateBranchExpiries } from './queries.js'

/** Postpones the expiry of a branch with a ttl, because it is being used. Returns the new expiry. */
export async function renewExpiry(
  database: Database,
  branch: FoundBranch,
): Promise<BranchExpiry | undefined> {
  const { expiry, branchId } = branch
  if (expiry?.ttlMs === undefined) return expiry
  const [renewed] = await updateBranchExpiries(database, [branchId])
  // The row was locked, so the expiry is unchanged.
  if (renewed === undefined) return expiry
  return { ...expiry, atMs: Math.max(expiry.atMs, Date.now() + expiry.ttlMs) }
}
