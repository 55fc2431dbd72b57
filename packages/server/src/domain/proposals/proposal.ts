import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Proposal, Review } from '@offshoot/contract/proposals'
import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import type { Storage } from '../../rows/storage.js'
import { findLiveBranch } from '../access/find-live-branch.js'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { logAccess } from '../log/entries.js'
import { isChangedSince } from '../merges/pins.js'
import { findProposal, lockProposal, type ProposalRow, type ReviewRow } from './queries.js'

/** What operations on proposals depend on. */
export interface ProposalContext {
  readonly storage: Storage
  readonly limits: Limits
}

/** A branch of a proposal. */
export type Side = 'from' | 'into'

const SIDES: readonly Side[] = ['from', 'into']

/** Returns a proposal. One whose branch is outside the scope of the key does not exist for it. */
export async function getProposal(
  database: Queryable,
  access: DatabaseAccess,
  number: number,
): Promise<ProposalRow> {
  const row = await findProposal(database, { databaseId: access.databaseId, number })
  return requireVisible(access, row, number)
}

/** Like `getProposal`, and locks it until the transaction ends. Refuses one that is not open. */
export async function lockOpen(
  transaction: Queryable,
  access: DatabaseAccess,
  number: number,
): Promise<ProposalRow> {
  const row = await lockProposal(transaction, { databaseId: access.databaseId, number })
  return requireOpen(requireVisible(access, row, number))
}

export function requireVisible(
  { principal }: DatabaseAccess,
  row: ProposalRow | undefined,
  number: number,
): ProposalRow {
  if (row !== undefined && scopeReachesBranch(principal.scope, row.fromName)) return row
  throw new AppError('proposal_not_found', `proposal [${number}] not found`)
}

export function requireOpen(row: ProposalRow): ProposalRow {
  if (row.state === 'open') return row
  throw new AppError('conflict', `proposal [${row.number}]: is ${row.state}`)
}

/** Refuses keys that cannot write to the target: they can propose, and comment, but not decide. */
export function requireReviewer({ principal }: DatabaseAccess, { intoName, number }: ProposalRow) {
  requireAccess(principal.scope, 'write')
  if (scopeReachesBranch(principal.scope, intoName)) return
  throw new AppError(
    'key_scope',
    `proposal [${number}]: the scope of this API key does not include its target`,
  )
}

/** Finds the branches of a proposal that still exist. Does not check the scope of the key. */
export async function findSides(
  database: Queryable,
  access: DatabaseAccess,
  { fromId, intoId }: ProposalRow,
): Promise<Partial<Record<Side, BranchAccess>>> {
  const { databaseId } = access
  const [from, into] = await Promise.all(
    [fromId, intoId].map((id) => findLiveBranch(database, { databaseId, id })),
  )
  return {
    ...(from && { from: { ...access, branchId: from.id, branchName: from.name } }),
    ...(into && { into: { ...access, branchId: into.id, branchName: into.name } }),
  }
}

/** Returns both branches of a proposal. Throws if one of them no longer exists. */
export async function getSides(
  database: Queryable,
  access: DatabaseAccess,
  row: ProposalRow,
): Promise<Record<Side, BranchAccess>> {
  const { from, into } = await findSides(database, access, row)
  if (from !== undefined && into !== undefined) return { from, into }
  const name = from === undefined ? row.fromName : row.intoName
  throw new AppError(
    'branch_not_found',
    `proposal [${row.number}]: branch [${name}] no longer exists`,
  )
}

/** Lists the branches that have changed since the revision of a proposal. Each of them is compared with its pin. */
export async function listChanged(
  transaction: Transaction,
  row: ProposalRow,
  { sides, limits }: { sides: Partial<Record<Side, BranchAccess>>; limits: Limits },
): Promise<Side[]> {
  const pins = { from: row.fromPinId, into: row.intoPinId }
  const changed: Side[] = []
  for (const side of SIDES) {
    const [branch, pinId] = [sides[side], pins[side]]
    if (branch === undefined) continue
    if (pinId === null || (await isChangedSince(transaction, branch, { pinId, limits }))) {
      changed.push(side)
    }
  }
  return changed
}

/** Counts the approvals of the revision of a proposal by others than its author. */
export function countApprovals(row: ProposalRow, reviews: readonly ReviewRow[]): number {
  return reviews.filter(
    ({ verdict, revision, userId }) =>
      verdict === 'approve' && revision === row.revision && userId !== row.userId,
  ).length
}

/** The author of a proposal, a comment or a review. */
export function toPerson({
  userId,
  email,
  key,
}: Pick<ProposalRow, 'userId' | 'email' | 'key'>): Proposal['author'] {
  return {
    id: userId,
    ...(email === null ? {} : { email }),
    ...(key === null ? {} : { key }),
  }
}

export function toReview(
  review: ReviewRow,
  { row, isStale }: { row: ProposalRow; isStale: boolean },
): Review {
  const { verdict, body, revision, createdAt } = review
  return {
    by: toPerson(review),
    verdict,
    ...(body === '' ? {} : { body }),
    revision,
    stale: isStale || revision < row.revision,
    createdAt: createdAt.toISOString(),
  }
}

/** Adds what happened to a proposal to the log of its target. */
export function logProposal(
  transaction: Queryable,
  access: DatabaseAccess,
  {
    row,
    action,
  }: {
    row: Pick<ProposalRow, 'number' | 'intoId' | 'intoName' | 'fromName'>
    action: string
  },
): Promise<void> {
  const target = { ...access, branchId: row.intoId, branchName: row.intoName }
  const details = { proposal: row.number, action, from: row.fromName }
  return logAccess(transaction, target, { kind: 'proposal', details })
}
