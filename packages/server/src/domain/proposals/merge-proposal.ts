import type { MergeResult } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import { CONFLICTS_PAGE_SIZE } from '@offshoot/contract/merge-conflicts'
import type { MergeProposal } from '@offshoot/contract/proposals'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import { StaleError } from '../../rows/running/staleness.js'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { withBranches } from '../branches/lock-branches.js'
import { getRequiredApprovals } from '../branches/queries.js'
import type { LongWork } from '../long-work/long-work.js'
import { mergeBranches } from '../merges/merge-branch.js'
import { deletePins } from '../merges/pins.js'
import type { Quotas } from '../quotas/quotas.js'
import {
  countApprovals,
  getProposal,
  getSides,
  listChanged,
  lockOpen,
  logProposal,
  type ProposalContext,
  requireOpen,
  requireReviewer,
  type Side,
} from './proposal.js'
import { listReviews, type ProposalRow, updateState } from './queries.js'
import { renewRevision } from './reviews.js'

export interface MergeContext extends ProposalContext {
  readonly quotas: Quotas
}

/** A merge of a proposal, with its branches. */
interface Work {
  readonly access: DatabaseAccess
  readonly number: number
  readonly sides: Record<Side, BranchAccess>
  readonly rules: MergeProposal
  /** Tells how far the merge has come. */
  readonly long?: LongWork | undefined
}

/** The branch was written between the new revision and the merge. The merge starts over. */
class MovedError extends Error {}

/** How often a merge starts over. Then the kept difference may lack what was written in the last moment. */
const ATTEMPTS_MAX = 5

/**
 * Merges a proposal. Its last revision has the states that are merged, so that its difference stays readable. A target that
 * requires approvals is only changed to what was approved.
 */
export async function mergeProposal(
  context: MergeContext,
  access: DatabaseAccess,
  { number, rules, long }: Pick<Work, 'number' | 'rules' | 'long'>,
): Promise<MergeResult> {
  const { database } = context.storage
  const row = await getProposal(database, access, number)
  requireReviewer(access, row)
  const sides = await getSides(database, access, requireOpen(row))
  long?.belongTo(sides.from)
  const work = { access, number, sides, rules, long }
  if (rules.dryRun) return merge(context, work)
  for (let attempt = 1; ; attempt++) {
    try {
      await keepStates(context, work)
      const result = await merge(context, work, { isLast: attempt === ATTEMPTS_MAX })
      // The target contains the branch already: by a merge of the branch itself, or because it has changed nothing.
      if (!result.merged) await settle(context, work)
      return result
    } catch (error) {
      if (error instanceof StaleError) {
        throw new AppError('retry_limit', 'the rights of the API key have changed; try again')
      }
      if (!(error instanceof MovedError)) throw error
    }
  }
}

/** Keeps the states that are merged. With required approvals, those are the states that were approved. */
async function keepStates({ storage, limits }: MergeContext, work: Work): Promise<void> {
  const { access, number, sides } = work
  const unused = await withBranches(storage, [sides.from, sides.into], async (transaction) => {
    const row = await lockOpen(transaction, access, number)
    if ((await getRequiredApprovals(transaction, sides.into)) > 0) return []
    const renewed = await renewRevision(transaction, row, { sides, limits })
    return renewed.unused
  })
  await deletePins(storage.database, unused).catch(() => undefined)
}

function merge(
  { storage, limits, quotas }: MergeContext,
  work: Work,
  { isLast = false } = {},
): Promise<MergeResult> {
  const { access, number, sides } = work
  const { page, ...rules } = work.rules
  return mergeBranches(
    { storage, quotas },
    {
      dryRun: false,
      strategy: 'fail',
      tables: {},
      resolutions: [],
      allowDataLoss: false,
      ...rules,
      ...sides,
      kind: 'merge',
      page: { size: CONFLICTS_PAGE_SIZE, ...page },
      limits,
      work: work.long,
      admit: (transaction) => admit(transaction, work, { limits, isLast }),
      keep: async (transaction, { entry }) => {
        const row = await lockOpen(transaction, access, number)
        const by = access.principal
        await updateState(transaction, row, { state: 'merged', by, entryId: entry })
        await logProposal(transaction, access, { row, action: 'merged' })
      },
    },
  )
}

/** Throws unless the proposal may change its target, which is locked. */
async function admit(
  transaction: Transaction,
  { access, number, sides, rules }: Work,
  { limits, isLast }: Pick<ProposalContext, 'limits'> & { isLast: boolean },
): Promise<void> {
  const row = await lockOpen(transaction, access, number)
  const required = await getRequiredApprovals(transaction, sides.into)
  if (required > 0) {
    requireReviewed(row, rules)
    const changed = await listChanged(transaction, row, { sides, limits })
    await requireApprovals(transaction, row, { access, required, changed })
  } else if (!isLast) {
    const { from } = sides
    const changed = await listChanged(transaction, row, { sides: { from }, limits })
    if (changed.length > 0) throw new MovedError()
  }
}

/** Refuses options that would write what nobody has reviewed. */
function requireReviewed({ intoName, fromName }: ProposalRow, rules: MergeProposal): void {
  const { strategy = 'fail', tables = {}, resolutions = [] } = rules
  if (strategy === 'fail' && Object.keys(tables).length === 0 && resolutions.length === 0) return
  throw new AppError(
    'approvals_required',
    `branch [${intoName}]: requires approvals (rule [requiredApprovals]), so [strategy], [tables] and [resolutions] cannot be used; ` +
      `pull [${intoName}] into [${fromName}], settle the conflicts there, and have the result approved`,
  )
}

async function requireApprovals(
  transaction: Transaction,
  row: ProposalRow,
  options: { access: DatabaseAccess; required: number; changed: readonly Side[] },
): Promise<void> {
  const { access, required, changed } = options
  const { number, intoName } = row
  const refuse = (reason: string) =>
    new AppError(
      'approvals_required',
      `proposal [${number}]: branch [${intoName}] requires approvals (rule [requiredApprovals]): ${reason}`,
    )
  const reviews = await listReviews(transaction, { ...row, workspaceId: access.workspaceId })
  if (changed.length > 0) {
    const names = changed.map((side) => `[${side === 'from' ? row.fromName : intoName}]`)
    throw refuse(`earlier approvals are stale, because ${names.join(' and ')} changed since`)
  }
  const others = reviews.filter(({ userId }) => userId !== row.userId)
  if (others.some(({ verdict }) => verdict === 'requestChanges')) {
    throw refuse('a reviewer has requested changes')
  }
  const count = countApprovals(row, reviews)
  if (count < required) throw refuse(`it has ${count} of ${required}`)
}

/** Marks a proposal as merged whose target contains the branch already. */
function settle({ storage }: MergeContext, { access, number }: Work): Promise<void> {
  return runTransaction(
    storage.database,
    async (transaction) => {
      const row = await lockOpen(transaction, access, number)
      await updateState(transaction, row, { state: 'merged', by: access.principal })
      await logProposal(transaction, access, { row, action: 'merged' })
    },
    // The lock serializes changes of a proposal.
    { isolation: 'read committed' },
  )
}
