import type pg from 'pg'
import { codeOf, PERMISSION_DENIED } from './failures.js'
import { RECOVER } from './in-doubt.js'
import { literal, sql } from './sql.js'

/*
 * Backends of the coordinator of a cluster whose connections were closed because a node did not answer. They go on as soon
 * as the node answers again, and may even commit. A client that was refused could read that its changes are not there, and
 * see them a moment later. So they are ended before the databases of the node are used again, and so are the backends
 * of the nodes that work for them.
 */

/** How long the end of one backend may take. If it takes longer, it is asked for again later. */
const END_WAIT_MS = 200
/** After so many attempts to end backends, they are left alone: the databases are needed. */
const ATTEMPTS_MAX = 30

interface Backend {
  readonly pid: number
  /** Identifies it together with the number of the process, which the system uses again. */
  readonly startedAt: string
  /** By this name, nodes know the backend that they work for. */
  readonly nameOnNodes: string
}

/** The schema that a connection used, and whether it defined tables. */
interface BackendUse {
  /** The schema of the database whose rows it used. */
  readonly schema: string | undefined
  /** Whether it defined tables, which concerns all nodes. */
  readonly definesTables: boolean
}

export interface Node {
  readonly host: string
  readonly port: number
}

/** Runs a statement on the coordinator, on a connection of its own. undefined: there was no answer in time. */
type Ask = <Row extends pg.QueryResultRow>(
  text: string,
  values?: readonly unknown[],
) => Promise<Row[] | undefined>

const READ = `
  select a.pid, a.backend_start::text as "startedAt",
    'citus_internal gpid=' || citus_backend_gpid() as "nameOnNodes"
  from pg_stat_activity a
  where a.pid = pg_backend_pid()`

const END = `
  select pg_terminate_backend(a.pid, $3) as "hasEnded"
  from pg_stat_activity a
  join unnest($1::integer[], $2::timestamptz[]) b (pid, started_at)
    on b.pid = a.pid and b.started_at = a.backend_start`

const RUN_ON_NODES = 'select result from master_run_on_worker($1, $2, $3, true)'

/** Returns a statement that ends the backends of a node that work for others, and tells whether they have ended. */
const endOnNode = (backends: readonly Backend[]): string =>
  sql`
    select coalesce(bool_and(pg_terminate_backend(a.pid, ${literal(String(END_WAIT_MS))}::bigint)), true)
    from pg_stat_activity a
    where a.application_name in (
      select jsonb_array_elements_text(${literal(JSON.stringify(backends.map((each) => each.nameOnNodes)))}::jsonb)
    )`.text

export class AbandonedBackends {
  readonly #known = new WeakMap<pg.ClientBase, Backend>()
  #abandoned: { readonly backend: Backend; readonly use: BackendUse }[] = []
  #attempts = 0

  /** Notes which backend a new connection has. */
  async open(client: pg.ClientBase): Promise<void> {
    const { rows } = await client.query<Backend>(READ)
    if (rows[0] !== undefined) this.#known.set(client, rows[0])
  }

  /** The connection was closed while its backend waited for a node. */
  add(client: pg.ClientBase, use: BackendUse): void {
    const backend = this.#known.get(client)
    if (backend !== undefined) this.#abandoned.push({ backend, use })
  }

  /** Forgets all of them. */
  clear(): void {
    this.#abandoned = []
    this.#attempts = 0
  }

  /** Ends those whose nodes answer again. Returns whether they have ended. */
  async end(
    ask: Ask,
    { nodes, isBack }: { nodes: readonly Node[]; isBack(use: BackendUse): boolean },
  ): Promise<boolean> {
    const ending = this.#abandoned.filter(({ use }) => isBack(use)).map(({ backend }) => backend)
    if (ending.length === 0) return true
    const hasEnded = await this.#endAll(ask, ending, nodes).catch((error: unknown) => {
      if (codeOf(error) === PERMISSION_DENIED) return true
      throw error
    })
    if (!hasEnded && ++this.#attempts < ATTEMPTS_MAX) return false
    this.#abandoned = this.#abandoned.filter(({ use }) => !isBack(use))
    this.#attempts = 0
    return true
  }

  async #endAll(ask: Ask, backends: readonly Backend[], nodes: readonly Node[]): Promise<boolean> {
    const ended = await ask<{ hasEnded: boolean }>(END, [
      backends.map(({ pid }) => pid),
      backends.map(({ startedAt }) => startedAt),
      END_WAIT_MS,
    ])
    // A backend of the coordinator may not end before those of the nodes that it waits for: in a COMMIT, it ignores the order.
    const command = endOnNode(backends)
    const endedOnNodes = await ask<{ result: string }>(RUN_ON_NODES, [
      nodes.map(({ host }) => host),
      nodes.map(({ port }) => port),
      nodes.map(() => command),
    ])
    const haveEnded =
      ended?.every(({ hasEnded }) => hasEnded) &&
      endedOnNodes?.every(({ result }) => result !== 'f')
    if (!haveEnded) return false
    // A transaction that the coordinator has committed may still be prepared on a node.
    return (await ask(RECOVER)) !== undefined
  }
}
