import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { BoundedCache } from '../common/bounded-cache.js'
import { isInDoubt, noteCancelled } from './failures.js'
import { Recovery } from './in-doubt.js'
import { ANCHOR, NodeWatch, type OpenProbe } from './node-watch.js'
import { sendCalls } from './pipeline.js'
import { nodeTableIn, onNode, SCHEMA_PREFIX, tableIn } from './place.js'
import { fromRecord, toArray } from './record-text.js'
import {
  createSchemaSql,
  limitWait,
  MEASURES,
  type Measure,
  type Queryable,
  type ReadCalls,
  type Reader,
  type Server,
  setTimeZone,
  type TableAddress,
} from './server.js'
import { empty, type Sql, sql } from './sql.js'
import {
  type Call,
  compileSharing,
  compileStatement,
  type Parameter,
  type Statement,
  slot,
  type TableUse,
  type TextRows,
  toCall,
  toParameter,
} from './statement.js'
import { LIMIT_TRANSACTION } from './user-settings.js'

/*
 * On a Citus cluster, the schema of each database is on one node, and Citus sends statements there. But it splits some
 * statements into several ones, refuses some and deparses some wrongly: the order of a query can change. So statements
 * on rows are passed to the node as texts, to the function `offshoot_node.run`. It runs them on the tables of the node,
 * in the same distributed transaction. So a statement means on a cluster what it means on one server. Only
 * definitions, and short queries of the control plane, are left to Citus.
 */

/** Returns whether databases are on nodes of this server, or will be. */
export async function isClusterOf(queryable: Queryable, distributes: boolean): Promise<boolean> {
  const [row] = await queryable.query<{ hasCitus: boolean; isPrepared: boolean }>(sql`
    select exists (select from pg_extension where extname = 'citus') as "hasCitus",
      -- This schema exists since databases were first placed on nodes.
      to_regnamespace('offshoot_node') is not null as "isPrepared"`)
  if (!row?.hasCitus || row.isPrepared) return row?.hasCitus === true
  // Without workers, a server with Citus is used like any other.
  const workers = distributes
    ? await queryable.query(sql`
        select from pg_dist_node where groupid > 0 and noderole = 'primary' limit 1`)
    : []
  return workers.length > 0
}

/** A statement for the function of a node. */
interface Run {
  readonly schema: string
  readonly isWrite: boolean
  /** Whether it is a query: others are run without a plan, and return nothing. */
  readonly isQuery: boolean
  readonly text: string
  /** Where the text has names of tables. */
  readonly names: TableUse['names']
  readonly values: readonly Parameter[]
  /** Or EXPLAIN with its options. */
  readonly form: 'texts' | 'json' | `explain ${string}`
  readonly role?: string | undefined
  readonly timeZone?: string | undefined
}

