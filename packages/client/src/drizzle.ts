import {
  Column,
  createTableRelationsHelpers,
  DefaultLogger,
  type DrizzleConfig,
  extractTablesRelationalConfig,
  is,
  type Query,
  type TablesRelationalConfig,
} from 'drizzle-orm'
import type { BatchItem, BatchResponse } from 'drizzle-orm/batch'
import { PgDatabase, PgDialect, type PreparedQueryConfig } from 'drizzle-orm/pg-core'
import {
  type PgRemoteQueryResultHKT,
  PgRemoteSession,
  PreparedQuery,
  type RemoteCallback,
} from 'drizzle-orm/pg-proxy'
import { interactiveTransaction, type SqlBranch } from './orm.js'
import type { SqlArrays, SqlStatement } from './sql.js'

/** A database of Drizzle on a branch. */
export class OffshootDatabase<
  Schema extends Record<string, unknown> = Record<string, never>,
> extends PgDatabase<PgRemoteQueryResultHKT, Schema> {
  readonly #branch: SqlBranch

  constructor(
    branch: SqlBranch,
    ...args: ConstructorParameters<
      typeof PgDatabase<PgRemoteQueryResultHKT, Schema, TablesRelationalConfig>
    >
  ) {
    // The base class computes the relational configuration from the schema, but has no type for it here.
    super(...(args as ConstructorParameters<typeof PgDatabase<PgRemoteQueryResultHKT, Schema>>))
    this.#branch = branch
  }

  /**
   * Runs queries in order as one transaction: all of them or none. Returns the result of each.
   *
   * @example
   * ```ts
   * import { drizzle } from '@offshoot/client/drizzle'
   * import { pgTable, text } from 'drizzle-orm/pg-core'
   *
   * const users = pgTable('users', { id: text().primaryKey(), email: text().notNull() })
   * const db = drizzle(client.branch())
   * const [, everyone] = await db.batch([
   *   db.insert(users).values({ id: 'grace', email: 'grace@example.com' }),
   *   db.select().from(users),
   * ])
   * ```
   */
  async batch<Item extends BatchItem<'pg'>, const Items extends readonly [Item, ...Item[]]>(
    queries: Items,
  ): Promise<BatchResponse<Items>> {
    const collected = queries.map((query) => new CollectedQuery(query))
    const statements = await Promise.all(collected.map(({ statement }) => statement))
    const sent = collected.filter((_, index) => statements[index] !== undefined)
    const results = await this.#branch.sql.arrays(
      statements.filter((statement) => statement !== undefined),
    )
    for (const [index, query] of sent.entries()) query.answer(results[index] as SqlArrays)
    const answers = await Promise.all(collected.map(({ outcome }) => outcome))
    return answers as unknown as BatchResponse<Items>
  }
}

/**
 * Creates a database of Drizzle on a branch.
 *
 * @example
 * ```ts
 * import { drizzle } from '@offshoot/client/drizzle'
 * import { eq } from 'drizzle-orm'
 * import { pgTable, text } from 'drizzle-orm/pg-core'
 *
 * const users = pgTable('users', { id: text().primaryKey(), email: text().notNull() })
 * const db = drizzle(client.branch())
 * const [ada] = await db.select().from(users).where(eq(users.id, 'ada'))
 * ```
 */
export function drizzle<Schema extends Record<string, unknown> = Record<string, never>>(
  branch: SqlBranch,
  config: DrizzleConfig<Schema> = {},
): OffshootDatabase<Schema> {
  const dialect = new PgDialect({ ...(config.casing && { casing: config.casing }) })
  const logger = config.logger === true ? new DefaultLogger() : config.logger || undefined
  const relational = config.schema && relationalSchema(config.schema)
  const session = new OffshootSession<Schema>(branch, dialect, relational, {
    ...(logger && { logger }),
    ...(config.cache && { cache: config.cache }),
  })
  return new OffshootDatabase<Schema>(branch, dialect, session, relational)
}

function relationalSchema<Schema extends Record<string, unknown>>(fullSchema: Schema) {
  const { tables, tableNamesMap } = extractTablesRelationalConfig(
    fullSchema,
    createTableRelationsHelpers,
  )
  return { fullSchema, schema: tables as TablesRelationalConfig, tableNamesMap }
}

const INSTEAD = 'Use db.batch([...]): it runs queries as one transaction.'

class OffshootSession<Schema extends Record<string, unknown>> extends PgRemoteSession<
  Schema,
  TablesRelationalConfig
