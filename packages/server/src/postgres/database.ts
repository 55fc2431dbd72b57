import { AppError } from '@offshoot/contract/errors'
import pg from 'pg'
import { ByteBudget } from '../common/byte-budget.js'
import { Permits } from '../common/permits.js'
import { NO_OWNER } from '../common/shares.js'
import type { Span } from '../telemetry/tracer.js'
import { CONNECT_TIMEOUT_MS, type Connection, clientConfig, inDatabase } from './client-config.js'
import { Cluster, isClusterOf } from './cluster.js'
import { watchWarnings } from './commit.js'
import { PROBE_MS_MAX } from './node-watch.js'
import { explainPooled, notePooled, PoolerError, requireSessionMode } from './pooler.js'
import { prepareConnection } from './prepare-connection.js'
import { breakConnection, surviveProtocolErrors } from './protocol-errors.js'
import { handOnRows } from './row-messages.js'
import { type Queryable, type Server, SINGLE, serverOf, settle } from './server.js'
import { raw, type Sql } from './sql.js'
import { toQuery } from './statement.js'
import { type Lane, prepareForUsers } from './user-settings.js'

export type { Queryable } from './server.js'

const IDLE_TIMEOUT_MS = 60_000
/** Connections for statements that run beside a transaction, opened on demand. */
const SIDE_POOL_MAX = 2
const USER_POOL_MAX = { quick: 4, long: 4, open: 4 }
const EMBEDDED_NAME = 'embedded'

/**
 * Uses after which a connection for SQL of users is replaced, because a backend keeps memory such as compiled
 * regular expressions. A quick statement makes few of these.
 */
const USER_CONNECTION_USES_MAX: Readonly<Record<Lane, number>> = {
  quick: 2_000,
  long: 200,
  open: 200,
}

interface DatabaseOptions {
  readonly poolMax: number
  /** Connections for SQL of users; 4 of each kind by default. */
  readonly userPoolMax?: Readonly<Record<Lane, number>>
  /** On a Citus cluster, new databases are placed on its nodes. */
  readonly distributes?: boolean
  /** Zero means no limit. */
  readonly statementTimeoutMs: number
  /** Time limit for getting a connection; 5 seconds by default. */
  readonly connectTimeoutMs?: number
  /** Bytes of rows that may be read for one request; unlimited by default. */
  readonly answerBytesMax?: number
  /** Bytes in memory for all requests together. */
  readonly bufferedBytesMax?: number
  onIdleError(error: Error): void
  /** Records statements as spans if requests are traced. */
  readonly tracing?: StatementTracing | undefined
}

export interface StatementTracing {
  /** Instruments a new connection before its first use. */
  watch(client: pg.ClientBase): void
  startCall(name: string): Span | undefined
}

/** The current use of the pool. */
interface PoolState {
  readonly open: number
  readonly inUse: number
  /** Requests that wait for a connection. */
  readonly waiting: number
  readonly max: number
}

/**
 * The service's connections to PostgreSQL. `connect` may be called late and repeatedly, because the
 * service listens before PostgreSQL is up, and an embedded PostgreSQL that restarts has a new
 * socket.
 */
export class Database implements Queryable {
  #pool: pg.Pool | undefined
  #sidePool: pg.Pool | undefined
  #userPools: Readonly<Record<Lane, pg.Pool>> | undefined
  #connection: Connection | undefined
  #serverName = EMBEDDED_NAME
  /** The check of the pooler in front of the server, if there is one. */
  #pooler: Promise<void> | undefined
  #refusal: PoolerError | undefined
  #server: Server = SINGLE
  /** Connections of the pools. */
  readonly #open = new Set<pg.ClientBase>()
  readonly #long = new Set<pg.Client>()
  readonly #options: DatabaseOptions
  /** Connections of the pool in use, by owner. */
  readonly #permits: Permits
  /** Bytes in memory for requests, shared by those who make them. */
  readonly budget: ByteBudget

