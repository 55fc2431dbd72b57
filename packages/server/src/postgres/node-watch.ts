import { setTimeout as delay, setImmediate } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { AbandonedBackends, type Node } from './abandoned-backends.js'
import { NodeSilentError } from './failures.js'
import { breakConnection, bytesReadBy } from './protocol-errors.js'

/*
 * Nodes of a Citus cluster that hang. A node that was killed refuses connections, and Citus reports it at once. A node that
 * hangs, such as a machine that has stopped or lost its network, does not answer. Citus waits for it, and cannot even end
 * the transaction before the node answers: to cancel a statement there takes an answer, too. So all connections would soon
 * wait for one node. If a connection is silent for a while, the watch therefore asks each node through a new connection. A
 * node that does not answer is lost: connections that wait for it are closed, and requests for its databases are refused at
 * once, until it answers again and the backends of those connections have ended. Connections that wait on their own account,
 * such as for a lock, are left alone.
 */

/*
 * Times are counted in ticks. If this process or its machine stands still, no ticks pass, and nobody is blamed for an answer
 * that could not be read.
 */
const TICK_MS = 250
/** How long a connection in use may receive nothing before the nodes are asked: a second. */
const SILENT_TICKS = 4
/** How long a node may take to accept a connection. A request that waits for a connection of the pool waits longer. */
const PROBE_TICKS = 14
/** The time after which a connection that asks nodes is given up. */
export const PROBE_MS_MAX = 2 * PROBE_TICKS * TICK_MS
/** The pause between two probes while connections are silent or a node is lost. */
const PROBE_PAUSE_MS = 1_000

/** Every database has this table, so it tells the node of a database. */
export const ANCHOR = 'idempotency_keys'

/** A connection in use. */
interface Use {
  /** The schema of the database whose rows it uses. */
  schema: string | undefined
  /** Whether it defines tables, which concerns all nodes. */
  definesTables: boolean
  bytesRead: number
  silentTicks: number
}

/** Opens a connection to the coordinator. */
export type OpenProbe = () => Promise<pg.Client>

export class NodeWatch {
  readonly #open: OpenProbe
  readonly #uses = new Map<pg.ClientBase, Use>()
  readonly #abandoned = new AbandonedBackends()
  #timer: NodeJS.Timeout | undefined
  #probing: Promise<void> | undefined
  #probedAt = Number.NEGATIVE_INFINITY
  #isCoordinatorLost = false
  /** How often a connection was seen to have received something. */
  #heard = 0
  /** Schemas of the databases on lost nodes; undefined if all nodes answer. */
  #lostSchemas: ReadonlySet<string> | undefined

  constructor(open: OpenProbe) {
    this.#open = open
  }

  /** Whether all nodes have answered when they were last asked. */
  get areAllThere(): boolean {
    return !this.#isCoordinatorLost && this.#lostSchemas === undefined
  }

