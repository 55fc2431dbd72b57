import {
  type ColumnMetadata,
  type ColumnType,
  type Compilable,
  type CompiledQuery,
  type DatabaseConnection,
  type DatabaseIntrospector,
  type Dialect,
  type Driver,
  type Generated,
  type Kysely,
  PostgresAdapter,
  PostgresQueryCompiler,
  type QueryResult,
  type TableMetadata,
} from 'kysely'
import type { ColumnDefinition, ColumnType as OffshootType, SchemaDefinition } from './api.js'
import { interactiveTransaction, type SqlBranch } from './orm.js'
import type { Computed, DateTime, Decimal, File, Files, Json, Link, WithDefault } from './schema.js'
import type { SqlArrays } from './sql.js'

/** A branch that can describe its tables. */
export interface KyselyBranch extends SqlBranch {
  schema(): Promise<SchemaDefinition>
}

export interface OffshootDialectOptions {
  readonly branch: KyselyBranch
}

/**
 * The dialect of Kysely for a branch.
 *
 * @example
 * ```ts
 * import { Kysely } from 'kysely'
 * import { type KyselyDatabase, OffshootDialect } from '@offshoot/client/kysely'
 *
 * const db = new Kysely<KyselyDatabase<Shop>>({
 *   dialect: new OffshootDialect({ branch: client.branch() }),
 * })
 * const users = await db.selectFrom('users').select(['id', 'email']).execute()
 * ```
 */
export class OffshootDialect implements Dialect {
  readonly #branch: KyselyBranch

  constructor(options: OffshootDialectOptions) {
    this.#branch = options.branch
  }

