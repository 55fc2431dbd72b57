import { DIFFERENCE_PAGE_SIZE } from '@offshoot/contract/branch-changes'
import { AppError } from '@offshoot/contract/errors'
import { CONFLICTS_PAGE_SIZE } from '@offshoot/contract/merge-conflicts'
import type { ProposalDifferenceQuery } from '@offshoot/contract/proposals'
import { StaleError } from '../../rows/running/staleness.js'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { scopeReachesBranch } from '../access/scope.js'
import { readDifference } from '../merges/diff-branch.js'
import { mergeBranches } from '../merges/merge-branch.js'
import type { MergeContext } from './merge-proposal.js'
import { findSides, getProposal } from './proposal.js'
import type { ProposalRow } from './queries.js'

/**
 * Returns the difference of a proposal as JSON text: what its branch has changed since the last state that it has in common
 * with the target. While it is open, of the present states, with what a merge would do.
 */
export async function readProposalDifference(
  context: MergeContext,
  access: DatabaseAccess,
  { number, query }: { number: number; query: ProposalDifferenceQuery },
): Promise<string> {
  const { storage, limits } = context
  const { database } = storage
  const row = await getProposal(database, access, number)
  const { from, into } = await findSides(database, access, row)
  const isLive = row.state === 'open' && from !== undefined && into !== undefined
  const own = from ?? { ...access, branchId: row.fromId, branchName: row.fromName }
  const other = into ?? { ...access, branchId: row.intoId, branchName: row.intoName }
  const { table, size = DIFFERENCE_PAGE_SIZE, after } = query
  const pins = isLive ? undefined : pinsOf(row)
  const reading = readDifference(database, own, {
    against: { commonWith: other, pins },
    limits,
    tableName: table,
    size,
    after,
  })
  const difference = await reading.catch(keyChanged)
  const showsMerge = isLive && table === undefined && canWrite(access, other)
  const merge = showsMerge ? await tryMerge(context, { from: own, into: other }) : undefined
  const shown = merge === undefined ? '' : `,"merge":${merge}`
  return `{"live":${isLive},"revision":${row.revision},"difference":${difference}${shown}}`
}

function pinsOf({ number, fromPinId, intoPinId }: ProposalRow): { own: string; other: string } {
  if (fromPinId !== null && intoPinId !== null) return { own: fromPinId, other: intoPinId }
  throw new AppError('conflict', `proposal [${number}]: its difference is no longer kept`)
}

const canWrite = ({ principal: { scope } }: DatabaseAccess, { branchName }: BranchAccess) =>
  scope.access !== 'read' && scopeReachesBranch(scope, branchName)

/** Returns what a merge would do, as JSON text. */
async function tryMerge(
  { storage, limits, quotas }: MergeContext,
  sides: { from: BranchAccess; into: BranchAccess },
): Promise<string> {
  const merging = mergeBranches(
    { storage, quotas },
    {
      ...sides,
      kind: 'merge',
      dryRun: true,
      strategy: 'fail',
      tables: {},
      resolutions: [],
      allowDataLoss: false,
      page: { size: CONFLICTS_PAGE_SIZE },
      limits,
    },
  )
  return JSON.stringify(await merging.catch(keyChanged))
}

function keyChanged(error: unknown): never {
  if (!(error instanceof StaleError)) throw error
  throw new AppError('retry_limit', 'the rights of the API key have changed; try again')
}
