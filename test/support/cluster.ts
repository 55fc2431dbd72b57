import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import type pg from 'pg'
import { type Cluster, type ClusterNode, hasCitus, startCluster } from '../../scripts/cluster.js'
import { CuttingProxy } from './cutting-proxy.js'
import { makeDataFolder } from './data-folder.js'
import { killPostmaster, killServer, signalServer, until } from './process.js'
import { runOn } from './run-on.js'

/*
 * A Citus cluster of a test's own, whose nodes can be killed. OFFSHOOT_TEST_CLUSTER_BIN names the folder with the programs of
 * a PostgreSQL that has Citus.
 */

const bin = process.env.OFFSHOOT_TEST_CLUSTER_BIN
const options = bin === undefined ? {} : { bin }

/** Returns whether a cluster can be started, and says so if it cannot. */
export function canStartCluster(what: string): boolean {
  const missing =
    bin === undefined
      ? 'OFFSHOOT_TEST_CLUSTER_BIN does not name the programs of a PostgreSQL with Citus'
      : hasCitus(bin)
        ? undefined
        : 'Citus is not installed'
  if (missing !== undefined) console.warn(`skipped: ${what}; ${missing}`)
  return missing === undefined
}

const NODES = 3

/** Ports below those that outgoing connections use: a node that is started again needs its port. */
const PORT_FIRST = 20_000
const PORTS = 12_000

