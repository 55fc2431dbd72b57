import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import { type BranchAccess, resolveBranchOf } from '../access/resolve.js'
import type { Need } from '../access/scope.js'
import { getSource } from './branch-state.js'
import { renewExpiry } from './renew-expiry.js'

/** The other branch of an operation, as the request names it. Without a name, it is the source of the branch. */
interface OtherBranch {
  readonly name: string | undefined
  readonly need: Need
}

/**
 * Runs an operation on a branch and another one of the same database. The transactions of the operation must check that
 * both are still the branches that access was granted to, as `getState` and `withBranches` do. If the other one is gone and
 * its name belongs to a new branch, the operation runs again with that one.
 */
export async function withOther<Result>(
  database: Database,
  access: BranchAccess,
  named: OtherBranch,
  operation: (other: BranchAccess) => Promise<Result>,
): Promise<Result> {
  let other = await resolveOther(database, access, named)
  for (;;) {
    try {
      return await operation(other)
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'branch_not_found')) throw error
      const { branchId } = other
      other = await resolveOther(database, access, named)
      if (other.branchId === branchId) throw error
    }
  }
}

async function resolveOther(
  database: Database,
  access: BranchAccess,
  { name, need }: OtherBranch,
): Promise<BranchAccess> {
  if (name === undefined) return getSource(database, access)
  const other = await resolveBranchOf(database, access, { branchName: name, need })
  await renewExpiry(database, other)
  return other
}
