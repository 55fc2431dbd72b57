import { AppError } from '@offshoot/contract/errors'

/** A branch that may require approvals. Links to files do not know its name. */
interface Approved {
  readonly branchName?: string | undefined
  /** Approvals that changes of the branch need; 0: it can be changed directly. */
  readonly requiredApprovals: number
}

/** Refuses a direct change of a branch that requires approvals. */
export function requireDirectChanges({ branchName, requiredApprovals }: Approved): void {
  if (requiredApprovals === 0) return
  const branch = branchName === undefined ? 'the branch' : `branch [${branchName}]:`
  const approvals = requiredApprovals === 1 ? '1 approval' : `${requiredApprovals} approvals`
  throw new AppError(
    'approvals_required',
    `${branch} requires ${approvals} (rule [requiredApprovals]) and cannot be changed directly; make a proposal`,
  )
}
