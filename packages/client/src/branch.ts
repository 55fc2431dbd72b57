import type {
  BranchDetails,
  BranchLife,
  BranchStats,
  Checkpoint,
  CheckpointSchedule,
  ConflictOptions,
  Difference,
  LogEntry,
  LogOptions,
  MergeConflict,
  MergeOptions,
  MergeResult,
  Migration,
  OperationInfo,
  RecordChange,
  RevertStep,
  SchemaDefinition,
  SchemaOperation,
  SchemaPreview,
} from './api.js'
import { type CallOptions, type LongCallOptions, segment, type Transport } from './http.js'
import { readLog } from './log.js'
import type { TableName } from './schema.js'
import { createSqlRunner, type SqlRunner } from './sql.js'
import { Table } from './table.js'
import { type Operation, runTransaction, type TransactionResults } from './transaction.js'

export interface ForkOptions extends BranchLife {
  /** Forks a checkpoint instead of the present state: its id, its name, or a time at or after it. */
  readonly at?: string
  /** `false`: the branch gets the schema of its source, but no rows. */
  readonly data?: boolean
  readonly metadata?: Readonly<Record<string, unknown>>
}

/** One changed record, with its table. */
export interface Change extends RecordChange {
  readonly table: string
}

export interface DifferenceOptions {
  /** `base` (the default), `fork`, `source`, or the name of a related branch. */
  readonly against?: string
  /** Compares with a checkpoint of the branch `against`, which is the branch itself by default. */
  readonly againstAt?: string
  /** Compares this table only. */
  readonly table?: string
}

