import type { MergeResult } from '@offshoot/contract/branch-changes'
import { runTransaction, SNAPSHOT } from '../../postgres/run-transaction.js'
import { guardedByKey } from '../../rows/running/staleness.js'
import type { Storage } from '../../rows/storage.js'
import type { BranchAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import type { Quotas } from '../quotas/quotas.js'
import { mergeBranches } from './merge-branch.js'
import type { MergeOptions } from './merge-plan.js'
import { getStep, type StepName, withStep } from './step-states.js'

/**
 * Takes back a change of a branch, and keeps what came later. It is a merge into the branch: the state before the change is
 * merged, and the state after it is the base. The records of a bulk load are known by their ids instead.
 */
export async function revertBranch(
  services: { storage: Storage; quotas: Quotas },
  access: BranchAccess,
  options: Omit<MergeOptions, 'kind' | 'from' | 'into' | 'step'> & { named: StepName },
): Promise<MergeResult> {
  const { named, ...rules } = options
  requireAccess(access.principal.scope, 'write')
  const found = await guardedByKey(access.principal, (check) =>
    runTransaction(
      services.storage.database,
      (transaction) => getStep(transaction, access, named),
      { ...SNAPSHOT, beginsLate: true, opening: [check] },
    ),
  )
  return withStep(services.storage, access, found, (step) =>
    mergeBranches(services, { ...rules, kind: 'revert', from: access, into: access, step }),
  )
}
