import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { LIST_PAGE_SIZE } from '@offshoot/contract/paging'
import type {
  Comment,
  CommentList,
  CommentListQuery,
  CreateComment,
  CreateProposal,
  Proposal,
  ProposalList,
  ProposalListQuery,
  UpdateProposal,
} from '@offshoot/contract/proposals'
import { cutPage } from '../../common/cut-page.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction, SNAPSHOT, type Transaction } from '../../postgres/run-transaction.js'
import { findLiveBranch, type LiveBranch } from '../access/find-live-branch.js'
import { type BranchAccess, type DatabaseAccess, resolveBranchOf } from '../access/resolve.js'
import { requireAccess, scopeReachesBranch } from '../access/scope.js'
import { findSource } from '../branches/branch-state.js'
import { withBranches } from '../branches/lock-branches.js'
import { getRequiredApprovals } from '../branches/queries.js'
import { insertPin, requireRelated } from '../merges/merge-base.js'
import {
  countApprovals,
  findSides,
  getProposal,
  getSides,
  listChanged,
  logProposal,
  type ProposalContext,
  requireOpen,
  requireReviewer,
  requireVisible,
  type Side,
  toPerson,
  toReview,
} from './proposal.js'
import {
  type CommentRow,
  countOpen,
  insertComment,
  insertProposal,
  listComments,
  listProposals,
  listReviews,
  lockNumbers,
  lockProposal,
  type ProposalRow,
  takeNumber,
  updateState,
  updateTexts,
} from './queries.js'

/** Proposes to merge a branch. Keeps the present states of both branches, which costs as much as two forks. */
export async function createProposal(
  { storage, limits }: ProposalContext,
  access: DatabaseAccess,
  { from: fromName, into: intoName, title, body = '' }: CreateProposal,
): Promise<Proposal> {
  const { database } = storage
  const { databaseId, principal } = access
  const from = await resolveBranchOf(database, access, { branchName: fromName, need: 'write' })
  const into = await resolveTarget(database, from, intoName)
  if (into.branchId === from.branchId) {
    throw new AppError('invalid_request', 'body: field [into]: must be another branch than [from]')
  }
  const number = await withBranches(storage, [from, into], async (transaction) => {
    await requireRoom(transaction, { databaseId, limits })
    await requireRelated(transaction, { from, into })
    const taken = await takeNumber(transaction, databaseId)
    const row = {
      databaseId,
      number: taken,
      fromId: from.branchId,
      fromName: from.branchName,
      intoId: into.branchId,
      intoName: into.branchName,
      title,
      body,
      fromPinId: await insertPin(transaction, from),
      intoPinId: await insertPin(transaction, into),
      by: principal,
    }
    await insertProposal(transaction, row)
    await logProposal(transaction, access, { row, action: 'opened' })
    return taken
  })
  return readProposal({ storage, limits }, access, number)
}

async function requireRoom(
  transaction: Queryable,
  { databaseId, limits }: { databaseId: string; limits: Limits },
): Promise<void> {
  const { openProposalsMax } = limits
  await lockNumbers(transaction, databaseId)
  if ((await countOpen(transaction, databaseId)) < openProposalsMax) return
  throw new AppError(
    'limit_reached',
    `a database can have at most ${openProposalsMax} open proposals; close one first`,
  )
}

/**
 * Finds the target of a new proposal: the branch of that name, by default the source. A key that does not reach the target
 * can name the source or the default branch, and does not learn whether another branch exists.
 */
async function resolveTarget(
  database: Queryable,
  from: BranchAccess,
  name: string | undefined,
): Promise<BranchAccess> {
  const source = await findSource(database, from)
  if (name === undefined) {
    if (source !== undefined) return source
    throw new AppError(
      'no_source',
      `branch [${from.branchName}]: was not forked from another branch; name the target in [into]`,
    )
  }
  if (scopeReachesBranch(from.principal.scope, name)) {
    return resolveBranchOf(database, from, { branchName: name, need: 'read' })
  }
  if (source?.branchName === name) return source
  const { databaseId, defaultBranchId: id } = from
  const main: LiveBranch | undefined = await findLiveBranch(database, { databaseId, id })
  if (main?.name === name) return { ...from, branchId: main.id, branchName: main.name }
  throw new AppError('branch_not_found', `branch [${name}] not found`)
}

