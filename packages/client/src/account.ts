import type { DatabaseInfo, KeyInfo, KeyScope, OperationInfo, WorkspaceInfo } from './api.js'
import { type CallOptions, segment, type Transport } from './http.js'
import { Workspace } from './workspace.js'

/** Workspaces and databases that the key has access to, and the keys of its user. */
export class Account {
  readonly #transport: Transport

  constructor(transport: Transport) {
    this.#transport = transport
  }

  /**
   * Reads the user of the key.
   *
   * @example
   * ```ts
   * const { email } = await client.account.user()
   * ```
   */
  user(
    options: CallOptions = {},
  ): Promise<{ readonly id: string; readonly email: string; readonly fullname: string }> {
    return this.#read('/user', options)
  }

  /**
   * Creates a user. Only the administrator of the service can do this. The answer is the only one that shows
   * the first key of the user.
   *
   * @example
   * ```ts
   * const { key } = await client.account.createUser({
   *   email: 'grace@example.com',
   *   fullname: 'Grace Hopper',
   * })
   * ```
   */
  createUser(
    user: { readonly email: string; readonly fullname: string },
    options: CallOptions = {},
  ): Promise<{
    readonly id: string
    readonly email: string
    readonly fullname: string
    readonly key: string
  }> {
    const { signal } = options
    return this.#transport.json({ method: 'POST', path: '/users', json: user, signal })
  }

  /**
   * Lists the workspaces of the user.
   *
   * @example
   * ```ts
   * const [workspace] = await client.account.workspaces()
   * console.log(workspace?.id, workspace?.role)
   * ```
   */
  async workspaces(options: CallOptions = {}): Promise<readonly WorkspaceInfo[]> {
    const answer = await this.#read<{ workspaces: readonly WorkspaceInfo[] }>(
      '/workspaces',
      options,
    )
    return answer.workspaces
  }

  /**
   * A workspace with its members and settings. No request is sent.
   *
   * @example
   * ```ts
   * const [home] = await client.account.workspaces()
   * const { members } = await client.account.workspace(home?.id ?? '').members()
   * console.log(members.length)
   * ```
   */
  workspace(id: string): Workspace {
    return new Workspace(this.#transport, id)
  }

  /**
   * Creates a workspace. The user becomes its owner.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Acme')
   * await client.account.createDatabase(id, 'catalog')
   * ```
   */
  createWorkspace(
    name: string,
    options: CallOptions = {},
  ): Promise<{ readonly id: string; readonly name: string; readonly slug: string }> {
    const { signal } = options
    return this.#transport.json({ method: 'POST', path: '/workspaces', json: { name }, signal })
  }

  /**
   * Lists the databases of a workspace.
   *
   * @example
   * ```ts
   * for (const { id } of await client.account.workspaces()) {
   *   const databases = await client.account.databases(id)
   *   console.log(id, databases.map(({ name }) => name))
   * }
   * ```
   */
  async databases(workspace: string, options: CallOptions = {}): Promise<readonly DatabaseInfo[]> {
    const answer = await this.#read<{ databases: readonly DatabaseInfo[] }>(
      `/workspaces/${segment(workspace)}/dbs`,
      options,
    )
    return answer.databases
  }

  /**
   * Creates a database with a branch, by default `main`.
   *
   * @example
   * ```ts
   * const [workspace] = await client.account.workspaces()
   * if (workspace) await client.account.createDatabase(workspace.id, 'blog')
   * ```
   */
  async createDatabase(
    workspace: string,
    name: string,
    options: { readonly region?: string; readonly branchName?: string } & CallOptions = {},
  ): Promise<void> {
    const { region = 'local', branchName, signal } = options
    await this.#transport.json({
      method: 'PUT',
      path: databasePath(workspace, name),
      json: { region, ...(branchName === undefined ? {} : { branchName }) },
      signal,
    })
  }

  /**
   * Deletes a database with all its branches.
   *
   * @example
   * ```ts
   * const [workspace] = await client.account.workspaces()
   * if (workspace) {
   *   await client.account.createDatabase(workspace.id, 'scratch')
   *   await client.account.deleteDatabase(workspace.id, 'scratch')
   * }
   * ```
   */
  async deleteDatabase(workspace: string, name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.json({
      method: 'DELETE',
      path: databasePath(workspace, name),
      signal: options.signal,
    })
  }

  /**
   * Lists the API keys of the user.
   *
   * @example
   * ```ts
   * for (const { name, expiresAt } of await client.account.keys()) console.log(name, expiresAt)
   * ```
   */
  async keys(options: CallOptions = {}): Promise<readonly KeyInfo[]> {
    return (await this.#read<{ keys: readonly KeyInfo[] }>('/user/keys', options)).keys
  }

  /**
   * Creates an API key. The answer is the only one that shows it.
   *
   * @example
   * ```ts
   * const { key } = await client.account.createKey('reports', {
   *   scope: { databases: ['shop'], access: 'read' },
   *   expiresAt: '2099-12-31T00:00:00Z',
   * })
   * ```
   */
  createKey(
    name: string,
    options: { readonly scope?: KeyScope; readonly expiresAt?: string } & CallOptions = {},
  ): Promise<KeyInfo & { readonly key: string }> {
    const { signal, ...body } = options
    return this.#transport.json({
      method: 'POST',
      path: `/user/keys/${segment(name)}`,
      ...(Object.keys(body).length === 0 ? {} : { json: body }),
      signal,
    })
  }

  /**
   * Revokes an API key.
   *
   * @example
   * ```ts
   * await client.account.createKey('old')
   * await client.account.deleteKey('old')
   * ```
   */
  async deleteKey(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send({
      method: 'DELETE',
      path: `/user/keys/${segment(name)}`,
      signal: options.signal,
    })
  }

  /**
   * Reads how far an operation has come, whose id `onProgress` of a merge was called with.
   *
   * @example
   * ```ts
   * const stateOf = async (id: string) => (await client.account.operation(id)).state
   * console.log(stateOf.name)
   * ```
   */
  operation(id: string, options: CallOptions = {}): Promise<OperationInfo> {
    return this.#read(`/operations/${segment(id)}`, options)
  }

  /**
   * Cancels an operation. It ends a moment later and has changed nothing, unless it takes effect before.
   *
   * @example
   * ```ts
   * const cancel = (id: string) => client.account.cancelOperation(id)
   * console.log(cancel.name)
   * ```
   */
  cancelOperation(id: string, options: CallOptions = {}): Promise<OperationInfo> {
    const path = `/operations/${segment(id)}/cancel`
    return this.#transport.json({ method: 'POST', path, signal: options.signal })
  }

  #read<Answer>(path: string, { signal }: CallOptions): Promise<Answer> {
    return this.#transport.json({ method: 'GET', path, isRead: true, signal })
  }
}

function databasePath(workspace: string, name: string): string {
  return `/workspaces/${segment(workspace)}/dbs/${segment(name)}`
}
