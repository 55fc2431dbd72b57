import type {
  BranchDetails,
  BranchLife,
  BranchStats,
  Difference,
  MergeOptions,
  MergeResult,
  Migration,
  RecordChange,
  SchemaDefinition,
  SchemaOperation,
} from './api.js'
import { type CallOptions, segment, type Transport } from './http.js'
import type { TableName } from './schema.js'
import { createSqlRunner, type SqlRunner } from './sql.js'
import { Table } from './table.js'
import { type Operation, runTransaction, type TransactionResults } from './transaction.js'

export interface ForkOptions extends BranchLife {
  /** `false`: the branch gets the schema of its source, but no rows. */
  readonly data?: boolean
  readonly metadata?: Readonly<Record<string, unknown>>
}

/** One changed record, with its table. */
export interface Change extends RecordChange {
  readonly table: string
}

export interface DifferenceOptions {
  /** `fork` (the default), `source`, or the name of a related branch. */
  readonly against?: string
  /** Compares this table only. */
  readonly table?: string
}

/** Changed records per request when all changes are read. */
const CHANGES_PAGE_SIZE = 200
const MIGRATIONS_PAGE_SIZE = 100

/** A branch of a database. A handle costs nothing: no request is sent until a method is called. */
export class Branch<Schema> {
  readonly name: string
  /** Runs SQL on the branch. */
  readonly sql: SqlRunner
  readonly #transport: Transport
  readonly #databasePath: string
  readonly #path: string

  constructor(transport: Transport, databasePath: string, name: string) {
    this.name = name
    this.#transport = transport
    this.#databasePath = databasePath
    this.#path = `${databasePath}:${segment(name)}`
    this.sql = createSqlRunner(transport, this.#path)
  }

  /**
   * A table of the branch.
   *
   * @example
   * ```ts
   * const users = client.branch('dev').table('users')
   * ```
   */
  table<Name extends TableName<Schema>>(name: Name): Table<Schema, Name> {
    return new Table(this.#transport, this.#path, name)
  }

  /**
   * Runs operations as one transaction: all of them or none. A lost answer is repeated safely.
   *
   * @example
   * ```ts
   * const [created, ada] = await client.transaction([
   *   { insert: { table: 'users', record: { email: 'grace@example.com' } } },
   *   { get: { table: 'users', id: 'ada', columns: ['email'] } },
   * ])
   * ```
   */
  transaction<const Operations extends readonly Operation<Schema>[]>(
    operations: Operations,
    options: CallOptions = {},
  ): Promise<TransactionResults<Schema, Operations>> {
    return runTransaction<Schema, Operations>(this.#transport, this.#path, { operations, options })
  }

  /** Reads the branch with its schema. */
  get(options: CallOptions = {}): Promise<BranchDetails> {
    return this.#read(this.#path, options)
  }

  /**
   * Creates a branch with the rows of this one. It takes milliseconds, whatever the size.
   *
   * @example
   * ```ts
   * const dev = await client.branch('main').fork('dev', { ttl: 86_400 })
   * ```
   */
  async fork(name: string, options: ForkOptions & CallOptions = {}): Promise<Branch<Schema>> {
    const { signal, ...body } = options
    const fork = new Branch<Schema>(this.#transport, this.#databasePath, name)
    await this.#transport.json({
      method: 'PUT',
      path: fork.#path,
      json: { from: this.name, ...body },
      signal,
    })
    return fork
  }

  /** Changes expiry and protection. Null removes an expiry. */
  update(
    life: {
      readonly expiresAt?: string | null
      readonly ttl?: number | null
      readonly protected?: boolean
    },
    options: CallOptions = {},
  ): Promise<unknown> {
    return this.#transport.json({
      method: 'PATCH',
      path: this.#path,
      json: life,
      signal: options.signal,
    })
  }

