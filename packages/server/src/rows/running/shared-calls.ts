import { AnswerReader } from '../../postgres/bounds.js'
import { COMMIT_CALLS } from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import { isRetryable, toAppError } from '../../postgres/failures.js'
import type { Call, TextRow, TextRows } from '../../postgres/statement.js'
import { BEGIN } from './calls.js'
import { brokenConnection, retryConflicts, withConnection } from './connection.js'
import { enterGateCall } from './gate.js'
import { ApartError, Gathering } from './gathering.js'
import { type Guard, ownerOf } from './guard.js'
import { throughGate } from './shared-gate.js'
import { toStaleError } from './staleness.js'
import { runCommitting } from './transactions.js'

/*
 * Calls for one row with the guard in the statement. An empty result means either that there is no such row
 * or that the guard does not hold. To find out, the caller repeats the call with the guard as a separate
 * statement.
 */

interface GuardedCall {
  readonly guard: Guard
  readonly call: Call
}

/** Larger batches would leave PostgreSQL idle while they are prepared, and this process idle afterwards. */
const GATHERED_MAX = 8

const gatheredReads = new WeakMap<Database, Gathering<GuardedCall, TextRow | undefined>>()
const gatheredInserts = new WeakMap<Database, Gathering<GuardedCall, TextRow | undefined>>()

/**
 * Runs a read of one row by its id. Reads of one branch and key that arrive together share a round trip; others
 * never wait for each other. Each sees what was committed when it started.
 */
export function runGuardedRead(
  database: Database,
  guard: Guard,
  call: Call,
): Promise<TextRow | undefined> {
  const reads = gathered(gatheredReads, database, readTogether)
  return traced(database, 'read', reads.add(sharedBy(guard), { guard, call }))
}

/** Runs a write of one row, in a transaction of its own. */
export function runGuardedWrite(
  database: Database,
  guard: Guard,
  call: Call,
): Promise<TextRow | undefined> {
  return writeTogether(database, [{ guard, call }]).then(([row]) => row)
}

/**
 * Inserts a row with a generated id into a table without unique columns. Such an insert can neither wait for
 * nor conflict with another row, so inserts that arrive together share a transaction.
 */
export function runGuardedInsert(
  database: Database,
  guard: Guard,
  call: Call,
): Promise<TextRow | undefined> {
  const inserts = gathered(gatheredInserts, database, writeTogether)
  return traced(database, 'insert', inserts.add(sharedBy(guard), { guard, call }))
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

type RunTogether = (
  database: Database,
  items: readonly GuardedCall[],
) => Promise<readonly (TextRow | undefined)[]>

function gathered(
  known: WeakMap<Database, Gathering<GuardedCall, TextRow | undefined>>,
  database: Database,
  run: RunTogether,
): Gathering<GuardedCall, TextRow | undefined> {
  let gathering = known.get(database)
  if (gathering === undefined) {
    gathering = new Gathering(GATHERED_MAX, (items) => run(database, items))
    known.set(database, gathering)
  }
  return gathering
}

async function readTogether(
  database: Database,
  items: readonly GuardedCall[],
): Promise<(TextRow | undefined)[]> {
  const [first] = items
  const client = await database.acquire({ owner: first && ownerOf(first.guard) })
  let broken: Error | undefined
  try {
    const rows = await new AnswerReader(database, client).run(items.map(({ call }) => call))
    return firstRows(rows)
  } catch (error) {
    broken = brokenConnection(error)
    throw toAppError(apartIfMany(error, items))
  } finally {
    client.release(broken)
  }
}

function writeTogether(
  database: Database,
  items: readonly GuardedCall[],
): Promise<(TextRow | undefined)[]> {
  const [first] = items
  if (first === undefined) return Promise.resolve([])
  const { branchId } = first.guard.rows
  const attempt = async () => {
    const client = await database.acquire({ owner: ownerOf(first.guard) })
    return withConnection(client, async () => {
      const rows = await runCommitting(client, [
        BEGIN,
        enterGateCall(branchId),
        ...items.map(({ call }) => call),
        ...COMMIT_CALLS,
      ]).catch((error) => Promise.reject(apartIfMany(error, items)))
      return firstRows(rows.slice(2, -COMMIT_CALLS.length))
    })
  }
  return retryConflicts(() => throughGate(database, branchId, attempt))
}

function firstRows(rows: readonly TextRows[]): (TextRow | undefined)[] {
  return rows.map((found) => found[0])
}

/**
 * If PostgreSQL rejects one of several calls, the batch rolls back and each call is retried alone. After a
 * broken connection the outcome is unknown, so nothing is retried.
 */
function apartIfMany(error: unknown, items: readonly GuardedCall[]): unknown {
  if (isRetryable(error)) return error
  if (items.length === 1) return toStaleError(error)
  return brokenConnection(error) === undefined ? new ApartError('', { cause: error }) : error
}
