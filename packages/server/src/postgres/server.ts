import type pg from 'pg'
import type { NodeWatch } from './node-watch.js'
import { schemaIn, tableText } from './place.js'
import { ident, join, raw, type Sql, sql } from './sql.js'
import {
  type Call,
  compileSharing,
  compileStatement,
  type Parameter,
  slot,
  type TextRows,
  toCall,
  type toQuery,
} from './statement.js'

/*
 * This file has everything that depends on the kind of server: one PostgreSQL, or a cluster that has the rows of databases
 * on its nodes. Other rooms say what they need, and do not ask which of the two it is.
 */

/** Runs statements: the pool, or one transaction. */
export interface Queryable {
  query<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]>
  readonly server: Server
}

export interface Server {
  /** Whether it has nodes. Only for this room, and for tests. */
  readonly isCluster: boolean

  /** Prepares a new connection. */
  open(client: pg.ClientBase): Promise<void>
  /** Watches connections in use, to notice servers that do not answer. */
  readonly watch: Pick<NodeWatch, 'start' | 'end' | 'requireCoordinator' | 'reset' | 'stop'>
  /** Ends transactions that a crash has left in doubt, as far as possible. */
  recover(): Promise<void>

  /** Runs calls where their tables are. `send` sends them in one round trip. */
  run(client: pg.ClientBase, calls: readonly Call[], send: Send): Promise<TextRows[]>
  /** Runs a query where its tables are. `send` sends it to the server that we are connected to. */
  query<Row>(client: pg.ClientBase, query: Query, send: () => Promise<Row[]>): Promise<Row[]>
  /** Whether queries of a transaction can be sent together. */
  readonly batchesQueries: boolean
  /** A transaction begins or ends that may write both rows and the catalogue. */
  beginControl(client: pg.ClientBase): void
  endControl(client: pg.ClientBase): void
  /** Makes the definitions of a connection concern the server that we are connected to, and no node. */
  readonly stayHere: readonly Sql[]
  /** Begins work that is done again if a crash undoes it. */
  readonly beginRepeatable: readonly Call[]
  /** Returns statements that limit the time for which a transaction waits for each lock. */
  limitLockWait(waitMs: number): Sql[]
  /** Makes calls of a connection for SQL of users run as the role that reads a schema, if there is one. */
  readAs(reader: Reader, calls: readonly Call[]): ReadCalls
  /** Returns a call for the time of the rows that a transaction writes. undefined: it is that of the transaction. */
  rowTime(schema: string): Call | undefined
  /** Whether a query of users can be part of another statement, such as DECLARE. */
  readonly wrapsQueries: boolean
  /** Returns a call that explains a query. `options` are those of EXPLAIN, in parentheses. */
  explain(options: Sql, query: Sql, values: readonly Parameter[]): Call
  /** Whether calls that are sent together are one transaction, although none begins it. */
  readonly joinsCalls: boolean
  /** Whether an error of a COPY tells its cause. */
  readonly explainsCopies: boolean

  /** Creates a schema, if it does not exist. */
  createSchema(transaction: Queryable, name: string): Promise<void>
  /** Runs definitions without parameters, in few round trips. */
  define(transaction: Queryable, statements: readonly Sql[]): Promise<void>
  /** Returns names of tables that exist until a transaction ends, beside the tables of a schema. */
  temporaryNames(schema: string): (name: string) => Sql
  /** Creates a table with such a name. */
  createTemporary(
    transaction: Queryable & { readonly lastSteps: (() => Promise<unknown>)[] },
    table: { name: Sql; columns: Sql },
  ): Promise<void>
  /** How a table is created that has rows for the time of some transactions, which are found by a key. */
  readonly passing: {
    /** What precedes the word `table`. */
    readonly kind: Sql
    /** What follows the type of the key. */
    readonly key: Sql
    /** Whether the key has an index. */
    readonly hasIndex: boolean
  }

  /** Returns the sizes of tables on disk, in bytes. Tables that do not exist count as 0. */
  sizeTables(
    queryable: Queryable,
    tables: readonly TableAddress[],
    measure: Measure,
  ): Promise<number[]>
  /** Returns an upper bound of the bytes of rows of a table with an oid, for a query of the catalogue. It can be infinite. */
  boundRowBytes(oid: Sql): Sql
  /** Whether no statement and no snapshot can have both the catalogue and the rows of databases. */
  readonly hasRowsApart: boolean
}

type Query = Pick<ReturnType<typeof toQuery>, 'text' | 'values' | 'use'>
type Send = (calls: readonly Call[]) => Promise<TextRows[]>

export interface TableAddress {
  readonly schema: string
  readonly name: string
}

export interface Reader {
  readonly schema: string
  /** undefined: our own. */
  readonly role: string | undefined
  /** The zone of times in the results; undefined for UTC. */
  readonly timeZone?: string | undefined
}

