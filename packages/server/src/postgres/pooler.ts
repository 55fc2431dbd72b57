import { AppError } from '@offshoot/contract/errors'
import pg from 'pg'
import { CONNECT_TIMEOUT_MS, type Connection, clientConfig } from './client-config.js'
import { codeOf } from './failures.js'
import { sql } from './sql.js'
import { type Call, compileStatement, slot } from './statement.js'

/*
 * A pooler between the service and PostgreSQL, such as PgBouncer. A pooler in session mode gives a client one server
 * connection for as long as the client is connected. In transaction mode, each transaction may get another one. Then
 * prepared statements, settings and advisory locks of a session belong to somebody else, so the service refuses it.
 *
 * PostgreSQL tells a new client the process id of its backend. A pooler has no backend by then: it sends an id of its own,
 * or none. So a connection whose backend has another id goes through a pooler. That is found out for each new connection,
 * by the statement that applies its settings. Behind a pooler:
 *
 * - The first connection looks for transaction mode, with a second client that competes for server connections.
 * - Each batch ends with a check that its backend is still that of the session, before the COMMIT if it has one. A pooler
 *   in use by others could pass the first test by chance, and its mode can be changed at any time.
 */

/** Text of a refusal, also in `docs/guides/operating.md`. */
const REMEDY =
  'use the direct address of PostgreSQL in OFFSHOOT_DATABASE_URL, or that of a pool in session mode, and restart the service'

/** A pooler does not keep the connection of a session. */
export class PoolerError extends AppError {
  constructor(mode: 'transaction' | 'statement', cause?: unknown) {
    super(
      'unavailable',
      `OFFSHOOT_DATABASE_URL leads to a connection pooler in ${mode} mode (such as PgBouncer), which gives a session another server connection for each ${mode}: ${REMEDY}`,
      { cause },
    )
  }
}

/** Sessions behind a pooler: their backends, and who wants to know when they lose them. */
interface PooledSession {
  readonly check: Call
  onLost(error: PoolerError): void
}

const pooled = new WeakMap<pg.ClientBase, PooledSession>()

const SAME_BACKEND = compileStatement(
  sql`select 1 / (pg_backend_pid() = ${slot(0)}::integer)::integer`,
)
const DIVISION_BY_ZERO = '22012'
/** A prepared statement does not exist, or exists already. A session has all of its own. */
const PREPARED_ELSEWHERE = new Set(['26000', '42P05'])

/** Notes that a connection goes through a pooler, which keeps its backend in session mode. */
export function notePooled(
  client: pg.ClientBase,
  processId: number,
  onLost: (error: PoolerError) => void,
): void {
  pooled.set(client, {
    check: { statement: SAME_BACKEND, values: [String(processId)] },
    onLost,
  })
  // Statements are cancelled by the id of their backend.
  Object.assign(client, { processID: processId })
}

/** A batch with a check of its backend. */
interface CheckedBatch {
  readonly calls: readonly Call[]
  /** Removes the rows of the check. */
  restore<Rows>(rows: Rows[]): Rows[]
  /** Returns the error to report. `answered` calls have succeeded before it. */
  explain(error: Error, answered: number): Error
}

/**
 * Adds a check to a batch on a connection behind a pooler. It comes last, because the first statement of a transaction
 * that locks a table must not take a snapshot. If it fails, PostgreSQL rolls back the whole batch.
 */
export function checkBatch(
  client: pg.ClientBase,
  calls: readonly Call[],
): CheckedBatch | undefined {
  const session = pooled.get(client)
  if (session === undefined) return undefined
  const commit = calls.findLastIndex(({ statement }) => statement.text === 'commit')
  const index = commit === -1 ? calls.length : commit
  return {
    calls: calls.toSpliced(index, 0, session.check),
    restore: (rows) => rows.toSpliced(index, 1),
    explain(error, answered) {
      const isElsewhere = answered === index && codeOf(error) === DIVISION_BY_ZERO
      return isElsewhere ? loseSession(session, error) : explainPooled(client, error)
    },
  }
}

/** Returns the error to report for a statement that failed on a connection, which may be behind a pooler. */
export function explainPooled<Failure>(
  client: pg.ClientBase,
  error: Failure,
): Failure | PoolerError {
  const session = pooled.get(client)
  if (session === undefined || !PREPARED_ELSEWHERE.has(codeOf(error) ?? '')) return error
  return loseSession(session, error)
}

function loseSession(session: PooledSession, cause: unknown): PoolerError {
  const error = new PoolerError('transaction', cause)
  session.onLost(error)
  return error
}

/** How often two clients compete. */
const ROUNDS = 4
const STATEMENT_MODE = /transaction blocks not allowed/i

/** Throws if the pooler does not keep the connections of sessions. */
export async function requireSessionMode(
  connection: Connection,
  connectTimeoutMs?: number,
): Promise<void> {
  const [one, other] = [open(connection, connectTimeoutMs), open(connection, connectTimeoutMs)]
  try {
    await one.connect()
    await other.connect()
    await compete(one, other)
  } catch (error) {
    if (isTimeout(error)) throw noSecondConnection(error)
    if (STATEMENT_MODE.test((error as Error).message)) throw new PoolerError('statement', error)
    throw error
  } finally {
    for (const client of [one, other]) client.end().catch(() => undefined)
  }
}

/** A client of `pg` that did not get an answer in time. The error has no code. */
function isTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Query read timeout'
}

function noSecondConnection(cause: unknown): AppError {
  return new AppError(
    'unavailable',
    'the connection pooler of OFFSHOOT_DATABASE_URL gave no second connection in time: its pool must have as many connections as the service opens (OFFSHOOT_POOL_MAX, and a few more)',
    { cause },
  )
}

function open(connection: Connection, connectTimeoutMs = CONNECT_TIMEOUT_MS): pg.Client {
  const client = new pg.Client({
    ...clientConfig(connection, connectTimeoutMs),
    query_timeout: connectTimeoutMs,
  })
  client.on('error', () => undefined)
  return client
}

/**
 * One client is connected and does nothing, while the other one takes a server connection: that which was used last, or
 * that which has waited longest. In transaction mode it is that of the first client, or the first client then gets
 * another one.
 */
async function compete(one: pg.Client, other: pg.Client): Promise<void> {
  await one.query('begin')
  const first = await backendOf(one)
  await one.query('commit')
  const requireFirst = async () => {
    if ((await backendOf(one)) !== first) throw new PoolerError('transaction')
  }
  for (let round = 0; round < ROUNDS; round++) {
    await other.query('begin')
    if ((await backendOf(other)) === first) throw new PoolerError('transaction')
    await other.query('commit')
    await requireFirst()
    await requireFirst()
  }
}

async function backendOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ id: number }>('select pg_backend_pid() as id')
  return rows[0]?.id ?? 0
}
