import type { Queryable } from '../../postgres/database.js'
import { deleteGitBranchesOf, updateBranchDeleted } from './queries.js'
import { deleteHiddenBranch } from './unused-branches.js'

/** Deletes a branch with its git mapping, whoever decided it. Says whether it was there. */
export async function deleteBranch(
  transaction: Queryable,
  { branchId, databaseId }: { branchId: string; databaseId: string },
): Promise<boolean> {
  await deleteGitBranchesOf(transaction, branchId)
  if (!(await updateBranchDeleted(transaction, branchId))) return false
  await deleteHiddenBranch(transaction, { branchId, databaseId })
  return true
}
