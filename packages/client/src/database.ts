import type {
  BranchRule,
  BranchSummary,
  ProposalDetails,
  ProposalSummary,
  ResolvedBranch,
} from './api.js'
import { Branch } from './branch.js'
import { type CallOptions, segment, type Transport } from './http.js'
import { Proposal } from './proposal.js'

/** Proposals per request. */
const PROPOSALS_PAGE_SIZE = 200

/** A pair of a git branch and the branch that belongs to it. */
export interface GitMapping {
  readonly gitBranch: string
  readonly serviceBranch: string
}

/** A database: its branches, and the branches of git that they belong to. */
export class Database<Schema> {
  readonly name: string
  readonly #transport: Transport
  readonly #prefix: string

  /** `prefix` is the part of the path that names the workspace, or empty. */
  constructor(transport: Transport, prefix: string, name: string) {
    this.name = name
    this.#transport = transport
    this.#prefix = prefix
  }

  /**
   * A branch of the database. No request is sent.
   *
   * @example
   * ```ts
   * const dev = client.database.branch('dev')
   * ```
   */
  branch(name: string): Branch<Schema> {
    return new Branch(this.#transport, `${this.#prefix}/db/${segment(this.name)}`, name)
  }

  /**
   * Lists the branches.
   *
   * @example
   * ```ts
   * for (const { name, from } of await client.database.branches()) console.log(name, from)
   * ```
   */
  async branches(options: CallOptions = {}): Promise<readonly BranchSummary[]> {
    const { branches } = await this.#transport.json<{ branches: readonly BranchSummary[] }>({
      method: 'GET',
      path: this.#path(),
      isRead: true,
      signal: options.signal,
    })
    return branches
  }

  /**
   * Finds the branch that belongs to a git branch. With `create`, forks one if there is none.
   *
   * @example
   * ```ts
   * const { branch } = await client.database.resolveBranch({ gitBranch: 'feat/login', create: true })
   * ```
   */
  resolveBranch(
    question: {
      readonly gitBranch?: string
      readonly fallbackBranch?: string
      readonly create?: boolean
    },
    options: CallOptions = {},
  ): Promise<ResolvedBranch> {
    return this.#transport.json({
      method: 'GET',
      path: this.#path('/resolveBranch'),
      query: question,
      isRead: true,
      signal: options.signal,
    })
  }

  /**
   * Lists the git branches that have a branch of their own.
   *
   * @example
   * ```ts
   * const mapping = await client.database.gitBranches()
   * ```
   */
  async gitBranches(options: CallOptions = {}): Promise<readonly GitMapping[]> {
    const { mapping } = await this.#transport.json<{ mapping: readonly GitMapping[] }>({
      method: 'GET',
      path: this.#path('/gitBranches'),
      isRead: true,
      signal: options.signal,
    })
    return mapping
  }

  /**
   * Assigns a branch to a git branch.
   *
   * @example
   * ```ts
   * await client.database.mapGitBranch({ gitBranch: 'feat/login', serviceBranch: 'dev' })
   * ```
   */
  async mapGitBranch(mapping: GitMapping, options: CallOptions = {}): Promise<void> {
    await this.#transport.json({
      method: 'POST',
      path: this.#path('/gitBranches'),
      json: mapping,
      signal: options.signal,
    })
  }

  /**
   * Removes the assignment of a git branch.
   *
   * @example
   * ```ts
   * await client.database.mapGitBranch({ gitBranch: 'feat/login', serviceBranch: 'dev' })
   * await client.database.unmapGitBranch('feat/login')
   * ```
   */
  async unmapGitBranch(gitBranch: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send({
      method: 'DELETE',
      path: this.#path('/gitBranches'),
      query: { gitBranch },
      signal: options.signal,
    })
  }

  /**
   * Reads the rules for new branches.
   *
   * @example
   * ```ts
   * for (const { pattern, ttl } of await client.database.rules()) console.log(pattern, ttl)
   * ```
   */
  async rules(options: CallOptions = {}): Promise<readonly BranchRule[]> {
    const { rules } = await this.#transport.json<{ rules: readonly BranchRule[] }>({
      method: 'GET',
      path: this.#path('/branchRules'),
      isRead: true,
      signal: options.signal,
    })
    return rules
  }

  /**
   * Replaces the rules for new branches.
   *
   * @example
   * ```ts
   * await client.database.setRules([{ pattern: 'preview-*', from: 'main', ttl: 7 * 86_400 }])
   * ```
   */
  async setRules(rules: readonly BranchRule[], options: CallOptions = {}): Promise<void> {
    await this.#transport.json({
      method: 'PUT',
      path: this.#path('/branchRules'),
      json: { rules },
      signal: options.signal,
    })
  }

  /**
   * Proposes to merge a branch; by default into the branch that it was forked from.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * ```
   */
  propose(
    proposal: {
      readonly from: string
      readonly into?: string
      readonly title: string
      readonly body?: string
    },
    options: CallOptions = {},
  ): Promise<ProposalDetails> {
    return this.#transport.json({
      method: 'POST',
      path: this.#path('/proposals'),
      json: proposal,
      signal: options.signal,
    })
  }

  /**
   * Iterates over the proposals, newest first; by default over those that are open.
   *
   * @example
   * ```ts
   * for await (const { number, title } of client.database.proposals({ state: 'all' })) console.log(number, title)
   * ```
   */
  async *proposals(
    options: {
      readonly state?: 'open' | 'merged' | 'closed' | 'all'
      readonly from?: string
    } & CallOptions = {},
  ): AsyncIterableIterator<ProposalSummary> {
    const { signal, ...query } = options
    for (let after: number | undefined; ; ) {
      const { proposals, meta } = await this.#transport.json<{
        proposals: readonly ProposalSummary[]
        meta: { cursor?: number; more: boolean }
      }>({
        method: 'GET',
        path: this.#path('/proposals'),
        query: { ...query, size: PROPOSALS_PAGE_SIZE, ...(after === undefined ? {} : { after }) },
        isRead: true,
        signal,
      })
      yield* proposals
      if (!meta.more) return
      after = meta.cursor
    }
  }

  /**
   * A proposal, by its number. No request is sent.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * const { difference } = await client.database.proposal(number).diff()
   * ```
   */
  proposal(number: number): Proposal {
    return new Proposal(this.#transport, this.#path('/proposals'), number)
  }

  #path(rest = ''): string {
    return `${this.#prefix}/dbs/${segment(this.name)}${rest}`
  }
}