export async function readProposals(
  database: Database,
  access: DatabaseAccess,
  { state = 'open', from, size = LIST_PAGE_SIZE, after }: ProposalListQuery,
): Promise<ProposalList> {
  const reached: ProposalRow[] = []
  let before = after
  // Proposals of other branches than those of the key are left out, so that a page can take more than one read.
  for (;;) {
    const rows = await listProposals(database, access.databaseId, {
      state: state === 'all' ? undefined : state,
      from,
      before,
      limit: size + 1,
    })
    const { scope } = access.principal
    reached.push(...rows.filter(({ fromName }) => scopeReachesBranch(scope, fromName)))
    before = rows.at(-1)?.number
    if (rows.length <= size || reached.length > size) break
  }
  const { shown, meta } = cutPage(reached, size, ({ number }) => number)
  return { proposals: shown.map((row) => toSummary(access, row)), meta }
}

export function readProposal(
  { storage, limits }: ProposalContext,
  access: DatabaseAccess,
  number: number,
): Promise<Proposal> {
  return runTransaction(
    storage.database,
    async (transaction) => {
      const row = await getProposal(transaction, access, number)
      const sides = await findSides(transaction, access, row)
      const isOpen = row.state === 'open'
      const changed = isOpen ? await listChanged(transaction, row, { sides, limits }) : []
      const reviews = await listReviews(transaction, { ...row, workspaceId: access.workspaceId })
      const isStale = changed.length > 0
      return {
        ...toSummary(access, row),
        body: row.body,
        revision: row.revision,
        changed,
        deleted: (['from', 'into'] as const).filter((side: Side) => sides[side] === undefined),
        requiredApprovals:
          sides.into === undefined ? 0 : await getRequiredApprovals(transaction, sides.into),
        approvals: isStale ? 0 : countApprovals(row, reviews),
        reviews: reviews.map((review) => toReview(review, { row, isStale })),
      }
    },
    SNAPSHOT,
  )
}

function toSummary({ principal }: DatabaseAccess, row: ProposalRow): ProposalList['proposals'][0] {
  const { number, state, title, fromName, intoName, comments, endedAt, endedBy, entryId } = row
  return {
    number,
    state,
    title,
    from: fromName,
    ...(scopeReachesBranch(principal.scope, intoName) ? { into: intoName } : {}),
    author: toPerson(row),
    comments,
    createdAt: row.createdAt.toISOString(),
    ...(endedAt === null ? {} : { endedAt: endedAt.toISOString() }),
    ...(endedBy === null ? {} : { endedBy }),
    ...(entryId === null ? {} : { entry: entryId }),
  }
}

/** Adds a comment. Each key that reaches the branch and can write can comment on its proposal. */
export async function addComment(
  { storage, limits }: ProposalContext,
  access: DatabaseAccess,
  { number, comment }: { number: number; comment: CreateComment },
): Promise<Comment> {
  requireAccess(access.principal.scope, 'write')
  requirePlace(comment)
  const { commentsPerProposalMax } = limits
  return runTransaction(
    storage.database,
    async (transaction) => {
      const { databaseId } = access
      const locked = await lockProposal(transaction, { databaseId, number })
      const row = requireVisible(access, locked, number)
      if (row.comments >= commentsPerProposalMax) {
        throw new AppError(
          'limit_reached',
          `proposal [${number}]: a proposal can have at most ${commentsPerProposalMax} comments`,
        )
      }
      const id = await insertComment(transaction, row, { ...comment, by: access.principal })
      const [added] = await listComments(transaction, row, { id, limit: 1 })
      if (added === undefined) throw new Error('a comment that was added must exist')
      return toComment(added)
    },
    // The lock serializes comments.
    { isolation: 'read committed' },
  )
}

