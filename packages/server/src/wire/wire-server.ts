import { randomInt } from 'node:crypto'
import { createServer, type Server, type Socket } from 'node:net'
import { Quota } from '../http/admission/quota.js'
import { addressGroup, plainAddress } from '../http/client-address.js'
import { sql } from '../postgres/sql.js'
import { type Family, gauge, type Metrics } from '../telemetry/metrics.js'
import { AdvisoryLocks } from './advisory-locks.js'
import { Catalogue } from './catalogue/catalogue.js'
import { ParsedTexts } from './parsed-texts.js'
import { WireConnection, type WireOptions } from './wire-connection.js'

/*
 * Clients of PostgreSQL connect here: to `postgresql://{workspace}:{API key}@host/{database}:{branch}`. What a connection
 * costs before its key is known is bounded: few bytes, little time, and a number for each address.
 */

/** The clients that are connected, and how they are counted. */
export class WireServer {
  readonly #options: WireOptions
  readonly #server: Server
  readonly #addresses = new Quota()
  readonly #connections = new Map<number, WireConnection>()
  readonly #statements = new Map<string, number>()
  readonly #locks: AdvisoryLocks
  #serverVersion: Promise<string> | undefined

  constructor(
    options: Omit<WireOptions, 'catalogue' | 'texts'> & { readonly metrics: Metrics | null },
  ) {
    const { database, limits } = options.services
    const texts = new ParsedTexts(limits)
    this.#locks = new AdvisoryLocks(database)
    this.#options = { ...options, catalogue: new Catalogue(database, limits), texts }
    this.#server = createServer({ noDelay: true, keepAlive: true }, (socket) =>
      this.#accept(socket),
    )
    this.#server.maxConnections = options.services.limits.connectionsMax
    options.metrics?.add(
      gauge(
        'offshoot_pg_connections',
        'Connections over the PostgreSQL protocol.',
        () => this.#connections.size,
      ),
      statementsFamily(this.#statements),
    )
  }

  /** Listens. Returns the port. */
  listen(options: { host: string; port: number }): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(options, () => {
        this.#server.off('error', reject)
        const address = this.#server.address()
        resolve(typeof address === 'object' && address !== null ? address.port : options.port)
      })
    })
  }

  /** Ends all connections. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    for (const connection of this.#connections.values()) connection.shutDown()
    await closed
    this.#options.catalogue.close()
  }

  #accept(socket: Socket): void {
    const group = addressGroup(plainAddress(socket.remoteAddress ?? ''))
    const { connectionsPerAddressMax } = this.#options.services.limits
    if (!this.#addresses.start(group, connectionsPerAddressMax)) {
      socket.destroy()
      return
    }
    let processId = randomInt(1, 2 ** 31)
    while (this.#connections.has(processId)) processId = randomInt(1, 2 ** 31)
    const connection = new WireConnection(socket, {
      ...this.#options,
      locks: this.#locks,
      processId,
      group,
      cancel: (id, secret) => this.#connections.get(id)?.cancelBy(secret),
      serverVersion: () => this.#findVersion(),
      count: (code) => this.#statements.set(code, (this.#statements.get(code) ?? 0) + 1),
    })
    this.#connections.set(processId, connection)
    socket.once('close', () => {
      this.#connections.delete(processId)
      this.#addresses.end(group)
    })
  }

  #findVersion(): Promise<string> {
    this.#serverVersion ??= this.#options.services.database
      .query<{ version: string }>(sql`select current_setting('server_version') as version`)
      .then(([row]) => row?.version ?? '')
    this.#serverVersion.catch(() => {
      this.#serverVersion = undefined
    })
    return this.#serverVersion
  }
}

function statementsFamily(counts: ReadonlyMap<string, number>): Family {
  return {
    name: 'offshoot_pg_statements_total',
    help: 'Statements over the PostgreSQL protocol, by SQLSTATE; 00000 for those that succeeded.',
    type: 'counter',
    *samples() {
      for (const [code, value] of counts) yield { labels: { code }, value }
    },
  }
}
