import { readFile } from 'node:fs/promises'
import { Failure, UsageError } from '../shared/failure.js'
import { type CommentHost, githubComments, gitlabComments } from './comment-host.js'

/** A pull request (GitHub) or merge request (GitLab), as the build system describes it. */
export interface PullRequest {
  /** The branch of git that the pull request proposes. */
  readonly gitBranch: string
  /** The branch of git that it is to be merged into. */
  readonly baseBranch?: string
  /** The name of the foreign repository, if the pull request comes from a fork of the repository. */
  readonly fork?: string
  /** Where comments go; undefined without a platform. */
  readonly comments?: CommentHost
  /** Returns whether the pull request was merged. */
  isMerged(): Promise<boolean>
}

type Environment = Readonly<Record<string, string | undefined>>

/** Finds the pull request of the job. With `gitBranch`, no platform is needed. */
export async function findPullRequest(
  env: Environment,
  gitBranch: string | undefined,
): Promise<PullRequest> {
  // Without a platform, nobody can be asked: the caller runs `merge` when the branch of git was merged.
  if (gitBranch !== undefined) return { gitBranch, isMerged: async () => true }
  if (env.GITHUB_EVENT_PATH) return fromGithub(env, env.GITHUB_EVENT_PATH)
  if (env.GITLAB_CI) return fromGitlab(env)
  throw new UsageError(
    'this is not a job of GitHub or GitLab: name the branch of git with --git-branch NAME',
  )
}

interface GithubEvent {
  readonly pull_request?: {
    readonly number: number
    readonly merged?: boolean
    readonly head: {
      readonly ref: string
      /** Null if the foreign repository was deleted. */
      readonly repo: { readonly full_name: string } | null
    }
    readonly base: { readonly ref: string; readonly repo: { readonly full_name: string } }
  }
}

async function fromGithub(env: Environment, file: string): Promise<PullRequest> {
  const { pull_request: pull } = await readEvent(file)
  if (pull === undefined) {
    throw new UsageError(
      `the event [${env.GITHUB_EVENT_NAME}] is not about a pull request: run this in a workflow with \`on: pull_request\``,
    )
  }
  const { head, base } = pull
  const repository = base.repo.full_name
  const origin = head.repo?.full_name ?? 'a deleted repository'
  const token = env.GITHUB_TOKEN
  return {
    gitBranch: head.ref,
    baseBranch: base.ref,
    ...(origin === repository ? {} : { fork: origin }),
    ...(token
      ? {
          comments: githubComments({
            api: env.GITHUB_API_URL || 'https://api.github.com',
            repository,
            number: pull.number,
            token,
          }),
        }
      : {}),
    isMerged: async () => pull.merged === true,
  }
}

async function readEvent(file: string): Promise<GithubEvent> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as GithubEvent
  } catch (error) {
    throw new Failure(`cannot read the event in [${file}]: ${(error as Error).message}`)
  }
}

function fromGitlab(env: Environment): PullRequest {
  const gitBranch = env.CI_MERGE_REQUEST_SOURCE_BRANCH_NAME
  const iid = env.CI_MERGE_REQUEST_IID
  const project = env.CI_MERGE_REQUEST_PROJECT_ID
  if (!gitBranch || !iid || !project) {
    throw new UsageError(
      "this pipeline is not about a merge request: run the job with `rules: [{ if: $CI_PIPELINE_SOURCE == 'merge_request_event' }]`",
    )
  }
  const source = env.CI_MERGE_REQUEST_SOURCE_PROJECT_ID
  const fork = env.CI_MERGE_REQUEST_SOURCE_PROJECT_PATH || source
  const token = env.GITLAB_TOKEN
  const host = token
    ? gitlabComments({ api: env.CI_API_V4_URL || 'https://gitlab.com/api/v4', project, iid, token })
    : undefined
  return {
    gitBranch,
    ...(env.CI_MERGE_REQUEST_TARGET_BRANCH_NAME
      ? { baseBranch: env.CI_MERGE_REQUEST_TARGET_BRANCH_NAME }
      : {}),
    ...(source && source !== project && fork ? { fork } : {}),
    ...(host === undefined ? {} : { comments: host }),
    async isMerged() {
      if (host !== undefined) return host.isMerged()
      throw new UsageError('set GITLAB_TOKEN: it is needed to find out if the request was merged')
    },
  }
}