function requirePlace({ table, record, column }: CreateComment): void {
  const missing =
    record !== undefined && table === undefined
      ? (['record', 'table'] as const)
      : column !== undefined && record === undefined
        ? (['column', 'record'] as const)
        : undefined
  if (missing === undefined) return
  throw new AppError('invalid_request', `body: field [${missing[0]}]: needs [${missing[1]}]`)
}

export async function readComments(
  database: Database,
  access: DatabaseAccess,
  { number, query }: { number: number; query: CommentListQuery },
): Promise<CommentList> {
  const { size = LIST_PAGE_SIZE, after: cursor } = query
  const row = await getProposal(database, access, number)
  const [after] =
    cursor === undefined ? [] : await listComments(database, row, { id: cursor, limit: 1 })
  if (cursor !== undefined && after === undefined) {
    throw new AppError('invalid_request', `query: parameter [after]: [${cursor}] is no comment`)
  }
  const rows = await listComments(database, row, { after: after?.position, limit: size + 1 })
  const { shown, meta } = cutPage(rows, size, ({ id }) => id)
  return { comments: shown.map(toComment), meta }
}

function toComment(row: CommentRow): Comment {
  const { id, body, table, record, column, revision, createdAt } = row
  return {
    id,
    by: toPerson(row),
    body,
    ...(table === null ? {} : { table }),
    ...(record === null ? {} : { record }),
    ...(column === null ? {} : { column }),
    revision,
    createdAt: createdAt.toISOString(),
  }
}

/** Changes the title or the text of a proposal, whatever its state. Reviews stay: they are about the difference. */
export async function updateProposal(
  context: ProposalContext,
  access: DatabaseAccess,
  { number, texts }: { number: number; texts: UpdateProposal },
): Promise<Proposal> {
  return changeProposal(context, access, number, async (transaction, row) => {
    if (row.userId !== access.principal.userId) requireReviewer(access, row)
    await updateTexts(transaction, row, texts)
    return 'edited'
  })
}

/** Changes a proposal, which is locked meanwhile. `change` returns what the log calls the change. */
async function changeProposal(
  context: ProposalContext,
  access: DatabaseAccess,
  number: number,
  change: (transaction: Transaction, row: ProposalRow) => Promise<string>,
): Promise<Proposal> {
  const { databaseId, principal } = access
  requireAccess(principal.scope, 'write')
  await runTransaction(
    context.storage.database,
    async (transaction) => {
      const locked = await lockProposal(transaction, { databaseId, number })
      const row = requireVisible(access, locked, number)
      const action = await change(transaction, row)
      await logProposal(transaction, access, { row, action })
    },
    // The lock serializes changes of the state.
    { isolation: 'read committed' },
  )
  return readProposal(context, access, number)
}

/** Closes a proposal without a merge. */
export async function closeProposal(
  context: ProposalContext,
  access: DatabaseAccess,
  number: number,
): Promise<Proposal> {
  return changeProposal(context, access, number, async (transaction, row) => {
    await updateState(transaction, requireOpen(row), { state: 'closed', by: access.principal })
    return 'closed'
  })
}

/** Opens a closed proposal again. Both branches must still exist. */
export async function reopenProposal(
  context: ProposalContext,
  access: DatabaseAccess,
  number: number,
): Promise<Proposal> {
  const { principal, databaseId } = access
  return changeProposal(context, access, number, async (transaction, row) => {
    if (row.state !== 'closed') {
      throw new AppError('conflict', `proposal [${number}]: is ${row.state}, and not closed`)
    }
    await getSides(transaction, access, row)
    await requireRoom(transaction, { databaseId, limits: context.limits })
    await updateState(transaction, row, { state: 'open', by: principal })
    return 'reopened'
  })
}