  createDriver(): Driver {
    return new OffshootDriver(this.#branch)
  }

  createQueryCompiler(): PostgresQueryCompiler {
    return new PostgresQueryCompiler()
  }

  createAdapter(): PostgresAdapter {
    return new OffshootAdapter()
  }

  createIntrospector(_db: Kysely<unknown>): DatabaseIntrospector {
    return new OffshootIntrospector(this.#branch)
  }
}

type Results<Queries extends readonly Compilable<unknown>[]> = {
  readonly [Index in keyof Queries]: Queries[Index] extends Compilable<infer Row>
    ? readonly Row[]
    : never
}

/**
 * Runs queries in order as one transaction: all of them or none. Returns the rows of each.
 *
 * @example
 * ```ts
 * import { Kysely } from 'kysely'
 * import { type KyselyDatabase, OffshootDialect, runBatch } from '@offshoot/client/kysely'
 *
 * const branch = client.branch()
 * const db = new Kysely<KyselyDatabase<Shop>>({ dialect: new OffshootDialect({ branch }) })
 * const [, users] = await runBatch(branch, [
 *   db.insertInto('users').values({ id: 'grace', email: 'grace@example.com' }),
 *   db.selectFrom('users').select('id').orderBy('id'),
 * ])
 * ```
 */
export async function runBatch<const Queries extends readonly Compilable<unknown>[]>(
  branch: SqlBranch,
  queries: Queries,
): Promise<Results<Queries>> {
  const compiled = queries.map((query) => query.compile())
  const results = await branch.sql.arrays(compiled.map(toStatement))
  return results.map(toRows) as unknown as Results<Queries>
}

const INSTEAD = 'Use runBatch of @offshoot/client/kysely: it runs queries as one transaction.'
const NO_DDL = 'SQL cannot change the schema of a branch. Use `offshoot schema apply` instead.'

class OffshootDriver implements Driver {
  readonly #connection: DatabaseConnection

  constructor(branch: KyselyBranch) {
    this.#connection = new OffshootConnection(branch)
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#connection
  }

  async beginTransaction(): Promise<void> {
    throw interactiveTransaction(INSTEAD)
  }

  async commitTransaction(): Promise<void> {
    throw interactiveTransaction(INSTEAD)
  }

  async rollbackTransaction(): Promise<void> {
    throw interactiveTransaction(INSTEAD)
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {}
}

class OffshootConnection implements DatabaseConnection {
  readonly #branch: KyselyBranch

  constructor(branch: KyselyBranch) {
    this.#branch = branch
  }

  async executeQuery<Row>(query: CompiledQuery): Promise<QueryResult<Row>> {
    const [result] = await this.#branch.sql.arrays([toStatement(query)])
    if (result === undefined) throw new Error('the service answered without a result')
    const isWrite = WRITES.has(query.query.kind) || result.columns.length === 0
    return {
      rows: toRows(result) as Row[],
      ...(isWrite ? { numAffectedRows: BigInt(result.total) } : {}),
    }
  }

  /** The service sends a result as a whole, so there is one part. */
  async *streamQuery<Row>(query: CompiledQuery): AsyncIterableIterator<QueryResult<Row>> {
    yield await this.executeQuery<Row>(query)
  }
}

class OffshootAdapter extends PostgresAdapter {
  override get supportsTransactionalDdl(): boolean {
    return false
  }

  override async acquireMigrationLock(): Promise<void> {
    throw new Error(NO_DDL)
  }

  override async releaseMigrationLock(): Promise<void> {
    throw new Error(NO_DDL)
  }
}

class OffshootIntrospector implements DatabaseIntrospector {
  readonly #branch: KyselyBranch

  constructor(branch: KyselyBranch) {
    this.#branch = branch
  }

  async getSchemas(): Promise<[]> {
    return []
  }

  async getTables(): Promise<TableMetadata[]> {
    const { tables } = await this.#branch.schema()
    const idTypes = new Map(tables.map(({ name, idType = 'string' }) => [name, idType]))
    /** In SQL, a link is the id that it leads to. */
    const withIdType = (column: ColumnDefinition): ColumnDefinition => ({
      ...column,
      type: idTypes.get(column.link?.table ?? '') ?? column.type,
    })
    return tables.map(({ name, idType = 'string', columns }) => ({
      name,
      isView: false,
      columns: [
        describeColumn({ name: 'id', type: idType, notNull: true }, { hasDefault: true }),
        ...columns
          .flatMap((column) => flatten(column))
          .map((column) => describeColumn(withIdType(column))),
        ...METADATA.map((column) => describeColumn(column, { hasDefault: true })),
      ],
    }))
  }

  async getMetadata(): Promise<{ tables: TableMetadata[] }> {
    return { tables: await this.getTables() }
  }
}

const WRITES: ReadonlySet<string> = new Set([
  'InsertQueryNode',
  'UpdateQueryNode',
  'DeleteQueryNode',
])

const METADATA: readonly ColumnDefinition[] = [
  { name: 'service.version', type: 'int', notNull: true },
  { name: 'service.createdAt', type: 'datetime', notNull: true },
  { name: 'service.updatedAt', type: 'datetime', notNull: true },
]

const SQL_TYPES: Readonly<Record<Exclude<OffshootType, 'object'>, string>> = {
  bool: 'bool',
  int: 'int8',
  float: 'float8',
  string: 'text',
  text: 'text',
  email: 'text',
  link: 'text',
  multiple: '_text',
  vector: '_float4',
  datetime: 'timestamptz',
  decimal: 'numeric',
  date: 'date',
  time: 'time',
  uuid: 'uuid',
  enum: 'text',
  json: 'jsonb',
  file: 'jsonb',
  'file[]': 'jsonb',
}

/** In SQL, the columns of an object are columns of the table, with dots in their names. */
function flatten(column: ColumnDefinition): ColumnDefinition[] {
  if (column.type !== 'object') return [column]
  return (column.columns ?? []).flatMap((inner) =>
    flatten({ ...inner, name: `${column.name}.${inner.name}` }),
  )
}

/** The type options by which a column gets a value that an insert leaves out. */
const DEFAULTS = ['defaultValue', 'generate', 'computed'] as const

function describeColumn(
  { name, type, notNull = false, withoutZone, ...definition }: ColumnDefinition,
  { hasDefault = DEFAULTS.some((each) => definition[each] !== undefined) } = {},
): ColumnMetadata {
  const sqlType = type === 'object' ? 'jsonb' : SQL_TYPES[type]
  return {
    name,
    dataType: withoutZone ? 'timestamp' : sqlType,
    isNullable: !notNull,
    hasDefaultValue: hasDefault,
    isAutoIncrementing: false,
  }
}

function toStatement({ sql, parameters }: CompiledQuery) {
  return { statement: sql, params: parameters }
}

/** Rows as objects. Points in time are dates, as with the driver `pg`. */
function toRows({ rows, columns }: SqlArrays): Record<string, unknown>[] {
  return rows.map((row) =>
    Object.fromEntries(
      columns.map(({ name, type }, index) => {
        const value = row[index]
        if (typeof value !== 'string') return [name, value]
        if (type === 'timestamptz') return [name, new Date(value)]
        // A session over HTTP has the time zone UTC.
        return [name, type === 'timestamp' ? new Date(`${value}Z`) : value]
      }),
    ),
  )
}

type Present<Column> = NonNullable<Column>
type OrNull<Column, Type> = null extends Column ? Type | null : Type

/** The type of the ids of a table. */
type IdOf<Table, SqlIds> = Table extends keyof SqlIds ? SqlIds[Table] : string

/** The type of a column for Kysely. `Select` is what a query returns, and `Write` what it accepts. */
type KyselyColumn<Column, SqlIds> =
  Present<Column> extends WithDefault<infer Inner>
    ? Generated<PlainColumn<Inner, SqlIds>>
    : Present<Column> extends Computed<infer Inner>
      ? ColumnType<OrNull<Column, PlainColumn<Inner, SqlIds>>, never, never>
      : Present<Column> extends DateTime
        ? ColumnType<
            OrNull<Column, Date>,
            OrNull<Column, Date | string>,
            OrNull<Column, Date | string>
          >
        : Present<Column> extends File | Files
          ? ColumnType<unknown, never, never>
          : OrNull<Column, PlainColumn<Present<Column>, SqlIds>>

type PlainColumn<Column, SqlIds> =
  Column extends Link<infer Table>
    ? IdOf<Table, SqlIds>
    : Column extends DateTime
      ? Date
      : Column extends Decimal
        ? number | string
        : Column extends Json<infer Value>
          ? Value
          : Column

/** Names of columns that have a column of their own in SQL. Those of an object have several. */
type FlatKeys<Columns> = {
  [Key in keyof Columns]-?: Present<Columns[Key]> extends
    | Link<string>
    | DateTime
    | Decimal
    | Json
    | File
    | Files
    | WithDefault<unknown>
    | Computed<unknown>
    | readonly unknown[]
    | string
    | number
    | boolean
    ? Key
    : never
}[keyof Columns]

/**
 * The tables of a schema in the form that Kysely expects. Columns inside of objects are left out: SQL
 * knows them by names with dots, which Kysely takes for the name of a table and a column. `SqlIds` has the tables whose ids are
 * numbers in SQL. `offshoot codegen` writes it.
 */
export type KyselyDatabase<Schema, SqlIds = Record<never, never>> = {
  [Table in keyof Schema]: { id: Generated<IdOf<Table, SqlIds>> } & {
    [Key in FlatKeys<Schema[Table]>]: KyselyColumn<Schema[Table][Key], SqlIds>
  }
}
