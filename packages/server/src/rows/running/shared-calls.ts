import { AppError } from '@offshoot/contract/errors'
import { NO_OWNER } from '../../common/shares.js'
import { AnswerReader } from '../../postgres/bounds.js'
import type { Database } from '../../postgres/database.js'
import { toAppError } from '../../postgres/failures.js'
import type { Call, TextRow, TextRows } from '../../postgres/statement.js'
import { brokenConnection } from './connection.js'
import { ApartError, Gathering } from './gathering.js'
import { type Guard, guardCall, ownerOf } from './guard.js'
import { toStaleError } from './staleness.js'
import { type Running, runWrites } from './transactions.js'

/*
 * Calls for one row. Those that arrive together share a round trip, and the guard that each of them needs.
 */

interface SharedCall {
  readonly guard: Guard
  readonly call: Call
  /** Calls that run after it. */
  readonly after?: readonly Call[]
}

/** Larger batches would leave PostgreSQL idle while they are prepared, and this process idle afterwards. */
const GATHERED_MAX = 8

/** The calls that wait to share a round trip. */
export class SharedCalls {
  readonly #database: Database
  readonly #reads: Gathering<SharedCall, TextRow | undefined>
  readonly #inserts: Gathering<SharedCall, TextRow | undefined>

  constructor(running: Running) {
    this.#database = running.database
    this.#reads = new Gathering(GATHERED_MAX, (items) => readTogether(running.database, items))
    this.#inserts = new Gathering(GATHERED_MAX, (items) => insertTogether(running, items))
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
    throw toAppError(apartIfMany(error, items))
  } finally {
    client.release(broken)
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
function guardsOf(items: readonly SharedCall[]): readonly Guard[] {
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
  if (items.length === 1 || error instanceof AppError) return toStaleError(error)
  return brokenConnection(error) === undefined ? new ApartError('', { cause: error }) : error
}
