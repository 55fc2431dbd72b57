import type { DatabaseInfo, KeyInfo, KeyScope, WorkspaceInfo } from './api.js'
import { type CallOptions, segment, type Transport } from './http.js'

/** Workspaces and databases that the key has access to, and the keys of its user. */
export class Account {
  readonly #transport: Transport

  constructor(transport: Transport) {
    this.#transport = transport
  }

  /** Reads the user of the key. */
  user(
    options: CallOptions = {},
  ): Promise<{ readonly id: string; readonly email: string; readonly fullname: string }> {
    return this.#read('/user', options)
  }

  /** Lists the workspaces of the user. */
  async workspaces(options: CallOptions = {}): Promise<readonly WorkspaceInfo[]> {
    const answer = await this.#read<{ workspaces: readonly WorkspaceInfo[] }>(
      '/workspaces',
      options,
    )
    return answer.workspaces
  }

  /** Lists the databases of a workspace. */
  async databases(workspace: string, options: CallOptions = {}): Promise<readonly DatabaseInfo[]> {
    const answer = await this.#read<{ databases: readonly DatabaseInfo[] }>(
      `/workspaces/${segment(workspace)}/dbs`,
      options,
    )
    return answer.databases
  }

  /** Creates a database with a branch, by default `main`. */
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

  /** Deletes a database with all its branches. */
  async deleteDatabase(workspace: string, name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.json({
      method: 'DELETE',
      path: databasePath(workspace, name),
      signal: options.signal,
    })
  }

  /** Lists the API keys of the user. */
  async keys(options: CallOptions = {}): Promise<readonly KeyInfo[]> {
    return (await this.#read<{ keys: readonly KeyInfo[] }>('/user/keys', options)).keys
  }

  /** Creates an API key. The answer is the only one that shows it. */
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

  /** Revokes an API key. */
  async deleteKey(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.send({
      method: 'DELETE',
      path: `/user/keys/${segment(name)}`,
      signal: options.signal,
    })
  }

  #read<Answer>(path: string, { signal }: CallOptions): Promise<Answer> {
    return this.#transport.json({ method: 'GET', path, isRead: true, signal })
  }
}

function databasePath(workspace: string, name: string): string {
  return `/workspaces/${segment(workspace)}/dbs/${segment(name)}`
}
