import { createHash } from 'node:crypto'
import type { ResolvedBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { forks } from '../../telemetry/events.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { cannotCreate, FORK_ISOLATION, forkBranch, planFork } from './create-branch.js'
import { findForGitBranch, reachesBranch } from './git-mapping.js'
import { findBranchId, findGitBranch, insertGitBranch, lockGitBranch } from './queries.js'

export interface GitBranchRequest {
  readonly gitBranch: string
  /** What a new branch is forked from, when it exists. */
  readonly fallbackBranch: string | undefined
  readonly dataDefault: boolean
}

/** The branch that belongs to a git branch, made and mapped when there is none yet. */
export async function resolveOrCreate(
  database: Database,
  access: DatabaseAccess,
  request: GitBranchRequest,
): Promise<ResolvedBranch> {
  requireAccess(access.principal.scope, 'write')
  const { gitBranch } = request
  const { databaseId } = access
  const found = await findForGitBranch(database, access, gitBranch)
  if (found !== undefined) return found
  const resolved = await runTransaction(
    database,
    async (transaction) => {
      // Whoever asks for the same git branch at the same time waits here, and then finds the branch.
      await lockGitBranch(transaction, { databaseId, gitBranch })
      const made = await findForGitBranch(transaction, access, gitBranch)
      if (made !== undefined) return made
      // The same as for a name out of reach: what a git branch is mapped to is not told.
      if ((await findGitBranch(transaction, { databaseId, gitBranch })) !== undefined) {
        throw cannotCreate(branchNamesFor(gitBranch)[0] ?? gitBranch)
      }
      return createGitBranch(transaction, access, request)
    },
    FORK_ISOLATION,
  )
  if (resolved.reason.code === 'BRANCH_CREATED') forks.add()
  return resolved
}

async function createGitBranch(
  transaction: Queryable,
  access: DatabaseAccess,
  { gitBranch, fallbackBranch, dataDefault }: GitBranchRequest,
): Promise<ResolvedBranch> {
  const { databaseId } = access
  const hasFallback =
    fallbackBranch !== undefined && (await reachesBranch(transaction, access, fallbackBranch))
  const wishes = hasFallback ? { from: fallbackBranch } : {}
  for (const name of branchNamesFor(gitBranch)) {
    const fork = await planFork(transaction, access, { name, wishes, dataDefault })
    if ((await findBranchId(transaction, { databaseId, name })) !== undefined) continue
    const branchId = await forkBranch(transaction, fork)
    if (branchId === undefined) {
      // Someone has just made a branch of this name; if it is the git branch's own, it is the one.
      const made = await findForGitBranch(transaction, access, gitBranch)
      if (made !== undefined) return made
      continue
    }
    await insertGitBranch(transaction, { databaseId, gitBranch, branchId })
    const message = `Branch [${name}] was created for git branch [${gitBranch}]`
    return { branch: name, reason: { code: 'BRANCH_CREATED', message } }
  }
  throw new AppError('already_exists', `no branch name is free for git branch [${gitBranch}]`)
}

/** Shorter than a name may be, so that a hash can follow. */
const NAME_LENGTH_MAX = 200
const HASH_LENGTHS = [6, 32]

/**
 * Names for the branch of a git branch, always the same ones, the first that is free to be used. Many
 * git branches share a plain name (`a/b` and `a-b`); the hash tells them apart.
 */
export function branchNamesFor(gitBranch: string): string[] {
  const hash = createHash('sha256').update(gitBranch).digest('hex')
  const plain = gitBranch
    .replace(/[^a-zA-Z0-9_~]+/g, '-')
    .replace(/^-/, '')
    .slice(0, NAME_LENGTH_MAX)
    .replace(/-$/, '')
  const hashed = HASH_LENGTHS.map((length) => `${plain || 'git'}-${hash.slice(0, length)}`)
  return plain === '' ? hashed : [plain, ...hashed]
}
