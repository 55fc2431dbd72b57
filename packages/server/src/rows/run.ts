import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import type { Database } from '../postgres/database.js'
import { codeOf, isRetryable, toAppError } from '../postgres/failures.js'
import { runPipeline } from '../postgres/pipeline.js'
import { ATTEMPTS_MAX, backoffMs } from '../postgres/run-transaction.js'
import { ident, sql } from '../postgres/sql.js'
import {
  type Call,
  compileStatement,
  type Statement,
  slot,
  type TextRows,
} from '../postgres/statement.js'
import { gateName } from './gate.js'
import type { Layout } from './layout.js'

/** What the process knew about the branch or the key is no longer so: look again and start over. */
export class StaleError extends Error {}

/** What a request relies on. Checked by PostgreSQL in the transaction of the request itself. */
export interface Guard {
  readonly layout: Layout
  readonly keyId: string
  readonly keyStamp: string
  /** Set once PostgreSQL has confirmed it for this request. */
  passed: boolean
}

const BEGIN = compileStatement(sql`begin isolation level serializable`)
const COMMIT = compileStatement(sql`commit`)
const NO_TIMEOUT = compileStatement(sql`set local statement_timeout = 0`)

/**
 * Fails, and so ends the batch it is in, unless branch and key are as they were when the request was
 * resolved.
 */
const GUARD = compileStatement(sql`
  select 1 / count(*)::integer
  from offshoot.branches b, offshoot.api_keys k
  where b.id = ${slot(0)}::text and b.stamp = ${slot(1)}::bigint
    and k.id = ${slot(2)}::bigint and k.stamp = ${slot(3)}::bigint`)
const GUARD_FAILED = '22012'

/** The tables or columns of an old layout are gone. */
const STALE_CODES = new Set([GUARD_FAILED, '42P01', '42703'])

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

function guardCall({ layout, keyId, keyStamp }: Guard): Call {
  return { statement: GUARD, values: [layout.branchId, layout.stamp, keyId, keyStamp] }
}

const plain = (statement: Statement): Call => ({ statement, values: [] })

function translate(error: unknown, guard: Guard): unknown {
  const code = codeOf(error)
  if (code !== undefined && STALE_CODES.has(code)) return new StaleError(code)
  // Whatever else failed came after the guard.
  if (code !== undefined && isSqlState(code)) guard.passed = true
  return error
}

/** Runs reads in one round trip; each sees what was committed when it started. */
export async function runReads(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  const client = await database.pool.connect()
  let broken: Error | undefined
  try {
    const [, ...rows] = await runPipeline(client, [guardCall(guard), ...calls])
    guard.passed = true
    return rows
  } catch (error) {
    broken = brokenConnection(error)
    throw toAppError(translate(error, guard))
  } finally {
    client.release(broken)
  }
}

/** Runs writes that cannot be refused half-way: the whole transaction is one round trip. */
export function runWrites(
  database: Database,
  guard: Guard,
  calls: readonly Call[],
): Promise<TextRows[]> {
  return retrying(async () => {
    const client = await database.pool.connect()
    return finishing(client, guard, async () => {
      const rows = await runPipeline(client, [
        plain(BEGIN),
        enterGateCall(guard.layout.gate),
        guardCall(guard),
        ...calls,
        plain(COMMIT),
      ])
      return rows.slice(3, -1)
    })
  })
}

/** A transaction behind the gate, open for more. */
export interface OpenTransaction {
  readonly client: pg.PoolClient
  run(calls: readonly Call[]): Promise<TextRows[]>
}

/**
 * Runs a transaction in several steps. `body` may run more than once, with nothing left of the
 * earlier attempts; what it throws is rolled back.
 */
export function runSteps<Result>(
  database: Database,
  guard: Guard,
  body: (transaction: OpenTransaction, first: readonly TextRows[]) => Promise<Result>,
  options: { first?: readonly Call[]; isLong?: boolean; isOnce?: boolean } = {},
): Promise<Result> {
  const attempt = async () => {
    const client = await database.pool.connect()
    return finishing(client, guard, async () => {
      const opening = [
        plain(BEGIN),
        enterGateCall(guard.layout.gate),
        guardCall(guard),
        ...(options.isLong ? [plain(NO_TIMEOUT)] : []),
      ]
      const rows = await runPipeline(client, [...opening, ...(options.first ?? [])])
      guard.passed = true
      const transaction = { client, run: (calls: readonly Call[]) => runPipeline(client, calls) }
      const result = await body(transaction, rows.slice(opening.length))
      await runPipeline(client, [plain(COMMIT)])
      return result
    })
  }
  return options.isOnce
    ? attempt().catch((error) => Promise.reject(toAppError(error)))
    : retrying(attempt)
}

async function retrying<Result>(attempt: () => Promise<Result>): Promise<Result> {
  for (let count = 1; ; count++) {
    try {
      return await attempt()
    } catch (error) {
      if (!isRetryable(error) || count === ATTEMPTS_MAX) throw toAppError(error)
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
  try {
    const result = await body()
    guard.passed = true
    return result
  } catch (error) {
    broken = brokenConnection(error)
    if (broken === undefined) {
      try {
        await client.query('rollback')
      } catch (rollbackError) {
        broken = rollbackError as Error
      }
    }
    throw translate(error, guard)
  } finally {
    client.release(broken)
  }
}

/** Errors with a SQLSTATE were reported over a connection that works; others were not. */
function brokenConnection(error: unknown): Error | undefined {
  const code = codeOf(error)
  if (code !== undefined && isSqlState(code) && !code.startsWith('57P')) return undefined
  // Refusals of our own leave the connection as it is.
  if (error instanceof Error && (error.name === 'AppError' || error instanceof StaleError)) {
    return undefined
  }
  return error instanceof Error ? error : new Error('unknown failure')
}

/** System errors are five letters long too, but have no digit. */
function isSqlState(code: string): boolean {
  return /^[0-9A-Z]{5}$/.test(code) && /\d/.test(code)
}
