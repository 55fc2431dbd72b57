import {
  type AnySchema,
  type Branch,
  type Client,
  createClient,
  type Database,
} from '@offshoot/client'
import { currentGitBranch, resolveBranchFromGit } from '@offshoot/client/git'
import type { Command } from 'commander'
import { readStored } from './credentials.js'
import { UsageError } from './failure.js'
import { httpFetch } from './http-fetch.js'
import { configuredAddress, findLocalServer, findStoppedServer } from './local-server.js'
import { normalizeAddress } from './normalize-address.js'
import { findProject, type Project } from './project.js'

/** Flags that select what a command works on. */
export interface TargetFlags {
  readonly url?: string
  readonly workspace?: string
  readonly db?: string
  readonly branch?: string
  readonly json?: boolean
}

/** Adds the flags that select a server. */
export function withServer(command: Command): Command {
  return command
    .option('--url <url>', 'address of the server (OFFSHOOT_URL)')
    .option('--json', 'print JSON')
}

/** Adds the flags that select a database. */
export function withDatabase(command: Command): Command {
  return withServer(command)
    .option('--workspace <id>', 'workspace of the database (OFFSHOOT_WORKSPACE)')
    .option('--database, --db <name>', 'database (OFFSHOOT_DATABASE)')
}

/** Adds the flags that select a branch. */
export function withBranch(command: Command): Command {
  return withDatabase(command).option(
    '--branch <name>',
    'branch (OFFSHOOT_BRANCH; default: the branch of the git branch, or the default branch)',
  )
}

/** How the branch of a command was found. */
interface FoundBranch {
  readonly name: string
  readonly reason: string
}

/**
 * The server, database and branch that a command works on. Flags win over the environment, and the
 * environment over `.offshoot.json`.
 */
export class Target {
  readonly url: string
  readonly project: Project
  readonly #apiKey: string
  readonly #workspace: string | undefined
  readonly #database: string | undefined
  readonly #branch: string | undefined
  readonly #pinned: string | undefined
  #client: Client<AnySchema> | undefined

  private constructor(options: {
    url: string
    apiKey: string
    project: Project
    workspace: string | undefined
    database: string | undefined
    branch: string | undefined
    pinned: string | undefined
  }) {
    this.url = options.url
    this.project = options.project
    this.#apiKey = options.apiKey
    this.#workspace = options.workspace
    this.#database = options.database
    this.#branch = options.branch
    this.#pinned = options.pinned
  }

  static async find(flags: TargetFlags): Promise<Target> {
    const { env } = process
    const project = await findProject()
    const stored = await readStored()
    const { url, apiKey } = await findServer(flags.url, { project, stored })
    return new Target({
      url,
      apiKey,
      project,
      // The workspace of the file belongs to its database, not to one that the environment names.
      workspace:
        flags.workspace ??
        (env.OFFSHOOT_WORKSPACE || (env.OFFSHOOT_DATABASE ? undefined : project.workspace)),
      database: flags.db ?? (env.OFFSHOOT_DATABASE || project.database),
      branch: flags.branch ?? (env.OFFSHOOT_BRANCH || undefined),
      pinned: stored.branches[project.folder],
    })
  }

  get apiKey(): string {
    return this.#apiKey
  }

