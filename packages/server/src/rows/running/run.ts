import { setTimeout as delay } from 'node:timers/promises'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import {
  AnswerReader,
  type Bounds,
  LostBackendError,
  runBounded,
  type Unbound,
} from '../../postgres/bounds.js'
import {
  COMMIT,
  COMMIT_CALLS,
  releaseWhenSettled,
  settleCommit,
  UnknownOutcomeError,
} from '../../postgres/commit.js'
import type { Database } from '../../postgres/database.js'
import { codeOf, isRetryable, toAppError } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import { ATTEMPTS_MAX, backoffMs } from '../../postgres/run-transaction.js'
import { ident, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileStatement,
  type Statement,
  type TextRows,
} from '../../postgres/statement.js'
import { retries } from '../../telemetry/events.js'
import { gateName } from './gate.js'
import { ApartError, Gathering } from './gathering.js'
import { GUARD_FAILED, type Guard, guardCall } from './guard.js'

/** What the process knew about the branch or the key is no longer so: look again and start over. */
export class StaleError extends Error {}

const BEGIN = compileStatement(sql`begin isolation level serializable`)
const BEGIN_READS = compileStatement(sql`begin isolation level serializable read only`)
const BEGIN_SNAPSHOT = compileStatement(sql`begin isolation level repeatable read read only`)
const NO_TIMEOUT = compileStatement(sql`set local statement_timeout = 0`)

/** The tables or columns of an old layout are gone. */
const GONE_CODES = new Set(['42P01', '42703'])

const gates = new Map<number, Statement>()

function enterGateCall(gate: number): Call {
  let statement = gates.get(gate)
  if (statement === undefined) {
    statement = compileStatement(
      sql`lock table offshoot.${ident(gateName(gate))} in row share mode`,
    )
    gates.set(gate, statement)
  }
  return { statement, values: [] }
}

const plain = (statement: Statement): Call => ({ statement, values: [] })

function translate(error: unknown, guard: Guard): unknown {
  const code = codeOf(error)
  if (code === GUARD_FAILED) return new StaleError(code)
  // Most likely the schema has moved on; the cause is kept in case it has not.
  if (code !== undefined && GONE_CODES.has(code)) return new StaleError(code, { cause: error })
  // Whatever else failed came after the guard.
  if (code !== undefined && isSqlState(code)) guard.passed = true
  return error
}

/** Runs reads in one round trip; each sees what was committed when it started. */
export async function runReads(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
  bounds?: Bounds,
): Promise<TextRows[]> {
  const client = await database.pool.connect()
  let broken: Error | undefined
  try {
    const reader = new AnswerReader(database, client)
    const run = () => reader.run([guardCall(guard), ...calls])
    const [, ...rows] = await runBounded({ database, client, bounds }, run)
    guard.passed = true
    return rows
  } catch (error) {
    broken = brokenConnection(error)
    throw toAppError(translate(error, guard))
  } finally {
    client.release(broken)
  }
}

/**
 * Runs reads in one round trip, all as of one moment that has its place among the transactions that
 * write. They stay out of the gate: whoever has it alone meets no writer, so what it does comes as a
 * whole before or after every snapshot, and reads would only wait for it, and for all it waits for.
 */
export function runSerialReads(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  return runWhole(database, guard, {
    opening: [plain(BEGIN_READS), guardCall(guard)],
    calls,
    closing: [COMMIT],
    run: (client, all) => new AnswerReader(database, client).run(all),
  })
}

/** A transaction in one round trip. Only what `calls` give is returned. */
function runWhole(
  database: Database,
  guard: Guard,
  options: {
    opening: readonly Call[]
    calls: readonly Call[]
    closing: readonly Call[]
    run(client: pg.PoolClient, calls: readonly Call[]): Promise<TextRows[]>
  },
): Promise<TextRows[]> {
  const { opening, calls, closing, run } = options
  return retrying(async () => {
    const client = await database.pool.connect()
    return finishing(client, guard, async () => {
      const rows = await run(client, [...opening, ...calls, ...closing])
      guard.passed = true
      return rows.slice(opening.length, -closing.length)
    })
  })
}

type Row = readonly (string | null)[]

interface GuardedCall {
  readonly guard: Guard
  readonly call: Call
}

/** More at once would leave PostgreSQL idle while they are prepared, and this process after that. */
const GATHERED_MAX = 8

const gatheredReads = new WeakMap<Database, Gathering<GuardedCall, Row | undefined>>()
const gatheredInserts = new WeakMap<Database, Gathering<GuardedCall, Row | undefined>>()

