import { Account } from './account.js'
import type { Branch } from './branch.js'
import { Database } from './database.js'
import { type CallOptions, segment, Transport, type TransportOptions } from './http.js'
import type { AnySchema, TableName } from './schema.js'
import type { SqlRunner } from './sql.js'
import type { Table } from './table.js'
import type { Operation, TransactionResults } from './transaction.js'

export interface ClientOptions extends TransportOptions {
  readonly database: string
  /** The branch that `table`, `transaction` and `sql` use. */
  readonly branch: string
  /**
   * The workspace of the database. It can be left out if the key has access to only one workspace
   * with a database of that name.
   */
  readonly workspace?: string
  /** The region of the workspace. Default: `local`. */
  readonly region?: string
}

/** A client of one database. */
export class Client<Schema> {
  readonly database: Database<Schema>
  /** Workspaces, databases and keys. */
  readonly account: Account
  /** Runs SQL on the branch of the client. */
  readonly sql: SqlRunner
  readonly #branch: Branch<Schema>

  constructor(options: ClientOptions) {
    const { database, branch, workspace, region = 'local' } = options
    const transport = new Transport(options)
    const prefix = workspace === undefined ? '' : `/${segment(workspace)}.${segment(region)}`
    this.database = new Database(transport, prefix, database)
    this.account = new Account(transport)
    this.#branch = this.database.branch(branch)
    this.sql = this.#branch.sql
  }

  /**
   * The branch with this name; without a name, the branch of the client. No request is sent.
   *
   * @example
   * ```ts
   * const dev = client.branch('dev')
   * const current = client.branch()
   * ```
   */
  branch(name?: string): Branch<Schema> {
    return name === undefined ? this.#branch : this.database.branch(name)
  }

  /**
   * A table of the branch of the client.
   *
   * @example
   * ```ts
   * const users = client.table('users')
   * ```
   */
  table<Name extends TableName<Schema>>(name: Name): Table<Schema, Name> {
    return this.#branch.table(name)
  }

  /**
   * Runs operations on the branch of the client as one transaction. See `Branch.transaction`.
   *
   * @example
   * ```ts
   * const [ada] = await client.transaction([
   *   { update: { table: 'users', id: 'ada', fields: { visits: { $increment: 1 } }, columns: ['visits'] } },
   * ])
   * console.log(ada.columns.visits)
   * ```
   */
  transaction<const Operations extends readonly Operation<Schema>[]>(
    operations: Operations,
    options: CallOptions = {},
  ): Promise<TransactionResults<Schema, Operations>> {
    return this.#branch.transaction(operations, options)
  }
}

/**
 * Creates a client for workspaces, databases and keys, without choosing a database.
 *
 * @example
 * ```ts
 * import { createAccount } from '@offshoot/client'
 *
 * const account = createAccount({ url: 'http://127.0.0.1:6001', apiKey: process.env.OFFSHOOT_API_KEY ?? '' })
 * const workspaces = await account.workspaces()
 * ```
 */
export function createAccount(options: TransportOptions): Account {
  return new Account(new Transport(options))
}

/**
 * Creates a client. The type argument describes the tables; without it, tables and columns are not
 * checked.
 *
 * @example
 * ```ts
 * interface Shop {
 *   users: { email: string; name: string | null }
 * }
 * const client = createClient<Shop>({
 *   url: 'http://127.0.0.1:6001',
 *   apiKey: process.env.OFFSHOOT_API_KEY ?? '',
 *   database: 'shop',
 *   branch: 'main',
 * })
 * const user = await client.table('users').read('ada')
 * ```
 */
export function createClient<Schema = AnySchema>(options: ClientOptions): Client<Schema> {
  for (const name of ['url', 'apiKey', 'database', 'branch'] as const) {
    if (typeof options[name] !== 'string' || options[name] === '') {
      throw new TypeError(`createClient: the option [${name}] must be a text that is not empty`)
    }
  }
  return new Client<Schema>(options)
}
