import { readFile, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Database } from './database.js'

/** How the name of a branch was found. */
interface BranchFromGit {
  readonly branch: string
  readonly source: 'environment' | 'mapping'
  readonly gitBranch?: string
}

/**
 * Finds the branch to use: `OFFSHOOT_BRANCH`, or else the branch that belongs to the git branch of the
 * working folder. Throws if there is none; `main` is used only if the database has it for `main` or if
 * the caller names it as `fallbackBranch`.
 *
 * @example
 * ```ts
 * import { resolveBranchFromGit } from '@offshoot/client/git'
 *
 * const { branch } = await resolveBranchFromGit(client.database, { create: true })
 * await client.branch(branch).table('users').query().first()
 * ```
 */
export async function resolveBranchFromGit(
  database: Database<unknown>,
  options: {
    /** Creates the branch if the git branch has none. */
    readonly create?: boolean
    readonly fallbackBranch?: string
    readonly folder?: string
    readonly env?: Readonly<Record<string, string | undefined>>
  } = {},
): Promise<BranchFromGit> {
  const { create, fallbackBranch, folder = process.cwd(), env = process.env } = options
  if (env.OFFSHOOT_BRANCH) return { branch: env.OFFSHOOT_BRANCH, source: 'environment' }
  const gitBranch = await currentGitBranch(folder)
  if (gitBranch === undefined) {
    if (fallbackBranch !== undefined) return { branch: fallbackBranch, source: 'mapping' }
    throw new Error(
      `no branch: OFFSHOOT_BRANCH is not set, and no git branch is checked out in ${folder}`,
    )
  }
  const { branch, reason } = await database.resolveBranch({
    gitBranch,
    ...(create === undefined ? {} : { create }),
    ...(fallbackBranch === undefined ? {} : { fallbackBranch }),
  })
  // The service answers with its default branch if it finds none. That is not what was asked for.
  if (reason.code === 'DEFAULT_BRANCH' && branch !== gitBranch) {
    throw new Error(
      `the git branch [${gitBranch}] has no branch in the database [${database.name}]`,
    )
  }
  return { branch, source: 'mapping', gitBranch }
}

/**
 * Reads the git branch that is checked out. Returns undefined outside of git, or for a detached HEAD.
 *
 * @example
 * ```ts
 * import { currentGitBranch } from '@offshoot/client/git'
 *
 * const name = await currentGitBranch(process.cwd())
 * ```
 */
export async function currentGitBranch(folder: string): Promise<string | undefined> {
  const gitFolder = await findGitFolder(path.resolve(folder))
  if (gitFolder === undefined) return undefined
  const head = await readFile(path.join(gitFolder, 'HEAD'), 'utf8').catch(() => '')
  return /^ref: refs\/heads\/(.+)$/m.exec(head)?.[1]
}

async function findGitFolder(folder: string): Promise<string | undefined> {
  const candidate = path.join(folder, '.git')
  const found = await stat(candidate).catch(() => undefined)
  if (found?.isDirectory()) return candidate
  if (found?.isFile()) {
    // A worktree or submodule: the file names the folder.
    const link = /^gitdir: (.+)$/m.exec(await readFile(candidate, 'utf8'))?.[1]
    return link === undefined ? undefined : path.resolve(folder, link)
  }
  const parent = path.dirname(folder)
  return parent === folder ? undefined : findGitFolder(parent)
}
