import { setTimeout as delay } from 'node:timers/promises'
import type { Database, Queryable } from './database.js'
import { ANCHOR } from './node-watch.js'
import { onNode } from './place.js'
import type { Transaction } from './run-transaction.js'
import { type Sql, sql } from './sql.js'

/*
 * The rows of a backup of a Citus cluster. The catalogue is on the coordinator, and the rows of each database are on one
 * node, so no snapshot has both. One transaction reads all nodes, and has a snapshot on each, which its first statement
 * there takes. All snapshots of nodes are taken before that of the catalogue, while nobody can commit something of both.
 */

/** Selects schemas by their names. */
type SchemaFilter = (name: Sql) => Sql

/** Where the rows of a database are. */
interface Place {
  readonly schema: string
  readonly nodeId: string
  /** Changes when the database is moved to another node. */
  readonly placementId: string
}

/** Lists the databases that are on nodes. */
function listPlaces(database: Queryable, isIncluded: SchemaFilter): Promise<Place[]> {
  // All tables of a schema are on the same node, and each database has this one.
  return database.query<Place & Record<string, unknown>>(sql`
    select n.nspname as schema, p.groupid::text as "nodeId", p.placementid::text as "placementId"
    from pg_dist_shard s
    join pg_dist_placement p on p.shardid = s.shardid
    join pg_class c on c.oid = s.logicalrelid
    join pg_namespace n on n.oid = c.relnamespace
    where c.relname = ${ANCHOR} and ${isIncluded(sql`n.nspname`)}
    order by n.nspname`)
}

/** How long to wait for transactions that are prepared on a node. Forks and schema edits wait meanwhile. */
const SETTLE_MS = 50
const SETTLE_PAUSE_MS = 5

/** The snapshots do not have what they should. */
export class SnapshotError extends Error {}

/** A transaction is prepared on a node and did not end in time. */
export class UnsettledError extends SnapshotError {}

/**
 * Waits for transactions that a node has prepared: the coordinator may have committed them already. It tells the nodes
 * before it releases locks, but a node that was down a moment ago learns it later.
 */
async function untilSettled(transaction: Queryable, { schema }: Place): Promise<void> {
  const listPrepared = async (): Promise<string[]> => {
    const rows = await transaction.query<{ gid: string }>(
      sql`
      ${onNode(schema)}
      select gid from pg_prepared_xacts where database = current_database()`,
    )
    return rows.map(({ gid }) => gid)
  }
  let pending = await listPrepared()
  for (const endsAt = performance.now() + SETTLE_MS; pending.length > 0; ) {
    if (performance.now() > endsAt) {
      throw new UnsettledError(
        `transaction [${pending[0]}] is prepared on a node and not finished: wait until Citus has recovered it, and try again`,
      )
    }
    await delay(SETTLE_PAUSE_MS)
    const prepared = new Set(await listPrepared())
    pending = pending.filter((gid) => prepared.has(gid))
  }
}

/** Returns one database of each node. */
function onePerNode(places: readonly Place[]): Place[] {
  return [...new Map(places.map((place) => [place.nodeId, place])).values()]
}

const SAVEPOINT = sql`savepoint of_node`
const RELEASE_LOCKS = sql`rollback to savepoint of_node`

/** Reads the rows of databases that are on nodes, each node as of one moment. */
export class NodeSnapshots {
  readonly #places = new Map<string, Place>()
  readonly #isIncluded: SchemaFilter

  private constructor(
    /** Reads the rows of all databases. */
    readonly transaction: Transaction,
    isIncluded: SchemaFilter,
  ) {
    this.#isIncluded = isIncluded
  }

  /**
   * Lists the databases that are on nodes, and waits for what the nodes have prepared. `behind` holds the locks that keep
   * others from committing what belongs to both the catalogue and rows.
   */
  static async prepare(behind: Queryable, isIncluded: SchemaFilter): Promise<readonly Place[]> {
    const places = await listPlaces(behind, isIncluded)
    for (const place of onePerNode(places)) await untilSettled(behind, place)
    return places
  }

  /** Takes a snapshot on each node with one of the databases, while `prepare` holds. */
  static async take(
    reading: Transaction,
    { places, isIncluded }: { places: readonly Place[]; isIncluded: SchemaFilter },
  ): Promise<NodeSnapshots> {
    const snapshots = new NodeSnapshots(reading, isIncluded)
    for (const place of places) snapshots.#places.set(place.schema, place)
    for (const { schema } of onePerNode(places)) {
      await snapshots.read(() => reading.query(sql`${onNode(schema)} select pg_current_snapshot()`))
    }
    return snapshots
  }

  /** Returns whether the rows of a schema are on a node. */
  has(schema: string): boolean {
    return this.#places.has(schema)
  }

  /** Runs statements of the transaction that reads. The locks of tables end with them; the snapshots stay. */
  async read<Result>(body: () => Promise<Result>): Promise<Result> {
    await this.transaction.query(SAVEPOINT)
    const result = await body()
    await this.transaction.query(RELEASE_LOCKS)
    return result
  }

  /**
   * Fails if rows may have been read from elsewhere: a database was moved, so that its rows are on a node whose snapshot
   * is older than they are, or Citus has used a second connection to a node, which has a snapshot of its own.
   */
  async verify(database: Database): Promise<void> {
    await this.requireUnmoved(database)
    for (const { schema } of onePerNode([...this.#places.values()])) {
      const [row] = await this.transaction.query<{ count: number }>(
        sql`${onNode(schema)} ${COUNT_CONNECTIONS}`,
      )
      if (row?.count !== 1) {
        throw new SnapshotError('Citus has read a node by several connections: try again')
      }
    }
  }

  async requireUnmoved(database: Database): Promise<void> {
    const places = new Map<string, Place>()
    for (const place of await listPlaces(database, this.#isIncluded)) {
      places.set(place.schema, place)
    }
    for (const { schema, placementId } of this.#places.values()) {
      if (places.get(schema)?.placementId === placementId) continue
      throw new SnapshotError(
        `the database with the schema [${schema}] was moved to another node during the backup: try again`,
      )
    }
  }
}

/** Counts the connections of the same distributed transaction to a node. */
const COUNT_CONNECTIONS = sql`
  select count(*)::integer as count
  from get_all_active_transactions() own
  join get_all_active_transactions() t
    on t.datid = own.datid and t.global_pid = own.global_pid
      and t.initiator_node_identifier = own.initiator_node_identifier
      and t.transaction_number = own.transaction_number
  where own.process_id = pg_backend_pid()`
