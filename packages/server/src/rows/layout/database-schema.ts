import type { Database, Queryable } from '../../postgres/database.js'
import { SCHEMA_PREFIX, schemaIn, tableIn } from '../../postgres/place.js'
import { dropReader } from '../../postgres/reader-role.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import { removeEach, removeStorage } from './storage-hold.js'

/*
 * The rows of a database are in a PostgreSQL schema of its own: heaps, pasts, layers, and tables that hold rows for
 * the time of a request. So PostgreSQL keeps databases apart, and the rows of one can be dropped, copied
 * and placed together. The catalogue and the gates, which every request locks, stay in schemas of the instance.
 */

/** Returns the name of the schema with the rows of a database, unquoted. */
export const schemaName = (databaseId: string): string => `${SCHEMA_PREFIX}${databaseId}`

/** Matches the names of these schemas in PostgreSQL's catalogue. */
const isDatabaseSchema = (name: Sql): Sql => sql`${name} ~ ${`^${SCHEMA_PREFIX}[0-9]{1,18}$`}`

const ANSWERS = 'idempotency_keys'

/** The beginning of the names of tables with staged merges. The id of a hidden branch follows. */
export const STAGE_PREFIX = 'merge_'

const stagePrefix = (schema: string): string => `restore_${schema.slice(SCHEMA_PREFIX.length)}_`

/** The schema of one database. */
export class DatabaseSchema {
  readonly #databaseId: string

  constructor(databaseId: string) {
    this.#databaseId = databaseId
  }

  /** Finds the database with kept answers that has the next id. */
  static async findAnswering(database: Queryable, afterId: string): Promise<string | undefined> {
    const [row] = await database.query<{ databaseId: string }>(sql`
      select d.id::text as "databaseId"
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace,
        lateral (select substr(n.nspname, ${SCHEMA_PREFIX.length + 1})::bigint as id) d
      where c.relname = ${ANSWERS} and c.relkind = 'r' and ${isDatabaseSchema(sql`n.nspname`)}
        and d.id > ${afterId}::bigint and ${database.server.boundRowBytes(sql`c.oid`)} > 0
      order by d.id
      limit 1`)
    return row?.databaseId
  }

  /** Unquoted. */
  get name(): string {
    return schemaName(this.#databaseId)
  }

  /**
   * The table with the answers to requests with an idempotency key. It is beside the rows, because an answer is kept by
   * the transaction that writes them.
   */
  get answers(): Sql {
    return tableIn(this.name, ANSWERS)
  }

  /** Creates the schema of a new database. */
  async create(transaction: Queryable): Promise<void> {
    const { answers } = this
    await transaction.server.createSchema(transaction, this.name)
    await transaction.query(sql`
      create table ${answers} (
        hash bytea primary key,
        request_hash bytea not null,
        -- Null: the answer is no longer kept, but its request must not be executed again.
        body text,
        -- Bytes of the answer, and of its entry.
        size integer not null,
        created_at timestamptz not null default now()
      )`)
    await transaction.query(sql`create index on ${answers} (created_at)`)
    await transaction.query(sql`create index on ${answers} (created_at) where body is not null`)
  }

  /**
   * Keeps the collector from dropping the schema until the transaction ends, also while PostgreSQL
   * waits for a standby in its commit. Fails if the collector has begun: it drops this table first.
   */
  async lock(transaction: Queryable): Promise<void> {
    await transaction.query(sql`lock table ${this.answers} in access share mode`)
  }

  /** Returns the table that has something of the database while it is restored. */
  restoreStage(name: string): { readonly schema: string; readonly name: string } {
    return { schema: 'offshoot_work', name: `${stagePrefix(this.name)}${name}` }
  }

  /** Drops the tables of staged merges whose branch no longer exists, because their process has crashed. */
  async dropLostStages(database: Queryable): Promise<void> {
    const lost = await database.query<{ name: string }>(sql`
      select c.relname as name
      from pg_class c
      where c.relnamespace = to_regnamespace(${this.name})
        and c.relkind = 'r'
        -- A range of names, so that an index finds them among the tables of all databases.
        and c.relname >= ${STAGE_PREFIX} and c.relname < ${`${STAGE_PREFIX}~`}
        and not exists (
          select from offshoot.branches b
          where starts_with(c.relname, ${STAGE_PREFIX} || b.id || '_')
        )`)
    for (const { name } of lost) {
      await database.query(sql`drop table if exists ${tableIn(this.name, name)}`)
    }
  }

  /**
   * Drops the schema of a database that did not get into the catalogue. What cannot be dropped now is left to the
   * collector.
   */
  async dropAbandoned(database: Database): Promise<void> {
    const { name } = this
    for (let isDropping = true; isDropping; ) {
      const [schema] = await database.query(sql`
        select from pg_namespace n where n.nspname = ${name} and ${isAbandoned(sql`n.nspname`)}`)
      isDropping =
        schema !== undefined &&
        (await removeStorage(database, (transaction) => dropSchemaStep(transaction, { name })))
    }
  }
}

/** Schemas that one step drops. */
const STEP_SCHEMAS = 20
/** Tables that one transaction drops, because it locks each of them. */
const STEP_TABLES = 50

/** Matches schemas of databases that are not in the catalogue. */
const isAbandoned = (name: Sql): Sql => sql`
  not exists (select from offshoot.databases d where ${name} = ${SCHEMA_PREFIX} || d.id)
      and not exists (
        select from offshoot.heaps h where ${name} = ${SCHEMA_PREFIX} || h.database_id
      )`

/**
 * Drops schemas of deleted databases, after `collectHeap` has dropped their heaps. Returns whether there may be more.
 */
export async function collectSchema(database: Database): Promise<boolean> {
  const schemas = await database.query<{ name: string }>(sql`
    select n.nspname as name
    from pg_namespace n
    where ${isDatabaseSchema(sql`n.nspname`)} and ${isAbandoned(sql`n.nspname`)}
    -- Schemas that cannot be dropped must not always be the first ones.
    order by random()
    limit ${STEP_SCHEMAS}`)
  return (await removeEach(database, schemas, dropSchemaStep)) > 0
}

/** Drops a schema, or some of its tables if it has many: those of a restore that was interrupted. */
async function dropSchemaStep(
  transaction: Transaction,
  { name: schema }: { name: string },
): Promise<true> {
  const tables = await transaction.query<{ name: string }>(sql`
    select tablename as name
    from pg_tables
    where schemaname = ${schema}
    order by tablename = ${ANSWERS} desc
    limit ${STEP_TABLES}`)
  if (tables.length === STEP_TABLES) {
    const names = tables.map(({ name }) => tableIn(schema, name))
    await transaction.query(sql`drop table if exists ${join(names, ', ')}`)
    return true
  }
  await transaction.query(sql`drop schema if exists ${schemaIn(schema)} cascade`)
  await dropStages(transaction, schema)
  await dropReader(transaction, schema)
  return true
}

/** Drops what an interrupted restore has left of the catalogue of a database. */
async function dropStages(transaction: Queryable, schema: string): Promise<void> {
  const stages = await transaction.query<{ name: string }>(sql`
    select tablename as name
    from pg_tables
    where schemaname = 'offshoot_work' and starts_with(tablename, ${stagePrefix(schema)})`)
  if (stages.length === 0) return
  const names = stages.map(({ name }) => sql`offshoot_work.${ident(name)}`)
  await transaction.query(sql`drop table ${join(names, ', ')}`)
}