/**
 * Runs a read of one row, by its id, that has the guard built in. No row may mean that there is none
 * or that the guard does not hold; then the caller asks again with the guard apart.
 *
 * Reads of one branch that arrive together share a round trip, and those of others never wait for
 * them. Each sees what was committed when it started.
 */
export function runGuardedRead(
  database: Database,
  guard: Guard,
  call: Call,
): Promise<Row | undefined> {
  const reads = gathered(gatheredReads, database, readTogether)
  return traced(database, 'read', reads.add(guard.layout.branchId, { guard, call }))
}

/** The same for a write of one row. */
export function runGuardedWrite(
  database: Database,
  guard: Guard,
  call: Call,
): Promise<Row | undefined> {
  return writeTogether(database, [{ guard, call }]).then(([row]) => row)
}

/**
 * The same for a row with an id that nobody else has, in a table without unique columns, so that it
 * can neither wait for another row nor be refused for one. Those that arrive together share a
 * transaction.
 */
export function runGuardedInsert(
  database: Database,
  guard: Guard,
  call: Call,
): Promise<Row | undefined> {
  const inserts = gathered(gatheredInserts, database, writeTogether)
  return traced(database, 'insert', inserts.add(guard.layout.branchId, { guard, call }))
}

/** The round trip that several share belongs to the first of them; each has waited for it. */
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
) => Promise<readonly (Row | undefined)[]>

function gathered(
  known: WeakMap<Database, Gathering<GuardedCall, Row | undefined>>,
  database: Database,
  run: RunTogether,
): Gathering<GuardedCall, Row | undefined> {
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
): Promise<(Row | undefined)[]> {
  const client = await database.pool.connect()
  let broken: Error | undefined
  try {
    const rows = await new AnswerReader(database, client).run(items.map(({ call }) => call))
    return firstRows(items, rows)
  } catch (error) {
    broken = brokenConnection(error)
    throw toAppError(translateTogether(error, items))
  } finally {
    client.release(broken)
  }
}

function writeTogether(
  database: Database,
  items: readonly GuardedCall[],
): Promise<(Row | undefined)[]> {
  const [first] = items
  if (first === undefined) return Promise.resolve([])
  const { guard } = first
  return retrying(async () => {
    const client = await database.pool.connect()
    return finishing(client, guard, async () => {
      const rows = await runCommitting(client, [
        plain(BEGIN),
        enterGateCall(guard.layout.gate),
        ...items.map(({ call }) => call),
        ...COMMIT_CALLS,
      ]).catch((error) => Promise.reject(translateTogether(error, items)))
      return firstRows(items, rows.slice(2, -COMMIT_CALLS.length))
    })
  })
}

function firstRows(items: readonly GuardedCall[], rows: readonly TextRows[]): (Row | undefined)[] {
  return items.map(({ guard }, index) => {
    const row = rows[index]?.[0]
    if (row !== undefined) guard.passed = true
    return row
  })
}

/** What PostgreSQL refuses of one item is no reason for the others; only then was nothing done. */
function translateTogether(error: unknown, items: readonly GuardedCall[]): unknown {
  const [first] = items
  if (first === undefined || isRetryable(error)) return error
  if (items.length === 1) return translate(error, first.guard)
  return brokenConnection(error) === undefined ? new ApartError('', { cause: error }) : error
}

/** Runs writes that cannot be refused half-way: the whole transaction is one round trip. */
export function runWrites(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  return runWhole(database, guard, {
    opening: [plain(BEGIN), enterGateCall(guard.layout.gate), guardCall(guard)],
    calls,
    closing: COMMIT_CALLS,
    run: runCommitting,
  })
}

/** Runs calls of which the last is a COMMIT. */
function runCommitting(client: pg.PoolClient, calls: readonly Call[]): Promise<TextRows[]> {
  return settleCommit(client, runPipeline(client, calls))
}

/** Where a transaction gets its connection from, when it is not the pool that all share. */
export interface Connections {
  connect(): Promise<pg.PoolClient>
}

/** A transaction behind the gate, open for more. */
export interface OpenTransaction {
  readonly client: pg.PoolClient
  run(calls: readonly Call[]): Promise<TextRows[]>
}

/** What a long one reads is used as it comes, so it is not limited. */
function openTransaction(
  database: Database,
  client: pg.PoolClient,
  options: { isLong?: boolean } = {},
): OpenTransaction {
  if (options.isLong) return { client, run: (calls) => runPipeline(client, calls) }
  const reader = new AnswerReader(database, client)
  return { client, run: (calls) => reader.run(calls) }
}