async function lastingPort(): Promise<number> {
  for (;;) {
    const port = PORT_FIRST + Math.floor(Math.random() * PORTS)
    if (await isFree(port)) return port
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  const listening = once(server, 'listening')
  server.listen(port, '127.0.0.1')
  try {
    await listening
    return true
  } catch {
    return false
  } finally {
    server.close()
  }
}

/** Starts a coordinator and two workers. If they are proxied, the nodes connect to workers through proxies. */
export async function startTestCluster(given: { isProxied?: boolean } = {}): Promise<TestCluster> {
  // As root, the servers run as another user, who owns this folder.
  const folder = await makeDataFolder('cluster')
  const ports: number[] = []
  while (ports.length < NODES) ports.push(await lastingPort())
  const [first = 0, ...others] = ports
  const proxies: CuttingProxy[] = []
  for (const port of given.isProxied ? others : []) {
    proxies.push(await CuttingProxy.start({ host: '127.0.0.1', port }))
  }
  const reachedAt = given.isProxied ? [first, ...proxies.map(({ port }) => port)] : ports
  const started = await startCluster({ ...options, folder, ports, reachedAt })
  const cluster = new TestCluster(started, { folder, reachedAt, proxies })
  await cluster.setRecoveryInterval('1s')
  return cluster
}

/** Why Citus refuses to move a database for now. */
const MOVES_LATER = /^(could not acquire the lock|cannot add relation "merge_)/

export class TestCluster {
  readonly coordinator: ClusterNode
  readonly workers: readonly ClusterNode[]

  constructor(
    private readonly cluster: Cluster,
    private readonly options: {
      readonly folder: string
      /** The ports of the nodes in Citus's catalogue. */
      readonly reachedAt: readonly number[]
      readonly proxies: readonly CuttingProxy[]
    },
  ) {
    const [coordinator, ...workers] = cluster.nodes
    if (coordinator === undefined) throw new Error('a cluster must have a coordinator')
    this.coordinator = coordinator
    this.workers = workers
  }

  get nodes(): readonly ClusterNode[] {
    return this.cluster.nodes
  }

  /** Kills all processes of a node at once. `start` of the node starts it again. */
  async kill(node: ClusterNode): Promise<void> {
    await killServer(node.dataDir)
    await node.stop()
  }

  /** Kills the main process of a node. Its other processes end when they notice. */
  async killPostmaster(node: ClusterNode): Promise<void> {
    await killPostmaster(node.dataDir)
  }

  /** Makes a node hang: its connections stay open, and nothing answers until it is resumed. */
  async pause(node: ClusterNode): Promise<void> {
    await signalServer(node.dataDir, 'SIGSTOP')
    // Processes that were started meanwhile.
    await signalServer(node.dataDir, 'SIGSTOP')
  }

  async resume(node: ClusterNode): Promise<void> {
    await signalServer(node.dataDir, 'SIGCONT')
  }

  /** Sets after which time Citus ends transactions that a crash has left prepared; a minute by default, -1 for never. */
  async setRecoveryInterval(interval: string): Promise<void> {
    await onNode(
      this.coordinator,
      `alter system set citus.recover_2pc_interval = '${interval}'`,
      'select pg_reload_conf()',
    )
  }

  async close(): Promise<void> {
    for (const node of this.nodes) await this.kill(node)
    for (const proxy of this.options.proxies) await proxy.close()
    await rm(this.options.folder, { recursive: true, force: true })
  }

  /** Returns the worker that has the rows of a database. */
  async workerOf(databaseName: string): Promise<ClusterNode> {
    const schema = await this.schemaOf(databaseName)
    const [place] = await onNode<{ port: number }>(
      this.coordinator,
      `select nodeport as port
      from citus_shards
      where table_name = '${schema}.idempotency_keys'::regclass`,
    )
    const worker = this.nodes[this.options.reachedAt.indexOf(place?.port ?? 0)]
    if (worker === undefined) throw new Error(`database [${databaseName}] must be on a worker`)
    return worker
  }

  /** Returns the proxy through which a worker is reached. */
  proxyOf(worker: ClusterNode): CuttingProxy {
    const proxy = this.options.proxies[this.workers.indexOf(worker)]
    if (proxy === undefined) throw new Error('the cluster must be proxied')
    return proxy
  }

  /** Returns the PostgreSQL schema of a database. */
  async schemaOf(databaseName: string): Promise<string> {
    const [found] = await onNode<{ schema: string }>(
      this.coordinator,
      `select 'offshoot_db_' || id as schema from offshoot.databases where name = '${databaseName}'`,
    )
    if (found === undefined) throw new Error(`database [${databaseName}] must exist`)
    return found.schema
  }

  /**
   * Moves the rows of a database to another worker. Citus refuses that while a table of the database is created, and while
   * it has the stage of a large merge, which is not logged.
   */
  async move(databaseName: string, worker: ClusterNode): Promise<void> {
    const port = this.options.reachedAt[this.nodes.indexOf(worker)]
    const schema = await this.schemaOf(databaseName)
    const statement = `select citus_schema_move('${schema}', '127.0.0.1', ${port})`
    await until(() =>
      onNode(this.coordinator, statement).then(
        () => true,
        (error: Error) => {
          if (MOVES_LATER.test(error.message)) return false
          throw error
        },
      ),
    )
  }

  /** Returns the transactions that are prepared on nodes, and not yet committed or rolled back. */
  async prepared(): Promise<string[]> {
    const found = await Promise.all(
      this.nodes.map((node) => onNode<{ gid: string }>(node, 'select gid from pg_prepared_xacts')),
    )
    return found.flat().map(({ gid }) => gid)
  }

  /**
   * Returns tables with rows that are not where the catalogue has them: on no node, on a node without a place in Citus's
   * catalogue, or in no heap.
   */
  async findMisplaced(): Promise<string[]> {
    // A layer has no past. A heap that is being filled may become one.
    const known = await onNode<{ name: string; mayLack: boolean }>(
      this.coordinator,
      `select format('offshoot_db_%s.%s_%s', h.database_id, t.name, h.id) as name,
        t.name = 'past' and h.kind = 'filled' as "mayLack"
      from (
        select database_id, id, kind from offshoot.heaps
        union all
        select database_id, heap_id, case definition when 'layer' then 'filled' else 'heap' end
        from offshoot_work.spares
      ) h
      join (values ('heap', '{heap,layer,filled}'::text[]), ('past', '{heap,filled}')) t (name, kinds)
        on h.kind = any(t.kinds)`,
    )
    const placed = await onNode<{ name: string; shard: string; port: number }>(
      this.coordinator,
      `select table_name::text as name, shard_name as shard, nodeport as port
      from citus_shards
      where table_name::text ~ '^offshoot_db_[0-9]+[.](heap|past)_'`,
    )
    const isPlaced = new Set(placed.map(({ name }) => name))
    const stored: string[] = []
    for (const worker of this.workers) {
      const tables = await onNode<{ name: string }>(
        worker,
        `select format('%s.%s', n.nspname, c.relname) as name
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname ~ '^offshoot_db_' and c.relkind = 'r'
          and c.relname ~ '^(heap|past)_[0-9]+_[0-9]+$'`,
      )
      stored.push(...tables.map(({ name }) => `${name} on ${worker.port}`))
    }
    return [
      ...compare(
        known.flatMap(({ name, mayLack }) => (mayLack && !isPlaced.has(name) ? [] : [name])),
        placed.map(({ name }) => name),
        'known to the catalogue, not to Citus',
      ),
      ...compare(
        placed.map(({ shard, port }) => `${shard} on ${port}`),
        stored,
        'known to Citus, not to the node',
      ),
    ]
  }
}

function compare(left: readonly string[], right: readonly string[], label: string): string[] {
  const [ours, theirs] = [new Set(left), new Set(right)]
  return [
    ...left.filter((name) => !theirs.has(name)).map((name) => `${name}: ${label}`),
    ...right.filter((name) => !ours.has(name)).map((name) => `${name}: not ${label}`),
  ]
}

/** Runs statements in the database of a node. Returns the rows of the last one. */
export async function onNode<Row extends pg.QueryResultRow>(
  node: Pick<ClusterNode, 'url'>,
  ...statements: string[]
): Promise<Row[]> {
  // Otherwise, a worker hides the tables that have the rows.
  const options = '-c citus.override_table_visibility=off'
  return runOn<Row>({ connectionString: node.url, options }, statements)
}
