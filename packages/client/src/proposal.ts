import type {
  Comment,
  CommentPlace,
  MergeOptions,
  MergeResult,
  ProposalDetails,
  ProposalDifference,
} from './api.js'
import type { CallOptions, LongCallOptions, Transport } from './http.js'

/** Comments per request. */
const COMMENTS_PAGE_SIZE = 200

/** A proposal to merge a branch. A handle costs nothing: no request is sent until a method is called. */
export class Proposal {
  readonly number: number
  readonly #transport: Transport
  readonly #path: string

  constructor(transport: Transport, proposalsPath: string, number: number) {
    this.number = number
    this.#transport = transport
    this.#path = `${proposalsPath}/${number}`
  }

  /**
   * Reads the proposal with its reviews.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * const { state, approvals, requiredApprovals } = await client.database.proposal(number).get()
   * console.log(state, approvals >= requiredApprovals)
   * ```
   */
  get(options: CallOptions = {}): Promise<ProposalDetails> {
    return this.#transport.json({
      method: 'GET',
      path: this.#path,
      isRead: true,
      signal: options.signal,
    })
  }

  /**
   * Compares the branch with the last state that it has in common with the target. Also works after the merge.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * const { difference, merge } = await client.database.proposal(number).diff()
   * console.log(difference.tables, merge?.conflictCount)
   * ```
   */
  diff(
    options: {
      readonly table?: string
      readonly size?: number
      readonly after?: string
    } & CallOptions = {},
  ): Promise<ProposalDifference> {
    const { signal, ...query } = options
    const path = `${this.#path}/diff`
    return this.#transport.json({ method: 'GET', path, query, isRead: true, signal })
  }

  /**
   * Comments on the whole proposal, a table, a record or a cell.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * await client.database.proposal(number).comment('Why?', { table: 'users', record: 'ada', column: 'age' })
   * ```
   */
  comment(body: string, place: CommentPlace & CallOptions = {}): Promise<Comment> {
    const { signal, ...about } = place
    return this.#post('comments', { body, ...about }, signal)
  }

  /**
   * Iterates over the comments, oldest first.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * for await (const { by, body } of client.database.proposal(number).comments()) console.log(by.email, body)
   * ```
   */
  async *comments(options: CallOptions = {}): AsyncIterableIterator<Comment> {
    for (let after: string | undefined; ; ) {
      const { comments, meta } = await this.#transport.json<{
        comments: readonly Comment[]
        meta: { cursor?: string; more: boolean }
      }>({
        method: 'GET',
        path: `${this.#path}/comments`,
        query: { size: COMMENTS_PAGE_SIZE, ...(after === undefined ? {} : { after }) },
        isRead: true,
        signal: options.signal,
      })
      yield* comments
      if (!meta.more) return
      after = meta.cursor
    }
  }

  /**
   * Approves the proposal. The author cannot. With `revision`, only if the branches have not changed since.
   *
   * @example
   * ```ts
   * async function approve(number: number) {
   *   const proposal = client.database.proposal(number)
   *   const { revision } = await proposal.get()
   *   await proposal.approve({ revision })
   * }
   * console.log(approve.name)
   * ```
   */
  approve(
    options: { readonly body?: string; readonly revision?: number } & CallOptions = {},
  ): Promise<ProposalDetails> {
    const { signal, ...review } = options
    return this.#post('approvals', { verdict: 'approve', ...review }, signal)
  }

  /**
   * Requests changes. A branch that requires approvals is not changed until the reviewer approves, or withdraws this.
   *
   * @example
   * ```ts
   * const reject = (number: number) => client.database.proposal(number).requestChanges({ body: 'Too cheap.' })
   * console.log(reject.name)
   * ```
   */
  requestChanges(
    options: { readonly body?: string; readonly revision?: number } & CallOptions = {},
  ): Promise<ProposalDetails> {
    const { signal, ...review } = options
    return this.#post('approvals', { verdict: 'requestChanges', ...review }, signal)
  }

  /**
   * Withdraws the own review.
   *
   * @example
   * ```ts
   * const withdraw = (number: number) => client.database.proposal(number).withdraw()
   * console.log(withdraw.name)
   * ```
   */
  withdraw(options: CallOptions = {}): Promise<ProposalDetails> {
    const path = `${this.#path}/approvals`
    return this.#transport.json({ method: 'DELETE', path, signal: options.signal })
  }

  /**
   * Merges the branch into the target, and ends the proposal.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * await client.database.proposal(number).merge()
   * ```
   */
  merge(options: Omit<MergeOptions, 'only'> & LongCallOptions = {}): Promise<MergeResult> {
    const { signal, onProgress, ...rules } = options
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/merge`,
      json: rules,
      signal,
      onProgress,
    })
  }

  /**
   * Changes the title or the text of the proposal.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * await client.database.proposal(number).update({ title: 'Prices of 2027' })
   * ```
   */
  update(
    texts: { readonly title?: string; readonly body?: string },
    options: CallOptions = {},
  ): Promise<ProposalDetails> {
    return this.#transport.json({
      method: 'PATCH',
      path: this.#path,
      json: texts,
      signal: options.signal,
    })
  }

  /**
   * Closes the proposal without a merge.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * await client.database.proposal(number).close()
   * ```
   */
  close(options: CallOptions = {}): Promise<ProposalDetails> {
    return this.#post('close', undefined, options.signal)
  }

  /**
   * Opens a closed proposal again.
   *
   * @example
   * ```ts
   * const { number } = await client.database.propose({ from: 'dev', title: 'New prices' })
   * await client.database.proposal(number).close()
   * await client.database.proposal(number).reopen()
   * ```
   */
  reopen(options: CallOptions = {}): Promise<ProposalDetails> {
    return this.#post('reopen', undefined, options.signal)
  }

  #post<Result>(
    action: string,
    json: object | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Result> {
    const body = json === undefined ? {} : { json }
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/${action}`,
      ...body,
      signal,
    })
  }
}
