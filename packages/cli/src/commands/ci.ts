import { appendFile, writeFile } from 'node:fs/promises'
import {
  type Change,
  type MergeOptions,
  OffshootError,
  type ProposalSummary,
} from '@offshoot/client'
import type { Command } from 'commander'
import { findBranch, type PullRequestBranch } from '../ci/branch-of-pull-request.js'
import { commentOf, markerOf, RECORDS_MAX } from '../ci/comment-body.js'
import { writeComment } from '../ci/comment-host.js'
import { findPullRequest, type PullRequest } from '../ci/pull-request.js'
import { createCommand, plainAction } from '../shared/command.js'
import { EXIT, Failure, report, UsageError } from '../shared/failure.js'
import { notice, print, printJson } from '../shared/output.js'
import { Target, type TargetFlags, withDatabase } from '../shared/target.js'
import {
  explainRefusal,
  isRefusal,
  type MergeFlags,
  optionsOf,
  runMerge,
  withDecisionFlags,
  withMergeFlags,
} from './merge.js'

interface CiFlags extends TargetFlags {
  readonly gitBranch?: string
}

/** `offshoot ci`: a branch for each pull request, in jobs of GitHub, GitLab and others. */
export const ciCommand = () =>
  createCommand('ci', 'a branch for each pull request, in a build: ensure, comment, merge, delete')
    .addCommand(ensure())
    .addCommand(comment())
    .addCommand(merge())
    .addCommand(remove())

const withPullRequest = (command: Command) =>
  withDatabase(command).option(
    '--git-branch <name>',
    'branch of git; default: that of the pull request of the job',
  )

interface EnsureFlags extends MergeFlags {
  readonly from?: string
  readonly dotenv?: string
  readonly pull: boolean
}

const ensure = () =>
  withDecisionFlags(
    withPullRequest(
      createCommand(
        'ensure',
        'find or create the branch of the pull request, and bring it up to date',
        [
          'offshoot ci ensure',
          'offshoot ci ensure --dotenv offshoot.env',
          'offshoot ci ensure --theirs',
        ],
      ),
    )
      .option('--from <branch>', 'branch to fork; default: that of the target of the pull request')
      .option('--dotenv <file>', 'write OFFSHOOT_BRANCH and others to a file')
      .option('--no-pull', 'do not pull the source into a branch that exists'),
  ).action(
    ciAction<EnsureFlags>(async (target, pull, flags) => {
      const { from, dotenv, json } = flags
      const options = optionsOf(flags)
      const branch = await findBranch(target.database, pull, { create: true, from })
      if (branch === undefined) throw new Failure('the service has created no branch')
      const variables = {
        OFFSHOOT_URL: target.url,
        OFFSHOOT_DATABASE: target.databaseName,
        OFFSHOOT_BRANCH: branch.name,
      }
      if (dotenv !== undefined) await writeFile(dotenv, linesOf(variables))
      await tellGithub('GITHUB_ENV', variables)
      await tellGithub('GITHUB_OUTPUT', { branch: branch.name, skipped: 'false' })
      notice(`${branch.isNew ? 'Created' : 'Found'} branch ${branch.name} for ${pull.gitBranch}.`)
      const pulled =
        branch.isNew || !flags.pull ? NOTHING_PULLED : await pullSource(target, branch, options)
      if (json) printJson({ branch: branch.name, created: branch.isNew, ...pulled.fields })
      else print(`${branch.name}\n`)
      return pulled.exitCode
    }),
  )

const NOTHING_PULLED = { exitCode: EXIT.done as number, fields: { pulled: false } as object }

/**
 * Brings the changes of the source into a branch that exists. Otherwise the schema file of the pull request, which may
 * contain changes that were merged meanwhile, would make them a second time.
 */
async function pullSource(
  target: Target,
  { name }: PullRequestBranch,
  options: MergeOptions,
): Promise<typeof NOTHING_PULLED> {
  try {
    const { merged, from } = await target.branchNamed(name).pull(options)
    notice(merged ? `Pulled ${from} into ${name}.` : `${name} has everything of ${from}.`)
    return { exitCode: EXIT.done, fields: { pulled: merged } }
  } catch (error) {
    if (error instanceof OffshootError && error.code === 'no_source') {
      notice(`${name} has no source to pull.`)
      return NOTHING_PULLED
    }
    if (!isRefusal(error)) throw error
    explainRefusal(error)
    notice(
      error.code === 'merge_conflict'
        ? `Nothing was pulled. Decide with: offshoot pull ${name} --interactive (or with --ours or --theirs)`
        : 'Nothing was pulled. Allow the loss with --allow-data-loss.',
    )
    return { exitCode: EXIT.conflict, fields: { pulled: false, ...error.body } }
  }
}