  /** Fails if the coordinator is lost. */
  requireCoordinator(): void {
    if (this.#isCoordinatorLost) throw lost('the coordinator')
  }

  /** Prepares for the watch of a new connection. */
  open(client: pg.ClientBase): Promise<void> {
    return this.#abandoned.open(client)
  }

  /** Watches a connection until it is no longer in use. */
  start(client: pg.ClientBase): void {
    this.#uses.set(client, {
      schema: undefined,
      definesTables: false,
      bytesRead: bytesReadBy(client),
      silentTicks: 0,
    })
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref()
  }

  end(client: pg.ClientBase): void {
    this.#uses.delete(client)
  }

  /** Notes that a connection uses the rows of a database, or defines its tables. Fails if a node for that is lost. */
  use(client: pg.ClientBase, schema: string, definesTables: boolean): void {
    if (this.#lostSchemas !== undefined && (definesTables || this.#lostSchemas.has(schema))) {
      throw lost('a node', new NodeSilentError())
    }
    const use = this.#uses.get(client)
    if (use === undefined) return
    use.schema = schema
    use.definesTables ||= definesTables
  }

  /** Forgets lost nodes, because the server was replaced. */
  reset(): void {
    this.#isCoordinatorLost = false
    this.#lostSchemas = undefined
    this.#abandoned.clear()
  }

  stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.reset()
  }

  #tick(): void {
    for (const [client, use] of this.#uses) {
      const bytesRead = bytesReadBy(client)
      use.silentTicks = bytesRead === use.bytesRead ? use.silentTicks + 1 : 0
      if (bytesRead !== use.bytesRead) this.#heard++
      use.bytesRead = bytesRead
    }
    if (this.#probing !== undefined || performance.now() - this.#probedAt < PROBE_PAUSE_MS) return
    if (this.areAllThere && this.#silentUses().length === 0) return
    this.#probing = this.#probe().finally(() => {
      this.#probing = undefined
      this.#probedAt = performance.now()
    })
  }

  #silentUses(): [pg.ClientBase, Use][] {
    return [...this.#uses].filter(([, { silentTicks }]) => silentTicks >= SILENT_TICKS)
  }

  /** Asks all nodes, and closes silent connections that need one that does not answer. */
  async #probe(): Promise<void> {
    const heardBefore = this.#heard
    try {
      const nodes = await this.#ask<Node & { groupId: number }>(
        `select groupid as "groupId", nodename as host, nodeport as port
        from pg_dist_node
        where groupid > 0 and noderole = 'primary' and isactive`,
      )
      if (nodes === undefined) {
        // A coordinator that is too busy to accept a connection may still answer on others.
        this.#isCoordinatorLost ||= this.#heard === heardBefore
        if (!this.#isCoordinatorLost) return
        for (const [client] of this.#silentUses()) this.#break(client)
        return
      }
      const answers = await Promise.all(
        nodes.map(({ host, port }) =>
          this.#ask('select citus_check_connection_to_node($1, $2)', [host, port]),
        ),
      )
      const isLost = (_node: Node, index: number) => answers[index] === undefined
      const lostIds = nodes.filter(isLost).map(({ groupId }) => groupId)
      const schemas = lostIds.length === 0 ? undefined : await this.#listSchemas(lostIds)
      const hasEnded = await this.#abandoned.end((text, values) => this.#ask(text, values), {
        nodes: nodes.filter((node, index) => !isLost(node, index)),
        isBack: ({ schema = '', definesTables }) =>
          definesTables ? schemas === undefined : !schemas?.has(schema),
      })
      if (hasEnded) {
        this.#isCoordinatorLost = false
        this.#lostSchemas = schemas
      } else this.#lostSchemas = new Set([...(this.#lostSchemas ?? []), ...(schemas ?? [])])
    } catch {
      // The coordinator refuses connections, or ends. Requests notice that by themselves.
      this.reset()
      return
    }
    for (const [client, use] of this.#silentUses()) {
      const { schema = '', definesTables } = use
      if (definesTables ? !this.areAllThere : this.#lostSchemas?.has(schema)) this.#break(client)
    }
  }

  async #listSchemas(groupIds: readonly number[]): Promise<ReadonlySet<string>> {
    const found = await this.#ask<{ schema: string }>(
      `select c.relnamespace::regnamespace::text as schema
      from pg_dist_placement p
      join pg_dist_shard s on s.shardid = p.shardid
      join pg_class c on c.oid = s.logicalrelid
      where p.groupid = any($1::integer[]) and c.relname = $2`,
      [groupIds, ANCHOR],
    )
    return new Set(found?.map(({ schema }) => schema) ?? this.#lostSchemas)
  }

  /** Asks the coordinator on a connection of its own. Returns undefined if there is no answer in time. */
  async #ask<Row extends pg.QueryResultRow>(
    text: string,
    values: readonly unknown[] = [],
  ): Promise<Row[] | undefined> {
    const waiting = new AbortController()
    const opening = this.#open()
    // The connection is closed when it is there, also if nobody waits for it any more.
    const answer = opening.then((client) =>
      client.query<Row>(text, [...values]).then(({ rows }) => rows),
    )
    try {
      return await Promise.race([answer, passTicks(PROBE_TICKS, waiting.signal)])
    } finally {
      waiting.abort()
      answer.catch(() => undefined)
      opening.then(breakConnection, () => undefined)
    }
  }

  #break(client: pg.ClientBase): void {
    const use = this.#uses.get(client)
    if (use !== undefined) this.#abandoned.add(client, use)
    this.#uses.delete(client)
    breakConnection(client)
  }
}

/** Waits for some ticks, or until the signal is aborted. */
async function passTicks(count: number, signal: AbortSignal): Promise<undefined> {
  for (let passed = 0; passed < count && !signal.aborted; passed++) {
    await delay(TICK_MS, undefined, { ref: false })
    // Node reads answers that have arrived meanwhile before the next tick counts.
    await setImmediate()
  }
}

function lost(what: string, cause?: Error): AppError {
  return new AppError('unavailable', `${what} of the database cluster does not answer`, { cause })
}