/** Checkpoints per request. */
const CHECKPOINTS_PAGE_SIZE = 200
/** Changed records per request when all changes are read. */
const CHANGES_PAGE_SIZE = 200
const MIGRATIONS_PAGE_SIZE = 100
/** Conflicts per request when all of them are read. Each request compares the branches again. */
const CONFLICTS_PAGE_SIZE = 1000

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
   * Runs operations as one transaction: all of them or none.
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

  /**
   * Reads the branch with its schema.
   *
   * @example
   * ```ts
   * const { startedFrom, schema } = await client.branch('dev').get()
   * console.log(startedFrom?.branchName, schema.tables.length)
   * ```
   */
  get(options: CallOptions = {}): Promise<BranchDetails> {
    return this.#read(this.#path, options)
  }

  /**
   * Creates a branch with the rows of this one. It takes milliseconds, whatever the size.
   *
   * @example
   * ```ts
   * const preview = await client.branch('main').fork('preview', { ttl: 86_400 })
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

  /**
   * Changes expiry and protection. Null removes an expiry.
   *
   * @example
   * ```ts
   * await client.branch('dev').update({ ttl: 86_400 })
   * await client.branch('dev').update({ ttl: null, protected: false })
   * ```
   */
  update(
    life: {
      readonly expiresAt?: string | null
      readonly ttl?: number | null
      readonly protected?: boolean
      readonly requiredApprovals?: number
      readonly checkpoints?: CheckpointSchedule | null
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

  /**
   * Deletes the branch.
   *
   * @example
   * ```ts
   * await client.branch('dev').delete()
   * ```
   */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'DELETE', path: this.#path, signal: options.signal })
  }

  /**
   * Reads a page of the difference: the schema operations, and the first changes of each table.
   *
   * @example
   * ```ts
   * const { schema, tables } = await client.branch('dev').diff({ size: 20 })
   * for (const { name, inserted, updated, deleted } of tables) {
   *   console.log(name, inserted, updated, deleted)
   * }
   * ```
   */
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
    options: MergeOptions & { readonly into?: string } & LongCallOptions = {},
  ): Promise<MergeResult> {
    return this.#change('merge', options)
  }

  /**
   * Merges the source of the branch, or another branch, into it.
   *
   * @example
   * ```ts
   * const { merged } = await client.branch('dev').pull()
   * ```
   */
  pull(
    options: MergeOptions & { readonly from?: string } & LongCallOptions = {},
  ): Promise<MergeResult> {
    return this.#change('pull', options)
  }

  /**
   * Iterates over all conflicts that a merge of the branch would have. Nothing is merged.
   *
   * @example
   * ```ts
   * import { type Resolution, resolutionOf } from '@offshoot/client'
   *
   * const dev = client.branch('dev')
   * const resolutions: Resolution[] = []
   * for await (const conflict of dev.mergeConflicts()) {
   *   if (conflict.kind === 'bothUpdated') resolutions.push(resolutionOf(conflict, 'theirs'))
   * }
   * await dev.merge({ resolutions })
   * ```
   */
  mergeConflicts(
    options: ConflictOptions & { readonly into?: string } & CallOptions = {},
  ): AsyncIterableIterator<MergeConflict> {
    return this.#conflicts('merge', options)
  }

  /**
   * Iterates over all conflicts that a pull would have. Nothing is merged.
   *
   * @example
   * ```ts
   * for await (const { kind, table } of client.branch('dev').pullConflicts()) console.log(kind, table)
   * ```
   */
  pullConflicts(
    options: ConflictOptions & { readonly from?: string } & CallOptions = {},
  ): AsyncIterableIterator<MergeConflict> {
    return this.#conflicts('pull', options)
  }

  /**
   * Takes back a change of the branch, and keeps what came later: an entry of the log, or everything between two
   * checkpoints. Throws `merge_conflict` if the same data was changed since.
   *
   * @example
   * ```ts
   * const main = client.branch('main')
   * const { id: from } = await main.checkpoint()
   * const { id: to } = await main.checkpoint()
   * await main.revert({ from, to })
   * ```
   */
  revert(options: RevertStep & MergeOptions & LongCallOptions): Promise<MergeResult> {
    return this.#change('revert', options)
  }

  /**
   * Iterates over all conflicts that a revert would have. Nothing is changed.
   *
   * @example
   * ```ts
   * const main = client.branch('main')
   * const { id: from } = await main.checkpoint()
   * const { id: to } = await main.checkpoint()
   * for await (const { table } of main.revertConflicts({ from, to })) console.log(table)
   * ```
   */
  revertConflicts(
    options: RevertStep & ConflictOptions & CallOptions,
  ): AsyncIterableIterator<MergeConflict> {
    return this.#conflicts('revert', options)
  }

  /**
   * Discards all changes of the branch: it becomes a fresh fork of its source, or of `to`.
   *
   * @example
   * ```ts
   * await client.branch('dev').reset()
   * ```
   *
   * With `at`, it goes back to a checkpoint of itself, or of `to`.
   */
  async reset(
    options: { readonly to?: string; readonly at?: string } & CallOptions = {},
  ): Promise<void> {
    const { signal, ...body } = options
    await this.#transport.json({
      method: 'POST',
      path: `${this.#path}/reset`,
      ...(Object.keys(body).length === 0 ? {} : { json: body }),
      isOnce: true,
      signal,
    })
  }

  /**
   * The branch as it was at a checkpoint: its id, its name, or a time at or after it. It can be read in every way, and not
   * written. No request is sent.
   *
   * @example
   * ```ts
   * await client.branch('main').checkpoint({ name: 'monday' })
   * const records = await client.branch('main').at('monday').table('users').query().all()
   * console.log(records.length)
   * ```
   */
  at(at: string): Branch<Schema> {
    return new Branch<Schema>(this.#transport.withQuery({ at }), this.#databasePath, this.name)
  }

  /**
   * Makes a checkpoint: the whole branch, schema and rows, as it is now. It costs as much as a fork.
   *
   * @example
   * ```ts
   * const { id } = await client.branch('main').checkpoint({ name: 'before-import', note: 'prices' })
   * await client.branch('main').reset({ at: id })
   * ```
   */
  checkpoint(
    options: { readonly name?: string; readonly note?: string } & CallOptions = {},
  ): Promise<Checkpoint> {
    const { signal, ...json } = options
    return this.#transport.json({ method: 'POST', path: `${this.#path}/checkpoints`, json, signal })
  }

  /**
   * Lists the operations of the branch that are running or have ended lately, newest first, without their results. Builds of
   * indexes are among them. `client.account.cancelOperation` cancels one.
   *
   * @example
   * ```ts
   * for (const { kind, state, progress } of await client.branch('main').operations()) {
   *   console.log(kind, state, progress.step)
   * }
   * ```
   */
  async operations(options: CallOptions = {}): Promise<readonly OperationInfo[]> {
    const { operations } = await this.#read<{ operations: readonly OperationInfo[] }>(
      `${this.#path}/operations`,
      options,
    )
    return operations
  }

  /**
   * Iterates over the checkpoints of the branch, newest first.
   *
   * @example
   * ```ts
   * for await (const { name, createdAt } of client.branch('main').checkpoints()) {
   *   console.log(name, createdAt)
   * }
   * ```
   */
  async *checkpoints(options: CallOptions = {}): AsyncIterableIterator<Checkpoint> {
    for (let after: string | undefined; ; ) {
      const { checkpoints, meta } = await this.#transport.json<{
        checkpoints: readonly Checkpoint[]
        meta: { cursor?: string; more: boolean }
      }>({
        method: 'GET',
        path: `${this.#path}/checkpoints`,
        query: { size: CHECKPOINTS_PAGE_SIZE, ...(after === undefined ? {} : { after }) },
        isRead: true,
        signal: options.signal,
      })
      yield* checkpoints
      if (!meta.more) return
      after = meta.cursor
    }
  }

  /**
   * Changes the name or the note of a checkpoint.
   *
   * @example
   * ```ts
   * const { id } = await client.branch('main').checkpoint()
   * await client.branch('main').updateCheckpoint(id, { name: 'spring' })
   * ```
   */
  updateCheckpoint(
    checkpoint: string,
    fields: { readonly name?: string; readonly note?: string | null },
    options: CallOptions = {},
  ): Promise<Checkpoint> {
    const path = `${this.#path}/checkpoints/${segment(checkpoint)}`
    return this.#transport.json({ method: 'PATCH', path, json: fields, signal: options.signal })
  }

  /**
   * Deletes a checkpoint, by its id or its name.
   *
   * @example
   * ```ts
   * const { id } = await client.branch('main').checkpoint()
   * await client.branch('main').deleteCheckpoint(id)
   * ```
   */
  async deleteCheckpoint(checkpoint: string, options: CallOptions = {}): Promise<void> {
    const path = `${this.#path}/checkpoints/${segment(checkpoint)}`
    await this.#transport.json({ method: 'DELETE', path, signal: options.signal })
  }

  /**
   * Iterates over what happened to the branch, newest first: forks, merges, resets, migrations, bulk loads.
   *
   * @example
   * ```ts
   * for await (const { kind, at, email } of client.branch('main').log()) console.log(at, kind, email)
   * ```
   */
  log(options: LogOptions & CallOptions = {}): AsyncIterableIterator<LogEntry> {
    return readLog(this.#transport, `${this.#path}/log`, options)
  }

  /**
   * Counts the rows and bytes that the branch stores itself, and that it inherits.
   *
   * @example
   * ```ts
   * const { rows } = await client.branch('dev').stats()
   * console.log(rows.owned, rows.inherited)
   * ```
   */
  stats(options: CallOptions = {}): Promise<BranchStats> {
    return this.#read(`${this.#path}/stats`, options)
  }

  /**
   * Reads the schema.
   *
   * @example
   * ```ts
   * const { tables } = await client.branch().schema()
   * console.log(tables.map(({ name }) => name))
   * ```
   */
  async schema(options: CallOptions = {}): Promise<SchemaDefinition> {
    return (await this.get(options)).schema
  }

  /**
   * Returns the operations that turn the schema of the branch into the given one.
   *
   * @example
   * ```ts
   * const schema = await client.branch('dev').schema()
   * const operations = await client.branch('main').compareSchema(schema)
   * ```
   */
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

  /**
   * Returns the schema that operations would lead to, and the values that would be lost. Nothing is
   * changed.
   *
   * @example
   * ```ts
   * const { updated, dataLoss } = await client.branch('dev').previewSchema([
   *   { addTable: { table: 'orders' } },
   * ])
   * console.log(updated.tables.length, dataLoss)
   * ```
   */
  previewSchema(
    operations: readonly SchemaOperation[],
    options: CallOptions = {},
  ): Promise<SchemaPreview> {
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/schema/preview`,
      json: { edits: { operations } },
      isRead: true,
      signal: options.signal,
    })
  }

  /**
   * Applies schema operations as one transaction.
   *
   * @example
   * ```ts
   * await client.branch('dev').applySchema([
   *   { addTable: { table: 'orders' } },
   *   { addColumn: { table: 'orders', column: { name: 'total', type: 'float' } } },
   * ])
   * ```
   */
  applySchema(
    operations: readonly SchemaOperation[],
    options: { readonly allowDataLoss?: boolean } & LongCallOptions = {},
  ): Promise<{ readonly migrationID: string; readonly status: string }> {
    const { allowDataLoss, signal, onProgress } = options
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/schema/apply`,
      json: { edits: { operations }, ...(allowDataLoss === undefined ? {} : { allowDataLoss }) },
      signal,
      onProgress,
    })
  }

  /**
   * Iterates over the migrations of the branch, newest first.
   *
   * @example
   * ```ts
   * for await (const { id, operations } of client.branch().migrations()) {
   *   console.log(id, operations.length)
   * }
   * ```
   */
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

  async *#conflicts(
    action: 'merge' | 'pull' | 'revert',
    options: ConflictOptions & CallOptions,
  ): AsyncIterableIterator<MergeConflict> {
    for (let after: string | undefined; ; ) {
      const page = { size: CONFLICTS_PAGE_SIZE, ...(after === undefined ? {} : { after }) }
      const { conflicts, cursor } = await this.#change(action, { ...options, dryRun: true, page })
      yield* conflicts
      if (cursor === undefined) return
      after = cursor
    }
  }

  #change(
    action: 'merge' | 'pull' | 'revert',
    options: MergeOptions & LongCallOptions,
  ): Promise<MergeResult> {
    const { signal, onProgress, ...body } = options
    return this.#transport.json({
      method: 'POST',
      path: `${this.#path}/${action}`,
      json: body,
      ...(options.dryRun === true ? { isRead: true } : { isOnce: true }),
      signal,
      onProgress,
    })
  }
}