/** The beginning of a query. Other statements define, lock or copy tables. */
const QUERY = /^[\s(]*(?:with|select|values|insert|update|delete)\b/
const isQuery = ({ text }: Pick<Statement, 'text'>): boolean => QUERY.test(text)

const TIME = toCall(sql`select now()::text`)

/** Any write to a table of the coordinator that Citus knows makes it commit in two phases. */
const USE_TWO_PHASES: Call = {
  statement: compileStatement(sql`delete from offshoot_node.two_phases where ctid = '(0,0)'::tid`),
  values: [],
}

/** Makes SET LOCAL hold on the nodes, too. */
const SET_ON_NODES = sql`set local citus.propagate_set_commands = 'local'`

type Send = Parameters<Server['run']>[2]

/** A Citus cluster. */
export class Cluster implements Server {
  readonly isCluster = true
  readonly batchesQueries = false
  /** Otherwise Citus would define on the nodes, too, what belongs to another PostgreSQL database, which they do not have. */
  readonly stayHere = [sql`set citus.enable_ddl_propagation = off`]
  /** A later COMMIT of rows is one of another node: the coordinator could forget in a crash where acknowledged rows are. */
  readonly beginRepeatable = []
  /** Citus does not tell why a COPY has failed. */
  readonly explainsCopies = false
  /** Citus moves a database to another node by logical replication, for which tables must be logged and have a key. */
  readonly passing = { kind: empty, key: sql`primary key`, hasIndex: true }
  readonly hasRowsApart = true
  readonly watch: NodeWatch

  /** Whether new databases are placed on the nodes. */
  readonly #distributes: boolean
  readonly #recovery: Recovery
  /** Statements that call the function, by schema and kind. */
  readonly #runs = new BoundedCache<Statement>({ max: 10_000 })
  /** Connections with a transaction of the control plane that has not written rows yet. */
  readonly #unwritten = new WeakSet<object>()

  constructor(options: {
    distributes: boolean
    openProbe: OpenProbe
    /** Runs a statement on a connection of its own. */
    runAside(text: string): Promise<unknown>
  }) {
    this.#distributes = options.distributes
    this.watch = new NodeWatch(options.openProbe)
    this.#recovery = new Recovery(options.runAside)
  }

  async open(client: pg.ClientBase): Promise<void> {
    await this.watch.open(client)
    await this.#recovery.afterRestart(client)
  }

  async recover(): Promise<void> {
    // It would wait for a node that does not answer.
    if (this.watch.areAllThere) await this.#recovery.run()
  }

  async run(client: pg.ClientBase, calls: readonly Call[], send: Send): Promise<TextRows[]> {
    for (const { statement, node } of calls) this.#noteUse(client, statement, node?.schema)
    const placed = calls.map(runOf)
    const sent: Call[] = []
    const positions = calls.map((call, index) => {
      const run = placed[index]
      if (run?.isWrite) sent.push(...this.#beforeWrite(client))
      if (run === undefined) return sent.push(call) - 1
      const { receiveRow } = call
      if (receiveRow === undefined) return sent.push(this.#call(run)) - 1
      const receive: typeof receiveRow = ([row]) => receiveRow(fromRecord(row ?? ''))
      return sent.push({ ...this.#call(run), receiveRow: receive }) - 1
    })
    const rows = await this.#recovering(() => send(sent))
    return positions.map((position, index) => {
      const found = rows[position] ?? []
      return placed[index] === undefined ? found : found.map(([row]) => fromRecord(row ?? ''))
    })
  }

  async query<Row>(
    client: pg.ClientBase,
    { text, values, use }: { text: string; values: readonly unknown[]; use: TableUse | undefined },
    send: () => Promise<Row[]>,
  ): Promise<Row[]> {
    this.#noteUse(client, { text, use })
    const asks = isQuery({ text })
    if (use === undefined || !(use.isOnNode || (use.isWrite && asks))) {
      return send().catch((error: unknown) => {
        noteCancelled(error)
        throw error
      })
    }
    const run: Run = {
      ...use,
      isWrite: use.isWrite || !asks,
      text,
      values: values.map(toParameter),
      form: 'json',
      isQuery: asks,
    }
    const calls = [...(run.isWrite ? this.#beforeWrite(client) : []), this.#call(run)]
    const rows = await this.#recovering(() => sendCalls(client, calls))
    return (rows.at(-1) ?? []).map(([row]) => JSON.parse(row ?? 'null') as Row)
  }

  /** Ends a transaction in doubt that has made calls fail. */
  async #recovering<Result>(work: () => Promise<Result>): Promise<Result> {
    try {
      return await work()
    } catch (error) {
      noteCancelled(error)
      if (isInDoubt(error)) await this.recover()
      throw error
    }
  }

  /** Notes which database a statement concerns. Fails if a node for that does not answer. */
  #noteUse(
    client: pg.ClientBase,
    statement: Pick<Statement, 'text' | 'use'>,
    given?: string,
  ): void {
    const { use } = statement
    const schema = given ?? use?.schema
    if (schema === undefined) return
    // A table that only the node knows concerns no other node.
    const defines = given === undefined && !use?.isOnNode && !isQuery(statement)
    this.watch.use(client, schema, defines)
  }

  /** The first write of rows makes a transaction of the control plane one that commits in two phases. */
  #beforeWrite(client: pg.ClientBase): Call[] {
    return this.#unwritten.delete(client) ? [USE_TWO_PHASES] : []
  }

  #call(run: Run): Call {
    const { text: given, names, values, form, isQuery, isWrite, role, timeZone } = run
    // A node keeps plans by their texts, and constants in a plan depend on the zone of times.
    const text =
      timeZone === undefined ? given : `${given} /* ${Buffer.from(timeZone).toString('hex')} */`
    const kind = !isQuery ? 'utility' : isWrite ? `written ${form}` : form
    return {
      statement: this.#runStatement(run),
      passedText: text,
      values: [toArray(cut(text, names)), toArray(values), kind, role ?? null],
    }
  }

  /**
   * Returns the statement that runs a text on the node of a schema. It names a table that each database has, so that Citus
   * finds the node. Citus must know whether the node is written to:
   * otherwise it ignores a failure to commit there. So the statement deletes a row that cannot exist.
   */
  #runStatement({ schema, isWrite }: Pick<Run, 'schema' | 'isWrite'>): Statement {
    const key = `${schema} ${isWrite}`
    let statement = this.#runs.get(key)
    if (statement === undefined) {
      const anchor = tableIn(schema, ANCHOR)
      const writing = sql`with written as (delete from ${anchor} where ctid = '(0,0)'::tid)`
      statement = compileStatement(sql`
        ${isWrite ? writing : empty}
        select offshoot_node.run(${slot(0)}::text[], ${slot(1)}::text[], ${slot(2)}::text, ${slot(3)}::text)
        from (select count(*) from (select from ${anchor} limit 0) nothing) once`)
      this.#runs.set(key, statement)
    }
    return statement
  }

  beginControl(client: pg.ClientBase): void {
    this.#unwritten.add(client)
  }

  endControl(client: pg.ClientBase): void {
    this.#unwritten.delete(client)
  }

  limitLockWait(waitMs: number): Sql[] {
    return [SET_ON_NODES, limitWait(waitMs)]
  }

  /** The role is changed on the node: if it were changed on the coordinator, Citus would open another transaction. */
  readAs({ schema, role, timeZone }: Reader, calls: readonly Call[]): ReadCalls {
    const zone = (name: string) => ({ ...setTimeZone(name), node: { schema } })
    return {
      before: [
        { ...LIMIT_TRANSACTION, node: { schema } },
        ...(timeZone === undefined ? [] : [zone(timeZone)]),
      ],
      calls: calls.map((call) => ({ ...call, node: { schema, role, timeZone } })),
      after: timeZone === undefined ? [] : [zone('UTC')],
    }
  }

  rowTime(schema: string): Call {
    return { ...TIME, node: { schema } }
  }

  /** A cursor would be one of the coordinator, and the rows are on a node. */
  readonly wrapsQueries = false

  explain(options: Sql, query: Sql, values: readonly Parameter[]): Call {
    return { statement: compileSharing(query), values, explainedBy: `explain ${options.text}` }
  }

  /** Without BEGIN, Citus runs each statement in a transaction of its own on the nodes. */
  readonly joinsCalls = false

  /** Citus chooses a node for the schema of a database, unless databases are placed on the coordinator. */
  async createSchema(transaction: Queryable, name: string): Promise<void> {
    if (name.startsWith(SCHEMA_PREFIX)) {
      const isPlaced = this.#distributes ? sql`on` : sql`off`
      await transaction.query(sql`set local citus.enable_schema_based_sharding = ${isPlaced}`)
    }
    await transaction.query(createSchemaSql(name))
  }

  /** Citus accepts one statement at a time that changes tables. */
  async define(transaction: Queryable, statements: readonly Sql[]): Promise<void> {
    for (const statement of statements) await transaction.query(statement)
  }

  /** They are tables of the node, because PostgreSQL cannot commit temporary tables in two phases. */
  temporaryNames(schema: string): (name: string) => Sql {
    const unique = randomBytes(8).toString('hex')
    return (name) => nodeTableIn(schema, `node_${unique}_${name}`)
  }

  async createTemporary(
    transaction: Parameters<Server['createTemporary']>[0],
    { name, columns }: { name: Sql; columns: Sql },
  ): Promise<void> {
    await transaction.query(sql`create unlogged table ${name} (${columns})`)
    transaction.lastSteps.push(() => transaction.query(sql`drop table ${name}`))
  }

  async sizeTables(
    queryable: Queryable,
    tables: readonly TableAddress[],
    measure: Measure,
  ): Promise<number[]> {
    const sizes = new Map<string, ReadonlyMap<string, number>>()
    for (const schema of new Set(tables.map((table) => table.schema))) {
      const names = tables.flatMap((table) => (table.schema === schema ? [table.name] : []))
      // The tables of a node have the numbers of their shards in their names.
      const rows = await queryable.query<{ name: string; bytes: number }>(sql`
        ${onNode(schema)}
        select t.name, coalesce(${MEASURES[measure]}(to_regclass(
            format('%I.%I', ${schema}::text, coalesce(t.name || '_' || s.shardid, t.name))
          )), 0)::double precision as bytes
        from unnest(${names}::text[]) t (name)
        left join pg_dist_shard s on s.logicalrelid = to_regclass(format('%I.%I', ${schema}::text, t.name))`)
      sizes.set(schema, new Map(rows.map(({ name, bytes }) => [name, bytes])))
    }
    return tables.map(({ schema, name }) => sizes.get(schema)?.get(name) ?? 0)
  }

  /** A table of the coordinator is empty if its rows are on another node, and asking nodes takes a round trip to each. */
  boundRowBytes(): Sql {
    return sql`'infinity'::double precision`
  }
}

/** Returns how a call is run by the function of a node. undefined: it can be sent as it is. */
function runOf({
  statement,
  values: given,
  describes,
  input,
  node,
  explainedBy,
}: Call): Run | undefined {
  const { text, use } = statement
  const schema = node?.schema ?? use?.schema
  if (schema === undefined || describes || input !== undefined) return undefined
  // A statement of a reader must not define tables: the node prepares it like a query, which fails for a definition.
  const asks = node !== undefined || isQuery(statement)
  if (!asks && !use?.isOnNode) return undefined
  const values = statement.slots.map((value) =>
    typeof value === 'string' ? value : (given[value] ?? null),
  )
  return {
    schema,
    isWrite: node === undefined && (use?.isWrite === true || !asks),
    text,
    names: use?.names ?? [],
    values,
    form: explainedBy ?? 'texts',
    isQuery: asks,
    role: node?.role,
    timeZone: node?.timeZone,
  }
}

/** Cuts a text at names of tables: those are the second part, the fourth, and so on. */
function cut(text: string, names: TableUse['names']): string[] {
  let end = 0
  const parts = names.flatMap((name) => {
    const between = text.slice(end, name.start)
    end = name.end
    return [between, text.slice(name.start, name.end)]
  })
  return [...parts, text.slice(end)]
}
