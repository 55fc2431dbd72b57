import type { Queryable } from '../../postgres/database.js'
import { deleteMergeBases } from './merge-base.js'
import { deleteGitBranchesOf, deleteUnusedBranches, updateBranchDeleted } from './queries.js'

/** Deletes a branch with its git mapping, whoever decided it. Says whether it was there. */
export async function deleteBranch(
  transaction: Queryable,
  { branchId, databaseId }: { branchId: string; databaseId: string },
): Promise<boolean> {
  await deleteGitBranchesOf(transaction, branchId)
  await deleteMergeBases(transaction, branchId)
  if (!(await updateBranchDeleted(transaction, branchId))) return false
  // Removing one can leave its deleted parent unused, and so on up.
  while (await deleteUnusedBranches(transaction, databaseId));
  return true
}
