import type { AnySchema, Database } from '@offshoot/client'
import { Failure } from '../shared/failure.js'
import type { PullRequest } from './pull-request.js'

/** The branch that belongs to the branch of git of a pull request. */
export interface PullRequestBranch {
  readonly name: string
  /** The branch was created for this branch of git, or assigned to it: it may be deleted with it. */
  readonly isAssigned: boolean
  readonly isNew: boolean
}

/**
 * Finds the branch of a pull request, and creates it with `create`. Returns undefined if there is none.
 * It never takes the default branch instead: a pull request must not change it before it is merged.
 */
export async function findBranch(
  database: Database<AnySchema>,
  { gitBranch, baseBranch }: PullRequest,
  { create = false, from }: { create?: boolean; from?: string | undefined } = {},
): Promise<PullRequestBranch | undefined> {
  const source = from ?? (create ? await sourceOf(database, baseBranch) : undefined)
  const { branch, reason } = await database.resolveBranch({
    gitBranch,
    ...(create ? { create, ...(source === undefined ? {} : { fallbackBranch: source }) } : {}),
  })
  const { code } = reason
  if (code === 'DEFAULT_BRANCH' || code === 'FALLBACK_BRANCH') return undefined
  const branches = await database.branches()
  if (branches.find(({ name }) => name === branch)?.default) {
    throw new Failure(
      `the git branch [${gitBranch}] belongs to [${branch}], the default branch of the database: it gets no branch of its own`,
    )
  }
  return { name: branch, isAssigned: code !== 'BRANCH_EXISTS', isNew: code === 'BRANCH_CREATED' }
}

/**
 * Returns the branch of the git branch that the pull request is made for. For the default branch it
 * returns undefined, so that the rules of the database decide.
 */
async function sourceOf(
  database: Database<AnySchema>,
  baseBranch: string | undefined,
): Promise<string | undefined> {
  if (baseBranch === undefined) return undefined
  const { branch, reason } = await database.resolveBranch({ gitBranch: baseBranch })
  if (reason.code === 'DEFAULT_BRANCH') return undefined
  const branches = await database.branches()
  return branches.find(({ name }) => name === branch)?.default ? undefined : branch
}
