import { AppError } from '@offshoot/contract/errors'
import type { CreateReview, Proposal } from '@offshoot/contract/proposals'
import { runTransaction, type Transaction } from '../../postgres/run-transaction.js'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { withBranches } from '../branches/lock-branches.js'
import { insertPin } from '../merges/merge-base.js'
import { deletePins } from '../merges/pins.js'
import { readProposal } from './operations.js'
import {
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
import { deleteReview, insertReview, type ProposalRow, updateRevision } from './queries.js'

/**
 * Approves a proposal, or requests changes. The review is of the present states: if they are not those of the last
 * revision, they become the next one. A review of another revision is refused.
 */
export async function addReview(
  context: ProposalContext,
  access: DatabaseAccess,
  { number, review }: { number: number; review: CreateReview },
): Promise<Proposal> {
  const { storage, limits } = context
  const { principal } = access
  const row = await getProposal(storage.database, access, number)
  requireReviewer(access, row)
  requireOther(access, row)
  const sides = await getSides(storage.database, access, requireOpen(row))
  const { verdict = 'approve', body = '', revision: read } = review
  const { revision, unused } = await withBranches(
    storage,
    [sides.from, sides.into],
    async (transaction) => {
      const locked = await lockOpen(transaction, access, number)
      const renewed = await renewRevision(transaction, locked, { sides, limits })
      if (read !== undefined && read !== renewed.revision) return renewed
      const reviewed = { ...locked, revision: renewed.revision }
      await insertReview(transaction, reviewed, { verdict, body, by: principal })
      const action = verdict === 'approve' ? 'approved' : 'changesRequested'
      await logProposal(transaction, access, { row, action })
      return renewed
    },
  )
  // The background finds what could not be deleted.
  await deletePins(storage.database, unused).catch(() => undefined)
  if (read !== undefined && read !== revision) {
    throw new AppError(
      'conflict',
      `proposal [${number}]: its branches have changed since revision [${read}]; read its difference again and review revision [${revision}]`,
    )
  }
  return readProposal(context, access, number)
}

/** The author is a user, whatever the key. */
function requireOther({ principal }: DatabaseAccess, { userId, number }: ProposalRow): void {
  if (userId !== principal.userId) return
  throw new AppError(
    'forbidden',
    `proposal [${number}]: its author cannot review it; another user has to`,
  )
}

/** Withdraws the review of the user. */
export async function withdrawReview(
  context: ProposalContext,
  access: DatabaseAccess,
  number: number,
): Promise<Proposal> {
  const { userId } = access.principal
  await runTransaction(
    context.storage.database,
    async (transaction) => {
      const row = await lockOpen(transaction, access, number)
      requireReviewer(access, row)
      if (!(await deleteReview(transaction, { ...row, userId }))) {
        throw new AppError('conflict', `proposal [${number}]: has no review of this user`)
      }
      await logProposal(transaction, access, { row, action: 'reviewWithdrawn' })
    },
    // The lock serializes changes of a proposal.
    { isolation: 'read committed' },
  )
  return readProposal(context, access, number)
}

/**
 * Keeps the present states of both branches as the next revision, if one of them has changed. Requires the locks of the
 * branches and of the proposal. Returns the revision, and the pins of the one before, which are unused now.
 */
export async function renewRevision(
  transaction: Transaction,
  row: ProposalRow,
  { sides, limits }: { sides: Record<Side, BranchAccess> } & Pick<ProposalContext, 'limits'>,
): Promise<{ revision: number; unused: string[] }> {
  const changed = await listChanged(transaction, row, { sides, limits })
  if (changed.length === 0) return { revision: row.revision, unused: [] }
  await updateRevision(transaction, row, {
    fromPinId: await insertPin(transaction, sides.from),
    intoPinId: await insertPin(transaction, sides.into),
  })
  const unused = [row.fromPinId, row.intoPinId].filter((id) => id !== null)
  return { revision: row.revision + 1, unused }
}
