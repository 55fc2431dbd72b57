import type { InviteInfo, LogEntry, LogOptions, MemberInfo, Role, Usage } from './api.js'
import { type CallOptions, segment, type Transport } from './http.js'
import { readLog } from './log.js'

/** A workspace: its members, its storage, and settings of its databases. */
export class Workspace {
  readonly id: string
  readonly #transport: Transport
  readonly #path: string

  constructor(transport: Transport, id: string) {
    this.id = id
    this.#transport = transport
    this.#path = `/workspaces/${segment(id)}`
  }

  /**
   * Renames the workspace. Its id stays.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Acme')
   * await client.account.workspace(id).rename('Acme and sons')
   * ```
   */
  async rename(name: string, options: CallOptions = {}): Promise<void> {
    await this.#send('PUT', '', { json: { name }, ...options })
  }

  /**
   * Deletes the workspace with all its databases.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Trial')
   * await client.account.workspace(id).delete()
   * ```
   */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#send('DELETE', '', options)
  }

  /**
   * Reads how much storage the workspace uses.
   *
   * @example
   * ```ts
   * for (const { id } of await client.account.workspaces()) {
   *   const { bytesUsed, bytesMax } = await client.account.workspace(id).usage()
   *   console.log(id, bytesUsed, bytesMax ?? 'unlimited')
   * }
   * ```
   */
  usage(options: CallOptions = {}): Promise<Usage> {
    return this.#send('GET', '/usage', options)
  }

  /**
   * Iterates over what happened in the workspace, newest first: the audit log. Owners can read it.
   *
   * @example
   * ```ts
   * const [home] = await client.account.workspaces()
   * for await (const { kind, at, email } of client.account.workspace(home?.id ?? '').audit()) {
   *   console.log(at, kind, email)
   * }
   * ```
   */
  audit(options: LogOptions & CallOptions = {}): AsyncIterableIterator<LogEntry> {
    return readLog(this.#transport, `${this.#path}/audit`, options)
  }

  /**
   * Lists the members of the workspace, and the invites that nobody has accepted yet.
   *
   * @example
   * ```ts
   * const [home] = await client.account.workspaces()
   * const { members } = await client.account.workspace(home?.id ?? '').members()
   * for (const { fullname, role } of members) console.log(fullname, role)
   * ```
   */
  members(
    options: CallOptions = {},
  ): Promise<{ readonly members: readonly MemberInfo[]; readonly invites: readonly InviteInfo[] }> {
    return this.#send('GET', '/members', options)
  }

  /**
   * Changes the role of a member.
   *
   * @example
   * ```ts
   * const workspace = client.account.workspace((await client.account.workspaces())[0]?.id ?? '')
   * const { id } = await client.account.user()
   * await workspace.setRole(id, 'owner')
   * ```
   */
  async setRole(userId: string, role: Role, options: CallOptions = {}): Promise<void> {
    await this.#send('PUT', `/members/${segment(userId)}`, { json: { role }, ...options })
  }

  /**
   * Removes a member.
   *
   * @example
   * ```ts
   * const workspace = client.account.workspace((await client.account.workspaces())[0]?.id ?? '')
   * const { members } = await workspace.members()
   * const left = members.find(({ email }) => email === 'grace@example.com')
   * if (left !== undefined) await workspace.removeMember(left.userId)
   * ```
   */
  async removeMember(userId: string, options: CallOptions = {}): Promise<void> {
    await this.#send('DELETE', `/members/${segment(userId)}`, options)
  }

  /**
   * Invites somebody. The answer is the only one that shows the key of the invite.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Acme')
   * const invite = await client.account
   *   .workspace(id)
   *   .invite({ email: 'grace@example.com', role: 'maintainer' })
   * console.log(invite.key)
   * ```
   */
  invite(
    invite: { readonly email: string; readonly role: Role },
    options: CallOptions = {},
  ): Promise<InviteInfo & { readonly key: string }> {
    return this.#send('POST', '/invites', { json: invite, ...options })
  }

  /**
   * Accepts an invite with its key: the user of the API key becomes a member of the workspace.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Acme')
   * const workspace = client.account.workspace(id)
   * const invite = await workspace.invite({ email: 'ada@example.com', role: 'maintainer' })
   * await workspace.acceptInvite(invite.key)
   * ```
   */
  async acceptInvite(key: string, options: CallOptions = {}): Promise<void> {
    await this.#send('POST', `/invites/${segment(key)}/accept`, options)
  }

  /**
   * Cancels an invite that nobody has accepted yet.
   *
   * @example
   * ```ts
   * const workspace = client.account.workspace((await client.account.workspaces())[0]?.id ?? '')
   * const { invites } = await workspace.members()
   * for (const { inviteId } of invites) await workspace.cancelInvite(inviteId)
   * ```
   */
  async cancelInvite(inviteId: string, options: CallOptions = {}): Promise<void> {
    await this.#send('DELETE', `/invites/${segment(inviteId)}`, options)
  }

  /**
   * Sets the colour that the console shows a database with.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Acme')
   * await client.account.createDatabase(id, 'catalog')
   * await client.account.workspace(id).setDatabaseColor('catalog', '#2a8a4a')
   * ```
   */
  async setDatabaseColor(
    database: string,
    color: string,
    options: CallOptions = {},
  ): Promise<void> {
    const json = { ui: { color } }
    await this.#send('PATCH', `/dbs/${segment(database)}`, { json, ...options })
  }

  /**
   * Renames a database.
   *
   * @example
   * ```ts
   * const { id } = await client.account.createWorkspace('Acme')
   * await client.account.createDatabase(id, 'catalog')
   * await client.account.workspace(id).renameDatabase('catalog', 'archive')
   * ```
   */
  async renameDatabase(
    database: string,
    newName: string,
    options: CallOptions = {},
  ): Promise<void> {
    const json = { newName }
    await this.#send('POST', `/dbs/${segment(database)}/rename`, { json, ...options })
  }

  #send<Answer>(
    method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE',
    path: string,
    options: { readonly json?: unknown } & CallOptions,
  ): Promise<Answer> {
    const isRead = method === 'GET'
    return this.#transport.json({ method, path: this.#path + path, isRead, ...options })
  }
}