/** Sets the zone of times until the transaction ends. */
export const setTimeZone = (zone: string): Call =>
  toCall(sql`select set_config('timezone', ${zone}, true)`)

/** Returns a call whose plan is not kept: constants in it depend on the zone of times. */
const inZone = (call: Call): Call => ({ ...call, isUnnamed: true })

/** Calls, and what is sent with them. */
export interface ReadCalls {
  readonly before: readonly Call[]
  readonly calls: readonly Call[]
  readonly after: readonly Call[]
}

/** Functions of PostgreSQL that return a size: of everything, without indexes, or of the rows without TOAST. */
export const MEASURES = {
  total: sql`pg_total_relation_size`,
  table: sql`pg_table_size`,
  rows: sql`pg_relation_size`,
}
export type Measure = keyof typeof MEASURES

/** A connection of a `Database`, which may learn later what kind its server is. */
interface Connected {
  home?: { readonly server: Server }
}

/** Tells a new connection where it belongs. */
export function settle(client: pg.ClientBase, home: { readonly server: Server }): void {
  const connected: Connected = client as Connected
  connected.home = home
}

export function serverOf(client: pg.ClientBase): Server {
  return (client as Connected).home?.server ?? SINGLE
}

/** Takes the name of a role, or `none` to return to our own. Ends with the transaction. */
const BECOME = compileStatement(sql`select set_config('role', ${slot(0)}::text, true)`)
const become = (role: string): Call => ({ statement: BECOME, values: [role] })

/**
 * The COMMIT of repeatable work does not wait for the disk, and does not make those wait that requests wait for. A later
 * COMMIT that depends on it waits for both.
 */
const NO_WAIT_FOR_DISK = toCall(sql`set local synchronous_commit = off`)

export const limitWait = (waitMs: number): Sql =>
  sql`set local lock_timeout = ${raw(String(waitMs))}`

export const createSchemaSql = (name: string): Sql =>
  sql`create schema if not exists ${schemaIn(name)}`

/** Statements that are sent together. */
const STATEMENTS_AT_ONCE = 500

/** One PostgreSQL. */
export const SINGLE: Server = {
  isCluster: false,
  open: async () => undefined,
  watch: {
    start: () => undefined,
    end: () => undefined,
    requireCoordinator: () => undefined,
    reset: () => undefined,
    stop: () => undefined,
  },
  recover: async () => undefined,

  run: (_client, calls, send) => send(calls),
  query: (_client, _query, send) => send(),
  batchesQueries: true,
  beginControl: () => undefined,
  endControl: () => undefined,
  stayHere: [],
  beginRepeatable: [NO_WAIT_FOR_DISK],
  limitLockWait: (waitMs) => [limitWait(waitMs)],
  readAs: ({ role, timeZone }, calls) => ({
    before: [
      ...(role === undefined ? [] : [become(role)]),
      ...(timeZone === undefined ? [] : [setTimeZone(timeZone)]),
    ],
    calls: timeZone === undefined ? calls : calls.map(inZone),
    after: [
      ...(role === undefined ? [] : [become('none')]),
      ...(timeZone === undefined ? [] : [setTimeZone('UTC')]),
    ],
  }),
  rowTime: () => undefined,
  wrapsQueries: true,
  explain: (options, query, values) => ({
    statement: compileSharing(sql`explain ${options} ${query}`),
    values,
    isUnnamed: true,
  }),
  joinsCalls: true,
  explainsCopies: true,

  async createSchema(transaction, name) {
    await transaction.query(createSchemaSql(name))
  },
  async define(transaction, statements) {
    // Without parameters, PostgreSQL accepts several statements at once.
    for (let start = 0; start < statements.length; start += STATEMENTS_AT_ONCE) {
      const some = statements.slice(start, start + STATEMENTS_AT_ONCE)
      await transaction.query(join(some, ';\n'))
    }
  },
  temporaryNames: () => (name) => sql`pg_temp.${ident(name)}`,
  async createTemporary(transaction, { name, columns }) {
    await transaction.query(sql`create temporary table ${name} (${columns}) on commit drop`)
  },
  passing: { kind: sql`unlogged`, key: sql`not null`, hasIndex: false },

  async sizeTables(queryable, tables, measure) {
    const rows = await queryable.query<{ bytes: number }>(sql`
      select coalesce(${MEASURES[measure]}(to_regclass(t.name)), 0)::double precision as bytes
      from unnest(${tables.map(tableText)}::text[]) with ordinality t (name, n)
      order by t.n`)
    return rows.map(({ bytes }) => bytes)
  },
  boundRowBytes: (oid) => sql`pg_relation_size(${oid})`,
  hasRowsApart: false,
}