const comment = () =>
  withPullRequest(
    createCommand('comment', 'write the changes and conflicts of the branch to the pull request', [
      'offshoot ci comment',
      'offshoot ci comment --no-records',
      'offshoot ci comment --git-branch feat/login --output comment.md',
    ]),
  )
    .option('--no-records', 'show how many records have changed, but not the records')
    .option('-o, --output <file>', 'write the text to a file instead; - is standard output')
    .action(
      ciAction<{ records: boolean; output?: string }>(async (target, pull, { records, output }) => {
        const found = await requireBranch(target, pull)
        const branch = target.branchNamed(found.name)
        const database = target.databaseName
        const changes: Change[] = []
        if (records) {
          for await (const change of branch.changes()) {
            changes.push(change)
            if (changes.length > RECORDS_MAX) break
          }
        }
        const difference = await branch.diff({ size: 0 })
        const body = commentOf({
          database,
          difference,
          changes,
          merge: await branch.merge({ dryRun: true }),
          proposals: await listProposals(target, found.name),
          page: await pageOf(target),
        })
        if (output !== undefined && output !== '-') {
          await writeFile(output, body)
          return 0
        }
        if (output === '-' || pull.comments === undefined) {
          if (output === undefined) {
            notice('There is no token for comments (GITHUB_TOKEN or GITLAB_TOKEN). The comment is:')
          }
          print(body)
          return 0
        }
        const outcome = await writeComment(pull.comments, { marker: markerOf(database), body })
        notice(`The comment was ${outcome}.`)
        return 0
      }),
    )

/** Returns the address of the database in the console, if its workspace is known. */
async function pageOf(target: Target): Promise<string | undefined> {
  const workspace = await target.workspace().catch(() => undefined)
  if (workspace === undefined) return undefined
  const [id, name] = [workspace, target.databaseName].map(encodeURIComponent)
  return `${target.url}/console/w/${id}/db/${name}`
}

async function listProposals(target: Target, from: string): Promise<ProposalSummary[]> {
  const proposals: ProposalSummary[] = []
  for await (const proposal of target.database.proposals({ from })) proposals.push(proposal)
  return proposals
}

const merge = () =>
  withMergeFlags(
    withPullRequest(
      createCommand('merge', 'merge the branch, if the pull request was merged', [
        'offshoot ci merge',
        'offshoot ci merge --schema-only',
      ]),
    ),
  )
    .option('--schema-only', 'merge the schema, but no rows')
    .action(
      ciAction<MergeFlags & { schemaOnly?: boolean }>(async (target, pull, flags) => {
        if (!(await pull.isMerged())) {
          notice('The pull request was not merged, so its branch is not merged either.')
          return 0
        }
        const found = await findBranch(target.database, pull)
        if (found === undefined) return missing(pull)
        const branch = target.branchNamed(found.name)
        const { tables } = flags.schemaOnly ? await branch.schema() : { tables: [] }
        const modes = Object.fromEntries(
          tables.map(({ name }) => [name, { mode: 'schema' as const }]),
        )
        return runMerge(flags, {
          announcement: `Merging ${found.name} into its source on ${target.url}`,
          branch,
          merge: (options) =>
            branch.merge({ ...options, ...(flags.schemaOnly ? { tables: modes } : {}) }),
        })
      }),
    )

const remove = () =>
  withPullRequest(
    createCommand('delete', 'delete the branch of the pull request', ['offshoot ci delete']),
  ).action(
    ciAction<{ json?: boolean }>(async (target, pull, { json }) => {
      const found = await findBranch(target.database, pull)
      if (found === undefined) return missing(pull)
      if (!found.isAssigned) {
        notice(
          `Branch ${found.name} has the name of the git branch, but was not created for it. It is kept.`,
        )
      } else {
        await target.branchNamed(found.name).delete()
        notice(`Deleted branch ${found.name}.`)
      }
      if (json) printJson({ branch: found.name, deleted: found.isAssigned })
      return 0
    }),
  )

/** Runs an action for a pull request. One from a fork of the repository is skipped. */
function ciAction<Flags extends object>(
  run: (target: Target, pull: PullRequest, flags: Flags) => Promise<number>,
) {
  return plainAction<Flags & CiFlags, []>(async (flags) => {
    const pull = await findPullRequest(process.env, flags.gitBranch)
    if (pull.fork !== undefined) {
      // This comes before the key is looked for: such a job has no secrets.
      notice(
        `Skipped: the pull request comes from another repository (${pull.fork}). Such jobs get no secrets, so it gets no branch of the database.`,
      )
      await tellGithub('GITHUB_OUTPUT', { branch: '', skipped: 'true' })
      return 0
    }
    const target = await Target.find(flags)
    try {
      return await run(target, pull, flags)
    } catch (error) {
      return report(error, target.url)
    }
  })
}

async function requireBranch(target: Target, pull: PullRequest): Promise<PullRequestBranch> {
  const found = await findBranch(target.database, pull)
  if (found !== undefined) return found
  throw new UsageError(
    `the git branch [${pull.gitBranch}] has no branch in the database [${target.databaseName}]\n  Create it with: offshoot ci ensure`,
  )
}

function missing({ gitBranch }: PullRequest): number {
  notice(`The git branch ${gitBranch} has no branch. There is nothing to do.`)
  return 0
}

/** Gives values to later steps of a job of GitHub. */
async function tellGithub(file: 'GITHUB_ENV' | 'GITHUB_OUTPUT', values: Record<string, string>) {
  const path = process.env[file]
  if (path) await appendFile(path, linesOf(values))
}

function linesOf(values: Readonly<Record<string, string>>): string {
  return Object.entries(values)
    .map(([name, value]) => {
      // A line break could smuggle in another variable.
      if (/[\r\n]/.test(value)) throw new Failure(`the value of ${name} has a line break`)
      return `${name}=${value}\n`
    })
    .join('')
}
