import { createHash } from 'node:crypto'
import type { ResolvedBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../../postgres/database.js'
import type { Storage } from '../../rows/storage.js'
import { forks } from '../../telemetry/events.js'
import { findLiveBranch } from '../access/find-live-branch.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { requireAccess } from '../access/scope.js'
import { cannotCreate, forkBranch, type PlannedFork, planFork } from './create-branch.js'
import { findForGitBranch, reachesBranch } from './git-mapping.js'
import { findGitBranch, insertGitBranch, lockGitBranch } from './queries.js'

interface GitBranchRequest {
  readonly gitBranch: string
  /** The source of a new branch, if it exists. */
  readonly fallbackBranch: string | undefined
  readonly dataDefault: boolean
}

/** Resolves the branch of a git branch. Creates the branch and maps it if there is none. */
export async function resolveOrCreate(
  storage: Storage,
  access: DatabaseAccess,
  request: GitBranchRequest,
): Promise<ResolvedBranch> {
  requireAccess(access.principal.scope, 'write')
  const { database } = storage
  const { gitBranch } = request
  const found = await findForGitBranch(database, access, gitBranch)
  if (found !== undefined) return found
  const hasFallback =
    request.fallbackBranch !== undefined &&
    (await reachesBranch(database, access, request.fallbackBranch))
  const wishes = hasFallback ? { from: request.fallbackBranch } : {}
  for (const name of branchNamesFor(gitBranch)) {
    const { dataDefault } = request
    const fork = await planFork(database, access, { name, wishes, dataDefault })
    const resolved = await storage.runAlone([fork.source.id], (transaction) =>
      createGitBranch(transaction, access, { gitBranch, fork }),
    )
    if (resolved === undefined) continue
    if (resolved.reason.code === 'BRANCH_CREATED') forks.add()
    return resolved
  }
  throw new AppError('already_exists', `no branch name is free for git branch [${gitBranch}]`)
}

/** Returns undefined if the name of the planned branch is in use. */
async function createGitBranch(
  transaction: Queryable,
  access: DatabaseAccess,
  { gitBranch, fork }: { gitBranch: string; fork: PlannedFork },
): Promise<ResolvedBranch | undefined> {
  const { databaseId } = access
  const { name } = fork
  // Concurrent requests for the same git branch wait here, and then find the new branch.
  await lockGitBranch(transaction, { databaseId, gitBranch })
  const made = await findForGitBranch(transaction, access, gitBranch)
  if (made !== undefined) return made
  // The git branch is mapped to a branch outside the scope of the key. The error is the one for a
  // name outside the scope, so that it does not reveal the mapping.
  if ((await findGitBranch(transaction, { databaseId, gitBranch })) !== undefined) {
    throw cannotCreate(branchNamesFor(gitBranch)[0] ?? gitBranch)
  }
  if ((await findLiveBranch(transaction, { databaseId, name })) !== undefined) return undefined
  const branchId = await forkBranch(transaction, fork)
  // A concurrent request may have created a branch with this name. It is used if it belongs to the git branch.
  if (branchId === undefined) return findForGitBranch(transaction, access, gitBranch)
  await insertGitBranch(transaction, { databaseId, gitBranch, branchId })
  const message = `Branch [${name}] was created for git branch [${gitBranch}]`
  return { branch: name, reason: { code: 'BRANCH_CREATED', message } }
}

/** Characters of the plain name. It leaves room for a hash within the maximum name length. */
const NAME_LENGTH_MAX = 200
const HASH_LENGTHS = [6, 32]

/**
 * Returns candidate names for the branch of a git branch, in order of preference. They are
 * deterministic. Different git branches can have the same plain name (`a/b` and `a-b`), so the other
 * candidates end in a hash of the git branch.
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
