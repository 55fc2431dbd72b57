import { AppError } from '@offshoot/contract/errors'
import { NO_OWNER } from '../../common/shares.js'
import { AnswerReader, type Bounds, runBounded } from '../../postgres/bounds.js'
import { COMMIT } from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import { toAppError } from '../../postgres/failures.js'
import { serverOf } from '../../postgres/server.js'
import type { Call, TextRow, TextRows } from '../../postgres/statement.js'
import { BEGIN_SNAPSHOT } from './calls.js'
import { brokenConnection, withConnection } from './connection.js'
import { ApartError, Gathering } from './gathering.js'
import { type Guard, guardCall, ownerOf } from './guard.js'
import { toStaleError } from './staleness.js'
import { type Connections, type Running, runWrites } from './transactions.js'

/*
 * Calls for one row. Those that arrive together share a round trip, and the guard that each of them needs.
 */

interface Guarded {
  readonly guard: Guard
}

interface SharedCall extends Guarded {
  readonly call: Call
  /** Calls that run after it. */
  readonly after?: readonly Call[]
}

/** A query of a user: calls that read one snapshot, in a transaction and a round trip. */
export interface UserQuery {
  readonly calls: readonly Call[]
  /** Calls that come first. They limit what the others can read. */
  readonly before: readonly Call[]
  /** Queries of a branch with the same name also have the same calls first. undefined: others must not wait for it. */
  readonly sharedAs: string | undefined
  readonly connections: Connections
  readonly bounds: Bounds
  /** Called before the calls are sent, which can happen more than once: what they have returned before is void. */
  readonly begin?: (() => void) | undefined
  /** Converts an error of PostgreSQL. */
  explain(error: unknown): unknown
}

interface SharedQuery extends Guarded {
  readonly query: UserQuery
}

/** Larger batches would leave PostgreSQL idle while they are prepared, and this process idle afterwards. */
const GATHERED_MAX = 8

/** The calls that wait to share a round trip. */
export class SharedCalls {
  readonly #database: Database
  readonly #reads: Gathering<SharedCall, TextRow | undefined>
  readonly #inserts: Gathering<SharedCall, TextRow | undefined>
  readonly #queries: Gathering<SharedQuery, TextRows[]>