  constructor(options: DatabaseOptions) {
    this.#options = options
    const waitMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS
    this.#permits = new Permits({ permitsMax: options.poolMax, waitMs }, tooManyRequests)
    this.budget = new ByteBudget(options.bufferedBytesMax ?? Number.POSITIVE_INFINITY)
  }

  /**
   * Replaces the pools. Connections of the old ones that are in use finish or fail on their own, or break at
   * once if their server was replaced and may not answer any more.
   */
  connect(connection: Connection, options: { name?: string; isReplaced?: boolean } = {}): void {
    const previous = this.#pools()
    this.#server.watch.reset()
    if (options.isReplaced === true) this.#breakConnections()
    this.#connection = connection
    this.#pooler = undefined
    this.#refusal = undefined
    this.#serverName = options.name ?? EMBEDDED_NAME
    this.#pool = this.#createPool(connection, this.#options)
    this.#sidePool = this.#createPool(connection, { ...this.#options, poolMax: SIDE_POOL_MAX })
    this.#userPools = {
      quick: this.#createUserPool(connection, 'quick'),
      long: this.#createUserPool(connection, 'long'),
      open: this.#createUserPool(connection, 'open'),
    }
    for (const pool of previous) pool.end().catch(() => undefined)
  }

  #pools(): pg.Pool[] {
    const userPools = Object.values(this.#userPools ?? {})
    return [this.#pool, this.#sidePool, ...userPools].filter((pool) => pool !== undefined)
  }

  #createUserPool(connection: Connection, lane: Lane): pg.Pool {
    const options = {
      ...this.#options,
      poolMax: (this.#options.userPoolMax ?? USER_POOL_MAX)[lane],
      maxUses: USER_CONNECTION_USES_MAX[lane],
      handsOnRows: true,
    }
    return this.#createPool(connection, options, (client) =>
      prepareForUsers(client, { lane, ...options }),
    )
  }

  #createPool(
    connection: Connection,
    options: DatabaseOptions & PoolOptions,
    prepareMore?: (client: pg.ClientBase) => Promise<void>,
  ): pg.Pool {
    const prepare = async (client: pg.ClientBase) => {
      await this.#prepare(client, options.statementTimeoutMs)
      await prepareMore?.(client)
      await this.#server.open(client)
    }
    const pool = createPool(connection, { ...options, prepare })
    pool.on('connect', (client) => {
      settle(client, this)
      this.#open.add(client)
    })
    pool.on('acquire', (client) => this.#server.watch.start(client))
    pool.on('release', (_error, client) => this.#server.watch.end(client))
    pool.on('remove', (client) => this.#open.delete(client))
    return pool
  }

  /** Prepares a new connection, and refuses it if a pooler does not keep its session. */
  async #prepare(client: pg.ClientBase, statementTimeoutMs: number): Promise<void> {
    const backendId = await prepareConnection(client, { statementTimeoutMs })
    if (backendId === undefined) return
    const connection = this.#connection
    await this.#requireSessionMode()
    const other = await prepareConnection(client, { statementTimeoutMs, backendId })
    const refuse = (error: PoolerError) => this.#refuse(error, connection)
    if (other !== undefined) refuse(new PoolerError('transaction'))
    if (this.#refusal !== undefined) throw this.#refusal
    notePooled(client, backendId, refuse)
  }

  /** Checks the pooler once. A check that could not be made is repeated. */
  async #requireSessionMode(): Promise<void> {
    const connection = this.#required(this.#connection)
    this.#pooler ??= requireSessionMode(connection, this.#options.connectTimeoutMs)
    const checking = this.#pooler
    try {
      await checking
    } catch (error) {
      if (this.#pooler === checking) this.#pooler = undefined
      if (error instanceof PoolerError) this.#refuse(error, connection)
      throw error
    }
  }

  /** Uses a server no more, unless it was replaced by another one meanwhile. */
  #refuse(error: PoolerError, connection: Connection | undefined): void {
    if (this.#connection === connection) this.#refusal ??= error
  }

  /** Why the server is not used: a pooler in front of it does not keep sessions. */
  get refusal(): AppError | undefined {
    return this.#refusal
  }

  #required<Value>(value: Value | undefined): Value {
    if (this.#refusal !== undefined) throw this.#refusal
    if (value === undefined) {
      throw new AppError('unavailable', 'the database is not connected yet')
    }
    return value
  }

  #breakConnections(): void {
    for (const client of [...this.#open, ...this.#long]) breakConnection(client)
  }

  get poolState(): PoolState {
    const { totalCount = 0, idleCount = 0, waitingCount = 0 } = this.#pool ?? {}
    return {
      open: totalCount,
      inUse: totalCount - idleCount,
      waiting: waitingCount + this.#permits.waiting,
      max: this.#options.poolMax,
    }
  }

  get pool(): pg.Pool {
    return this.#required(this.#pool)
  }

  /** Connections for SQL of users, see `UserConnections`. */
  userPool(lane: Lane): pg.Pool {
    return this.#required(this.#userPools)[lane]
  }

  /** The host and port of the server in use, or `embedded`. */
  get serverName(): string {
    return this.#serverName
  }

  get server(): Server {
    return this.#server
  }

  /** Finds out which kind of server this is. Until then, it is used like a single one. */
  async recogniseServer(): Promise<void> {
    const distributes = this.#options.distributes === true
    const isCluster = await isClusterOf(this, distributes)
    if (isCluster === this.#server.isCluster) return
    this.#server.watch.stop()
    this.#server = isCluster
      ? new Cluster({
          distributes,
          openProbe: () => this.#openProbe(),
          runAside: (text) => this.queryAside(raw(text)),
        })
      : SINGLE
  }

  get isConnected(): boolean {
    return this.#pool !== undefined
  }

  /** The maximum number of connections of the pool. */
  get poolMax(): number {
    return this.#options.poolMax
  }

  get answerBytesMax(): number {
    return this.#options.answerBytesMax ?? Number.POSITIVE_INFINITY
  }

  /** Whether requests wait because all connections are in use. */
  get isCrowded(): boolean {
    return this.poolState.waiting > 0
  }

  /**
   * Returns a connection of the pool, which must be released. Each owner has a share of the pool, and
   * owners that wait take turns: neither slow statements nor locks of one keep the others waiting.
   */
  async acquire(
    options: { owner?: string | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<pg.PoolClient> {
    const { owner = NO_OWNER, signal } = options
    this.#server.watch.requireCoordinator()
    if (!this.#permits.tryEnter(owner)) await this.#permits.enter(owner, signal)
    try {
      const client = await this.pool.connect()
      const release = client.release.bind(client)
      client.release = (error) => {
        release(error)
        this.#permits.leave(owner)
      }
      return client
    } catch (error) {
      this.#permits.leave(owner)
      throw error
    }
  }

  /**
   * Starts a span for a request whose statement is sent together with others; undefined if it is
   * not traced.
   */
  startCall(name: string): Span | undefined {
    return this.#options.tracing?.startCall(name)
  }

  async query<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]> {
    const client = await this.acquire()
    let failure: Error | undefined
    try {
      return await runQuery<Row>(client, statement)
    } catch (error) {
      failure = error as Error
      throw error
    } finally {
      client.release(failure)
    }
  }

  /**
   * Runs a short statement on a connection outside the pool. A caller that holds a connection of
   * the pool and waited there for a second one could deadlock with others that do the same.
   */
  async queryAside<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]> {
    const query = toQuery(statement)
    return (await this.#required(this.#sidePool).query<Row>(query)).rows
  }

  /** Opens a connection that asks whether nodes answer. Citus opens new ones to the nodes for it. */
  async #openProbe(): Promise<pg.Client> {
    const config = clientConfig(this.#required(this.#connection), PROBE_MS_MAX)
    const client = new pg.Client(config)
    client.on('error', () => undefined)
    try {
      await client.connect()
      await this.#prepare(client, PROBE_MS_MAX)
      return client
    } catch (error) {
      client.end().catch(() => undefined)
      throw error
    }
  }

  /**
   * Opens a connection for background work that may take hours. The caller must end it; `close`
   * breaks it off. With `staysHere`, what it defines is not on the nodes of a cluster. `onEnd` is called when it has ended.
   */
  async openLong({
    staysHere = false,
    onEnd,
  }: {
    staysHere?: boolean
    onEnd?: () => void
  } = {}): Promise<Queryable & { end(): Promise<void> }> {
    const client = await this.#openOutside(this.#required(this.#connection))
    if (onEnd !== undefined) client.once('end', onEnd)
    if (staysHere) for (const { sql: text } of this.#server.stayHere) await client.query(text)
    this.#server.watch.start(client)
    return {
      server: this.#server,
      query: <Row extends pg.QueryResultRow>(statement: Sql) => runQuery<Row>(client, statement),
      end: async () => {
        this.#server.watch.end(client)
        await client.end()
      },
    }
  }

  /** Opens a connection to another database of the server. The caller must end it; `close` breaks it off. */
  openElsewhere(databaseName: string): Promise<pg.Client> {
    return this.#openOutside(inDatabase(this.#required(this.#connection), databaseName))
  }

  /** Opens a connection outside the pools. */
  async #openOutside(connection: Connection): Promise<pg.Client> {
    const client = new pg.Client(clientConfig(connection, this.#options.connectTimeoutMs))
    settle(client, this)
    client.on('error', () => undefined)
    client.once('end', () => this.#long.delete(client))
    this.#long.add(client)
    try {
      await client.connect()
      surviveProtocolErrors(client)
      await this.#prepare(client, 0)
    } catch (error) {
      this.#long.delete(client)
      client.end().catch(() => undefined)
      throw error
    }
    return client
  }

  async close(): Promise<void> {
    const pools = this.#pools()
    this.#pool = undefined
    this.#sidePool = undefined
    this.#userPools = undefined
    this.#connection = undefined
    this.#server.watch.stop()
    for (const client of this.#long) await client.end()
    for (const pool of pools) {
      // PostgreSQL may stop before the last connection has closed; that is no error.
      pool.off('error', this.#options.onIdleError).on('error', () => undefined)
      await pool.end()
    }
  }
}

/** Runs a statement on a connection. */
export async function runQuery<Row extends pg.QueryResultRow>(
  client: pg.ClientBase,
  statement: Sql,
): Promise<Row[]> {
  const query = toQuery(statement)
  return serverOf(client).query(client, query, () => querySent<Row>(client, query))
}

async function querySent<Row extends pg.QueryResultRow>(
  client: pg.ClientBase,
  query: pg.QueryConfig,
): Promise<Row[]> {
  try {
    return (await client.query<Row>(query)).rows
  } catch (error) {
    throw explainPooled(client, error)
  }
}

function tooManyRequests(): AppError {
  return new AppError('overloaded', 'all connections to the database are in use; try again later')
}

interface PoolOptions extends Pick<pg.PoolConfig, 'maxUses'> {
  /** Whether rows can be handed on as messages. */
  readonly handsOnRows?: boolean
}

function createPool(
  connection: Connection,
  options: DatabaseOptions & PoolOptions & { prepare(client: pg.ClientBase): Promise<void> },
): pg.Pool {
  const { maxUses, handsOnRows = false } = options
  const pool = new pg.Pool({
    ...clientConfig(connection, options.connectTimeoutMs),
    max: options.poolMax,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    onConnect: (client) => options.prepare(client),
    ...(maxUses === undefined ? {} : { maxUses }),
  })
  // Without a listener, a broken idle connection would end the process.
  pool.on('error', options.onIdleError)
  // A connection that breaks between two statements needs a listener too; the next statement fails
  // by itself.
  pool.on('connect', (client) => {
    client.on('error', () => undefined)
    if (handsOnRows) handOnRows(client)
    surviveProtocolErrors(client)
    watchWarnings(client)
    options.tracing?.watch(client)
  })
  return pool
}
