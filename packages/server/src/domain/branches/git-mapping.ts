import type { GitMappingEntry, ResolvedBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { findLiveBranch } from '../access/find-live-branch.js'
import type { DatabaseAccess } from '../access/resolve.js'
import { requireWholeDatabase, scopeReachesBranch } from '../access/scope.js'
import { logAccess } from '../log/entries.js'
import { deleteGitBranchRow, findGitBranch, insertGitBranch, listGitBranches } from './queries.js'

export async function readGitMapping(
  database: Database,
  access: DatabaseAccess,
): Promise<{ gitBranch: string; branchName: string }[]> {
  const rows = await listGitBranches(database, access.databaseId)
  return rows.filter((row) => scopeReachesBranch(access.principal.scope, row.branchName))
}

/** Adds or overwrites an entry of the mapping. Returns a warning if it overwrote one. */
export async function writeGitBranch(
  database: Database,
  access: DatabaseAccess,
  entry: GitMappingEntry,
): Promise<{ warning?: string }> {
  requireWholeDatabase(access.principal.scope)
  const { gitBranch } = entry
  const branchName = mappedBranch(entry)
  const { databaseId } = access
  const { overwritten } = await runTransaction(database, async (transaction) => {
    const branchId = (await findLiveBranch(transaction, { databaseId, name: branchName }))?.id
    if (branchId === undefined) {
      throw new AppError('unknown_branch', `branch [${branchName}] not found`)
    }
    const details = { gitBranch, branch: branchName }
    await logAccess(transaction, access, { kind: 'gitMappingChanged', details })
    return insertGitBranch(transaction, { databaseId, gitBranch, branchId })
  })
  if (!overwritten) return {}
  return {
    warning: `Git branch [${gitBranch}] was already present in the mapping and was overwritten.`,
  }
}

/** Returns the branch of a mapping. Xata clients call the field `xataBranch`. */
function mappedBranch({ serviceBranch, xataBranch }: GitMappingEntry): string {
  const branchName = serviceBranch ?? xataBranch
  if (branchName === undefined) {
    throw new AppError('invalid_request', 'body: field [serviceBranch]: is required')
  }
  if (xataBranch !== undefined && xataBranch !== branchName) {
    throw new AppError(
      'invalid_request',
      'body: fields [serviceBranch] and [xataBranch]: must be equal when both are given',
    )
  }
  return branchName
}

export async function deleteGitBranch(
  database: Database,
  access: DatabaseAccess,
  options: { gitBranch: string },
): Promise<void> {
  requireWholeDatabase(access.principal.scope)
  const found = await deleteGitBranchRow(database, {
    databaseId: access.databaseId,
    gitBranch: options.gitBranch,
  })
  if (!found) {
    throw new AppError(
      'git_branch_not_found',
      `git branch [${options.gitBranch}] is not in the mapping`,
    )
  }
}

/**
 * Resolves the branch of a git branch: the mapped one, or else the one with the same name, the
 * fallback, or the default branch.
 */
export async function resolveGitBranch(
  database: Database,
  access: DatabaseAccess,
  options: { gitBranch: string | undefined; fallbackBranch: string | undefined },
): Promise<ResolvedBranch> {
  const { databaseId } = access
  const { gitBranch, fallbackBranch } = options
  if (gitBranch !== undefined) {
    const found = await findForGitBranch(database, access, gitBranch)
    if (found !== undefined) return found
  }
  if (fallbackBranch !== undefined && (await reachesBranch(database, access, fallbackBranch))) {
    return reason(fallbackBranch, 'FALLBACK_BRANCH', 'Fallback branch of the request')
  }
  const main = await findLiveBranch(database, { databaseId, id: access.defaultBranchId })
  if (main === undefined) {
    throw new AppError('database_not_found', `database [${access.databaseName}] not found`)
  }
  if (!scopeReachesBranch(access.principal.scope, main.name)) {
    throw new AppError('branch_not_found', 'no requested branch is in the scope of this API key')
  }
  return reason(main.name, 'DEFAULT_BRANCH', 'Default branch for this database')
}

/** Finds the branch that a git branch is mapped to, or else the branch that has its name. */
export async function findForGitBranch(
  database: Queryable,
  access: DatabaseAccess,
  gitBranch: string,
): Promise<ResolvedBranch | undefined> {
  const mapped = await findGitBranch(database, { databaseId: access.databaseId, gitBranch })
  if (mapped !== undefined && scopeReachesBranch(access.principal.scope, mapped)) {
    return reason(mapped, 'FOUND_IN_MAPPING', `Git branch [${gitBranch}] found in the mapping`)
  }
  if (!(await reachesBranch(database, access, gitBranch))) return undefined
  return reason(gitBranch, 'BRANCH_EXISTS', `Branch [${gitBranch}] has the name of the git branch`)
}

/** Returns whether the branch exists and is in the scope of the key. */
export async function reachesBranch(
  database: Queryable,
  { databaseId, principal }: DatabaseAccess,
  name: string,
): Promise<boolean> {
  if (!scopeReachesBranch(principal.scope, name)) return false
  return (await findLiveBranch(database, { databaseId, name })) !== undefined
}

function reason(
  branch: string,
  code: ResolvedBranch['reason']['code'],
  message: string,
): ResolvedBranch {
  return { branch, reason: { code, message } }
}