  constructor(running: Running) {
    this.#database = running.database
    const atOnce = { max: GATHERED_MAX, runningMax: Number.POSITIVE_INFINITY }
    this.#reads = new Gathering(atOnce, (items) => readTogether(running.database, items))
    this.#inserts = new Gathering(atOnce, (items) => insertTogether(running, items))
    // While PostgreSQL answers one batch, this process reads the answers of the other.
    this.#queries = new Gathering({ max: GATHERED_MAX, runningMax: 2 }, (items) =>
      queryTogether(running.database, items),
    )
  }

  /**
   * Runs a read of one row by its id. Reads of one branch and key that arrive together share a round trip; others
   * never wait for each other. Each sees what was committed when it started.
   */
  read(guard: Guard, call: Call): Promise<TextRow | undefined> {
    return traced(this.#database, 'read', this.#reads.add(sharedBy(guard), { guard, call }))
  }

  /**
   * Inserts a row with a generated id into a table without unique columns. Such an insert can neither wait for
   * nor conflict with another row, so inserts that arrive together share a transaction.
   */
  insert(guard: Guard, call: Call, after: readonly Call[]): Promise<TextRow | undefined> {
    const item = { guard, call, after }
    return traced(this.#database, 'insert', this.#inserts.add(sharedBy(guard), item))
  }

  /** Runs a query of a user. Those with the same name that arrive together share a round trip, and read one snapshot. */
  query(guard: Guard, query: UserQuery): Promise<TextRows[]> {
    const { sharedAs } = query
    if (sharedAs === undefined) {
      return queryTogether(this.#database, [{ guard, query }]).then(([rows = []]) => rows)
    }
    const key = `${sharedBy(guard)} ${sharedAs}`
    return traced(this.#database, 'query', this.#queries.add(key, { guard, query }))
  }
}

/** Names the calls that may share a round trip, which takes a connection of one owner. */
function sharedBy(guard: Guard): string {
  return `${guard.rows.branchId} ${ownerOf(guard)}`
}

/** A shared round trip is traced for its first call. Every call has a span for the time it waits. */
function traced<Result>(
  database: Database,
  name: string,
  result: Promise<Result>,
): Promise<Result> {
  const span = database.startCall(`shared ${name}`)
  if (span === undefined) return result
  const attributes = { 'db.system.name': 'postgresql' }
  result.then(
    () => span.end({ attributes, hasFailed: false }),
    () => span.end({ attributes, hasFailed: true }),
  )
  return result
}

async function readTogether(
  database: Database,
  items: readonly SharedCall[],
): Promise<(TextRow | undefined)[]> {
  const [first] = items
  const owner = first === undefined ? NO_OWNER : ownerOf(first.guard)
  const client = await database.acquire({ owner })
  let broken: Error | undefined
  try {
    // The guard comes last: if it holds after the reads, the session was valid when they ran.
    const calls = [...items.map(({ call }) => call), ...guardsOf(items).map(guardCall)]
    const rows = await new AnswerReader(database, { client, owner }).run(calls)
    return firstRows(rows.slice(0, items.length))
  } catch (error) {
    broken = brokenConnection(error)
    throw toAppError(readApart(error, items))
  } finally {
    client.release(broken)
  }
}

async function queryTogether(
  database: Database,
  items: readonly SharedQuery[],
): Promise<TextRows[][]> {
  const [first, ...others] = items
  if (first === undefined) return []
  const { before, connections, explain } = first.query
  // None of several queries is cancelled because the client of another one has gone.
  const bounds =
    others.length === 0
      ? first.query.bounds
      : { timeoutMs: Math.min(...items.map(({ query }) => query.bounds.timeoutMs)) }
  const client = await connections.connect(bounds.signal)
  const reader = new AnswerReader(database, { client, owner: ownerOf(first.guard) })
  // Connections for SQL of users read one snapshot in each transaction, so nothing has to begin it.
  const { joinsCalls } = serverOf(client)
  const opening = [
    ...(joinsCalls ? [] : [BEGIN_SNAPSHOT]),
    ...guardsOf(items).map(guardCall),
    ...before,
  ]
  const calls = items.flatMap(({ query }) => query.calls)
  const run = () => {
    for (const { query } of items) query.begin?.()
    return reader
      .run([...opening, ...calls, ...(joinsCalls ? [] : [COMMIT])])
      .catch((error: unknown) => {
        throw explain(error)
      })
  }
  try {
    const rows = await withConnection(client, () =>
      runBounded({ database, client, bounds, canLose: true }, run),
    )
    let start = opening.length
    return items.map(({ query }) => {
      const end = start + query.calls.length
      const own = rows.slice(start, end)
      start = end
      return own
    })
  } catch (error) {
    throw toAppError(readApart(error, items))
  }
}

function insertTogether(
  running: Running,
  items: readonly SharedCall[],
): Promise<(TextRow | undefined)[]> {
  const [guard, ...others] = guardsOf(items)
  if (guard === undefined) return Promise.resolve([])
  // Sessions of one branch and key differ while one of them is outdated.
  if (others.length > 0) return Promise.reject(new ApartError())
  const calls = [...items.map(({ call }) => call), ...items.flatMap(({ after = [] }) => after)]
  const toRows = (rows: readonly TextRows[]) => firstRows(rows.slice(0, items.length))
  return runWrites(running, guard, calls).then(toRows, (error: unknown) => {
    throw apartIfMany(error, items)
  })
}

/** Lists the guards of calls, each once. */
function guardsOf(items: readonly Guarded[]): readonly Guard[] {
  return [...new Set(items.map(({ guard }) => guard))]
}

function firstRows(rows: readonly TextRows[]): (TextRow | undefined)[] {
  return rows.map((found) => found[0])
}

/**
 * If PostgreSQL rejects one of several calls, or the guard of one does not hold, the batch rolls back and each call is
 * retried alone. After a broken connection the outcome is unknown, so nothing is retried.
 */
function apartIfMany(error: unknown, items: readonly SharedCall[]): unknown {
  return error instanceof AppError ? error : readApart(error, items)
}

/** Like `apartIfMany`, for reads: they can be retried also if they were refused, because of their size together. */
function readApart(error: unknown, items: readonly Guarded[]): unknown {
  if (items.length === 1) return toStaleError(error)
  return brokenConnection(error) === undefined ? new ApartError('', { cause: error }) : error
}