  /** Deletes the branch. */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'DELETE', path: this.#path, signal: options.signal })
  }

  /** Reads a page of the difference: the schema operations, and the first changes of each table. */
  diff(
    options: DifferenceOptions & {
      readonly size?: number
      readonly after?: string
    } & CallOptions = {},
  ): Promise<Difference> {
    const { signal, ...query } = options
    return this.#transport.json({
      method: 'GET',
      path: `${this.#path}/diff`,
      query,
      isRead: true,
      signal,
    })
  }

  /**
   * Iterates over all changed records.
   *
   * @example
   * ```ts
   * for await (const change of client.branch('dev').changes()) {
   *   console.log(change.table, change.change, change.id)
   * }
   * ```
   */
  async *changes(options: DifferenceOptions & CallOptions = {}): AsyncIterableIterator<Change> {
    const first = await this.diff({ ...options, size: CHANGES_PAGE_SIZE })
    for (let table of first.tables) {
      for (;;) {
        for (const change of table.changes) yield { table: table.name, ...change }
        if (!table.more || table.cursor === undefined) break
        const { tables } = await this.diff({
          ...options,
          table: table.name,
          size: CHANGES_PAGE_SIZE,
          after: table.cursor,
        })
        const next = tables.find(({ name }) => name === table.name)
        if (next === undefined) break
        table = next
      }
    }
  }

  /**
   * Merges the branch into another one; by default into the branch that it was forked from. Throws
   * `merge_conflict` if both have changed the same data.
   *
   * @example
   * ```ts
   * const { conflictCount } = await client.branch('dev').merge({ dryRun: true })
   * if (conflictCount === 0) await client.branch('dev').merge()
   * ```
   */
  merge(
    options: MergeOptions & { readonly into?: string } & CallOptions = {},
  ): Promise<MergeResult> {
    return this.#change('merge', options)
  }

  /** Merges the source of the branch, or another branch, into it. */
  pull(
    options: MergeOptions & { readonly from?: string } & CallOptions = {},
  ): Promise<MergeResult> {
    return this.#change('pull', options)
  }

  /** Discards all changes of the branch: it becomes a fresh fork of its source, or of `to`. */
  async reset(options: { readonly to?: string } & CallOptions = {}): Promise<void> {
    const { signal, ...body } = options
    await this.#transport.json({
      method: 'POST',
      path: `${this.#path}/reset`,
      ...(Object.keys(body).length === 0 ? {} : { json: body }),
      signal,
    })
  }

  /** Counts the rows and bytes that the branch stores itself, and that it inherits. */
  stats(options: CallOptions = {}): Promise<BranchStats> {
    return this.#read(`${this.#path}/stats`, options)
  }

  /** Reads the schema. */
  async schema(options: CallOptions = {}): Promise<SchemaDefinition> {
    return (await this.get(options)).schema
  }

  /** Returns the operations that turn the schema of the branch into the given one. */
  async compareSchema(
    schema: SchemaDefinition,
    options: CallOptions = {},
  ): Promise<readonly SchemaOperation[]> {
    const { edits } = await this.#transport.json<{
      edits: { operations: readonly SchemaOperation[] }
    }>({
      method: 'POST',
      path: `${this.#path}/schema/compare`,
      json: { schema },
      isRead: true,
      signal: options.signal,
    })
    return edits.operations
  }

  /** Applies schema operations as one transaction. */
  applySchema(
    operations: readonly SchemaOperation[],
    options: { readonly allowDataLoss?: boolean } & CallOptions = {},
  ): Promise<{ readonly migrationID: string; readonly status: string }> {
    const { allowDataLoss, signal } = options
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/schema/apply`,
      json: { edits: { operations }, ...(allowDataLoss === undefined ? {} : { allowDataLoss }) },
      signal,
    })
  }

  /** Iterates over the migrations of the branch, newest first. */
  async *migrations(options: CallOptions = {}): AsyncIterableIterator<Migration> {
    for (let after: string | undefined; ; ) {
      const { logs, meta } = await this.#transport.json<{
        logs: readonly Migration[]
        meta: { cursor: string; more: boolean }
      }>({
        method: 'POST',
        path: `${this.#path}/schema/history`,
        json: { page: { size: MIGRATIONS_PAGE_SIZE, ...(after === undefined ? {} : { after }) } },
        isRead: true,
        signal: options.signal,
      })
      yield* logs
      if (!meta.more) return
      after = meta.cursor
    }
  }

  #read<Answer>(path: string, { signal }: CallOptions): Promise<Answer> {
    return this.#transport.json({ method: 'GET', path, isRead: true, signal })
  }

  #change(action: 'merge' | 'pull', options: object & CallOptions): Promise<MergeResult> {
    const { signal, ...body } = options
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/${action}`,
      json: body,
      signal,
    })
  }
}
