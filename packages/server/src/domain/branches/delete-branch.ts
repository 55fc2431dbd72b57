import type { Queryable } from '../../postgres/database.js'
import { deleteGitBranchRows, updateBranchDeleted } from './queries.js'
import { deleteHiddenBranch } from './unused-branches.js'

/**
 * Deletes a branch and its entries in the git mapping, without checking permissions or protection.
 * Returns whether the branch existed.
 */
export async function deleteBranchUnchecked(
  transaction: Queryable,
  { branchId, databaseId }: { branchId: string; databaseId: string },
): Promise<boolean> {
  await deleteGitBranchRows(transaction, branchId)
  if (!(await updateBranchDeleted(transaction, branchId))) return false
  await deleteHiddenBranch(transaction, { branchId, databaseId })
  return true
}