  get databaseName(): string {
    if (this.#database !== undefined) return this.#database
    throw new UsageError(
      'no database: use --db NAME, set OFFSHOOT_DATABASE, or run: offshoot link NAME',
    )
  }

  get hasDatabase(): boolean {
    return this.#database !== undefined
  }

  /** The workspace: as given, or the only one of the user. */
  async workspace(): Promise<string> {
    if (this.#workspace !== undefined) return this.#workspace
    const workspaces = await this.account.workspaces()
    const [only] = workspaces
    if (workspaces.length === 1 && only !== undefined) return only.id
    throw new UsageError(
      `the key has access to ${workspaces.length} workspaces: use --workspace ID\n${workspaces.map(({ id, name }) => `  ${id}  ${name}`).join('\n')}`,
    )
  }

  get account() {
    // The account does not depend on a database.
    return this.#open(this.#database ?? 'none').account
  }

  get database(): Database<AnySchema> {
    return this.#open(this.databaseName).database
  }

  branchNamed(name: string): Branch<AnySchema> {
    return this.database.branch(name)
  }

  /** The branch to work on. */
  async branch(): Promise<Branch<AnySchema>> {
    return this.branchNamed((await this.findBranch()).name)
  }

  async findBranch(options: { create?: boolean } = {}): Promise<FoundBranch> {
    if (this.#branch !== undefined) return { name: this.#branch, reason: 'as given' }
    if (this.#pinned !== undefined) return { name: this.#pinned, reason: 'checked out' }
    if ((await currentGitBranch(this.project.folder)) === undefined) {
      const { branch } = await this.database.resolveBranch({})
      return { name: branch, reason: 'the default branch' }
    }
    const found = await resolveBranchFromGit(this.database as Database<unknown>, {
      env: {},
      folder: this.project.folder,
      ...options,
    }).catch((error: Error) => {
      if (error.name === 'OffshootError') throw error
      throw new UsageError(
        `${error.message}\n  Use --branch NAME, or create it with: offshoot checkout -c`,
      )
    })
    return { name: found.branch, reason: `git branch ${found.gitBranch}` }
  }

  #open(database: string) {
    this.#client ??= createClient({
      url: this.url,
      apiKey: this.#apiKey,
      fetch: httpFetch,
      database,
      branch: 'main',
      ...(this.#workspace === undefined ? {} : { workspace: this.#workspace }),
    })
    return this.#client
  }
}

/** Returns the server that a command without a project works with. */
export async function findAddress(flag: string | undefined): Promise<string> {
  const named = flag ?? process.env.OFFSHOOT_URL
  if (named) return normalizeAddress(named)
  return (await findLocalServer([process.cwd()]))?.address ?? configuredAddress()
}

/**
 * Finds the server and the key for it. A key belongs to one address and is sent to no other: a key of
 * `offshoot login` to that of the login, the key of the environment to that of the environment or the flag, and a
 * key file to the service that has written it, while that is running. A file of a project never decides where the
 * key of the environment goes, because it may come from a stranger.
 */
async function findServer(
  flag: string | undefined,
  { project, stored }: { project: Project; stored: Awaited<ReturnType<typeof readStored>> },
): Promise<{ url: string; apiKey: string }> {
  const folders = [process.cwd(), project.folder]
  const local = await findLocalServer(folders)
  const ofEnvironment = process.env.OFFSHOOT_URL && normalizeAddress(process.env.OFFSHOOT_URL)
  const named = flag === undefined ? ofEnvironment : normalizeAddress(flag)
  const linked = project.url === undefined ? undefined : normalizeAddress(project.url)
  const usual = stored.servers[project.folder] ?? local?.address ?? configuredAddress()
  const url = named || (linked ?? usual)
  const keyAddress = ofEnvironment || named || usual
  const { OFFSHOOT_API_KEY: environmentKey } = process.env
  const apiKey =
    (keyAddress === url && environmentKey) ||
    (stored.keys[url] ?? (local?.address === url ? local.key : undefined))
  if (apiKey) return { url, apiKey }
  throw new UsageError(
    `no API key for ${url}${
      environmentKey
        ? `: that of OFFSHOOT_API_KEY is for ${keyAddress}\n  Set OFFSHOOT_URL to ${url} if the key belongs to it, or sign in`
        : `${await localAdvice(folders, local?.address)}\n  Sign in`
    } with: offshoot login --url ${url}${environmentKey ? '' : '\n  or set OFFSHOOT_URL and OFFSHOOT_API_KEY'}`,
  )
}

async function localAdvice(
  folders: readonly string[],
  address: string | undefined,
): Promise<string> {
  if (address !== undefined) return `\n  The service of this folder is at ${address}`
  const stopped = await findStoppedServer(folders)
  if (stopped === undefined) return ''
  return `\n  The service of ${stopped} is not running. Start it with: offshoot start`
}
