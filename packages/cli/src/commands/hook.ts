import { existsSync } from 'node:fs'
import { realpath } from 'node:fs/promises'
import path from 'node:path'
import { currentGitBranch } from '@offshoot/client/git'
import { createCommand, plainAction } from '../shared/command.js'
import { storeBranch } from '../shared/credentials.js'
import { Failure, messageOf } from '../shared/failure.js'
import { git, gitLine } from '../shared/git.js'
import { type HookName, hookText, installHook, uninstallHook } from '../shared/git-hooks.js'
import { inLine, notice } from '../shared/output.js'
import { findProject } from '../shared/project.js'
import { Target } from '../shared/target.js'

/** The setting of the git repository that lists the folders of its projects, relative to the top. */
const PROJECTS = 'offshoot.project'
/** The hook gives up after this time. It runs in the background, but should not run for ever. */
const HOOK_MS_MAX = 30_000
const HOOKS: readonly HookName[] = ['post-checkout', 'post-merge']

/** `offshoot hook`: makes git create a branch for each git branch. */
export const hookCommand = () =>
  createCommand('hook', 'git hooks that create a branch for each git branch: install, uninstall')
    .addCommand(
      createCommand('install', 'add the hooks to this repository').action(
        plainAction(async () => {
          const { top, hooks, project } = await findRepository()
          const command = await findCommand(top)
          for (const name of HOOKS) {
            const file = path.join(hooks, name)
            await installHook(file, hookText(name, command))
            notice(`Installed ${file}.`)
          }
          if (isInside(hooks, top) && !isInside(hooks, path.join(top, '.git'))) {
            notice('Do not commit these files: they contain paths of this machine.')
          }
          const known = await listProjects(top)
          if (!known.includes(project)) {
            await git(top, ['config', '--local', '--add', PROJECTS, project])
          }
          return 0
        }),
      ),
    )
    .addCommand(
      createCommand('uninstall', 'remove the hooks from this repository').action(
        plainAction(async () => {
          const { top, hooks, project } = await findRepository()
          const others = (await listProjects(top)).filter((known) => known !== project)
          await git(top, ['config', '--local', '--unset-all', PROJECTS]).catch(() => undefined)
          for (const other of others) {
            await git(top, ['config', '--local', '--add', PROJECTS, other])
          }
          if (others.length > 0) {
            notice(`Kept the hooks for other folders of the repository: ${others.join(', ')}`)
            return 0
          }
          for (const name of HOOKS) {
            const file = path.join(hooks, name)
            if (await uninstallHook(file)) notice(`Removed the hook of offshoot from ${file}.`)
          }
          return 0
        }),
      ),
    )
    .addCommand(
      createCommand('post-checkout', 'what the hook runs').action(
        plainAction(async () => {
          const giveUp = setTimeout(() => {
            notice(`offshoot: the git hook has ended: no answer for ${HOOK_MS_MAX / 1000} seconds`)
            process.exit(0)
          }, HOOK_MS_MAX)
          const top = process.cwd()
          for (const project of await listProjects(top)) {
            await createBranch(path.join(top, project)).catch((error: unknown) => {
              notice(`offshoot: ${inLine(messageOf(error).split('\n')[0] ?? '')}`)
            })
          }
          clearTimeout(giveUp)
          return 0
        }),
      ),
      { hidden: true },
    )

/** Creates the branch of the git branch that is checked out, and lets later commands use it. */
async function createBranch(folder: string): Promise<void> {
  // Other git branches may not have the folder. Without a git branch there is nothing to create: a rebase
  // checks out one commit after another.
  if (!existsSync(folder)) return
  const gitBranch = await currentGitBranch(folder)
  if (gitBranch === undefined) return
  process.chdir(folder)
  try {
    const target = await Target.find({})
    await storeBranch(target.project.folder, undefined)
    await target.findBranch({ create: true })
  } catch (error) {
    throw new Failure(`no branch for the git branch [${gitBranch}]: ${messageOf(error)}`)
  }
}

interface Repository {
  /** The top folder of the work tree. */
  readonly top: string
  /** The folder that git runs hooks from; `core.hooksPath` may name another one than the default. */
  readonly hooks: string
  /** The folder of the project, relative to the top. */
  readonly project: string
}

async function findRepository(): Promise<Repository> {
  const top = await gitLine(process.cwd(), ['rev-parse', '--show-toplevel']).catch(() => {
    throw new Failure('this folder is not in the work tree of a git repository')
  })
  // A relative `core.hooksPath` is relative to the top.
  const hooks = path.resolve(top, await gitLine(top, ['rev-parse', '--git-path', 'hooks']))
  if (hooks.endsWith(path.join('.husky', '_'))) {
    throw new Failure(
      'husky writes the hooks of this repository\n  Add this line to .husky/post-checkout: [ "$3" != 1 ] || offshoot checkout -c || true',
    )
  }
  const { folder } = await findProject()
  return { top, hooks, project: path.relative(top, await realpath(folder)) || '.' }
}

async function listProjects(top: string): Promise<string[]> {
  // git ends with an error if there is no such setting.
  const text = await git(top, ['config', '--local', '-z', '--get-all', PROJECTS]).catch(() => '')
  return text.split('\0').filter((project) => project !== '')
}

/**
 * Returns the program that is running now. A checkout may change every file of the work tree, so a program in
 * it is only accepted below `node_modules`, where the hook can find out whether a branch has brought files.
 */
async function findCommand(top: string) {
  const script = await realpath(process.argv[1] ?? '')
  const node = await realpath(process.execPath)
  const trees = (await git(top, ['worktree', 'list', '--porcelain']))
    .split('\n')
    .filter((line) => line.startsWith('worktree '))
    .map((line) => line.slice('worktree '.length))
  const inside = [node, script].filter((file) => trees.some((tree) => isInside(file, tree)))
  const own = inside.find((file) => !file.split(path.sep).includes('node_modules'))
  if (own !== undefined) {
    throw new Failure(
      `[${own}] is a file of this repository, which other git branches can change\n  Install the command elsewhere, with: npm install --global offshoot`,
    )
  }
  return { node, script, ...(inside.length === 0 ? {} : { guarded: inside }) }
}

function isInside(file: string, folder: string): boolean {
  const relative = path.relative(folder, file)
  return relative !== '..' && !relative.startsWith(`..${path.sep}`) && !path.isAbsolute(relative)
}