/**
 * Runs a transaction in several steps. `body` may run more than once, with nothing left of the
 * earlier attempts; what it throws is rolled back.
 */
export function runSteps<Result>(
  database: Database,
  guard: Guard,
  body: (transaction: OpenTransaction, first: readonly TextRows[]) => Promise<Result>,
  options: {
    first?: readonly Call[]
    isLong?: boolean
    isOnce?: boolean
    bounds?: Bounds | undefined
    connections?: Connections | undefined
  } = {},
): Promise<Result> {
  let endsAt: number | undefined
  const attempt = async () => {
    const client = await (options.connections ?? database.pool).connect()
    // All attempts together have the time of one.
    endsAt ??= performance.now() + (options.bounds?.timeoutMs ?? 0)
    const bounds = options.bounds && {
      ...options.bounds,
      timeoutMs: Math.max(1, Math.round(endsAt - performance.now())),
    }
    const run = async (unbind: Unbound): Promise<Result> => {
      const opening = [
        plain(BEGIN),
        enterGateCall(guard.layout.gate),
        guardCall(guard),
        ...(options.isLong ? [plain(NO_TIMEOUT)] : []),
      ]
      const transaction = openTransaction(database, client, options)
      const rows = await transaction.run([...opening, ...(options.first ?? [])])
      guard.passed = true
      const result = await body(transaction, rows.slice(opening.length))
      await unbind()
      await runCommitting(client, COMMIT_CALLS)
      return result
    }
    const canLose = options.connections !== undefined
    return finishing(client, guard, () => runBounded({ database, client, bounds, canLose }, run))
  }
  return options.isOnce
    ? attempt().catch((error) => Promise.reject(toAppError(error)))
    : retrying(attempt)
}

/** Runs reads in several steps, all as of one moment. What `body` throws ends them. */
export async function runSnapshot<Result>(
  database: Database,
  guard: Guard,
  body: (transaction: OpenTransaction) => Promise<Result>,
  options: { bounds?: Bounds | undefined; connections?: Connections | undefined } = {},
): Promise<Result> {
  const { bounds, connections } = options
  const client = await (connections ?? database.pool).connect()
  const run = async (): Promise<Result> => {
    await runPipeline(client, [plain(BEGIN_SNAPSHOT), guardCall(guard)])
    guard.passed = true
    const result = await body(openTransaction(database, client))
    await runPipeline(client, [COMMIT])
    return result
  }
  const canLose = connections !== undefined
  try {
    return await finishing(client, guard, () =>
      runBounded({ database, client, bounds, canLose }, run),
    )
  } catch (error) {
    throw toAppError(error)
  }
}

async function retrying<Result>(attempt: () => Promise<Result>): Promise<Result> {
  for (let count = 1; ; count++) {
    try {
      return await attempt()
    } catch (error) {
      if (!isRetryable(error) || count === ATTEMPTS_MAX) throw toAppError(error)
      retries.add()
      await delay(backoffMs(count))
    }
  }
}

/** Gives the connection back clean, or not at all. */
async function finishing<Result>(
  client: pg.PoolClient,
  guard: Guard,
  body: () => Promise<Result>,
): Promise<Result> {
  let broken: Error | undefined
  let unknown: UnknownOutcomeError | undefined
  try {
    return await body()
  } catch (error) {
    if (error instanceof UnknownOutcomeError) unknown = error
    else broken = brokenConnection(error)
    if (broken === undefined && unknown === undefined) {
      try {
        await client.query('rollback')
      } catch (rollbackError) {
        broken = rollbackError as Error
      }
    }
    throw translate(error, guard)
  } finally {
    if (unknown === undefined) client.release(broken)
    else releaseWhenSettled(client, unknown)
  }
}

/** Errors with a SQLSTATE were reported over a connection that works; others were not. */
function brokenConnection(error: unknown): Error | undefined {
  const code = codeOf(error)
  if (error instanceof LostBackendError) return error
  if (code !== undefined && isSqlState(code) && !code.startsWith('57P')) return undefined
  // Refusals of our own leave the connection as it is.
  if (error instanceof AppError || error instanceof StaleError || error instanceof ApartError) {
    return undefined
  }
  return error instanceof Error ? error : new Error('unknown failure')
}

/** System errors are five letters long too, but have no digit. */
function isSqlState(code: string): boolean {
  return /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code)
}