> {
  readonly #run: RemoteCallback
  readonly #options: NonNullable<ConstructorParameters<typeof PgRemoteSession>[3]>

  constructor(
    branch: SqlBranch,
    dialect: PgDialect,
    schema: ConstructorParameters<typeof PgRemoteSession<Schema, TablesRelationalConfig>>[2],
    options: NonNullable<ConstructorParameters<typeof PgRemoteSession>[3]>,
  ) {
    const run: RemoteCallback = async (statement, params, method) => {
      const [result] = await branch.sql.arrays([{ statement, params }])
      return { rows: rowsOf(result as SqlArrays, method) }
    }
    super(run, dialect, schema, options)
    this.#run = run
    this.#options = options
  }

  override prepareQuery<Config extends PreparedQueryConfig>(
    ...args: Parameters<PgRemoteSession<Schema, TablesRelationalConfig>['prepareQuery']>
  ): PreparedQuery<Config> {
    const [query, fields, , isArrayMode, mapper, metadata, cacheConfig] = args
    const { logger = SILENT, cache } = this.#options
    return new OffshootQuery<Config>(
      this.#run,
      query.sql,
      query.params,
      query.typings,
      logger,
      cache as never,
      metadata,
      cacheConfig,
      fields,
      isArrayMode,
      mapper as never,
    )
  }

  override async transaction(): Promise<never> {
    throw interactiveTransaction(INSTEAD)
  }
}

const SILENT = { logQuery: () => undefined }

/** A query whose statement can be sent with those of others. */
class OffshootQuery<Config extends PreparedQueryConfig> extends PreparedQuery<Config> {
  #run: RemoteCallback

  constructor(...args: ConstructorParameters<typeof PreparedQuery<Config>>) {
    const [run, sql, params, typings, logger, cache, metadata, cacheConfig, fields, ...rest] = args
    const runNow: RemoteCallback = async (...call) => {
      const { rows } = await this.#run(...call)
      return { rows: fields === undefined ? rows : rows.map((row) => withJsonText(row, fields)) }
    }
    super(runNow, sql, params, typings, logger, cache, metadata, cacheConfig, fields, ...rest)
    this.#run = run
  }

  executeWith(run: RemoteCallback): Promise<Config['execute']> {
    this.#run = run
    return this.execute()
  }
}

/**
 * Drizzle parses every text in a JSON column, also one that the service has parsed already. A JSON value
 * that is a text is therefore written as JSON again.
 */
function withJsonText(row: unknown, fields: readonly { readonly field: unknown }[]): unknown {
  if (!Array.isArray(row)) return row
  return row.map((value, index) => {
    const field = fields[index]?.field
    const isJson = is(field, Column) && field.dataType === 'json'
    return isJson && typeof value === 'string' ? JSON.stringify(value) : value
  })
}

/** One query of a batch: its statement when Drizzle has built it, and its outcome. */
class CollectedQuery {
  /** The statement, or undefined if a cache has the result. */
  readonly statement: Promise<SqlStatement | undefined>
  readonly outcome: Promise<unknown>
  readonly #result = deferred<SqlArrays>()

  constructor(query: unknown) {
    const prepared = (query as { _prepare(): unknown })._prepare()
    if (!(prepared instanceof OffshootQuery)) {
      const { sql, params } = (prepared as { getQuery(): Query }).getQuery()
      this.statement = Promise.resolve({ statement: sql, params })
      this.outcome = this.#result.promise.then((result) => rowsOf(result, 'execute'))
      return
    }
    const built = deferred<SqlStatement>()
    this.outcome = prepared.executeWith(async (statement, params, method) => {
      built.resolve({ statement, params })
      return { rows: rowsOf(await this.#result.promise, method) }
    })
    this.statement = Promise.race([built.promise, this.outcome.then(() => undefined)])
  }

  answer(result: SqlArrays): void {
    this.#result.resolve(result)
  }
}

/** Statements of the query builder have rows as arrays, and raw SQL has objects. */
function rowsOf({ rows, columns }: SqlArrays, method: 'all' | 'execute'): unknown[] {
  if (method === 'all') return rows as unknown[]
  return rows.map((row) => Object.fromEntries(columns.map(({ name }, index) => [name, row[index]])))
}

function deferred<Value>(): { promise: Promise<Value>; resolve: (value: Value) => void } {
  let resolve: (value: Value) => void = () => undefined
  const promise = new Promise<Value>((accept) => {
    resolve = accept
  })
  return { promise, resolve }
}
